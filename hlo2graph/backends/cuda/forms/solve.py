"""The forms of cholesky (a block factors a matrix) and triangular-solve (a thread a column)."""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr

THREADS = 128


def cholesky_kernel(form: Form) -> KernelSource:
    """Return the kernel that factors column by column; a matrix with no factor becomes NaN."""
    shape, emit = form.results[0], form.emitter()
    lower = bool(form.instr.attrs.get("lower", False))
    size = shape.dims[-1] if shape.elements else 0  # a grid has a block even for no matrices
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
                product = f"hlo::multiply({held('row', 'k')}, hlo::conj({held('column', 'k')}))"
                emit.line(f"rest = hlo::subtract(rest, {product});")
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


def solve_kernel(form: Form) -> KernelSource:
    """Return the kernel that substitutes forwards or backwards, for each right-hand side alone."""
    a, b, emit, attrs = form.shape(0), form.results[0], form.emitter(), form.instr.attrs
    left, lower = bool(attrs.get("left_side", False)), bool(attrs.get("lower", False))
    transposed = attrs["transpose_a"] != "NO_TRANSPOSE"
    swapped = transposed == left  # x op(a) = b is op(a)^T x^T = b^T: the two may cancel
    size, columns = a.dims[-1], b.dims[-1 if left else -2]
    threads = prod(b.dims[:-2]) * columns
    thread = emit.integer(f"{emit.block_index} * {THREADS} + threadIdx.x")
    with emit.block(f"if ({thread} < {threads})"):
        *batch, column = emit.split(thread, (*b.dims[:-2], columns))

        def matrix(row: Expr, step: Expr) -> Expr:
            place = (*batch, step, row) if swapped else (*batch, row, step)
            found = emit.leaf(form.instr.operands[0], 0, place)
            return f"hlo::conj({found})" if attrs["transpose_a"] == "ADJOINT" else found

        def at(row: Expr) -> tuple[Expr, ...]:
            return (*batch, row, column) if left else (*batch, column, row)

        forwards = lower != swapped
        with emit.block(f"for (int step = 0; step < {size}; ++step)"):
            emit.line(f"const int row = {'step' if forwards else f'{size - 1} - step'};")
            given = emit.leaf(form.instr.operands[1], 0, at("row"))
            emit.line(f"{compute_type(b.dtype)} rest = {given};")
            head = "int k = 0; k < row" if forwards else f"int k = row + 1; k < {size}"
            with emit.block(f"for ({head}; ++k)"):
                factor = matrix("row", "k")
                known = f"hlo::load(r0[{emit.offset(b, at('k'))}])"
                emit.line(f"rest = hlo::subtract(rest, hlo::multiply({factor}, {known}));")
            if not attrs.get("unit_diagonal", False):
                emit.line(f"rest = hlo::divide(rest, {matrix('row', 'row')});")
            emit.line(f"r0[{emit.offset(b, at('row'))}] = {stored(b.dtype, 'rest')};")
    (blocks, _, _) = blocks_for(threads, THREADS)
    return form.source(emit, blocks, THREADS)
