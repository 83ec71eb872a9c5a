"""How a sequence's thunks are parted into graphs and what is enqueued by itself.

A valid order of the thunks, by their edges, in which those that graphs may hold come in as few runs
as can be; what is in a run too small for a graph of its own joins a later one where the edges
allow that, and else is enqueued by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import TypeAlias

from hlo2graph.backends.cuda.partial.policy import Judge, Policy, walk_of
from hlo2graph.backends.cuda.unroll import known_rounds
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Edge, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, writes


@dataclass(frozen=True, slots=True)
class Region:
    """Thunks that one graph holds, with the edges between them.

    Where there are loops, which may be written out, its results are all that others read.
    """

    sequence: Sequence[Slice]


@dataclass(frozen=True, slots=True)
class Alone:
    """A thunk that no graph holds, and why."""

    thunk: Thunk[Slice]
    why: str


Part: TypeAlias = Region | Alone


@dataclass(frozen=True, slots=True)
class Cutter:
    """Parts the sequences of a plan by a policy."""

    plan: Plan
    policy: Policy

    def parts(self, sequence: Sequence[Slice]) -> tuple[Part, ...]:
        """Return regions and lone thunks in the order in which they run."""
        judge, least = Judge(self.plan, self.policy), self.policy.least
        whys = [judge.why_not(thunk) for thunk in sequence.thunks]
        sizes = [thunks_of(thunk) for thunk in sequence.thunks]
        waits: list[list[int]] = [[] for _ in sequence.thunks]
        for edge in sequence.edges:
            waits[edge.dst].append(edge.src)
        found: list[Part] = []
        for is_held, run in arranged(waits, [not why for why in whys], sizes, least):
            if is_held:
                found.append(Region(_within(sequence, run)))
                continue
            small = f"would be in a graph of fewer than {least} thunks"
            found += [Alone(sequence.thunks[k], whys[k] or small) for k in run]
        return tuple(found)

    def regions(self, sequence: Sequence[Slice]) -> Iterator[Region]:
        """Yield the regions of `sequence`, and of those nested in its lone thunks."""
        for _, part in self.walk(sequence):
            if isinstance(part, Region):
                yield part

    def walk(self, sequence: Sequence[Slice], where: str = "") -> Iterator[tuple[str, Part]]:
        """Yield all parts that run, each with its place; those nested in a lone thunk follow it."""
        for part in self.parts(sequence):
            yield where, part
            if isinstance(part, Alone):
                home = f"{where}/{part.thunk.name}" if where else part.thunk.name
                for label, inner in _running(part.thunk):
                    yield from self.walk(inner, f"{home}/{label}")

    def holds_all(self) -> bool:
        """The whole plan is one graph."""
        if self.policy == Policy():
            return True
        parts = self.parts(self.plan.body)
        return not parts or (len(parts) == 1 and isinstance(parts[0], Region))


def _running(thunk: Thunk[Slice]) -> tuple[tuple[str, Sequence[Slice]], ...]:
    """Return the sequences inside a lone thunk that run."""
    asked = unasked(thunk)
    return tuple((label, inner) for label, inner in nested(thunk) if inner is not asked)


def unasked(thunk: Thunk[Slice]) -> Sequence[Slice] | None:
    """Return the condition of a lone loop whose rounds are known, which runs nowhere."""
    if isinstance(thunk, While) and known_rounds(thunk, thunk.body) is not None:
        return thunk.condition
    return None


def thunks_of(thunk: Thunk[Slice]) -> int:
    """Return how many thunks there are in `thunk`, itself included, that write anything."""
    return sum(any(w.size for w in writes(inner)) for inner in walk_of(thunk))


def arranged(
    waits: Several[Several[int]], held: Several[bool], sizes: Several[int], least: int
) -> Iterator[tuple[bool, list[int]]]:
    """Yield runs of positions that together are a valid order, and whether a graph holds them.

    Position k waits for waits[k], all before it. A run that graphs hold is of `least` or more, by
    `sizes`. Whether the first run is one is tried both ways: that in which graphs hold more is
    taken, or else that of fewer graphs.
    """
    tried = [_Phases(waits, list(held), sizes, least, first) for first in (False, True)]
    best = min(tried, key=lambda phases: (-phases.holds, phases.graphs))
    runs: dict[int, list[int]] = {}
    for k, phase in enumerate(best.at):
        runs.setdefault(phase, []).append(k)
    for phase, run in sorted(runs.items()):
        yield best.is_held(phase), run


class _Phases:
    """A phase for each position: those that graphs hold and those of lone thunks take turns."""

    def __init__(
        self,
        waits: Several[Several[int]],
        held: list[bool],
        sizes: Several[int],
        least: int,
        first: bool,
    ) -> None:
        self._waits, self._held, self._sizes, self._first = waits, held, sizes, first
        self._follows: list[list[int]] = [[] for _ in waits]
        for k, before in enumerate(waits):
            for b in before:
                self._follows[b].append(k)
        self.at = self._earliest()
        while small := self._small(least):
            self._put_off(small)
            left = self._small(least)
            for members in left.values():
                for k in members:
                    held[k] = False
            if left:
                self.at = self._earliest()

    @property
    def graphs(self) -> int:
        return len(self._members())

    @property
    def holds(self) -> int:
        return sum(size for size, held in zip(self._sizes, self._held, strict=True) if held)

    def is_held(self, phase: int) -> bool:
        return (phase % 2 == 0) == self._first

    def _earliest(self) -> list[int]:
        found: list[int] = []
        for k, before in enumerate(self._waits):
            phase = max((found[b] + (self._held[b] != self._held[k]) for b in before), default=0)
            found.append(phase + (self.is_held(phase) != self._held[k]))
        return found

    def _members(self) -> dict[int, list[int]]:
        """Return the positions in each phase that graphs hold."""
        found: dict[int, list[int]] = {}
        for k, phase in enumerate(self.at):
            if self._held[k]:
                found.setdefault(phase, []).append(k)
        return found

    def _small(self, least: int) -> dict[int, list[int]]:
        return {
            phase: members
            for phase, members in self._members().items()
            if sum(self._sizes[k] for k in members) < least
        }

    def _put_off(self, small: dict[int, list[int]]) -> None:
        """Move what is in these phases to the last that it may be in and that is there."""
        there = sorted(self._members())
        for _, members in sorted(small.items()):
            for k in reversed(members):
                last = min((self.at[f] - (not self._held[f]) for f in self._follows[k]), default=-1)
                at = bisect_right(there, last) - 1 if self._follows[k] else -1
                self.at[k] = max(self.at[k], there[at])


def _within(sequence: Sequence[Slice], run: list[int]) -> Sequence[Slice]:
    place = {k: at for at, k in enumerate(run)}
    edges = tuple(
        Edge(place[e.src], place[e.dst], e.hazard, e.slice)
        for e in sequence.edges
        if e.src in place and e.dst in place
    )
    thunks = tuple(sequence.thunks[k] for k in run)
    if not any(nested(thunk) for thunk in thunks):
        return Sequence(thunks, edges=edges)
    outside = (r for k, t in enumerate(sequence.thunks) if k not in place for r in reads(t))
    return Sequence(
        thunks, results=tuple(dict.fromkeys((*sequence.results, *outside))), edges=edges
    )
