"""The steps of a long sort, by what they are reckoned to take.

Either windows as large as a block holds are sorted, then neighbours are merged until one run is
left; or smaller windows, for more blocks, and each step joins several runs: every element looks
for its place in all of them. That is more work, but fewer steps. Or elements go where one digit of
their keys says, digit by digit: steps that each look at all elements twice, however many there are.
All figures are of an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from hlo2graph.ops.large_gpu import MULTIPROCESSORS
from hlo2graph.ops.sort_digits import MANY, MOST_SORTED, Chunks
from hlo2graph.ops.sort_runs import LONGEST_JOINED, Runs

SMALL = 1024  # elements of the smaller windows
_SORT_NS, _SORT_EACH_NS = 4500, 0.02  # of the smaller windows, and for each element
_WHOLE_NS, _WHOLE_EACH_NS = 9000, 0.015  # of the larger
_MERGE_NS, _MERGE_EACH_NS = 6700, 0.004
_JOIN_NS, _LOOK_NS = 2200, 0.0012  # of a step, and for each look of an element
_DIGIT_NS, _DIGIT_EACH_NS = 6200, 0.008  # of the two steps of a digit
_COMPARED = 1.5  # times as long, where a comparator does more than to compare one short key
_TILE, _MORE_TILE = 2048, 4096  # elements that a block sorts by a digit at least; and of MANY


@dataclass(frozen=True, slots=True)
class LongSort:
    """A sort of `rows` of `length` elements along a dimension, of which a block holds `window`."""

    along: int
    rows: int
    length: int
    window: int

    @property
    def elements(self) -> int:
        """Elements in all."""
        return self.rows * self.length

    def steps(self) -> list[Runs]:
        """Return the steps that sort windows, and then make one run of these."""
        return self._reckoned()[0]

    def chunks(self, digits: int, *, has_key: bool) -> Chunks | None:
        """Return how rows are sorted by so many digits, or None where runs take less.

        has_key: a comparator of runs only compares one short key.
        """
        runs = self._reckoned()[1] * (1 if has_key else _COMPARED)
        taken = digits * (_DIGIT_NS + _DIGIT_EACH_NS * self.elements)
        if not digits or not self.window < self.length <= MOST_SORTED or taken >= runs:
            return None
        is_many = self.elements >= MANY
        at_once, tile = (2, _MORE_TILE) if is_many else (1, _TILE)  # blocks of a multiprocessor
        blocks = at_once * MULTIPROCESSORS
        each = max(1, -(-self.elements // (blocks * tile)))
        return Chunks(self.along, min(each, -(-self.length // tile)) * tile)

    def _reckoned(self) -> tuple[list[Runs], float]:
        """Return the steps of runs that take least, and what they take."""
        bits = (self.length - 1).bit_length()
        first, small = (min(size, 1 << bits).bit_length() - 1 for size in (self.window, SMALL))
        small = min(first, small)
        best, elements = list(range(first, bits + 1)), self.elements
        least = _WHOLE_NS + _WHOLE_EACH_NS * elements
        least += (bits - first) * (_MERGE_NS + _MERGE_EACH_NS * elements)
        for count in range(1, bits - small + 1 if 1 << bits <= LONGEST_JOINED else 1):
            sizes = [small + ceil(k * (bits - small) / count) for k in range(count + 1)]
            joins = list(pairwise(sizes))
            if min(after - before for before, after in joins) < 2:
                break
            looks = sum(((1 << (after - before)) - 1) * (before + 1) for before, after in joins)
            taken = _SORT_NS + count * _JOIN_NS + (_SORT_EACH_NS + _LOOK_NS * looks) * elements
            if taken < least:
                best, least = sizes, taken
        joined = [Runs(self.along, 1 << b, 1 << a) for a, b in pairwise(best)]
        return [Runs(self.along, 1 << best[0], 1), *joined], least
