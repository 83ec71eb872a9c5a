"""Where each value of a Program is born and used, seen from every sequence that it crosses.

A scope is one sequence; the program's own is scope 0. Inside a scope a time is a position in its
thunks: START for what is there before the first, END for what must be there after the last. A
value used in a nested sequence is also used, one scope further out, by the loop or conditional
around it, and so on up to the scope that it was born in, its home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import nested

START = -1


@dataclass(slots=True)
class Scope:
    """A sequence, and the thunk `at` of scope `parent` that it belongs to."""

    sequence: Sequence[Value]
    parent: int
    at: int
    children: dict[int, list[int]] = field(default_factory=dict)  # position -> nested scopes

    @property
    def end(self) -> int:
        """The time after its last thunk."""
        return len(self.sequence.thunks)


@dataclass(slots=True)
class Uses:
    """For each value id: its home scope, its birth there, and in each scope its use times.

    `times` ascend and include the birth.
    """

    scopes: list[Scope] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)
    home: dict[int, int] = field(default_factory=dict)
    times: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    def bear(self, value: Value, scope: int, at: int) -> None:
        """Note that `value` comes into being."""
        assert value.id not in self.home, f"value {value.id} is written twice"
        self.values[value.id] = value
        self.home[value.id] = scope
        self.times[value.id] = {scope: [at]}

    def use(self, value: Value, scope: int, at: int) -> None:
        """Note a use, here and in every scope out to the value's home."""
        home = self.home[value.id]
        crossed = self.times[value.id]
        while True:
            times = crossed.setdefault(scope, [])
            if not times or times[-1] != at:
                times.append(at)
            if scope == home:
                return
            scope, at = self.scopes[scope].parent, self.scopes[scope].at

    def common(self, a: int, b: int) -> int:
        """Return the innermost scope around scopes `a` and `b`; scopes are numbered outside in."""
        while a != b:
            if a > b:
                a = self.scopes[a].parent
            else:
                b = self.scopes[b].parent
        return a

    def entry(self, scope: int, outer: int) -> tuple[int, int]:
        """Return where `scope`, somewhere inside `outer`, begins: (position in outer, child)."""
        while self.scopes[scope].parent != outer:
            scope = self.scopes[scope].parent
        return self.scopes[scope].at, scope

    def seen_from(self, value: int, scope: int) -> list[int]:
        """Return the use times of `value` in `scope`, its home or a scope around that."""
        home = self.home[value]
        return self.times[value][scope] if home == scope else [self.entry(home, scope)[0]]

    def walk(self, scope: int = 0) -> Iterator[tuple[int, int, Thunk[Value]]]:
        """Yield (scope, position, thunk) in program order, what is nested before its thunk."""
        for at, thunk in enumerate(self.scopes[scope].sequence.thunks):
            for child in self.scopes[scope].children.get(at, ()):
                yield from self.walk(child)
            yield scope, at, thunk


def find_uses(program: Program) -> Uses:
    """Return the births and uses of every value of `program`."""
    found = Uses()
    found.scopes.append(Scope(program.body, -1, 0))
    for value in (*program.body.params, *(value for value, _ in program.constants)):
        found.bear(value, 0, START)
    _visit(found, 0)
    return found


def _visit(found: Uses, number: int) -> None:
    scope = found.scopes[number]
    for at, thunk in enumerate(scope.sequence.thunks):
        for _, inner in nested(thunk):
            child = len(found.scopes)
            found.scopes.append(Scope(inner, number, at))
            scope.children.setdefault(at, []).append(child)
            for value in inner.params:
                found.bear(value, child, START)
            _visit(found, child)
            if isinstance(thunk, While) and inner is thunk.condition:
                for value in inner.params:  # the body needs the state that the condition saw
                    found.use(value, child, found.scopes[child].end)
        for value in own_reads(thunk):
            found.use(value, number, at)
        for value in own_writes(thunk):
            found.bear(value, number, at)
    for value in scope.sequence.results:
        found.use(value, number, scope.end)


def own_reads(thunk: Thunk[Value]) -> tuple[Value, ...]:
    """Return what `thunk` itself reads, what is nested in it left out."""
    match thunk:
        case Kernel() | Library() | Collective():
            return thunk.reads
        case Copy():
            return (thunk.source,)
        case Fill():
            return ()
        case While():
            return thunk.inits
        case Conditional():
            return (thunk.selector,)
        case _:
            assert_never(thunk)


def own_writes(thunk: Thunk[Value]) -> tuple[Value, ...]:
    """Return what `thunk` itself writes, what is nested in it left out."""
    match thunk:
        case Kernel() | Collective():
            return thunk.writes
        case Library():
            return (*thunk.writes, *thunk.workspace)
        case Copy() | Fill():
            return (thunk.target,)
        case While() | Conditional():
            return thunk.results
        case _:
            assert_never(thunk)
