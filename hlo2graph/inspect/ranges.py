"""Which value lies at each byte of an allocation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from hlo2graph.program.thunks import Slice


@dataclass(slots=True)
class Ranges:
    """The values of one allocation: ranges of bytes in order, apart from each other."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def copy(self) -> Ranges:
        """Return the same ranges, to be changed by themselves."""
        return Ranges(self.starts[:], self.ends[:], self.values[:])

    def meeting(self, place: Slice) -> list[tuple[int, int]]:
        """Return the values that have bytes there, and how many, in order."""
        first, last = self._touching(place)
        return [
            (self.values[k], min(self.ends[k], place.end) - max(self.starts[k], place.offset))
            for k in range(first, last)
        ]

    def put(self, place: Slice, value: int) -> None:
        """Put a value there; of what lies there now the rest stays."""
        if not place.size:
            return
        first, last = self._touching(place)
        ranges = [(place.offset, place.end, value)]
        if first < last:
            before = (self.starts[first], place.offset, self.values[first])
            after = (place.end, self.ends[last - 1], self.values[last - 1])
            ranges = [r for r in (before, *ranges, after) if r[0] < r[1]]
        self.starts[first:last] = [r[0] for r in ranges]
        self.ends[first:last] = [r[1] for r in ranges]
        self.values[first:last] = [r[2] for r in ranges]

    def _touching(self, place: Slice) -> tuple[int, int]:
        first = bisect_right(self.ends, place.offset)
        return first, max(first, bisect_left(self.starts, place.end))
