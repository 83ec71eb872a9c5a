"""Whether the edges of one sequence order what must be ordered, and say nothing else.

The bytes of every allocation are cut wherever a slice begins or ends. In program order, each piece
knows who wrote it last and who has read it since: a reader must come behind that writer, a writer
behind those readers, or behind that writer where there are none. All other pairs in conflict follow
from these along a path. Reachability is by sets of ancestors, kept as the bits of integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hlo2graph.inspect.check.finding import Finding, Kind
from hlo2graph.program.order import has_effect
from hlo2graph.program.thunks import Edge, Hazard, Sequence, Slice, Thunk
from hlo2graph.program.uses import reads, writes

SERIALIZE = "serialize"


def check_order(sequence: Sequence[Slice], where: str, schedule: str) -> Iterator[Finding]:
    """Yield pairs in conflict that no path orders, edges that others imply, edges without cause.

    Under the serialize `schedule` each thunk must follow the one before it.
    """
    yield from _Order(sequence, where, schedule).findings()


@dataclass(slots=True)
class _Piece:
    """Bytes that every slice holds whole or not at all."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _Pieces:
    """The pieces of one allocation."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self.cuts = sorted({end for s in slices for end in (s.offset, s.end)})
        self._pieces = [_Piece() for _ in self.cuts]

    def of(self, wanted: Slice) -> Iterator[tuple[Slice, _Piece]]:
        """Yield the pieces that `wanted` is made of."""
        at = bisect_left(self.cuts, wanted.offset)
        while self.cuts[at] < wanted.end:
            start, end = self.cuts[at], self.cuts[at + 1]
            yield Slice(wanted.allocation, start, end - start), self._pieces[at]
            at += 1


class _Order:
    def __init__(self, sequence: Sequence[Slice], where: str, schedule: str) -> None:
        self.thunks, self.where = sequence.thunks, where
        self.is_serial = schedule == SERIALIZE
        self.edges_into: defaultdict[int, list[Edge]] = defaultdict(list)
        self.followers: defaultdict[int, int] = defaultdict(int)
        for edge in sequence.edges:
            self.edges_into[edge.dst].append(edge)
            self.followers[edge.src] += 1
        used: defaultdict[int, list[Slice]] = defaultdict(list)
        for thunk in sequence.thunks:
            for touched in (*reads(thunk), *writes(thunk)):
                if touched.size:
                    used[touched.allocation].append(touched)
        self.pieces = {index: _Pieces(slices) for index, slices in used.items()}
        self.position = {thunk.name: at for at, thunk in enumerate(sequence.thunks)}
        self.ancestors: dict[int, int] = {}  # of thunks that some later edge still leaves

    def findings(self) -> Iterator[Finding]:
        effect: int | None = None
        for at, thunk in enumerate(self.thunks):
            before = self._ancestors(at)
            yield from self._edges(at)
            for (source, hazard), shared in self._needed(at, thunk).items():
                if not before >> source & 1:
                    yield self._unordered(source, at, hazard, shared)
            yield from self._said(at, thunk, before)
            if has_effect(thunk):
                if effect is not None and not before >> effect & 1:
                    yield self._unordered(effect, at, Hazard.EFFECT, [])
                effect = at
            if self.is_serial and at and not before >> (at - 1) & 1:
                yield self._unordered(at - 1, at, Hazard.ORDER, [])
            self._forget(at, before)

    def _ancestors(self, at: int) -> int:
        found = 0
        for edge in self.edges_into[at]:
            if edge.src < at:
                found |= self.ancestors[edge.src] | 1 << edge.src
        return found

    def _forget(self, at: int, before: int) -> None:
        """Keep the ancestors of `at` while an edge leaves it, and of its sources no longer."""
        if self.followers[at]:
            self.ancestors[at] = before
        for edge in self.edges_into[at]:
            self.followers[edge.src] -= 1
            if not self.followers[edge.src]:
                self.ancestors.pop(edge.src, None)

    def _edges(self, at: int) -> Iterator[Finding]:
        for edge in self.edges_into[at]:
            name = f"the edge {self._names(edge.src, at)}"
            if edge.src >= at:
                yield self._finding(Kind.BASELESS, at, f"{name} goes back in program order")
                continue
            implied = next(
                (e.src for e in self.edges_into[at] if self._is_behind(edge.src, e.src, at)), None
            )
            if implied is not None:
                way = f"{name} says nothing new: the path through {self.thunks[implied].name} does"
                yield self._finding(Kind.REDUNDANT, at, way)
            elif not self._has_cause(edge):
                text = f"{name} says {edge.hazard}, which does not hold between them"
                yield self._finding(Kind.BASELESS, at, text)

    def _has_cause(self, edge: Edge) -> bool:
        source, target = self.thunks[edge.src], self.thunks[edge.dst]
        match edge.hazard:
            case Hazard.CONTROL:
                return source.name in target.after
            case Hazard.EFFECT:
                return has_effect(source) and has_effect(target)
            case Hazard.ORDER:
                return self.is_serial
            case _:
                return _share(source, target)

    def _is_behind(self, source: int, other: int, at: int) -> bool:
        return source < other < at and bool(self.ancestors[other] >> source & 1)

    def _needed(self, at: int, thunk: Thunk[Slice]) -> dict[tuple[int, Hazard], list[Slice]]:
        """Return whom `thunk` must follow, and the bytes for which; note what it touches."""
        found: defaultdict[tuple[int, Hazard], list[Slice]] = defaultdict(list)
        for read in reads(thunk):
            for bytes_, piece in self._pieces(read):
                if piece.writer is not None:
                    found[piece.writer, Hazard.RAW].append(bytes_)
                piece.readers.append(at)
        for written in writes(thunk):
            for bytes_, piece in self._pieces(written):
                for reader in piece.readers:
                    if reader != at:
                        found[reader, Hazard.WAR].append(bytes_)
                if not piece.readers and piece.writer is not None and piece.writer != at:
                    found[piece.writer, Hazard.WAW].append(bytes_)
                piece.writer = at
                piece.readers.clear()
        return found

    def _pieces(self, touched: Slice) -> Iterator[tuple[Slice, _Piece]]:
        if touched.size:
            yield from self.pieces[touched.allocation].of(touched)

    def _said(self, at: int, thunk: Thunk[Slice], before: int) -> Iterator[Finding]:
        """Yield the control-predecessors that `thunk` does not follow."""
        for name in thunk.after:
            source = self.position.get(name)
            if source is not None and source != at and not before >> source & 1:
                yield self._unordered(source, at, Hazard.CONTROL, [])

    def _unordered(self, source: int, at: int, hazard: Hazard, shared: list[Slice]) -> Finding:
        text = f"no path {self._names(source, at)}: {hazard}"
        if shared:
            text += f" {_joined(shared)}"
        return self._finding(Kind.UNORDERED, at, text)

    def _finding(self, kind: Kind, at: int, text: str) -> Finding:
        return Finding(kind, self.where, text, self.thunks[at].span)

    def _names(self, source: int, at: int) -> str:
        return f"from {self.thunks[source].name} to {self.thunks[at].name}"


def _share(first: Thunk[Slice], second: Thunk[Slice]) -> bool:
    """Tell whether one of two thunks writes bytes that the other touches."""
    written, touched = writes(first), (*reads(second), *writes(second))
    back, read = writes(second), reads(first)
    return any(w.overlaps(t) for w in written for t in touched) or any(
        w.overlaps(r) for w in back for r in read
    )


def _joined(pieces: list[Slice]) -> str:
    """Return the bytes of neighbouring pieces as one range each."""
    runs: list[Slice] = []
    for piece in sorted(set(pieces)):
        last = runs[-1] if runs else None
        if last and last.allocation == piece.allocation and last.end == piece.offset:
            runs[-1] = Slice(last.allocation, last.offset, piece.end - last.offset)
        else:
            runs.append(piece)
    return ", ".join(map(str, runs))
