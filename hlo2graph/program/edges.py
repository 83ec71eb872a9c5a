"""The edges between thunks: the fewest that keep every hazard in program order.

In: thunks over slices, in program order. Out: for each, the thunks it must wait for, transitively
reduced; each edge says which hazard it keeps and in which bytes. A loop or conditional is one node
to its neighbours, with the union of what is used inside; its nested sequences get edges of their
own, for one iteration: an iteration as a whole follows the one before.

Why the last writer and the readers since suffice: whoever touched the bytes earlier precedes one
of those already. And an edge kept when its target was appended stays needed, since every later
path leads into a later thunk; so appending one thunk at a time builds the same graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from hlo2graph.program.byte_map import ByteMap
from hlo2graph.program.order import OutsideOrder, PartialOrder
from hlo2graph.program.thunks import (
    Conditional,
    Edge,
    Hazard,
    Sequence,
    Slice,
    Thunk,
    While,
)
from hlo2graph.program.uses import reads, writes

Labels: TypeAlias = Mapping[tuple[str, Slice], Hazard]
"""(thunk, slice it writes) -> REUSE or INPLACE where the slice was shared only to save memory."""

NO_LABELS: Labels = MappingProxyType({})
SERIALIZE = "serialize"

# Of several reasons for an edge, the one that would stand longest: what the program says before
# what its buffers ask for, and last what only saving memory made necessary.
RANK = {
    hazard: rank
    for rank, hazard in enumerate(
        (
            Hazard.RAW,
            Hazard.CONTROL,
            Hazard.EFFECT,
            Hazard.WAR,
            Hazard.WAW,
            Hazard.INPLACE,
            Hazard.REUSE,
            Hazard.ORDER,
        )
    )
}

_Reason: TypeAlias = tuple[Hazard, Slice | None]

Conflict: TypeAlias = tuple[Hazard, Slice]
"""A hazard between two thunks, and a run of bytes that it is about."""


class EdgeBuilder:
    """Takes one thunk at a time and returns the edges into it."""

    def __init__(self, labels: Labels = NO_LABELS, schedule: str = "concurrent") -> None:
        self._labels = labels
        self._serial = schedule == SERIALIZE
        self._bytes: defaultdict[int, ByteMap] = defaultdict(ByteMap)
        self._order = PartialOrder()
        self._outside = OutsideOrder()

    def append(self, thunk: Thunk[Slice]) -> tuple[Edge, ...]:
        """Append `thunk`; return its incoming edges, the nearest source first."""
        at = len(self._order)
        found = self.conflicts(at, thunk)
        for src, control in self._outside.append(thunk).items():
            found[src].append((Hazard.CONTROL if control else Hazard.EFFECT, None))
        if self._serial and at > 0:
            found[at - 1].append((Hazard.ORDER, None))
        return tuple(_edge(src, at, found[src]) for src in self._order.join(found))

    def conflicts(self, at: int, thunk: Thunk[Slice]) -> defaultdict[int, list[_Reason]]:
        """Let thunk `at` use its bytes; return by earlier thunk what it conflicts with it about."""
        found: defaultdict[int, list[_Reason]] = defaultdict(list)
        for used in reads(thunk):
            if used.size:
                for src, hazard, start, end in self._bytes[used.allocation].read(at, used):
                    found[src].append((hazard, Slice(used.allocation, start, end - start)))
        for used in writes(thunk):
            if used.size:
                label = self._labels.get((thunk.name, used))
                for src, hazard, start, end in self._bytes[used.allocation].write(at, used):
                    bytes_ = Slice(used.allocation, start, end - start)
                    found[src].append((label or hazard, bytes_))
        return found


def build_edges(
    thunks: Iterable[Thunk[Slice]], *, labels: Labels = NO_LABELS, schedule: str = "concurrent"
) -> tuple[Edge, ...]:
    """Return the transitively reduced edges of one sequence, ordered by target.

    `schedule` is concurrent, or serialize for a chain in program order. Time is near-linear in
    the slices used, plus n/64 machine words for each edge to work out what it implies.
    """
    builder = EdgeBuilder(labels, schedule)
    return tuple(edge for thunk in thunks for edge in builder.append(thunk))


def conflicts_of(thunks: Iterable[Thunk[Slice]]) -> dict[tuple[int, int], list[Conflict]]:
    """Return for each two thunks, by position, all that makes one wait for the other's bytes.

    An edge shows only the longest run of one hazard. What only saving memory has brought about is
    war or waw here.
    """
    builder = EdgeBuilder()
    found: dict[tuple[int, int], list[Conflict]] = {}
    for at, thunk in enumerate(thunks):
        for src, reasons in builder.conflicts(at, thunk).items():
            found[src, at] = [
                (hazard, run)
                for hazard in (Hazard.RAW, Hazard.WAR, Hazard.WAW)
                for run in _runs(s for h, s in reasons if h is hazard and s is not None)
            ]
    return found


def with_edges(
    sequence: Sequence[Slice], *, labels: Labels = NO_LABELS, schedule: str = "concurrent"
) -> Sequence[Slice]:
    """Return `sequence` with its edges, nested sequences with theirs."""

    def inside(thunk: Thunk[Slice]) -> Thunk[Slice]:
        match thunk:
            case While():
                return replace(thunk, condition=again(thunk.condition), body=again(thunk.body))
            case Conditional():
                return replace(thunk, branches=tuple(map(again, thunk.branches)))
            case _:
                return thunk

    def again(inner: Sequence[Slice]) -> Sequence[Slice]:
        return with_edges(inner, labels=labels, schedule=schedule)

    edges = build_edges(sequence.thunks, labels=labels, schedule=schedule)
    return replace(sequence, thunks=tuple(map(inside, sequence.thunks)), edges=edges)


def _edge(src: int, dst: int, reasons: list[_Reason]) -> Edge:
    hazard = min((hazard for hazard, _ in reasons), key=RANK.__getitem__)
    runs = _runs(s for h, s in reasons if h is hazard and s is not None)
    return Edge(src, dst, hazard, max(runs, key=lambda run: run.size, default=None))


def _runs(ranges: Iterable[Slice]) -> list[Slice]:
    """Return the runs of bytes that `ranges` make together, in order."""
    runs: list[Slice] = []
    for found in sorted(ranges):
        last = runs[-1] if runs else None
        if last and found.allocation == last.allocation and found.offset <= last.end:
            runs[-1] = Slice(last.allocation, last.offset, max(last.end, found.end) - last.offset)
        else:
            runs.append(found)
    return runs
