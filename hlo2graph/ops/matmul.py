"""A dot as a matrix product with strides: what a library that multiplies matrices needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops.cut import Cut, cut_of
from hlo2graph.ops.expect import integers
from hlo2graph.ops.own_dot import asks_for_more

FEWEST_EACH = 32  # rows, or columns, of each of many products that share an operand


@dataclass(frozen=True, slots=True)
class Matrix:
    """How an operand or the result lies in memory, in elements; one of the two strides is 1.

    `offset` is where it begins in the array that it is cut out of. Where `batch_stride` is 0, all
    products of a batch share it: each image's matrix times the same weights.
    """

    dtype: DType
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batch_stride: int
    offset: int = 0


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

    An operand may be cut out of its parameter: lhs out of the first, rhs out of the last. None too
    where its dimensions cannot be taken as batch, row and column of one stride each.
    """
    dot = computation.result
    if dot.opcode != "dot" or len(dot.operands) != 2 or not isinstance(dot.shape, Shape):
        return None
    lhs, rhs = (cut_of(computation, name) for name in dot.operands)
    if lhs is None or rhs is None or not dot.shape.elements:
        return None
    count = len(computation.parameters)
    if [computation[cut.source].payload for cut in (lhs, rhs)] != [0, count - 1] or count > 2:
        return None
    return _product(dot, lhs, rhs, Cut.whole(dot.name, dot.shape))


def product_of(dot: Instruction, lhs: Shape, rhs: Shape, out: Shape) -> Matmul | None:
    """Return the matrix product that a dot of operands and result of these layouts is, if it is."""
    names = (*dot.operands[:2], dot.name)
    return _product(dot, *(Cut.whole(n, s) for n, s in zip(names, (lhs, rhs, out), strict=True)))


def _product(dot: Instruction, lhs: Cut, rhs: Cut, out: Cut) -> Matmul | None:
    batches = [integers(dot, f"{side}_batch_dims", ()) for side in ("lhs", "rhs")]
    inner = [integers(dot, f"{side}_contracting_dims", ()) for side in ("lhs", "rhs")]
    free = [
        tuple(d for d in range(len(cut.dims)) if d not in batches[i] and d not in inner[i])
        for i, cut in enumerate((lhs, rhs))
    ]
    count = len(batches[0])
    split = count + len(free[0])
    last = tuple(range(split, len(out.dims)))
    spreads = [(0, 0)]  # how many free dimensions of each side are a batch of the other side whole
    if not count:
        spreads += [(k, 0) for k in range(1, len(free[0]))]
        spreads += [(0, k) for k in range(1, len(free[1]))]
    for left, right in spreads:
        across = (*range(count + left), *last[:right])
        matrices = (
            _matrix(lhs, (*batches[0], *free[0][:left]), free[0][left:], inner[0]),
            _matrix(rhs, (*batches[1], *free[1][:right]), inner[1], free[1][right:]),
            _matrix(out, across, tuple(range(count + left, split)), last[right:]),
        )
        a, b, c = matrices
        if a is None or b is None or c is None:
            continue
        if not left + right or (c.rows if left else c.columns) >= FEWEST_EACH:
            batch = prod(out.dims) // (c.rows * c.columns)
            return Matmul(batch, c.rows, c.columns, a.columns, a, b, c, asks_for_more(dot))
    return None


def _matrix(
    cut: Cut, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Matrix | None:
    stack, row, column = (_axis(cut, group) for group in (batch, rows, columns))
    if stack is None or row is None or column is None:
        return None
    if row.size > 1 and column.size > 1 and 1 not in (row.stride, column.stride):
        return None
    return Matrix(
        cut.dtype, row.size, column.size, row.stride, column.stride, stack.stride, cut.offset
    )


def _axis(cut: Cut, dims: Sequence[int]) -> _Axis | None:
    """Take dimensions, in their order, as one; None if they do not lie one inside the other."""
    size, stride = 1, 0
    for dim in reversed([d for d in dims if cut.dims[d] != 1]):
        if size == 1:
            stride = cut.strides[dim]
        elif cut.strides[dim] != stride * size:
            return None
        size *= cut.dims[dim]
    return _Axis(size, stride)
