"""The dot form: a block computes a tile of the result from tiles of both operands in shared memory.

Any element type, layout and order of dimensions: batch, free and contracting dimensions are each
taken as one. Sums run in the order of the contracting dimension, as in the loop form.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.results import Results
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.device_products import DotParts, narrowed
from hlo2graph.ops.expect import written

SIDE = 16  # threads along each side of a tile
THREADS = SIDE * SIDE
DEPTH = 16  # steps of the contracting dimension held at once
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
    def tile(self) -> int:
        """Rows or columns of a tile."""
        return min(64, SIDE << ((self.extent - 1) // SIDE).bit_length())

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
        self.tiles = (-(-lhs.extent // lhs.tile), -(-rhs.extent // rhs.tile))
        self.blocks = prod(lhs.shape.dims[d] for d in lhs.batch) * prod(self.tiles)
        self.results = Results(form, emit)

    def write(self) -> None:
        emit, lhs, rhs = self.emit, self.lhs, self.rhs
        across, down = self.tiles[1], self.tiles[0]
        block = emit.integer(emit.block_index)
        self.batch = emit.split(
            emit.integer(f"{block} / {across * down}"), [lhs.shape.dims[d] for d in lhs.batch]
        )
        emit.line(f"const {emit.index_type} tile = {block} % {across * down};")
        emit.line(f"const {emit.index_type} top = tile / {across} * {lhs.tile};")
        emit.line(f"const {emit.index_type} left = tile % {across} * {rhs.tile};")
        emit.line(f"const int tx = threadIdx.x % {SIDE}, ty = threadIdx.x / {SIDE};")
        # One column more than a tile has, so that a warp's accesses fall into different banks.
        emit.line(f"__shared__ {self.type} a[{DEPTH}][{lhs.tile + 1}], b[{DEPTH}][{rhs.tile + 1}];")
        rows, columns = lhs.tile // SIDE, rhs.tile // SIDE
        emit.line(f"{self.type} total[{rows}][{columns}] = {{}};")
        head = f"for ({emit.index_type} first = 0; first < {self.steps}; first += {DEPTH})"
        with emit.block(head):
            self._load(lhs, "a", "top")
            self._load(rhs, "b", "left")
            emit.line("__syncthreads();")
            emit.line("#pragma unroll")
            with emit.block(f"for (int k = 0; k < {DEPTH}; ++k)"), self._each(rows, columns):
                product = f"hlo::multiply(a[k][ty + {SIDE} * i], b[k][tx + {SIDE} * j])"
                emit.line(f"total[i][j] = hlo::add(total[i][j], {product});")
            emit.line("__syncthreads();")
        with self._each(rows, columns):
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

    def _load(self, side: _Side, shared: str, start: Expr) -> None:
        """Write how the block fetches a tile of one operand, along what lies side by side."""
        emit = self.emit
        head = f"for (int slot = threadIdx.x; slot < {side.tile * DEPTH}; slot += {THREADS})"
        with emit.block(head):
            deep, wide = (
                (f"slot % {DEPTH}", f"slot / {DEPTH}")
                if side.is_deep
                else (f"slot / {side.tile}", f"slot % {side.tile}")
            )
            emit.line(f"const int deep = {deep}, wide = {wide};")
            step, at = emit.integer("first + deep"), emit.integer(f"{start} + wide")
            emit.line(f"{self.type} value = {{}};")
            with emit.block(f"if ({step} < {self.steps} && {at} < {side.extent})"):
                place = dict(zip(side.batch, self.batch, strict=True))
                for dims, number in ((side.free, at), (side.contract, step)):
                    split = emit.split(number, [side.shape.dims[d] for d in dims])
                    place |= dict(zip(dims, split, strict=True))
                index = tuple(place[d] for d in range(side.shape.rank))
                found = emit.leaf(self.form.instr.operands[side.number], 0, index)
                emit.line(f"value = hlo::convert<hlo::{self.parts.wide}>({found});")
            emit.line(f"{shared}[deep][wide] = value;")

    def _store(self) -> None:
        emit, form = self.emit, self.form
        row = emit.integer(f"top + ty + {SIDE} * i")
        column = emit.integer(f"left + tx + {SIDE} * j")
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
