"""Who last wrote, and who has since read, each byte of an allocation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from hlo2graph.program.thunks import Hazard, Slice

NOBODY = -1

Readers: TypeAlias = "tuple[int, Readers] | None"  # newest first; splitting a range shares them
Conflict: TypeAlias = tuple[int, Hazard, int, int]  # (earlier thunk, hazard, start, end)


class ByteMap:
    """The bytes of one allocation, cut into ranges that have one history.

    Range i is [starts[i], starts[i + 1]); the last one has no end. Thunks are given by position,
    each with all its reads before its writes. Finding a range takes a binary search, and a write
    joins the ranges that it covers.
    """

    def __init__(self) -> None:
        self._starts = [0]
        self._writer = [NOBODY]
        self._readers: list[Readers] = [None]

    def read(self, thunk: int, used: Slice) -> Iterator[Conflict]:
        """Let `thunk` read `used`; yield whose writes it reads."""
        first, last = self._cut(used.offset), self._cut(used.end)
        for i in range(first, last):
            writer, readers = self._writer[i], self._readers[i]
            if writer not in (NOBODY, thunk):
                yield writer, Hazard.RAW, self._starts[i], self._starts[i + 1]
            if readers is None or readers[0] != thunk:
                self._readers[i] = (thunk, readers)

    def write(self, thunk: int, used: Slice) -> Iterator[Conflict]:
        """Let `thunk` write `used`; yield whose reads and writes it destroys."""
        first, last = self._cut(used.offset), self._cut(used.end)
        starts: list[int] = []
        readers: list[Readers] = []
        for i in range(first, last):
            start, end = self._starts[i], self._starts[i + 1]
            own: Readers = None  # having read what it overwrites, it stays a reader of this range
            since = self._readers[i]
            while since is not None:
                reader, since = since
                if reader == thunk:
                    own = (thunk, None)
                else:
                    yield reader, Hazard.WAR, start, end
            if self._writer[i] not in (NOBODY, thunk):
                yield self._writer[i], Hazard.WAW, start, end
            if not starts or readers[-1] != own:
                starts.append(start)
                readers.append(own)
        self._starts[first:last] = starts
        self._writer[first:last] = [thunk] * len(starts)
        self._readers[first:last] = readers

    def _cut(self, at: int) -> int:
        """Return the range that starts at `at`, made by cutting in two where there is none."""
        i = bisect_right(self._starts, at) - 1
        if self._starts[i] == at:
            return i
        self._starts.insert(i + 1, at)
        self._writer.insert(i + 1, self._writer[i])
        self._readers.insert(i + 1, self._readers[i])
        return i + 1
