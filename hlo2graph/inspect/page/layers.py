"""Boxes in rows, so that arrows lead down: rows by longest path, then an order with few crossings.

Arrows that span several rows get a way of their own between the boxes, as long as there are not
too many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt

GAP_X, GAP_Y = 24.0, 44.0
LEAST_WIDE = 8  # boxes that a row always takes
SWEEPS = 6
WAY = 10.0  # what an arrow takes of a row that it passes
MOST_WAYS = 20_000


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height of a box."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Placed:
    """Centres of boxes, in their order; for each arrow the points on its way; the whole's size."""

    centres: tuple[tuple[float, float], ...]
    ways: tuple[tuple[tuple[float, float], ...], ...]
    size: Size


def place(sizes: Sequence[Size], arrows: Sequence[tuple[int, int]]) -> Placed:
    """Place boxes; arrows are (from, to), and only those to a later box decide rows.

    Time is near-linear in boxes and in rows that arrows pass.
    """
    if not sizes:
        return Placed((), tuple(() for _ in arrows), Size(0.0, 0.0))
    rows = _rows(len(sizes), [a for a in arrows if a[0] < a[1]])
    grid = _Grid(list(sizes), rows)
    ways = grid.lay(arrows)
    grid.sort()
    grid.spread()
    tops = grid.tops()
    middle = [tops[row] + grid.heights[row] / 2 for row in grid.row_of]
    left = min(x - s.width / 2 for x, s in zip(grid.x, grid.sizes, strict=True))
    right = max(x + s.width / 2 for x, s in zip(grid.x, grid.sizes, strict=True))
    points = [(x - left, y) for x, y in zip(grid.x, middle, strict=True)]
    bottom = tops[-1] + grid.heights[-1]
    return Placed(
        tuple(points[: len(sizes)]),
        tuple(tuple(points[p] for p in way) for way in ways),
        Size(right - left, bottom),
    )


def _rows(count: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """Return a row for each box: behind all that lead to it, in one that has room."""
    wide = max(LEAST_WIDE, int(2 * sqrt(count)))
    into: list[list[int]] = [[] for _ in range(count)]
    out: list[list[int]] = [[] for _ in range(count)]
    for src, dst in arrows:
        into[dst].append(src)
        out[src].append(dst)
    rows = [0] * count
    taken: dict[int, int] = {}
    free: dict[int, int] = {}  # a full row's next that may have room
    for box in range(count):
        row = max((rows[src] + 1 for src in into[box]), default=0)
        passed = []
        while taken.get(row, 0) >= wide:
            passed.append(row)
            row = free.get(row, row + 1)
        for full in passed:
            free[full] = row
        rows[box] = row
        taken[row] = taken.get(row, 0) + 1
    for box in reversed(range(count)):  # what nothing leads to stands close to what needs it
        if not into[box] and out[box]:
            row = min(rows[dst] for dst in out[box]) - 1
            if row > rows[box] and taken.get(row, 0) < wide:
                taken[rows[box]] -= 1
                taken[row] = taken.get(row, 0) + 1
                rows[box] = row
    used = {row: at for at, row in enumerate(sorted(set(rows)))}
    return [used[row] for row in rows]


class _Grid:
    """Rows of boxes and of points that arrows pass."""

    def __init__(self, sizes: list[Size], rows: list[int]) -> None:
        self.sizes = sizes
        self.row_of = rows
        self.rows: list[list[int]] = [[] for _ in range(max(rows) + 1)]
        for box, row in enumerate(rows):
            self.rows[row].append(box)
        self.heights = [max(sizes[box].height for box in row) for row in self.rows]
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        self.x = [0.0] * len(sizes)

    def lay(self, arrows: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Join boxes by arrows; return for each arrow the points that it passes."""
        spans = [self.row_of[dst] - self.row_of[src] - 1 for src, dst in arrows]
        room = MOST_WAYS
        ways: list[list[int]] = [[] for _ in arrows]
        for at in sorted(range(len(arrows)), key=lambda at: spans[at]):
            if spans[at] < 0:
                continue
            src, dst = arrows[at]
            if spans[at] <= room:
                room -= spans[at]
                ways[at] = [self._point(self.row_of[src] + 1 + k) for k in range(spans[at])]
            chain = [src, *ways[at], dst]
            for one, other in pairwise(chain):
                self.below[one].append(other)
                self.above[other].append(one)
        return ways

    def _point(self, row: int) -> int:
        at = len(self.sizes)
        self.sizes.append(Size(WAY, 0.0))
        self.row_of.append(row)
        self.rows[row].append(at)
        self.above.append([])
        self.below.append([])
        self.x.append(0.0)
        return at

    def sort(self) -> None:
        """Order each row by where what it is joined to stands."""
        place = [0.0] * len(self.sizes)

        def number(row: list[int]) -> None:
            for at, box in enumerate(row):
                place[box] = (at + 0.5) / len(row)

        for row in self.rows:
            number(row)
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            beside = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                row.sort(key=lambda box: _mean(place, beside[box], place[box]))
                number(row)

    def spread(self) -> None:
        """Put each box below or above what it is joined to, as near as its neighbours let it."""
        for row in self.rows:
            self._fit(row, [0.0] * len(row))
        for sweep in range(SWEEPS + 1):  # the last one goes down
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                beside = self.above if down else self.below
                self._fit(row, [_mean(self.x, beside[box], self.x[box]) for box in row])

    def _fit(self, row: list[int], wanted: list[float]) -> None:
        """Place a row's boxes as near to where they want to be as their widths allow."""
        half = [self.sizes[box].width / 2 for box in row]
        steps = [a + b + GAP_X for a, b in pairwise(half)]
        offsets = list(accumulate(steps, initial=0.0))
        blocks: list[tuple[float, int]] = []  # sum of what their boxes want, and how many
        for at, want in enumerate(wanted):
            total, count = want - offsets[at], 1
            while blocks and blocks[-1][0] * count >= total * blocks[-1][1]:
                before, many = blocks.pop()
                total, count = total + before, count + many
            blocks.append((total, count))
        at = 0
        for total, count in blocks:
            for _ in range(count):
                self.x[row[at]] = total / count + offsets[at]
                at += 1

    def tops(self) -> list[float]:
        """Return where each row begins."""
        return list(accumulate((h + GAP_Y for h in self.heights[:-1]), initial=0.0))


def _mean(values: list[float], of: list[int], otherwise: float) -> float:
    return sum(values[k] for k in of) / len(of) if of else otherwise
