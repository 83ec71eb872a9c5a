"""The transpose form: a loop that reads across the grain, through tiles in shared memory.

A block reads a tile of each cut as it lies in memory, then goes on from the tile to the results as
they lie. What stands before the cuts is computed on the way in, what stands behind on the way out.
Threads past an edge read the last elements again, so that nothing parts the loads; only stores are
guarded. A thread takes a square of as many elements as fill a word in each direction. Where squares
do not divide the elements across, the last ones take some again; see whole_words for the way out.

Memory takes whole sectors: of one that two blocks write a part each, it has to read the rest. Where
the results' rows are no whole sectors, each begins elsewhere in one. A block then begins every row
at a sector, up to a word less than one before the tile, and reads as much more of the cuts.

Blocks go down strips of a few tiles side by side, so that those under way at once cover about as
much of a row of the cuts as of the results: neighbours meet in the cache, and in memory's pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.transposes.grain import Across
from hlo2graph.backends.cuda.forms.transposes.thin_transpose import thin_kernel
from hlo2graph.backends.cuda.forms.transposes.through_tile import go_through_tile
from hlo2graph.backends.cuda.forms.transposes.transpose_plan import WORDS, Tile, tiles_for
from hlo2graph.backends.cuda.forms.transposes.whole_words import store_words
from hlo2graph.backends.cuda.forms.transposes.word_tiles import word_tile_kernel, word_tile_of
from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.widen import MOST_LINES, MOST_VALUES, most_alive
from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.device import Expr, Index

CACHED = 4096  # bytes that threads come back to while they are in the cache
MOST_UNROLLED = 8  # rows that a thread has under way at once on the way out


def turned_kernel(
    across: Across,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource | None:
    """Return the kernel of a loop across the grain.

    None where its text gets too large, or where what is read apart still shares its cache lines.
    """
    if across.is_thin:
        return thin_kernel(across, computation, computations, signature)
    cuts = [next(computation[cut].shape.leaves()) for cut in across.cuts]
    elements = prod(across.sizes((*across.along, *across.across)))
    if elements * max(shape.dtype.size for shape in (*signature.results, *cuts)) <= CACHED:
        return None
    if words := word_tile_of(across, computation, signature):
        return word_tile_kernel(across, words, computation, signature)
    for tile in tiles_for(across, cuts, signature):
        emitter = ElementEmitter(computations, signature.index_type)
        TileWriter(
            across, tile, computation, emitter, cuts, signature.results, signature.misaligned
        ).write()
        lines = emitter.needed_lines()
        if len(lines) <= MOST_LINES and most_alive(lines) <= MOST_VALUES:
            text = signature.declare(lines, tile.threads, wide=True, resident=tile.resident)
            blocks = blocks_for(tile.batches * tile.columns * tile.rows, 1)
            return KernelSource(signature.name, text, blocks, tile.threads)
    return None


@dataclass(slots=True)
class TileWriter:
    """Writes the body: x counts elements along the result's minor dimensions, y along the cuts'.

    `first` is the first element of a thread's lanes: in y on the way in, in x on the way out.
    """

    what: Across
    tile: Tile
    computation: Computation
    emit: ElementEmitter
    cuts: Sequence[Shape]
    results: Sequence[Shape]
    misaligned: Set[str]
    shared: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # the same as words as wide as a square
    batch: Index = ()
    begin: Expr = ""  # across, of the square that a thread reads

    def write(self) -> None:
        """Write all lines."""
        emit, tile, what = self.emit, self.tile, self.what
        declared = tuple(self._declare_shared())
        self.words = tuple(words for words, _ in declared)
        self.shared = tuple(name for _, name in declared)
        index, block = emit.index_type, emit.block_index
        left, strip = f"{block} % {tile.strip}", tile.strip * tile.rows
        if tile.strips > 1:
            left = f"({block} / {strip} % {tile.strips} * {tile.strip} + {left})"
        emit.line(f"const {index} top = {block} / {tile.strip} % {tile.rows} * {tile.high};")
        emit.line(f"const {index} left = {left} * {tile.wide};")
        number = emit.integer(f"{block} / {tile.rows * tile.columns}")
        self.batch = emit.split(number, what.sizes(what.rest))
        go_through_tile(emit, self.computation, self._read, self._store)

    def _declare_shared(self) -> Iterator[tuple[str, str]]:
        """Declare tiles; in words as wide as a square, so that they are aligned like these."""
        emit, tile = self.emit, self.tile
        for cut in self.cuts:
            kind, words, name = storage_type(cut.dtype), emit.fresh("s"), emit.fresh("s")
            width = 8 * tile.square * cut.dtype.size
            word = f"hlo::u{width}" if tile.square > 1 else kind
            emit.line(f"__shared__ {word} {words}[{tile.elements // tile.square}];")
            emit.line(f"{kind}* const {name} = ({kind}*){words};")
            yield words, name

    def _line_up(self, lanes: int) -> None:
        """Declare `lane` for `lanes` threads side by side, and which of such rows they are."""
        self.emit.line(f"const int lane = threadIdx.x % {lanes};")
        self.emit.line(f"const int rank = threadIdx.x / {lanes};")

    def _declare_first(self, place: Expr) -> int:
        """Declare `first`, given the number of the thread's square.

        Return the number of lines before those in which lanes differ.
        """
        emit = self.emit
        emit.line(f"const {emit.index_type} thread = {place};")
        emit.line(f"const {emit.index_type} first = {_times('thread', self.tile.square)};")
        return len(emit.lines)

    def _read(self) -> None:
        """Read a tile of every cut; threads side by side read what lies side by side."""
        emit, tile, found = self.emit, self.tile, []
        self._line_up(tile.high)
        mark, number, part = self._across()
        emit.line(f"const {emit.index_type} own = lane + {_times(part, tile.high)};")
        y = emit.split(number, self.what.sizes(self.what.across))
        step = tile.read_at_once
        for start in range(0, tile.held, step):
            row = self._next("rank", start)
            stores: list[list[str]] = [[] for _ in self.cuts]
            for k, x in enumerate(self._along(row)):
                place = self.place(x, y)
                for cut, shape, name, store in zip(
                    self.what.cuts, self.cuts, self.shared, stores, strict=True
                ):
                    value = self._element(cut, shape, place, number)
                    column = _times(row, tile.square) + (f" + {k}" if k else "")
                    store.append(f"{name}[own * {tile.stride} + {column}] = {value};")
            tests = [f"{row} < {tile.held}"] if start + step > tile.held else []
            tests += [f"rank < {step}"] if tile.threads % tile.high else []
            test = f"if ({' && '.join(tests)})" if tests else ""
            found.append((test, [" ".join(store) for store in stores]))
        for test, lines in found:
            with emit.block(test) if test else nullcontext():
                for line in lines:  # in one line, what is written side by side stays so
                    emit.line(line)
        self.widen(mark)

    def _element(self, cut: str, shape: Shape, place: Index, number: Expr) -> Expr:
        """Return an element of a cut as it lies in memory; `number` is its own across.

        Of narrow ones that are read as they are, a thread reads a word: each would else have a
        register, and an access. The compiler drops the elements' own reads.
        """
        emit, tile = self.emit, self.tile
        value = emit.leaf(cut, 0, place)
        parameter, source, index = emit.origins.get(value, (0, shape, ()))
        is_plain = index.count(number) == 1 and f"p{parameter}" not in self.misaligned
        size = shape.dtype.size * tile.square
        if tile.ends is None or not is_plain or size not in WORDS:
            return emit.stored(shape.dtype, value)
        first = emit.offset(source, tuple(self.begin if i == number else i for i in index))
        word, kind = emit.fresh("w"), storage_type(shape.dtype)
        words = f"(const hlo::u{8 * size}*)p{parameter}"
        emit.line(f"const auto {word} = hlo::word_within<{tile.square}>({words}, {first});")
        return emit.stored(
            shape.dtype, emit.read(shape.dtype, f"hlo::element_of<{kind}>({word}, part)")
        )

    def _across(self) -> tuple[int, Expr, Expr]:
        """Return where lanes begin to differ, the lane's element across, and the lane's number."""
        emit, tile = self.emit, self.tile
        if tile.ends is None:
            mark = self._declare_first(_clamped("top + lane", tile.across, tile.rows * tile.high))
            return mark, "first", f"first % {tile.square}"
        self.begin = emit.integer(tile.odd_square(emit.integer("top + lane")))
        mark = self.declare_lane()
        return mark, emit.integer(f"{self.begin} + part"), "part"

    def declare_lane(self) -> int:
        """Declare `part`, the number of a lane; return the number of lines before what differs."""
        self.emit.line("const int part = 0;")
        return len(self.emit.lines)

    def _along(self, row: Expr) -> Iterator[Index]:
        """Yield the indices along the results of a square at a place of a row in shared memory."""
        emit, tile, dims = self.emit, self.tile, self.what.sizes(self.what.along)
        if tile.ends is None:
            over = emit.integer(self._read_square(row))
            first = emit.integer(_times(over, tile.square)) if tile.square > 1 else over
            x = emit.split(first, dims)
            for k in range(tile.square):
                yield *x[:-1], self._next(x[-1], k)
            return
        first = emit.integer(f"(left + {row} - {tile.spare}) * {tile.square}")
        for k in range(tile.square):
            yield emit.split(emit.integer(_within(self._next(first, k), tile.ends[0])), dims)

    def _read_square(self, row: Expr) -> Expr:
        """Return which square along the results is read for a place of a row in shared memory."""
        tile = self.tile
        if not tile.spare:
            return _clamped(f"left + {row}", tile.along, tile.columns * tile.wide)
        return _within(self.emit.integer(f"left + {row} - {tile.spare}"), tile.along)

    def _next(self, index: Expr, further: int) -> Expr:
        return self.emit.integer(f"{index} + {further}") if further else index

    def _store(self) -> None:
        """Go on from the tile to the results, row by row of these."""
        emit, tile = self.emit, self.tile
        self._line_up(tile.wide)
        step, start, rows = tile.written_at_once, len(emit.lines), tile.high * tile.square
        turns = -(-rows // step)
        tests = [f"row < {rows}"] if rows % step else []
        tests += [f"rank < {step}"] if tile.threads % tile.wide else []
        with emit.block(f"for (int turn = 0; turn < {turns}; ++turn)"):
            emit.line(f"const int row = rank + turn * {step};")
            with emit.block(f"if ({' && '.join(tests)})") if tests else nullcontext():
                if tile.ends is None:
                    self._store_row()
                else:
                    store_words(self)
        alive = most_alive(emit.lines[start:])
        unrolled = min(MOST_UNROLLED, max(1, MOST_VALUES // max(1, alive)), turns)
        emit.lines.insert(start, f"#pragma unroll {unrolled}")

    def _store_row(self) -> None:
        emit, tile = self.emit, self.tile
        count = tile.across * tile.square
        below = "top + row"
        if tile.square > 1:
            below = f"(top + row % {tile.high}) * {tile.square} + row / {tile.high}"
        below = emit.integer(below)
        clamped = _clamped(below, count, tile.rows * tile.high * tile.square)
        y = emit.split(emit.integer(clamped), self.what.sizes(self.what.across))
        over, column = "left + lane", "lane"
        square = _clamped(over, tile.along, tile.columns * tile.wide)
        if tile.spare:
            zeros = tuple("0" for _ in self.what.along)
            begin = emit.offset(self.results[0], self.place(zeros, y))
            mask = tile.sector * tile.square - 1
            offset = f"(({begin}) & {mask})"
            before = emit.integer(f"{offset} / {tile.square}" if tile.square > 1 else offset)
            over = emit.integer(f"left + lane - {before}")
            column = emit.integer(f"lane + {tile.spare} - {before}")
            square = _within(over, tile.along)
        mark = self._declare_first(square)
        own = f"{_times(column, tile.square)} + first % {tile.square}"
        emit.line(f"const {emit.index_type} own = {own if tile.square > 1 else column};")
        place = self.place(emit.split("first", self.what.sizes(self.what.along)), y)
        values = self.values(place, [f"{name}[row * {tile.stride} + own]" for name in self.shared])
        tests = [f"{over} >= 0"] if tile.spare else []
        if tile.spare or tile.columns * tile.wide > tile.along:
            tests.append(f"{over} < {tile.along}")
        if tile.rows * tile.high > tile.across:
            tests.append(f"{below} < {count}")
        with emit.block(f"if ({' && '.join(tests)})") if tests else nullcontext():
            self.write_values(place, values)
        self.widen(mark)

    def values(self, place: Index, held: Sequence[Expr]) -> list[Expr]:
        """Return the results at `place` as they lie in memory, given the cuts as they lie there."""
        emit, root = self.emit, self.computation.root
        for cut, shape, value in zip(self.what.cuts, self.cuts, held, strict=True):
            emit.assume(cut, place, [emit.read(shape.dtype, value)])
        return [
            emit.stored(leaf.dtype, emit.leaf(root, number, place))
            for number, leaf in enumerate(self.results)
        ]

    def write_values(self, place: Index, values: Sequence[Expr]) -> None:
        """Write the results at `place`."""
        for number, (leaf, value) in enumerate(zip(self.results, values, strict=True)):
            self.emit.line(f"r{number}[{self.emit.offset(leaf, place)}] = {value};")

    def widen(self, mark: int) -> None:
        """Write the lines from `mark` on for all lanes of a square's row."""
        emit = self.emit
        body = emit.places.needed(emit.lines[mark:])
        if self.tile.square > 1:
            body = Lanes(
                body, "first" if self.tile.ends is None else "part", self.tile.square
            ).lines
        emit.lines[mark:] = body

    def place(self, x: Index, y: Index) -> Index:
        """Return the index of an element, given where it is along and across."""
        return self.what.index(x, y, self.batch)


def _times(index: Expr, count: int) -> Expr:
    return index if count == 1 else f"{index} * {count}"


def _clamped(place: Expr, count: int, places: int) -> Expr:
    """Return one of the tiles' places, or the last of `count` if it may lie past these."""
    return place if count == places else f"{place} < {count} ? {place} : {count - 1}"


def _within(at: Expr, count: int) -> Expr:
    """Return the place `at` of `count`, or the next one there is."""
    return f"{at} < 0 ? 0 : {at} < {count} ? {at} : {count - 1}"
