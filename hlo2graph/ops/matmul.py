"""A dot as a matrix product with strides: what a library that multiplies matrices needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops.expect import integers


@dataclass(frozen=True, slots=True)
class Matrix:
    """How an operand or the result lies in memory: strides in elements; one of the two is 1."""

    dtype: DType
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batch_stride: int


@dataclass(frozen=True, slots=True)
class Matmul:
    """out[b] = lhs[b] @ rhs[b] for each b: lhs is m x k, rhs k x n, out m x n."""

    batch: int
    m: int
    n: int
    k: int
    lhs: Matrix
    rhs: Matrix
    out: Matrix
    exact: bool  # the program asks for more than the default precision

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class _Axis:
    """Dimensions taken as one: their common size and stride, in elements."""

    size: int
    stride: int


def matmul_of(computation: Computation) -> Matmul | None:
    """Return the matrix product that `computation` is, if it is one dot of its parameters.

    None too where its dimensions cannot be taken as batch, row and column of one stride each.
    """
    dot = computation.result
    if dot.opcode != "dot" or len(dot.operands) != 2 or not isinstance(dot.shape, Shape):
        return None
    operands = [computation[name] for name in dot.operands]
    shapes = [o.shape for o in operands if o.opcode == "parameter"]
    lhs, rhs = (shapes * 2)[:2] if len(set(dot.operands)) == 1 else (*shapes, None, None)[:2]
    if not isinstance(lhs, Shape) or not isinstance(rhs, Shape) or not dot.shape.elements:
        return None
    return product_of(dot, lhs, rhs, dot.shape)


def product_of(dot: Instruction, lhs: Shape, rhs: Shape, out: Shape) -> Matmul | None:
    """Return the matrix product that a dot of operands and result of these layouts is, if it is."""
    batches = [integers(dot, f"{side}_batch_dims", ()) for side in ("lhs", "rhs")]
    inner = [integers(dot, f"{side}_contracting_dims", ()) for side in ("lhs", "rhs")]
    free = [
        tuple(d for d in range(shape.rank) if d not in batches[i] and d not in inner[i])
        for i, shape in enumerate((lhs, rhs))
    ]
    count = len(batches[0])
    split = count + len(free[0])
    parts = (
        (lhs, batches[0], free[0], inner[0]),
        (rhs, batches[1], inner[1], free[1]),
        (out, tuple(range(count)), tuple(range(count, split)), tuple(range(split, out.rank))),
    )
    matrices = [_matrix(*part) for part in parts]
    a, b, c = matrices
    if a is None or b is None or c is None:
        return None
    batch = out.elements // (c.rows * c.columns)
    return Matmul(batch, c.rows, c.columns, a.columns, a, b, c, _asks_for_more(dot))


def _matrix(
    shape: Shape, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Matrix | None:
    strides = [0] * shape.rank
    step = 1
    for dim in shape.minor_to_major:
        strides[dim] = step
        step *= shape.dims[dim]
    axes = [_axis(shape, strides, group) for group in (batch, rows, columns)]
    stack, row, column = axes
    if stack is None or row is None or column is None:
        return None
    if row.size > 1 and column.size > 1 and 1 not in (row.stride, column.stride):
        return None
    return Matrix(shape.dtype, row.size, column.size, row.stride, column.stride, stack.stride)


def _axis(shape: Shape, strides: Sequence[int], dims: Sequence[int]) -> _Axis | None:
    """Take dimensions, in their order, as one; None if they do not lie one inside the other."""
    size, stride = 1, 0
    for dim in reversed([d for d in dims if shape.dims[d] != 1]):
        if size == 1:
            stride = strides[dim]
        elif strides[dim] != stride * size:
            return None
        size *= shape.dims[dim]
    return _Axis(size, stride)


def _asks_for_more(dot: Instruction) -> bool:
    return "high" in str(dot.attrs.get("operand_precision", ""))
