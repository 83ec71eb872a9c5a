"""Which bytes of a plan's temporaries hold something still to be read, going backwards in order.

Nested sequences are walked where they stand: what a loop reads of the iteration before, or of the
thunks around it, is live all through the loop; a conditional's branches each have their own bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from hlo2graph.program.thunks import Conditional, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, writes


def peak_bytes(body: Sequence[Slice], temps: Mapping[int, int]) -> int:
    """Return the most live bytes at any thunk; `temps` maps an allocation's index to its size."""
    walk = _Backwards(temps)
    walk.through(body, _Bytes())
    return walk.peak


def written_bytes(body: Sequence[Slice], temps: Mapping[int, int]) -> int:
    """Return the bytes of all slices written, each thunk's on their own."""
    total = 0
    for thunk in body.thunks:
        if held := nested(thunk):
            total += sum(written_bytes(inner, temps) for _, inner in held)
        else:
            total += sum(s.size for s in writes(thunk) if s.allocation in temps)
    return total


class _Bytes:
    """A set of bytes as disjoint ranges [starts[i], ends[i]) in order, apart from each other."""

    __slots__ = ("ends", "starts", "total")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.total = 0

    def copy(self) -> _Bytes:
        """Return a set of the same bytes."""
        made = _Bytes()
        made.starts, made.ends, made.total = self.starts[:], self.ends[:], self.total
        return made

    def add(self, start: int, end: int) -> None:
        """Put in the bytes [start, end)."""
        if start == end:
            return
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self._replace(first, last, [(start, end)])

    def remove(self, start: int, end: int) -> None:
        """Take out the bytes [start, end)."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if first < last:
            rest = ((self.starts[first], start), (end, self.ends[last - 1]))
            self._replace(first, last, [(a, b) for a, b in rest if a < b])

    def update(self, other: _Bytes) -> None:
        """Put in all bytes of another set."""
        for start, end in zip(other.starts, other.ends, strict=True):
            self.add(start, end)

    def _replace(self, first: int, last: int, ranges: list[tuple[int, int]]) -> None:
        held = sum(self.ends[first:last]) - sum(self.starts[first:last])
        self.starts[first:last] = [a for a, _ in ranges]
        self.ends[first:last] = [b for _, b in ranges]
        self.total += sum(b - a for a, b in ranges) - held


class _Backwards:
    """Walks sequences backwards with the set of live bytes; keeps the largest it met."""

    def __init__(self, temps: Mapping[int, int]) -> None:
        self.peak = 0
        self._bases: dict[int, int] = {}
        base = 0
        for index, size in temps.items():
            self._bases[index] = base
            base += size
        self._exposed: dict[int, _Bytes] = {}  # by id of the sequence: what it reads from outside

    def through(self, sequence: Sequence[Slice], live: _Bytes) -> None:
        """Take `live` from behind the sequence's last thunk to before its first."""
        for thunk in reversed(sequence.thunks):
            match thunk:
                case While():
                    self._loop(thunk, live)
                case Conditional():
                    self._branches(thunk, live)
                case _:
                    self._step(thunk, live)

    def _step(self, thunk: Thunk[Slice], live: _Bytes) -> None:
        read, written = reads(thunk), writes(thunk)
        self._add(live, (*read, *written))
        self.peak = max(self.peak, live.total)
        self._remove(live, written)
        self._add(live, read)

    def _loop(self, loop: While[Slice], live: _Bytes) -> None:
        self._add(live, loop.inits)
        live.update(self._reads_of(loop.condition))
        live.update(self._reads_of(loop.body))
        for sequence in (loop.body, loop.condition):
            inside = live.copy()
            self._add(inside, sequence.results)
            self.peak = max(self.peak, inside.total)
            self.through(sequence, inside)

    def _branches(self, conditional: Conditional[Slice], live: _Bytes) -> None:
        self._remove(live, conditional.results)
        after = live.copy()
        for branch in conditional.branches:
            inside = after.copy()
            self._add(inside, branch.results)
            self._add(inside, conditional.results)
            self.peak = max(self.peak, inside.total)
            self.through(branch, inside)
            live.update(inside)
        self._add(live, (conditional.selector,))
        self.peak = max(self.peak, live.total)

    def _reads_of(self, sequence: Sequence[Slice]) -> _Bytes:
        """Return the bytes that a sequence reads before it writes them."""
        found = self._exposed.get(id(sequence))
        if found is None:
            found = _Bytes()
            self._add(found, sequence.results)
            for thunk in reversed(sequence.thunks):
                self._expose(thunk, found)
            self._exposed[id(sequence)] = found
        return found

    def _expose(self, thunk: Thunk[Slice], found: _Bytes) -> None:
        match thunk:
            case While():
                self._add(found, thunk.inits)
            case Conditional():
                self._remove(found, thunk.results)
                self._add(found, (thunk.selector,))
            case _:
                self._remove(found, writes(thunk))
                self._add(found, reads(thunk))
        for _, inner in nested(thunk):
            found.update(self._reads_of(inner))

    def _add(self, live: _Bytes, slices: Iterable[Slice]) -> None:
        for held in slices:
            base = self._bases.get(held.allocation)
            if base is not None:
                live.add(base + held.offset, base + held.end)

    def _remove(self, live: _Bytes, slices: Iterable[Slice]) -> None:
        for held in slices:
            base = self._bases.get(held.allocation)
            if base is not None:
                live.remove(base + held.offset, base + held.end)
