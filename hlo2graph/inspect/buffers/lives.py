"""The values of a plan: who makes each, where it lies, and from which thunk to which it is needed.

A plan has slices, not values: what a thunk writes is a value until its bytes are overwritten, and
it is needed until the last thunk that reads it. Thunks are given by their ids. What a loop or
branch uses from outside counts for the thunk as a whole; what is made inside has ids from inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hlo2graph.hlo import Computation
from hlo2graph.inspect.buffers.names import names_of
from hlo2graph.inspect.ranges import Ranges
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.thunks import Conditional, Library, Slice, Thunk, While
from hlo2graph.program.uses import reads, writes


@dataclass(frozen=True, slots=True)
class Life:
    """One value.

    born: the id of the thunk that makes it, None for what is there before the first.
    last: the id of the last thunk that needs it, None where that is `born` or nobody.
    kept: it is a result of its sequence.
    """

    name: str
    slice: Slice
    born: int | None
    last: int | None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Lives:
    """The values of one sequence; `where` says what holds it, '' for the plan's body.

    outside: the slices that it reads of values made around it.
    """

    where: str
    numbered: Numbered
    values: tuple[Life, ...]
    inside: tuple[tuple[int, Lives], ...]  # by the id of the thunk that holds them
    outside: tuple[Slice, ...]

    def walk(self) -> Iterator[Lives]:
        """Yield this and all inside."""
        yield self
        for _, lives in self.inside:
            yield from lives.walk()


def lives_of(plan: Plan) -> Lives:
    """Return every value of the plan, those of nested sequences too."""
    given = [(bound.name, bound.slice) for bound in plan.inputs]
    for index, held in enumerate(plan.allocations):
        if held.kind is AllocationKind.CONSTANT:
            given.append((held.owner or f"constant {index}", Slice(index, 0, held.size)))
    return _lives(number(plan.body), "", given, plan.computations)


def _lives(
    numbered: Numbered,
    where: str,
    given: list[tuple[str, Slice]],
    computations: Mapping[str, Computation],
) -> Lives:
    held = _Held()
    for name, place in given:
        held.make(name, place, None)
    inside: list[tuple[int, Lives]] = []
    for id, thunk in numbered:
        taken = list(_taken(thunk))
        for label, inner in numbered.nested(id):
            below = "/".join(part for part in (where, thunk.name, label) if part)
            state = [(f"state {k}", place) for k, place in enumerate(inner.sequence.params)]
            lives = _lives(inner, below, state, computations)
            inside.append((id, lives))
            taken += lives.outside
        for place in dict.fromkeys(taken):
            held.need(place, id)
        for name, place in _made(thunk, computations):
            held.make(name, place, id)
    for place in numbered.sequence.results:
        held.keep(place)
    outside = tuple(dict.fromkeys(held.outside))
    return Lives(where, numbered, tuple(held.values), tuple(inside), outside)


class _Held:
    """The values of one sequence so far, and where they lie."""

    def __init__(self) -> None:
        self.values: list[Life] = []
        self.outside: list[Slice] = []
        self._bytes: defaultdict[int, Ranges] = defaultdict(Ranges)

    def make(self, name: str, place: Slice, born: int | None) -> None:
        """Let a thunk write a value."""
        self.values.append(Life(name, place, born, None))
        self._bytes[place.allocation].put(place, len(self.values) - 1)

    def need(self, place: Slice, id: int) -> None:
        """Let thunk `id` read what lies there."""
        for index in self._find(place):
            self.values[index] = replace(self.values[index], last=id)

    def keep(self, place: Slice) -> None:
        """Let what lies there be a result."""
        for index in self._find(place):
            self.values[index] = replace(self.values[index], kept=True)

    def _find(self, place: Slice) -> set[int]:
        found = self._bytes[place.allocation].meeting(place)
        if sum(size for _, size in found) < place.size:
            self.outside.append(place)
        return {value for value, _ in found}


def _taken(thunk: Thunk[Slice]) -> tuple[Slice, ...]:
    """Return what a thunk itself reads; what is nested reads more."""
    match thunk:
        case While():
            return thunk.inits
        case Conditional():
            return (thunk.selector,)
        case _:
            return reads(thunk)


def _made(
    thunk: Thunk[Slice], computations: Mapping[str, Computation]
) -> Iterator[tuple[str, Slice]]:
    """Yield what a thunk makes for those behind it, with names; scratch too."""
    match thunk:
        case While() | Conditional():
            places = tuple(dict.fromkeys(thunk.results))
        case Library():
            places = thunk.writes
        case _:
            places = writes(thunk)
    yield from zip(names_of(thunk, len(places), computations), places, strict=True)
    if isinstance(thunk, Library):
        for place in thunk.workspace:
            yield f"{thunk.name} workspace", place
