"""The forms of cholesky (a block factors a matrix) and triangular-solve.

Small triangles are kept in shared memory, and some right-hand sides with them (include/factor.cuh).
Large ones are taken apart by a pass; where it has not seen them, they are worked on where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.linalg.lower_triangle import LowerTriangle
from hlo2graph.backends.cuda.forms.linalg.square import GAP_BYTES, Square
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.linalg import largest_block

THREADS = 128
SOLVING_THREADS = 512  # half of them where the triangle is small
SMALL = 64  # rows
ACROSS = (8, 16, 32)  # right-hand sides of a block
MOST_BYTES = 256  # of a row of these
ROWS = 32  # of a block of a triangle


def cholesky_kernel(form: Form) -> KernelSource:
    """Return the kernel that factors matrices; one that has no factor becomes NaN."""
    shape = form.results[0]
    if shape.elements and shape.dims[-1] <= largest_block(shape.dtype):
        return _small_cholesky(form)
    return _large_cholesky(form)


def solve_kernel(form: Form) -> KernelSource:
    """Return the kernel that substitutes forwards or backwards, for each right-hand side alone."""
    system = _System(form)
    if form.results[0].elements and system.size <= largest_block(form.results[0].dtype):
        return _small_solve(system)
    return _large_solve(system)


def _small_cholesky(form: Form) -> KernelSource:
    shape, emit = form.results[0], form.emitter()
    lower, size = bool(form.instr.attrs.get("lower", False)), shape.dims[-1]
    kind = compute_type(shape.dtype)
    many = prod(shape.dims[:-2]) > form.signature.device.multiprocessors
    square = Square(kind, size, shape.dtype.size, many)
    batch = emit.split(emit.integer(emit.block_index), shape.dims[:-2])
    every = f"for (int at = threadIdx.x; at < {size * size}; at += {square.threads})"

    def turned(value: Expr) -> Expr:
        return value if lower else f"hlo::conj({value})"

    square.declare(emit)

    def load(row: Expr, column: Expr) -> Expr:
        place = (row, column) if lower else (column, row)
        return turned(emit.leaf(form.instr.operands[0], 0, (*batch, *place)))

    square.fill(emit, load, by_columns=not lower)
    emit.line(f"const int bad = {square.factor};")
    emit.line(f"const {kind} none = hlo::convert<hlo::{shape.dtype}>(hlo::nan_like(0.0f));")
    with emit.block(every):
        one, other = emit.split("at", (size, size))
        row, column = (one, other) if lower else (other, one)
        held = f"{column} <= {row} ? {turned(f'a.at[{row}][{column}]')} : {kind}{{}}"
        value = stored(shape.dtype, f"bad ? none : {held}")
        emit.line(f"r0[{emit.offset(shape, (*batch, one, other))}] = {value};")
    source = form.source(emit, prod(shape.dims[:-2]), square.threads)
    return replace(source, shared_bytes=square.bytes)


def _large_cholesky(form: Form) -> KernelSource:
    """Factor column by column."""
    shape, emit = form.results[0], form.emitter()
    lower = bool(form.instr.attrs.get("lower", False))
    size = shape.dims[-1]
    kind = compute_type(shape.dtype)
    batch = emit.split(emit.integer(emit.block_index), shape.dims[:-2])
    turned = (lambda x: x) if lower else (lambda x: f"hlo::conj({x})")

    def place(row: Expr, column: Expr) -> tuple[Expr, ...]:
        return (*batch, row, column) if lower else (*batch, column, row)

    def held(row: Expr, column: Expr) -> Expr:
        return turned(f"hlo::load(r0[{emit.offset(shape, place(row, column))}])")

    def put(row: Expr, column: Expr, value: Expr) -> None:
        at = emit.offset(shape, place(row, column))
        emit.line(f"r0[{at}] = {stored(shape.dtype, turned(value))};")

    emit.line("bool good = true;")
    with emit.block(f"for (int column = 0; column < {size}; ++column)"):
        with emit.block(f"for (int row = column + threadIdx.x; row < {size}; row += {THREADS})"):
            given = turned(emit.leaf(form.instr.operands[0], 0, place("row", "column")))
            emit.line(f"{kind} rest = {given};")
            with emit.block("for (int k = 0; k < column; ++k)"):
                factors = f"{held('row', 'k')}, hlo::conj({held('column', 'k')})"
                emit.line(f"rest = hlo::minus_product(rest, {factors});")
            put("row", "column", "rest")
        emit.line("__syncthreads();")
        emit.line(f"const auto pivot = hlo::sqrt(hlo::real({held('column', 'column')}));")
        emit.line("good = good && pivot > 0 && hlo::is_finite(pivot);")
        emit.line("__syncthreads();")
        with emit.block(f"for (int row = threadIdx.x; row < {size}; row += {THREADS})"):
            scaled = f"hlo::scaled({held('row', 'column')}, 1 / pivot)"
            emit.line(f"{kind} value = {kind}{{}};")
            emit.line(f"if (row > column) value = {scaled};")
            emit.line(f"if (row == column) value = hlo::convert<hlo::{shape.dtype}>(pivot);")
            put("row", "column", "value")
        emit.line("__syncthreads();")
    head = f"for (int at = threadIdx.x; !good && at < {size * size}; at += {THREADS})"
    with emit.block(head):
        row, column = emit.split("at", (size, size))
        put(row, column, f"hlo::convert<hlo::{shape.dtype}>(hlo::nan_like(0.0f))")
    return form.source(emit, max(1, prod(shape.dims[:-2])), THREADS)


class _System:
    """The triangle and the right-hand sides of a triangular-solve, as op(a) x = b."""

    def __init__(self, form: Form) -> None:
        self.form, self.emit, attrs = form, form.emitter(), form.instr.attrs
        self.left = bool(attrs.get("left_side", False))
        self.transpose = str(attrs["transpose_a"])
        # x op(a) = b is op(a)^T x^T = b^T: the two transpositions may cancel.
        self.swapped = (self.transpose != "NO_TRANSPOSE") == self.left
        self.forwards = bool(attrs.get("lower", False)) != self.swapped
        self.unit = bool(attrs.get("unit_diagonal", False))
        self.result = form.results[0]
        self.size = form.shape(0).dims[-1]
        self.columns = self.result.dims[-1 if self.left else -2]
        self.batch_dims = self.result.dims[:-2]

    def row_of(self, at: Expr) -> Expr:
        """Return a row by its number in the order of substitution."""
        return at if self.forwards else self.emit.integer(f"{self.size - 1} - {at}")

    def matrix(self, batch: Sequence[Expr], row: Expr, step: Expr) -> Expr:
        """Return an element of op(a)."""
        place = (*batch, step, row) if self.swapped else (*batch, row, step)
        found = self.emit.leaf(self.form.instr.operands[0], 0, place)
        return f"hlo::conj({found})" if self.transpose == "ADJOINT" else found

    def place(self, batch: Sequence[Expr], row: Expr, column: Expr) -> Index:
        """Return where b, and x, has the element of a right-hand side."""
        return (*batch, row, column) if self.left else (*batch, column, row)


def _small_solve(system: _System) -> KernelSource:
    """Let each block keep a triangle at hand, turned round where substitution goes backwards."""
    form, emit, size, shape = system.form, system.emit, system.size, system.result
    kind, last = compute_type(shape.dtype), system.columns - 1
    threads, batches = SOLVING_THREADS // (1 if size > SMALL else 2), prod(system.batch_dims)
    across = _across(system)
    pieces = -(-system.columns // across)
    *batch, piece = emit.split(emit.integer(emit.block_index), (*system.batch_dims, pieces))
    emit.line(f"typedef hlo::System<{kind}, {size}, {across}> System;")
    emit.line("System& a = *(System*)hlo::dynamic_shared();")

    def load(row: Expr, step: Expr) -> Expr:
        return system.matrix(batch, system.row_of(row), system.row_of(step))

    def put(row: Expr, step: Expr, value: Expr) -> None:
        emit.line(f"a.at[{row}][{step}] = {value};")

    def every(write: Callable[[Expr, Expr, Index], None], *, guarded: bool) -> None:
        """Write a loop over the block's right-hand sides, neighbours side by side."""
        emit.line("#pragma unroll")
        with emit.block(f"for (int n = 0; n < {-(-size * across // threads)}; ++n)"):
            at = emit.integer(f"threadIdx.x + n * {threads}")
            tests = [f"{at} < {size * across}"] if size * across % threads else []
            sizes = (size, across) if system.left else (across, size)
            one, other = emit.split(at, sizes)
            row, side = (one, other) if system.left else (other, one)
            column = emit.integer(f"{piece} * {across} + {side}")
            tests += [f"{column} <= {last}"] if guarded else []
            inside = column if guarded else emit.integer(f"{column} < {last} ? {column} : {last}")
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                write(row, side, system.place(batch, system.row_of(row), inside))

    def take(row: Expr, side: Expr, place: Index) -> None:
        emit.line(f"a.x[{side}][{row}] = {emit.leaf(form.instr.operands[1], 0, place)};")

    def give(row: Expr, side: Expr, place: Index) -> None:
        emit.line(
            f"r0[{emit.offset(shape, place)}] = {stored(shape.dtype, f'a.x[{side}][{row}]')};"
        )

    triangle = LowerTriangle(emit, kind, size, threads)
    triangle.move(load, put, by_columns=system.swapped)
    every(take, guarded=False)
    emit.line(f"a.pad<{threads}>();")
    emit.line("__syncthreads();")
    emit.line(f"a.solve<{threads}, {'true' if system.unit else 'false'}>();")
    every(give, guarded=True)
    source = form.source(emit, batches * pieces, threads, resident=1)
    rows = -(-size // ROWS) * ROWS
    elements = rows * (rows + across + 1) * shape.dtype.size
    return replace(source, shared_bytes=elements + (rows + across) * GAP_BYTES)


def _across(system: _System) -> int:
    """Return the right-hand sides of a block: few, where more multiprocessors then have some."""
    batches, device = prod(system.batch_dims), system.form.signature.device
    most = [n for n in ACROSS if n * system.result.dtype.size <= MOST_BYTES]
    for across in most:
        if batches * -(-system.columns // across) <= device.multiprocessors:
            return across
    return most[-1]


def _large_solve(system: _System) -> KernelSource:
    """Let each thread solve for a right-hand side where it lies."""
    form, emit, size, b = system.form, system.emit, system.size, system.result
    threads = prod(system.batch_dims) * system.columns
    thread = emit.integer(f"{emit.block_index} * {THREADS} + threadIdx.x")
    with emit.block(f"if ({thread} < {threads})"):
        *batch, column = emit.split(thread, (*system.batch_dims, system.columns))
        with emit.block(f"for (int step = 0; step < {size}; ++step)"):
            emit.line(f"const int row = {'step' if system.forwards else f'{size - 1} - step'};")
            at = system.place(batch, "row", column)
            given = emit.leaf(form.instr.operands[1], 0, at)
            emit.line(f"{compute_type(b.dtype)} rest = {given};")
            head = "int k = 0; k < row" if system.forwards else f"int k = row + 1; k < {size}"
            with emit.block(f"for ({head}; ++k)"):
                factor = system.matrix(batch, "row", "k")
                known = f"hlo::load(r0[{emit.offset(b, system.place(batch, 'k', column))}])"
                emit.line(f"rest = hlo::minus_product(rest, {factor}, {known});")
            if not system.unit:
                emit.line(f"rest = hlo::divide(rest, {system.matrix(batch, 'row', 'row')});")
            emit.line(f"r0[{emit.offset(b, at)}] = {stored(b.dtype, 'rest')};")
    (blocks, _, _) = blocks_for(threads, THREADS)
    return form.source(emit, blocks, THREADS)
