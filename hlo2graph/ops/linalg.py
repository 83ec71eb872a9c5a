"""cholesky and triangular-solve, batched over the leading dimensions.

Follow the OpenXLA sections Cholesky and TriangularSolve. Only the triangle named is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, DType, Instruction, Shape
from hlo2graph.ops.device import OwnKernel
from hlo2graph.ops.expect import as_arrays, host_arrays, refuse, require
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import compute_dtype

_WARP, _MOST_THREADS = 32, 512
_WORDS = 64  # of a thread's registers, for a panel
_MOST_ROWS = 8  # of a thread
_FEWEST_COLUMNS, _FAR_COLUMNS = 4, 64  # of a panel in registers, and of one in memory
TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def largest_block(dtype: DType) -> int:
    """Return the rows of the largest triangle that a block of the device keeps at hand."""
    return 0 if dtype.bits < 32 else 128 if dtype.bits == 32 else 64


def panel_threads(rows: int) -> int:
    """Return the threads of a block that keeps a panel of so many rows in its registers."""
    return min(_MOST_THREADS, -(-rows // _WARP) * _WARP)


def panel_columns(dtype: DType, rows: int) -> int:
    """Return the columns of the widest panel that a block keeps in registers, or 0."""
    each = -(-rows // panel_threads(rows))
    columns = _WORDS // (each * dtype.bits // 32) if dtype.bits >= 32 and each <= _MOST_ROWS else 0
    return 1 << columns.bit_length() - 1 if columns >= _FEWEST_COLUMNS else 0


def leaf_columns(dtype: DType, rows: int) -> int:
    """Return the columns that are factored together where a matrix is taken apart.

    Of too many rows for registers a block factors a panel where it lies.
    """
    return panel_columns(dtype, rows) or _FAR_COLUMNS


def _check_square(instr: Instruction, shape: Shape) -> None:
    takes = shape.dtype.is_float or shape.dtype.is_complex
    require(instr, takes, f"takes floating-point or complex numbers, got {shape}")
    square = shape.rank >= 2 and shape.dims[-1] == shape.dims[-2]
    require(instr, square, f"needs square matrices in the last two dimensions, got {shape}")


def _infer_cholesky(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    (shape,) = as_arrays(instr, operands)
    _check_square(instr, shape)
    return Shape(shape.dtype, shape.dims)


def _adjoint(matrix: Array) -> Array:
    return matrix.swapaxes(-1, -2).conj()


def _cholesky(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (given,) = host_arrays(operands)
    lower = bool(instr.attrs.get("lower", False))
    dtype = _dtype(instr)
    matrix = given.astype(compute_dtype(dtype), copy=False)
    factor = lower_factor(matrix if lower else _adjoint(matrix))
    result = factor if lower else _adjoint(factor)
    return np.ascontiguousarray(result.astype(given.dtype, copy=False))


def _dtype(instr: Instruction) -> DType:
    assert isinstance(instr.shape, Shape)
    return instr.shape.dtype


def lower_factor(matrix: Array) -> Array:
    """Factor column by column; all of a matrix that is not positive definite becomes NaN."""
    factor = np.zeros_like(matrix)
    with np.errstate(invalid="ignore", divide="ignore"):
        for j in range(matrix.shape[-1]):
            row = factor[..., j, :j].conj()[..., None]
            column = matrix[..., j:, j] - (factor[..., j:, :j] @ row)[..., 0]
            pivot = np.sqrt(column[..., :1].real)
            factor[..., j:, j] = column / pivot
            factor[..., j, j] = pivot[..., 0]
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1).real
    good = (np.isfinite(diagonal) & (diagonal > 0)).all(axis=-1)
    return np.where(good[..., None, None], factor, factor.dtype.type(np.nan))


def _infer_solve(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    a, b = as_arrays(instr, operands)
    _check_square(instr, a)
    require(instr, a.dtype is b.dtype, f"operands must have one element type, got {a} and {b}")
    require(instr, a.rank == b.rank, f"operands must have equal ranks, got {a} and {b}")
    require(instr, a.dims[:-2] == b.dims[:-2], f"batch dimensions must be equal, got {a} and {b}")
    left = bool(instr.attrs.get("left_side", False))
    shared = b.dims[-2 if left else -1]
    require(
        instr,
        shared == a.dims[-1],
        f"{'rows' if left else 'columns'} of b must be as many as a's, got {a} and {b}",
    )
    transpose = instr.attrs.get("transpose_a")
    if transpose not in TRANSPOSES:
        refuse(instr, f"transpose_a must be one of {', '.join(TRANSPOSES)}, got {transpose}")
    return Shape(b.dtype, b.dims)


def _solve(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    return solve_triangle(instr, operands)


def solve_triangle(instr: Instruction, operands: Sequence[HostValue]) -> Array:
    """Return the result of a triangular-solve."""
    a, b = host_arrays(operands)
    work = compute_dtype(_dtype(instr))
    matrix, right = a.astype(work, copy=False), b.astype(work, copy=False)
    lower = bool(instr.attrs.get("lower", False))
    left = bool(instr.attrs.get("left_side", False))
    transpose = instr.attrs["transpose_a"]
    if transpose == "ADJOINT":
        matrix = matrix.conj()
    # x op(a) = b is op(a)^T x^T = b^T, so the two transpositions may cancel.
    if (transpose != "NO_TRANSPOSE") == left:
        matrix, lower = matrix.swapaxes(-1, -2), not lower
    if not left:
        right = right.swapaxes(-1, -2)
    unit = bool(instr.attrs.get("unit_diagonal", False))
    solved = substitute(matrix, right, lower, unit)
    result = solved if left else solved.swapaxes(-1, -2)
    return np.ascontiguousarray(result.astype(b.dtype, copy=False))


def substitute(matrix: Array, right: Array, lower: bool, unit: bool) -> Array:
    """Return x with matrix @ x = right, row by row."""
    size = matrix.shape[-1]
    solved = np.zeros_like(right)
    with np.errstate(invalid="ignore", divide="ignore"):
        for i in range(size) if lower else reversed(range(size)):
            done = slice(0, i) if lower else slice(i + 1, size)
            known = (matrix[..., i : i + 1, done] @ solved[..., done, :])[..., 0, :]
            rest = right[..., i, :] - known
            solved[..., i, :] = rest if unit else rest / matrix[..., i, i, None]
    return solved


LINALG = (
    OpSpec(
        "cholesky",
        1,
        _infer_cholesky,
        _cholesky,
        frozenset({"lower"}),
        device=OwnKernel("cholesky"),
    ),
    OpSpec(
        "triangular-solve",
        2,
        _infer_solve,
        _solve,
        frozenset({"left_side", "lower", "unit_diagonal", "transpose_a"}),
        device=OwnKernel("triangular-solve"),
    ),
)
