"""Spans of memory, and whether others meet any of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add


class Spans:
    """Bytes from a start to an end each."""

    __slots__ = ("_bottom", "_ends", "_starts", "_top")

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        starts, ends = bounds([span for span in spans if span[0] < span[1]])
        self._starts, self._ends = repeat(starts), repeat(ends)
        self._bottom, self._top = min(starts, default=0), max(ends, default=0)

    def are_apart_from(self, addresses: Sequence[int], sizes: Sequence[int]) -> bool:
        """Tell that nothing of these sizes, none of them 0, at these addresses meets a span.

        As many spans must end before each begins as begin before it ends: no loop of Python's.
        """
        if not addresses or min(addresses) >= self._top:
            return True
        ends = list(map(add, addresses, sizes))
        if max(ends) <= self._bottom:
            return True
        begun = list(map(bisect_left, self._starts, ends))
        return begun == list(map(bisect_right, self._ends, addresses))


def bounds(spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return where spans start, in order, and for each the latest end so far.

    What starts before `end` and ends behind `start` is there if the last that starts before `end`
    has a latest end behind `start`.
    """
    ordered = sorted(spans)
    return [start for start, _ in ordered], list(accumulate([end for _, end in ordered], max))
