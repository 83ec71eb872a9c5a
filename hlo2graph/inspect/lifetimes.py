"""Which bytes of the temporaries hold which value from when to when, in program order.

A thunk's time is its place in program order, nested thunks in place, a loop's once. What a loop
reads of the round before, or of the thunks around it, is held all through the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo2graph.inspect.ranges import Ranges
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.thunks import Conditional, Slice, Thunk, While
from hlo2graph.program.uses import reads, writes


@dataclass(slots=True)
class Held:
    """A value: its bytes, the id of the thunk that writes it, and the first and last time."""

    slice: Slice
    thunk: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Values of temporaries in order of their first time; ids of thunks in program order."""

    values: tuple[Held, ...]
    order: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...]  # times, and bytes whose last reader writes over them

    def live_bytes(self) -> list[int]:
        """Return, for each time, the bytes that hold a value."""
        steps = [0] * (len(self.order) + 1)
        for time, size in self.in_place:
            steps[time] -= size
            steps[time + 1] += size
        for value in self.values:
            steps[value.first] += value.slice.size
            steps[value.last + 1] -= value.slice.size
        total = 0
        return [total := total + step for step in steps[:-1]]


def lifetimes(plan: Plan) -> Lifetimes:
    """Return the values of a plan's temporaries."""
    temps = {
        index
        for index, allocation in enumerate(plan.allocations)
        if allocation.kind is AllocationKind.TEMP
    }
    walk = _Walk(temps)
    walk.through(number(plan.body))
    for result in plan.body.results:
        walk.read(result)
    return Lifetimes(tuple(walk.values), tuple(walk.order), tuple(walk.in_place))


@dataclass(slots=True)
class _Loop:
    """A loop under way: when it began, and what it found there and read."""

    began: int
    found: list[Slice] = field(default_factory=list)


class _Walk:
    def __init__(self, temps: set[int]) -> None:
        self.values: list[Held] = []
        self.order: list[int] = []
        self.in_place: list[tuple[int, int]] = []
        self._bytes = {index: Ranges() for index in temps}
        self._loops: list[_Loop] = []

    def through(self, numbered: Numbered) -> None:
        for id, thunk in numbered:
            self.order.append(id)
            match thunk:
                case While():
                    self._loop(numbered, id, thunk)
                case Conditional():
                    self._branches(numbered, id, thunk)
                case _:
                    self._step(id, thunk)

    def _step(self, id: int, thunk: Thunk[Slice]) -> None:
        for used in reads(thunk):
            self.read(used)
        for used in writes(thunk):
            self._write(id, used)

    def _loop(self, numbered: Numbered, id: int, loop: While[Slice]) -> None:
        for used in loop.inits:
            self.read(used)
        self._loops.append(_Loop(len(self.values)))
        for _, inner in numbered.nested(id):
            self.through(inner)
            for used in inner.sequence.results:
                self.read(used)
        for used in self._loops.pop().found:  # what the next round reads, the last one too
            self.read(used)

    def _branches(self, numbered: Numbered, id: int, conditional: Conditional[Slice]) -> None:
        self.read(conditional.selector)
        before = {index: held.copy() for index, held in self._bytes.items()}
        ends: list[int] = []
        for _, inner in numbered.nested(id):
            self._bytes = {index: held.copy() for index, held in before.items()}
            self.through(inner)
            ends += [v for used in inner.sequence.results for v in self._holders(used)]
        for value in ends:
            self.values[value].last = len(self.order) - 1

    def read(self, used: Slice) -> None:
        for value in self._holders(used):
            held = self.values[value]
            held.last = len(self.order) - 1
            for loop in self._loops:
                if value < loop.began:
                    loop.found.append(used)

    def _holders(self, used: Slice) -> list[int]:
        ranges = self._bytes.get(used.allocation)
        if ranges is None or not used.size:
            return []
        return [value for value, _ in ranges.meeting(used)]

    def _write(self, id: int, used: Slice) -> None:
        ranges = self._bytes.get(used.allocation)
        if ranges is not None and used.size:
            now = len(self.order) - 1
            met = ranges.meeting(used)
            if both := sum(size for value, size in met if self.values[value].last == now):
                self.in_place.append((now, both))
            ranges.put(used, len(self.values))
            self.values.append(Held(used, id, now, now))
