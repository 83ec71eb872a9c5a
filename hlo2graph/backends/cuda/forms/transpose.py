"""The transpose form: a loop that reads across the grain, through tiles in shared memory.

A block reads a tile of each cut as it lies in memory, then goes on from the tile to the results as
they lie. What stands before the cuts is computed on the way in, what stands behind on the way out.
Threads past an edge read the last elements again, so that nothing parts the loads; only stores are
guarded. A thread takes a square of as many elements as fill a word in each direction.

Blocks go down strips of a few tiles side by side, so that those under way at once cover about as
much of a row of the cuts as of the results: neighbours meet in the cache, and in memory's pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.grain import Across, Order
from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.source import SHARED_BYTES, KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.widen import MOST_LINES, MOST_VALUES, most_alive
from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.device import Expr, Index

SIDE = 32  # squares along the side of small tiles
READ_BYTES = 256  # side by side, of the cuts; of results, whose ends are written twice, more
STRIP = 32  # tiles side by side, at most, where they are square
WORDS = (8, 4)  # bytes that a thread may access at once
LARGEST = 4  # elements along a square's side
MOST_THREADS = 512  # that take single elements: with more, a barrier keeps too many
LEAST_BLOCKS = 3  # of a multiprocessor, so that some read while others write


def turned_kernel(
    across: Across,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource | None:
    """Return the kernel of a loop through tiles; None where they, or its text, get too large."""
    emitter = ElementEmitter(computations, signature.index_type)
    cuts = [next(computation[cut].shape.leaves()) for cut in across.cuts]
    tile = _tile(across, cuts, signature)
    if tile is None:
        return None
    _Writer(across, tile, computation, emitter, cuts, signature.results).write()
    lines = emitter.needed_lines()
    if len(lines) > MOST_LINES or most_alive(lines) > MOST_VALUES:
        return None
    text = signature.declare(lines, tile.threads, wide=True)
    blocks = blocks_for(tile.batches * tile.columns * tile.rows, 1)
    beside = tile.shared_bytes if tile.shared_bytes > SHARED_BYTES else 0
    return KernelSource(signature.name, text, blocks, tile.threads, beside)


@dataclass(frozen=True, slots=True)
class _Tile:
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

    @property
    def threads(self) -> int:
        """Threads of a block: each has a few squares."""
        squares = self.wide * self.high
        return squares // 4 if self.square > 1 else min(MOST_THREADS, squares // 8)

    @property
    def stride(self) -> int:
        """Elements from row to row in shared memory: a word over, so that columns part banks.

        Row k of each square is among the k-th `high` rows, so that neighbouring threads' rows are
        neighbours.
        """
        return (self.wide + 1) * self.square

    @property
    def elements(self) -> int:
        """Elements of a tile in shared memory."""
        return self.high * self.square * self.stride

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory."""
        return self.elements * self.bytes_each

    @property
    def is_filled(self) -> bool:
        """Tell whether less than a quarter of the threads lies past an edge."""
        whole = self.wide * -(-self.along // self.wide) * self.high * self.rows
        return 4 * self.along * self.across > 3 * whole

    @property
    def strips(self) -> int:
        """Strips, of which the last may reach past the end."""
        return -(-self.along // (self.high * STRIP))

    @property
    def strip(self) -> int:
        """Tiles side by side in a strip: fewer of wide ones."""
        return -(-self.along // (self.wide * self.strips))

    @property
    def columns(self) -> int:
        """Tiles along the result; a few may lie past the end."""
        return self.strips * self.strip

    @property
    def rows(self) -> int:
        """Tiles along the cuts."""
        return -(-self.across // self.high)


def _tile(what: Across, cuts: Sequence[Shape], signature: Signature) -> _Tile | None:
    """Return the largest tile that fits and is mostly filled, or a small one; None if none fits."""
    results = signature.results
    dims, bytes_each = results[0].dims, sum(cut.dtype.size for cut in cuts)
    widest = max(s.dtype.size for s in (*cuts, *results))
    runs = (what.along, what.across, what.rest)
    along, across, batches = (prod(dims[d] for d in run) for run in runs)
    most = max(SHARED_BYTES, signature.device.shared_bytes // LEAST_BLOCKS)
    squares = [max(1, min(LARGEST, word // widest)) for word in WORDS]
    for square in dict.fromkeys((*squares, 1)):
        if any(dims[run[-1]] % square for run in runs[:2]):
            continue
        for wide, high in _sizes(square * widest):
            tile = _Tile(wide, high, square, along // square, across // square, batches, bytes_each)
            is_small = wide == SIDE and square <= squares[-1]
            if (is_small or tile.is_filled) and tile.shared_bytes <= most:
                return tile
    return None


def _sizes(word: int) -> Sequence[tuple[int, int]]:
    """Return how many squares tiles have along results and cuts, the largest tiles first."""
    side = min(2 * SIDE, max(SIDE, READ_BYTES // word))
    return (2 * side, side), (side, side), (2 * SIDE, SIDE), (SIDE, SIDE)


@dataclass(slots=True)
class _Writer:
    """Writes the body: x counts elements along the result's minor dimensions, y along the cuts'.

    `first` is the first element of a thread's lanes: in y on the way in, in x on the way out.
    """

    what: Across
    tile: _Tile
    computation: Computation
    emit: ElementEmitter
    cuts: Sequence[Shape]
    results: Sequence[Shape]
    shared: tuple[str, ...] = ()
    batch: Index = ()

    def write(self) -> None:
        """Write all lines."""
        emit, tile, what = self.emit, self.tile, self.what
        self.shared = tuple(self._declare_shared())
        index, block = emit.index_type, emit.block_index
        left, strip = f"{block} % {tile.strip}", tile.strip * tile.rows
        if tile.strips > 1:
            left = f"({block} / {strip} % {tile.strips} * {tile.strip} + {left})"
        emit.line(f"const {index} top = {block} / {tile.strip} % {tile.rows} * {tile.high};")
        emit.line(f"const {index} left = {left} * {tile.wide};")
        number = emit.integer(f"{block} / {tile.rows * tile.columns}")
        self.batch = emit.split(number, self._dims(what.rest))
        emit.enter(self.computation)
        with emit.block(""):
            mark = self._line_up("top", tile.across, tile.high, tile.rows)
            # `first` modulo the square is the number of a lane: it says where lanes differ.
            emit.line(f"const {index} own = lane + first % {tile.square} * {tile.high};")
            self._read()
            self._widen(mark)
        emit.line("__syncthreads();")
        loop = f"for (int part = 0; part < {tile.square}; ++part)"
        with emit.block(loop if tile.square > 1 else ""):
            mark = self._line_up("left", tile.along, tile.wide, tile.columns)
            emit.line(f"const {index} own = lane * {tile.square} + first % {tile.square};")
            self._store()
            self._widen(mark)
        emit.leave()

    def _declare_shared(self) -> Iterator[str]:
        """Declare tiles; in words as wide as a square, so that they are aligned like these."""
        emit, tile, start = self.emit, self.tile, 0
        for cut in self.cuts:
            kind, size = storage_type(cut.dtype), tile.elements
            name, words = emit.fresh("s"), emit.fresh("s")
            if tile.shared_bytes > SHARED_BYTES:
                words = f"(hlo::dynamic_shared() + {start})"
                start += size * cut.dtype.size
            else:
                width = tile.square * cut.dtype.size
                word = f"hlo::u{8 * width}" if tile.square > 1 else kind
                emit.line(f"__shared__ {word} {words}[{size // tile.square}];")
            emit.line(f"{kind}* const {name} = ({kind}*){words};")
            yield name

    def _line_up(self, start: str, count: int, lanes: int, tiles: int) -> int:
        """Declare `first` for `lanes` threads side by side from square `start` of `count`.

        Return the number of lines before those in which lanes differ.
        """
        emit, square = self.emit, self.tile.square
        emit.line(f"const int lane = threadIdx.x % {lanes};")
        emit.line(f"const int rank = threadIdx.x / {lanes};")
        place = _clamped(f"{start} + lane", count, tiles * lanes)
        emit.line(f"const {emit.index_type} thread = {place};")
        emit.line(f"const {emit.index_type} first = {_times('thread', square)};")
        return len(emit.lines)

    def _read(self) -> None:
        """Read a tile of every cut; threads side by side read what lies side by side."""
        emit, tile, found = self.emit, self.tile, []
        y = emit.split("first", self._dims(self.what.across))
        for step in range(0, tile.wide, tile.threads // tile.high):
            row = self._next("rank", step)
            over = emit.integer(_clamped(f"left + {row}", tile.along, tile.columns * tile.wide))
            first = emit.integer(_times(over, tile.square)) if tile.square > 1 else over
            x = emit.split(first, self._dims(self.what.along))
            stores: list[list[str]] = [[] for _ in self.cuts]
            for part in range(tile.square):
                place = self._place((*x[:-1], self._next(x[-1], part)), y)
                for cut, shape, name, store in zip(
                    self.what.cuts, self.cuts, self.shared, stores, strict=True
                ):
                    value = emit.stored(shape.dtype, emit.leaf(cut, 0, place))
                    column = _times(row, tile.square) + (f" + {part}" if part else "")
                    store.append(f"{name}[own * {tile.stride} + {column}] = {value};")
            found += [" ".join(store) for store in stores]  # in one line: they stay side by side
        for line in found:
            emit.line(line)

    def _next(self, index: Expr, further: int) -> Expr:
        return self.emit.integer(f"{index} + {further}") if further else index

    def _store(self) -> None:
        """Go on from the tile to the results; a thread has several rows, under way at once."""
        emit, tile, found = self.emit, self.tile, []
        x = emit.split("first", self._dims(self.what.along))
        count = tile.across * tile.square
        for step in range(0, tile.high, tile.threads // tile.wide):
            row = across = self._next("rank", step)
            if tile.square > 1:
                row = emit.integer(f"part * {tile.high} + {row}")
                across = f"{across} * {tile.square} + part"
            below = emit.integer(f"{_times('top', tile.square)} + {across}")
            clamped = _clamped(below, count, tile.rows * tile.high * tile.square)
            inside = below if clamped == below else emit.integer(clamped)
            place = self._place(x, emit.split(inside, self._dims(self.what.across)))
            for cut, shape, name in zip(self.what.cuts, self.cuts, self.shared, strict=True):
                held = emit.read(shape.dtype, f"{name}[{row} * {tile.stride} + own]")
                emit.assume(cut, place, [held])
            root = self.computation.root
            values = [
                emit.stored(leaf.dtype, emit.leaf(root, number, place))
                for number, leaf in enumerate(self.results)
            ]
            found.append((below, place, values))
        for below, place, values in found:
            tests = []
            if tile.columns * tile.wide > tile.along:
                tests.append(f"left + lane < {tile.along}")
            if tile.rows * tile.high > tile.across:
                tests.append(f"{below} < {count}")
            with emit.block(f"if ({' && '.join(tests)})" if tests else ""):
                for number, (leaf, value) in enumerate(zip(self.results, values, strict=True)):
                    at = emit.offset(leaf, place)
                    emit.line(f"r{number}[{at}] = {value};")

    def _widen(self, mark: int) -> None:
        """Write the lines from `mark` on for all lanes of a square's row."""
        emit = self.emit
        body = emit.places.needed(emit.lines[mark:])
        if self.tile.square > 1:
            body = Lanes(body, "first", self.tile.square).lines
        emit.lines[mark:] = body

    def _dims(self, run: Order) -> list[int]:
        dims = self.results[0].dims
        return [dims[d] for d in run]

    def _place(self, x: Index, y: Index) -> Index:
        """Return the index of an element, given where it is along, across and around."""
        what = self.what
        found = dict.fromkeys(range(len(self.results[0].dims)), "0")
        for run, index in ((what.along, x), (what.across, y), (what.rest, self.batch)):
            found.update(zip(run, index, strict=True))
        return tuple(found[d] for d in sorted(found))


def _times(index: Expr, count: int) -> Expr:
    return index if count == 1 else f"{index} * {count}"


def _clamped(place: Expr, count: int, places: int) -> Expr:
    """Return one of the tiles' places, or the last of `count` if it may lie past these."""
    return place if count == places else f"{place} < {count} ? {place} : {count - 1}"
