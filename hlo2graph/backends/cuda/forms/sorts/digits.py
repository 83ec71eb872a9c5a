"""The forms of a sort by digits: counting those of a block's elements, and moving these.

A block takes a chunk of a row. It finds by the counts of all blocks where its elements of each
digit go, then takes a tile after the other: the elements are put in order by their digit in shared
memory, one operand after the other, so that neighbours there go to neighbouring places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.window import Window
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.sort_digits import DIGITS, MANY, WIDEST, Chunks, chunks_of

COUNTING = 512  # threads of a block that counts


@dataclass(frozen=True, slots=True)
class _Tile:
    """What a block sorts at once: `each` elements of every thread."""

    threads: int
    each: int

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.threads * self.each

    @property
    def every(self) -> str:
        """The head of a loop over a thread's elements."""
        return f"for (int e = 0; e < {self.each}; ++e)"


_SMALL, _LARGE, _SHARED = _Tile(512, 4), _Tile(1024, 4), _Tile(512, 8)
"""Of chunks as small, or of wide elements; of others; where two share a multiprocessor."""


def count_kernel(form: Form) -> KernelSource:
    """Return the kernel that counts digits."""
    writer = _Writer(form, _chunks(form), COUNTING)
    *arrays, bits = form.instr.operands
    writer.count(arrays, bits)
    return writer.source()


def digits_kernel(form: Form) -> KernelSource:
    """Return the kernel that sorts by a digit."""
    chunks = _chunks(form)
    writer = _Sorter(form, chunks, _tile_of(form, chunks))
    *_, bits, counts = form.instr.operands
    writer.sort(bits, counts)
    return writer.source()


def _chunks(form: Form) -> Chunks:
    chunks = chunks_of(form.instr)
    assert chunks is not None
    return chunks


def _tile_of(form: Form, chunks: Chunks) -> _Tile:
    widest = max(leaf.dtype.size for leaf in form.results)
    if widest == WIDEST or chunks.chunk <= _SMALL.size:
        return _SMALL
    return _SHARED if form.shape(0).elements >= MANY else _LARGE


class _Writer:
    """Writes what a block does with its chunk, the elements from `first` to `end` of `row`."""

    def __init__(self, form: Form, chunks: Chunks, threads: int) -> None:
        self.form, self.chunks, self.threads = form, chunks, threads
        self.length = form.shape(0).dims[chunks.dimension]
        self.parts = max(1, -(-self.length // chunks.chunk))  # chunks of a row
        self.emit = form.emitter()
        self.window = Window(form, self.emit, chunks.dimension, threads, threads)

    def source(self) -> KernelSource:
        """Return the kernel of what is written."""
        rows = self.form.shape(0).elements // self.length if self.length else 0
        return self.form.source(self.emit, max(1, rows * self.parts), self.threads)

    def count(self, arrays: Sequence[str], bits: str) -> None:
        """Write how the digits of the chunk are counted."""
        self._begin()
        emit, known = self.emit, self._bits(bits)
        with emit.block(f"const auto digit = [&]({self.window.index} at) -> hlo::u32", ";"):
            place = self.window.place("at")
            values = [emit.leaf(name, 0, place) for name in arrays]
            emit.line(f"return {self._digit([*values, *known])};")
        counts = f"r0 + (size_t)blockIdx.x * {DIGITS}"
        emit.line(f"hlo::count_digits<{COUNTING}>(first, end, digit, {counts});")

    def _begin(self) -> None:
        """Declare which elements of which row the block takes."""
        emit, index, chunk = self.emit, self.window.index, self.chunks.chunk
        row, part = emit.split(emit.integer(emit.block_index), (-1, self.parts))
        self.window.find_row(row)
        emit.line(f"const {index} row = {row}, part = {part};")
        emit.line(f"const {index} first = part * {chunk};")
        end = f"first + {chunk} < {self.length} ? first + {chunk} : {self.length}"
        emit.line(f"const {index} end = {end};")
        emit.line("if (first >= end) return;")

    def _bits(self, name: str) -> list[Expr]:
        """Return where the digit lies in a key, and its mask."""
        return [self.emit.leaf(name, 0, (str(k),)) for k in (0, 1)]

    def _digit(self, values: Sequence[Expr]) -> Expr:
        (found,) = self.emit.call(str(self.form.instr.attrs["to_apply"]), values)
        return f"(hlo::u32){found}"


class _Sorter(_Writer):
    """Writes how a chunk is sorted, tile by tile."""

    def __init__(self, form: Form, chunks: Chunks, tile: _Tile) -> None:
        super().__init__(form, chunks, tile.threads)
        self.tile = tile

    def sort(self, bits: str, counts: str) -> None:
        """Write all lines."""
        self._begin()
        emit, tile, known = self.emit, self.tile, self._bits(bits)
        self._find_places(counts)
        held, ahead = ([emit.fresh(stem) for _ in self.form.results] for stem in ("held", "ahead"))
        own = f"threadIdx.x / {WARP} * {WARP * tile.each} + threadIdx.x % {WARP}"
        emit.line(f"const int own = {own};")
        self._load(held, "first")
        head = f"for ({self.window.index} tile = first; tile < end; tile += {tile.size})"
        with emit.block(head):
            count = f"tile + {tile.size} < end ? {tile.size} : (int)(end - tile)"
            emit.line(f"const int count = {count};")
            self._find_digits(held, known)
            has_more = self.chunks.chunk > tile.size
            if has_more:  # it comes while this one is put in order
                self._load(ahead, f"tile + {tile.size}")
            emit.line(f"int slots[{tile.each}];")
            ways = f"{tile.threads}, {tile.each}"
            emit.line(f"hlo::order_digits<{ways}>(digits, slots, places, moves);")
            self._move(held)
            if has_more:
                for name, following in zip(held, ahead, strict=True):
                    emit.line("#pragma unroll")
                    emit.line(f"{tile.every} {name}[e] = {following}[e];")

    def _find_places(self, counts: str) -> None:
        """Find where the first element of each digit goes."""
        emit = self.emit
        emit.line(f"__shared__ int places[{DIGITS}], moves[{DIGITS}];")
        with emit.block("const auto counted = [&](int block, int digit) -> int", ";"):
            at: Index = ("row", emit.integer("block"), emit.integer("digit"))
            emit.line(f"return {emit.leaf(counts, 0, at)};")
        call = f"hlo::first_places<{self.threads}>((int)part, {self.parts}, counted, places)"
        emit.line(f"{call};")

    def _load(self, names: Sequence[Expr], start: Expr) -> None:
        """Declare what a thread has of a tile; of one that ends early, the last element again."""
        emit, results, operands = self.emit, self.form.results, self.form.instr.operands
        for leaf, name in zip(results, names, strict=True):
            emit.line(f"{storage_type(leaf.dtype)} {name}[{self.tile.each}];")
        emit.line("#pragma unroll")
        with emit.block(self.tile.every):
            emit.line(f"const {self.window.index} at = {start} + own + e * {WARP};")
            place = self.window.place(emit.integer("at < end ? at : end - 1"))
            for leaf, name, operand in zip(results, names, operands, strict=False):
                value = emit.stored(leaf.dtype, emit.leaf(operand, 0, place))
                emit.line(f"{name}[e] = {value};")

    def _find_digits(self, names: Sequence[Expr], known: Sequence[Expr]) -> None:
        """Declare a tile's digits; what is behind the end comes last."""
        emit = self.emit
        emit.line(f"hlo::u32 digits[{self.tile.each}];")
        emit.line("#pragma unroll")
        with emit.block(self.tile.every):
            values = [
                emit.bind(leaf.dtype, f"hlo::load({name}[e])")
                for leaf, name in zip(self.form.results, names, strict=True)
            ]
            digit = self._digit([*values, *known])
            emit.line(f"digits[e] = own + e * {WARP} < count ? {digit} : {DIGITS - 1};")

    def _move(self, held: Sequence[Expr]) -> None:
        """Put a tile in order in shared memory, and from there where it goes."""
        emit, tile, results = self.emit, self.tile, self.form.results
        widest = max(leaf.dtype.size for leaf in results)
        emit.line(f"__shared__ hlo::u8 known[{tile.size}];")
        emit.line(f"__shared__ hlo::u64 staged[{tile.size * widest // 8}];")
        emit.line("#pragma unroll")
        emit.line(f"{tile.every} known[slots[e]] = (hlo::u8)digits[e];")
        emit.line(f"{self.window.index} goes[{tile.each}];")
        for number, (leaf, name) in enumerate(zip(results, held, strict=True)):
            stage, kind = emit.fresh("stage"), storage_type(leaf.dtype)
            emit.line(f"{kind}* const {stage} = ({kind}*)staged;")
            emit.line("#pragma unroll")
            emit.line(f"{tile.every} {stage}[slots[e]] = {name}[e];")
            emit.line("__syncthreads();")
            emit.line("#pragma unroll")
            with emit.block(tile.every):
                emit.line(f"const int slot = threadIdx.x + e * {tile.threads};")
                if number == 0:
                    emit.line("goes[e] = slot + moves[known[slot]];")
                with emit.block("if (slot < count)"):
                    place = emit.offset(leaf, self.window.place(emit.integer("goes[e]")))
                    emit.line(f"r{number}[{place}] = {stage}[slot];")
            emit.line("__syncthreads();")
