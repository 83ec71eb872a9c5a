"""Values that live at one place: a class of them is one buffer.

First what a program's structure makes one (loop state, the results of branches, donated
parameters), then what may be written in place. `place_copies` has seen to it that the former is
always legal; `overwrite` adds the latter where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo2graph.program.buffers.scopes import Uses
from hlo2graph.program.plan import AllocationKind
from hlo2graph.program.thunks import Conditional, Program, Thunk, Value, While

_OWN = (AllocationKind.PARAMETER, AllocationKind.CONSTANT)


@dataclass(slots=True, eq=False)
class Buffer:
    """The values of one class. `live` are those that a value born later can still collide with."""

    members: list[int]
    live: list[int]
    size: int
    kind: AllocationKind = AllocationKind.TEMP
    donated: bool = False  # a parameter that a result may overwrite
    elementwise: bool = False  # whole values have been overwritten in place

    @property
    def is_given(self) -> bool:
        """A parameter or constant whose bytes nothing may write."""
        return self.kind in _OWN and not self.donated


@dataclass(slots=True)
class Buffers:
    """The buffer of each value id."""

    of: dict[int, Buffer] = field(default_factory=dict)

    def merge(self, a: int, b: int) -> None:
        """Let the buffers of `a` and `b` be one."""
        into, gone = self.of[a], self.of[b]
        if into is gone:
            return
        if len(into.members) < len(gone.members):
            into, gone = gone, into
        assert into.size == gone.size, "only values of one size share a buffer"
        kinds = {into.kind, gone.kind} - {AllocationKind.TEMP}
        if kinds == {AllocationKind.PARAMETER, AllocationKind.LIVE_OUT}:
            into.donated = True
            into.kind = AllocationKind.PARAMETER
        else:
            assert len(kinds) <= 1, f"a buffer cannot be both {' and '.join(sorted(kinds))}"
            into.kind = next(iter(kinds), AllocationKind.TEMP)
            into.donated |= gone.donated
        into.elementwise |= gone.elementwise
        into.members += gone.members
        into.live += gone.live
        self.of.update((member, into) for member in gone.members)

    def all(self) -> list[Buffer]:
        """Return every buffer once, in the order in which their first values are born."""
        return list({id(b): b for b in self.of.values()}.values())


def structural_buffers(program: Program, uses: Uses) -> Buffers:
    """Return the buffers that the program's structure asks for."""
    buffers = Buffers()
    for number, value in uses.values.items():
        buffers.of[number] = Buffer([number], [number], value.shape.size)
    given_back = {program.body.params[alias.input].id for alias in program.aliases}
    for kind, values in (
        (AllocationKind.PARAMETER, program.body.params),
        (AllocationKind.CONSTANT, [value for value, _ in program.constants]),
        (AllocationKind.LIVE_OUT, program.body.results),
    ):
        for value in values:
            buffer = buffers.of[value.id]
            if kind is AllocationKind.LIVE_OUT and value.id in given_back:
                buffer.donated = True
                continue
            assert buffer.kind is AllocationKind.TEMP, f"{value} lives at two places"
            buffer.kind = kind
    for scope in uses.scopes:
        for thunk in scope.sequence.thunks:
            for first, *others in _one_place(thunk):
                for other in others:
                    buffers.merge(first.id, other.id)
    return buffers


def _one_place(thunk: Thunk[Value]) -> list[tuple[Value, ...]]:
    """Return the groups of values that `thunk` keeps at one place each."""
    match thunk:
        case While():
            body, condition = thunk.body, thunk.condition
            rows = (thunk.inits, body.params, body.results, condition.params, thunk.results)
            return list(zip(*rows, strict=True))
        case Conditional():
            branches = [branch.results for branch in thunk.branches]
            return list(zip(thunk.results, *branches, strict=True))
        case _:
            return []
