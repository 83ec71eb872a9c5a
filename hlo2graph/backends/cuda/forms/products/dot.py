"""The dot form: a block computes a tile of the result from tiles of both operands in shared memory.

Any element type, layout and order of dimensions: batch, free and contracting dimensions are each
taken as one. Sums run in the order of the contracting dimension, as in the loop form. What is
multiplied next is on its way into registers meanwhile. Where tiles are few, they are smaller and
deeper, so that more multiprocessors have one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.results import Results
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.device_products import DotParts, narrowed
from hlo2graph.ops.expect import written

SIDE = 16  # threads along each side of a tile
THREADS = SIDE * SIDE
WIDEST = 64  # rows and columns of a tile
MOST_AT_ONCE = 4  # elements of either operand that a thread has on their way
FEWEST = 16  # rows, columns and steps below which the loop form does as well


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand: its free dimensions as rows (lhs) or columns (rhs), and a tile's width."""

    number: int
    shape: Shape
    batch: tuple[int, ...]
    free: tuple[int, ...]
    contract: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Rows or columns."""
        return prod(self.shape.dims[d] for d in self.free)

    @property
    def widest(self) -> int:
        """Rows or columns of a tile, at most."""
        return min(WIDEST, SIDE << ((self.extent - 1) // SIDE).bit_length())

    @property
    def is_deep(self) -> bool:
        """What lies side by side in memory is one of the contracting dimensions."""
        minor = next((d for d in self.shape.minor_to_major if self.shape.dims[d] > 1), None)
        return minor in self.contract


def fits(form: Form) -> bool:
    """It is one dot, and large enough for tiles."""
    lhs, rhs = _sides(form, form.emitter())
    steps = prod(lhs.shape.dims[d] for d in lhs.contract)
    return not form.others and min(lhs.extent, rhs.extent, steps) >= FEWEST


def dot_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot and of the elementwise work behind it."""
    emit = form.emitter()
    lhs, rhs = _sides(form, emit)
    writer = _Writer(form, emit, lhs, rhs)
    writer.write()
    return form.source(emit, writer.blocks, THREADS)


def _sides(form: Form, emit: ElementEmitter) -> tuple[_Side, _Side]:
    parts = DotParts(emit.operands_of(form.instr), form.instr)
    lhs, rhs = (
        _Side(k, parts.shapes[k], parts.batch[k], parts.free[k], parts.contract[k]) for k in (0, 1)
    )
    return lhs, rhs


class _Writer:
    def __init__(self, form: Form, emit: ElementEmitter, lhs: _Side, rhs: _Side) -> None:
        self.form, self.emit, self.lhs, self.rhs = form, emit, lhs, rhs
        self.parts = DotParts(emit.operands_of(form.instr), form.instr)
        self.type = compute_type(self.parts.wide)
        self.steps = prod(self.parts.steps)
        self.tile = self._tile(form.signature.device.multiprocessors)
        steps = max(FEWEST, 1 << (self.steps - 1).bit_length())
        self.depth = min(MOST_AT_ONCE * THREADS // self.tile, steps)
        self.at_once = self.depth * self.tile // THREADS
        self.blocks = self._blocks(self.tile)
        self.results = Results(form, emit)

    def _tile(self, multiprocessors: int) -> int:
        """Return the rows and columns of a tile: fewer, while there is a device for more tiles."""
        found = max(self.lhs.widest, self.rhs.widest)
        while found > SIDE and self._blocks(found // 2) <= multiprocessors:
            found //= 2
        return found

    def _blocks(self, tile: int) -> int:
        sides = (self.lhs, self.rhs)
        batches = prod(self.lhs.shape.dims[d] for d in self.lhs.batch)
        return batches * prod(-(-side.extent // tile) for side in sides)

    def write(self) -> None:
        emit, lhs, rhs, tile = self.emit, self.lhs, self.rhs, self.tile
        down, across = (-(-side.extent // tile) for side in (lhs, rhs))
        block = emit.integer(emit.block_index)
        self.batch = emit.split(
            emit.integer(f"{block} / {across * down}"), [lhs.shape.dims[d] for d in lhs.batch]
        )
        emit.line(f"const {emit.index_type} tile = {block} % {across * down};")
        emit.line(f"const {emit.index_type} top = tile / {across} * {tile};")
        emit.line(f"const {emit.index_type} left = tile % {across} * {tile};")
        emit.line(f"const int tx = threadIdx.x % {SIDE}, ty = threadIdx.x / {SIDE};")
        emit.line(f"__shared__ hlo::Slab<{self.type}, {self.depth}, {tile}> a, b;")
        each = tile // SIDE
        emit.line(f"{self.type} total[{each}][{each}] = {{}};")
        emit.line(f"{self.type} rows[{self.at_once}], columns[{self.at_once}];")
        with emit.block(f"const auto fetch = [&]({emit.index_type} first)", ";"):
            self._fetch(lhs, "rows", "top")
            self._fetch(rhs, "columns", "left")
        emit.line("fetch(0);")
        head = f"for ({emit.index_type} first = 0; first < {self.steps}; first += {self.depth})"
        with emit.block(head):
            for side, slab, held in ((lhs, "a", "rows"), (rhs, "b", "columns")):
                emit.line("#pragma unroll")
                with emit.block(f"for (int n = 0; n < {self.at_once}; ++n)"):
                    deep, wide = self._place(side)
                    emit.line(f"{slab}.at[{deep}][{wide}] = {held}[n];")
            emit.line("__syncthreads();")
            if self.steps > self.depth:
                emit.line(f"if (first + {self.depth} < {self.steps}) fetch(first + {self.depth});")
            emit.line(f"a.multiply<{each}>(b, ty * {each}, tx * {each}, total);")
            emit.line("__syncthreads();")
        with self._each(each, each):
            self._store()
        self.results.beside(self.blocks, THREADS)

    def _each(self, rows: int, columns: int) -> ExitStack:
        """Write loops over this thread's elements of the tile."""
        opened = ExitStack()
        for name, count in (("i", rows), ("j", columns)):
            self.emit.line("#pragma unroll")
            head = f"for (int {name} = 0; {name} < {count}; ++{name})"
            opened.enter_context(self.emit.block(head))
        return opened

    def _place(self, side: _Side) -> tuple[Expr, Expr]:
        """Return step and row, or column, of a thread's element `n`: as they lie in memory."""
        slot = f"(int)(threadIdx.x + n * {THREADS})"
        if side.is_deep:
            return f"{slot} % {self.depth}", f"{slot} / {self.depth}"
        return f"{slot} / {self.tile}", f"{slot} % {self.tile}"

    def _fetch(self, side: _Side, held: str, start: Expr) -> None:
        """Write how a thread reads elements of an operand; behind its end they are 0."""
        emit = self.emit
        emit.line("#pragma unroll")
        with emit.block(f"for (int n = 0; n < {self.at_once}; ++n)"):
            deep, wide = self._place(side)
            tests: list[Expr] = []
            step = self._inside(f"first + {deep}", self.steps, self.depth, tests)
            at = self._inside(f"{start} + {wide}", side.extent, self.tile, tests)
            place = dict(zip(side.batch, self.batch, strict=True))
            for dims, number in ((side.free, at), (side.contract, step)):
                split = emit.split(number, [side.shape.dims[d] for d in dims])
                place |= dict(zip(dims, split, strict=True))
            index = tuple(place[d] for d in range(side.shape.rank))
            found = emit.leaf(self.form.instr.operands[side.number], 0, index)
            value = f"hlo::convert<hlo::{self.parts.wide}>({found})"
            kept = f"{' && '.join(tests)} ? {value} : {self.type}{{}}" if tests else value
            emit.line(f"{held}[n] = {kept};")

    def _inside(self, number: Expr, extent: int, run: int, tests: list[Expr]) -> Expr:
        """Return `number`, kept below `extent` where not all are, and then add what tells which."""
        at = self.emit.integer(number)
        if extent % run == 0:
            return at
        tests.append(f"{at} < {extent}")
        return self.emit.integer(f"{at} < {extent} ? {at} : {extent - 1}")

    def _store(self) -> None:
        emit, form = self.emit, self.form
        each = self.tile // SIDE
        row = emit.integer(f"top + ty * {each} + i")
        column = emit.integer(f"left + tx * {each} + j")
        with emit.block(f"if ({row} < {self.lhs.extent} && {column} < {self.rhs.extent})"):
            free = [
                emit.split(number, [side.shape.dims[d] for d in side.free])
                for side, number in ((self.lhs, row), (self.rhs, column))
            ]
            index = (*self.batch, *free[0], *free[1])
            total = emit.bind(self.parts.wide, "total[i][j]")
            value = narrowed(
                emit.operands_of(form.instr), total, self.parts.wide, written(form.instr).dtype
            )
            emit.assume(form.instr.name, index, (value,))
            for _, store in self.results.at(index):
                emit.line(store)
