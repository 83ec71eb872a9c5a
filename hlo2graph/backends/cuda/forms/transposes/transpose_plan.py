"""How the transpose form cuts its work into tiles, and a tile among the threads of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from hlo2graph.backends.cuda.forms.folds.folding import power_below
from hlo2graph.backends.cuda.forms.transposes.grain import Across
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.large_gpu import SHARED_BYTES

SIDE = 32  # squares along the side of small tiles
WRITTEN_BYTES = 256  # side by side, of the results
READ_BYTES = 128  # of the cuts, at least
MOST_SQUARES = 128, 64  # along results and cuts, of single elements
SECTOR = 32  # bytes that memory takes at once
LONGEST = 256  # squares along a side, where the other one is short
STRIP = 32  # tiles side by side, at most
WORDS = (8, 4)  # bytes that a thread may access at once
LARGEST = 4  # elements along a square's side
MOST_SHIFTED = 2  # bytes of an element, of which words hold several wherever rows begin
THREADS = 256, 512  # of a block; more where each would have too many values at once
MOST_AHEAD = 128  # bytes that a thread waits for at once without being told to
REGISTERS = 1 << 16  # of a multiprocessor
FOR_PLACES = 24  # of a thread's registers, beside what it waits for


@dataclass(frozen=True, slots=True)
class Tile:
    """How the elements are cut into tiles of `wide` by `high` squares, which threads take.

    A row of threads takes every so many rows of squares, whose loads run at once.
    """

    wide: int  # squares along the result's minor dimensions, of a tile
    high: int  # and along the cuts'
    square: int  # elements along the side of a thread's square
    along: int  # squares along the result's minor dimensions, of all
    across: int  # and along the cuts'
    batches: int
    bytes_each: int  # in shared memory, of an element of all cuts
    sector: int  # squares in one of the results, or 1 where their rows begin at one
    threads: int
    ends: tuple[int, int] | None = None  # elements along and across that squares do not divide

    @property
    def spare(self) -> int:
        """Squares before the tile that are read too."""
        return self.sector if self.sector > 1 else 0

    @property
    def held(self) -> int:
        """Squares of a row in shared memory."""
        return self.spare + self.wide

    @property
    def stride(self) -> int:
        """Elements from row to row in shared memory: a word over, so that columns part banks.

        Row k of each square is among the k-th `high` rows, so that neighbouring threads' rows are
        neighbours.
        """
        return (self.held + 1) * self.square

    @property
    def read_at_once(self) -> int:
        """Rows of squares that all threads take at once on the way in; a few may have none."""
        return self.threads // self.high

    @property
    def written_at_once(self) -> int:
        """Rows of words that all threads take at once on the way out; a few may have none."""
        return self.threads // self.wide

    @property
    def elements(self) -> int:
        """Elements of a tile in shared memory."""
        return self.high * self.square * self.stride

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory."""
        return self.elements * self.bytes_each

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor, where only few leave a thread registers for all its loads."""
        rounds = -(-self.held * self.high // self.threads)
        ahead = rounds * self.square**2 * self.bytes_each
        if ahead <= MOST_AHEAD:
            return 0
        return max(1, REGISTERS // (self.threads * (ahead // 4 + FOR_PLACES)))

    def odd_square(self, number: Expr) -> Expr:
        """Return the first element across of a square; the last square ends where they do."""
        assert self.ends is not None
        first, last = f"{number} * {self.square}", self.ends[1] - self.square
        return f"{first} < {last} ? {first} : {last}"

    @property
    def is_filled(self) -> bool:
        """Tell whether less than a quarter of the threads lies past an edge."""
        whole = self.wide * self.columns * self.high * self.rows
        return 4 * self.along * self.across > 3 * whole

    @property
    def strips(self) -> int:
        """Strips, of which the last may reach past the end."""
        return -(-self._tiles // STRIP)

    @property
    def strip(self) -> int:
        """Tiles side by side in a strip."""
        return -(-self._tiles // self.strips)

    @property
    def columns(self) -> int:
        """Tiles along the result; a few may lie past the end."""
        return self.strips * self.strip

    @property
    def rows(self) -> int:
        """Tiles along the cuts."""
        return -(-self.across // self.high)

    @property
    def _tiles(self) -> int:
        # Rows of whole squares begin at one, others anywhere in one.
        before = self.sector - (self.sector == 1 or self.ends is None)
        return -(-(self.along + before) // self.wide)


def tiles_for(what: Across, cuts: Sequence[Shape], signature: Signature) -> Iterator[Tile]:
    """Yield the tiles that fit and are mostly filled, the largest first, with few threads first."""
    results = signature.results
    dims, bytes_each = results[0].dims, sum(cut.dtype.size for cut in cuts)
    written = max(s.dtype.size for s in results)
    widest = max(written, *(cut.dtype.size for cut in cuts))
    runs = (what.along, what.across, what.rest)
    along, across, batches = (prod(dims[d] for d in run) for run in runs)
    squares = [max(1, min(LARGEST, word // widest)) for word in WORDS]
    for square in dict.fromkeys((*squares, 1)):
        is_odd = any(dims[run[-1]] % square for run in runs[:2])
        if is_odd and widest > MOST_SHIFTED:
            continue
        sector = max(1, SECTOR // (square * written))
        sector = sector if along % (sector * square) else 1
        counts = -(-along // square), -(-across // square), batches
        ends = (along, across) if is_odd else None
        sides = dict.fromkeys(_sides(square * widest, *counts[:2], sector))
        for (wide, high), threads in product(sides, THREADS):
            tile = Tile(wide, high, square, *counts, bytes_each, sector, threads, ends)
            is_small = (wide, high) == (SIDE, SIDE) and square <= squares[-1]
            if (is_small or tile.is_filled) and tile.shared_bytes <= SHARED_BYTES:
                yield tile


def _sides(word: int, along: int, across: int, sector: int) -> Iterator[tuple[int, int]]:
    """Yield how many squares tiles may have along results and cuts.

    First as many as there is a use for, then as leave few without any: where there are few along
    one side, more along the other.
    """
    most_along = min(MOST_SQUARES[0], max(1, WRITTEN_BYTES // word))
    most_across = min(MOST_SQUARES[1], max(SIDE, READ_BYTES // word))
    yield most_along, most_across
    wide = -(-_fitted(along + sector - 1, most_along) // sector) * sector
    high = _fitted(across, most_across)
    if high < wide:
        wide = min(LONGEST, wide * power_below(max(1, most_across // high)))
    else:
        high = min(LONGEST, high * power_below(max(1, most_along // wide)))
    yield wide, high
    yield SIDE, SIDE


def _fitted(count: int, most: int) -> int:
    """Return how many each has of as few tiles as have at most `most`."""
    return -(-count // -(-count // most))
