"""The forms of a sort by digits: counting those of a block's elements, and moving these.

A block takes a chunk of a row. It finds by the counts of all blocks where its elements of each
digit go, then takes a tile after the other: the elements are put in order by their digit in shared
memory, one operand after the other, so that neighbours there go to neighbouring places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.window import Window
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Shape
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
    writer, chunks, length = _begun(form, COUNTING)
    emit, (*names, bits) = writer.emit, form.instr.operands
    known = _bits(emit, bits)
    with emit.block(f"const auto digit = [&]({writer.index} at) -> hlo::u32", ";"):
        place = writer.place("at")
        values = [emit.leaf(name, 0, place) for name in names]
        emit.line(f"return {_digit(form, emit, [*values, *known])};")
    counts = f"r0 + (size_t)blockIdx.x * {DIGITS}"
    emit.line(f"hlo::count_digits<{COUNTING}>(first, end, digit, {counts});")
    return form.source(emit, _blocks(form.shape(0), chunks, length), COUNTING)


def digits_kernel(form: Form) -> KernelSource:
    """Return the kernel that sorts by a digit."""
    chunks = chunks_of(form.instr)
    assert chunks is not None
    tile = _tile_of(form, chunks)
    writer, _, length = _begun(form, tile.threads)
    emit, index = writer.emit, writer.index
    known = _bits(emit, form.instr.operands[-2])
    _find_places(form, writer, tile.threads)
    held, ahead = ([emit.fresh(stem) for _ in form.results] for stem in ("held", "ahead"))
    emit.line(f"const int own = threadIdx.x / {WARP} * {WARP * tile.each} + threadIdx.x % {WARP};")
    _load(form, writer, tile, held, "first")
    with emit.block(f"for ({index} tile = first; tile < end; tile += {tile.size})"):
        emit.line(f"const int count = tile + {tile.size} < end ? {tile.size} : (int)(end - tile);")
        _find_digits(form, writer, tile, held, known)
        has_more = chunks.chunk > tile.size
        if has_more:  # it comes while this one is put in order
            _load(form, writer, tile, ahead, f"tile + {tile.size}")
        emit.line(f"int slots[{tile.each}];")
        ways = f"{tile.threads}, {tile.each}"
        emit.line(f"hlo::order_digits<{ways}>(digits, slots, places, moves);")
        _move(form, writer, tile, held)
        if has_more:
            for name, following in zip(held, ahead, strict=True):
                emit.line("#pragma unroll")
                emit.line(f"{tile.every} {name}[e] = {following}[e];")
    return form.source(emit, _blocks(form.shape(0), chunks, length), tile.threads)


def _tile_of(form: Form, chunks: Chunks) -> _Tile:
    widest = max(leaf.dtype.size for leaf in form.results)
    if widest == WIDEST or chunks.chunk <= _SMALL.size:
        return _SMALL
    return _SHARED if form.shape(0).elements >= MANY else _LARGE


def _begun(form: Form, threads: int) -> tuple[Window, Chunks, int]:
    """Declare which elements of which row a block takes."""
    chunks = chunks_of(form.instr)
    assert chunks is not None
    length = form.shape(0).dims[chunks.dimension]
    writer = Window(form, form.emitter(), chunks.dimension, threads, threads)
    emit = writer.emit
    row, part = emit.split(emit.integer(emit.block_index), (-1, _parts(chunks, length)))
    writer.find_row(row)
    emit.line(f"const {writer.index} row = {row}, part = {part};")
    emit.line(f"const {writer.index} first = part * {chunks.chunk};")
    end = f"first + {chunks.chunk} < {length} ? first + {chunks.chunk} : {length}"
    emit.line(f"const {writer.index} end = {end};")
    emit.line("if (first >= end) return;")
    return writer, chunks, length


def _parts(chunks: Chunks, length: int) -> int:
    return max(1, -(-length // chunks.chunk))


def _blocks(shape: Shape, chunks: Chunks, length: int) -> int:
    rows = shape.elements // length if length else 0
    return max(1, rows * _parts(chunks, length))


def _bits(emit: ElementEmitter, name: str) -> list[Expr]:
    """Return where the digit lies in a key, and its mask."""
    return [emit.leaf(name, 0, (str(k),)) for k in (0, 1)]


def _digit(form: Form, emit: ElementEmitter, values: list[Expr]) -> Expr:
    (found,) = emit.call(str(form.instr.attrs["to_apply"]), values)
    return f"(hlo::u32){found}"


def _find_places(form: Form, writer: Window, threads: int) -> None:
    """Find where the first element of each digit goes."""
    emit, name = writer.emit, form.instr.operands[-1]
    emit.line(f"__shared__ int places[{DIGITS}], moves[{DIGITS}];")
    with emit.block("const auto counted = [&](int block, int digit) -> int", ";"):
        at: Index = ("row", emit.integer("block"), emit.integer("digit"))
        emit.line(f"return {emit.leaf(name, 0, at)};")
    blocks = _parts(_chunks(form), form.shape(0).dims[writer.along])
    emit.line(f"hlo::first_places<{threads}>((int)part, {blocks}, counted, places);")


def _chunks(form: Form) -> Chunks:
    chunks = chunks_of(form.instr)
    assert chunks is not None
    return chunks


def _load(form: Form, writer: Window, tile: _Tile, names: Sequence[Expr], start: Expr) -> None:
    """Declare what a thread has of a tile; of one that ends early, the last element again."""
    emit = writer.emit
    for leaf, name in zip(form.results, names, strict=True):
        emit.line(f"{storage_type(leaf.dtype)} {name}[{tile.each}];")
    emit.line("#pragma unroll")
    with emit.block(tile.every):
        emit.line(f"const {writer.index} at = {start} + own + e * {WARP};")
        place = writer.place(emit.integer("at < end ? at : end - 1"))
        for leaf, name, operand in zip(form.results, names, form.instr.operands, strict=False):
            value = emit.stored(leaf.dtype, emit.leaf(operand, 0, place))
            emit.line(f"{name}[e] = {value};")


def _find_digits(
    form: Form, writer: Window, tile: _Tile, names: Sequence[Expr], known: Sequence[Expr]
) -> None:
    """Declare a tile's digits; what is behind the end comes last."""
    emit = writer.emit
    emit.line(f"hlo::u32 digits[{tile.each}];")
    emit.line("#pragma unroll")
    with emit.block(tile.every):
        values = [
            emit.bind(leaf.dtype, f"hlo::load({name}[e])")
            for leaf, name in zip(form.results, names, strict=True)
        ]
        digit = _digit(form, emit, [*values, *known])
        emit.line(f"digits[e] = own + e * {WARP} < count ? {digit} : {DIGITS - 1};")


def _move(form: Form, writer: Window, tile: _Tile, held: Sequence[Expr]) -> None:
    """Put a tile in order in shared memory, and from there where it goes."""
    emit, index = writer.emit, writer.index
    widest = max(leaf.dtype.size for leaf in form.results)
    emit.line(f"__shared__ hlo::u8 known[{tile.size}];")
    emit.line(f"__shared__ hlo::u64 staged[{tile.size * widest // 8}];")
    emit.line("#pragma unroll")
    emit.line(f"{tile.every} known[slots[e]] = (hlo::u8)digits[e];")
    emit.line(f"{index} goes[{tile.each}];")
    for number, (leaf, name) in enumerate(zip(form.results, held, strict=True)):
        stage = emit.fresh("stage")
        kind = storage_type(leaf.dtype)
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
                place = emit.offset(leaf, writer.place(emit.integer("goes[e]")))
                emit.line(f"r{number}[{place}] = {stage}[slot];")
        emit.line("__syncthreads();")
