"""sort and topk.

Follows the OpenXLA sections Sort and TopK. Sorting is always stable. A stable sort has only one
result, so the host rule guesses a permutation from plausible keys, asks the comparator whether
neighbours are in order, and merges by comparator calls only where no guess holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cmp_to_key
from typing import TypeAlias, cast

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Kind, Shape, TupleShape
from hlo2graph.hlo.dtype import PRED, S32
from hlo2graph.ops.device import OwnKernel
from hlo2graph.ops.expect import (
    as_arrays,
    callee,
    dimension,
    host_arrays,
    integer,
    require,
    result_parts,
    takes_scalars,
)
from hlo2graph.ops.folding import as_tuple
from hlo2graph.ops.reduction import as_result
from hlo2graph.ops.scalar_region import is_elementwise_region
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec

Less: TypeAlias = Callable[[Array, Array], Array]  # of positions along rows: [rows, n] twice


def _infer_sort(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    arrays = as_arrays(instr, operands)
    for other in arrays[1:]:
        require(
            instr,
            other.dims == arrays[0].dims,
            f"operands must have equal dimensions, got {arrays[0]} and {other}",
        )
    dimension(instr, "dimensions", arrays[0].rank)
    called = callee(instr, "to_apply", computations)
    takes_scalars(instr, called, "to_apply", [a.dtype for a in arrays for _ in range(2)])
    parts = result_parts(called)
    require(
        instr,
        len(parts) == 1 and parts[0].compatible(Shape(PRED)),
        f"to_apply={called.name} must return pred[], it returns {called.result.shape}",
    )
    shapes = tuple(Shape(a.dtype, a.dims) for a in arrays)
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def _sort(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    arrays = host_arrays(operands)
    axis = dimension(instr, "dimensions", arrays[0].ndim)
    name = str(instr.attrs["to_apply"])
    return as_result(instr, sorted_arrays(arrays, axis, evaluate, name))


def sorted_arrays(
    arrays: Sequence[Array], axis: int, evaluate: Evaluator, name: str
) -> Sequence[Array]:
    """Return the arrays sorted along `axis` as the comparator `name` says."""
    moved = [np.moveaxis(a, axis, -1) for a in arrays]
    length = moved[0].shape[-1]
    if length < 2 or not arrays[0].size:
        return arrays
    rows = [m.reshape(-1, length) for m in moved]
    if is_elementwise_region(evaluate.computations, name):
        order = _order(rows, _comparator(rows, evaluate, name))
    else:
        order = _order_one_by_one(rows, evaluate, name)
    return [
        np.moveaxis(np.take_along_axis(r, order, -1).reshape(m.shape), -1, axis)
        for r, m in zip(rows, moved, strict=True)
    ]


def _comparator(rows: Sequence[Array], evaluate: Evaluator, name: str) -> Less:
    """Return the region as a function of positions: does row[left] go before row[right]?"""

    def less(left: Array, right: Array) -> Array:
        pairs = [np.take_along_axis(r, at, -1) for r in rows for at in (left, right)]
        (before,) = as_tuple(evaluate(name, pairs))
        return np.broadcast_to(before, left.shape)

    return less


def _order(rows: Sequence[Array], less: Less) -> Array:
    for order in _guesses(rows):
        left, right = order[:, :-1], order[:, 1:]
        # Equal neighbours must keep their positions' order; then the order is the stable one.
        if (less(left, right) | (~less(right, left) & (left < right))).all():
            return order
    return _merged(rows[0].shape, less)


def _guesses(rows: Sequence[Array]) -> Iterator[Array]:
    """Yield permutations by the first operand alone, then by all in turn; up and down."""
    for canonical in (True, False):
        keys = [_keys(r, canonical) for r in rows]
        for chosen in [keys[:1], keys] if len(keys) > 1 else [keys]:
            flat = [k for group in chosen for k in group]
            yield np.lexsort(flat[::-1], axis=-1)
            yield np.lexsort([~k for k in flat[::-1]], axis=-1)


def _keys(array: Array, canonical: bool) -> list[Array]:
    """Return integers that order as `array` does; complex numbers by real, then imaginary part.

    `canonical` takes -0 for 0 and all NaNs for one, above infinity; else floats are in total order.
    """
    if array.dtype.kind == "c":
        return [*_keys(array.real, canonical), *_keys(array.imag, canonical)]
    if array.dtype.kind in "biu":
        return [array.astype(np.uint8) if array.dtype.kind == "b" else array]
    if _is_custom_integer(array.dtype):
        return [array.astype(np.int8)]
    return [total_order(array, canonical)]


def _is_custom_integer(dtype: np.dtype[np.generic]) -> bool:
    return dtype.name.startswith(("int", "uint"))


def total_order(array: Array, canonical: bool = False) -> Array:
    """Return signed integers in the total order of the floats in `array`."""
    if array.dtype.itemsize == 1:
        array = array.astype(np.float32)
    signed = np.dtype(f"i{array.dtype.itemsize}")
    bits = np.ascontiguousarray(array).view(signed)
    keys = np.where(bits < 0, bits ^ np.iinfo(signed).max, bits)
    if not canonical:
        return keys
    return np.where(np.isnan(array), np.iinfo(signed).max, np.where(array == 0, 0, keys))


def _merged(shape: tuple[int, ...], less: Less) -> Array:
    """Sort by merging runs of doubling width; all pairs of a step are compared at once."""
    length = shape[-1]
    order = np.broadcast_to(np.arange(length), shape).copy()
    place = np.arange(length)
    width = 1
    while width < length:
        start = place // (2 * width) * (2 * width)
        middle = np.minimum(start + width, length)
        end = np.minimum(start + 2 * width, length)
        first = place < middle
        low = np.broadcast_to(np.where(first, middle, start), shape).copy()
        high = np.broadcast_to(np.where(first, end, middle), shape).copy()
        base = np.where(first, middle, start)
        while (open_ := low < high).any():
            probe = np.minimum((low + high) // 2, length - 1)
            other = np.take_along_axis(order, probe, -1)
            before = less(np.where(first, other, order), np.where(first, order, other))
            # Of equals the first run's go first: it passes only those strictly before it.
            passed = before == first
            low = np.where(open_ & passed, probe + 1, low)
            high = np.where(open_ & ~passed, probe, high)
        target = np.where(first, place, place - middle + start) + low - base
        # Sorting the targets keeps a permutation even where the comparator is no ordering (NaN).
        order = np.take_along_axis(order, np.argsort(target, axis=-1, kind="stable"), -1)
        width *= 2
    return order


def _order_one_by_one(rows: Sequence[Array], evaluate: Evaluator, name: str) -> Array:
    """Sort by single comparator calls, for regions that are no elementwise program."""
    result = np.empty(rows[0].shape, np.int64)
    for number in range(len(result)):

        def before(a: int, b: int, row: int = number) -> bool:
            pair = [np.asarray(r[row, at]) for r in rows for at in (a, b)]
            return bool(as_tuple(evaluate(name, pair))[0])

        def compare(a: int, b: int, before: Callable[[int, int], bool] = before) -> int:
            return before(b, a) - before(a, b)

        result[number] = sorted(range(rows[0].shape[1]), key=cmp_to_key(compare))
    return result


def _infer_topk(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    (array,) = as_arrays(instr, operands)
    require(instr, array.rank > 0, "takes an array of at least one dimension, got a scalar")
    require(
        instr,
        array.dtype.kind is not Kind.COMPLEX,
        f"takes no complex numbers, got {array}",
    )
    k = integer(instr, "k")
    require(
        instr,
        0 <= k <= array.dims[-1],
        f"k={k} is out of range for the last dimension of {array}",
    )
    dims = (*array.dims[:-1], k)
    return TupleShape((Shape(array.dtype, dims), Shape(S32, dims)))


def top_k(array: Array, k: int, largest: bool = True) -> tuple[Array, Array]:
    """Return the k first of each row in total order, and where they stand; equals in order."""
    (keys,) = _keys(array, canonical=False)
    order = np.argsort(~keys if largest else keys, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(array, order, -1), order.astype(np.int32)


def _topk(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (array,) = host_arrays(operands)
    return top_k(array, integer(instr, "k"), cast("bool", instr.attrs.get("largest", True)))


SORT = OpSpec(
    "sort",
    (1, None),
    _infer_sort,
    _sort,
    frozenset({"dimensions", "to_apply", "is_stable"}),
    required=frozenset({"dimensions", "to_apply"}),
    device=OwnKernel("sort"),
)
SORTING = (
    SORT,
    OpSpec(
        "topk",
        1,
        _infer_topk,
        _topk,
        frozenset({"is_stable", "k", "largest"}),
        required=frozenset({"k"}),
        device=OwnKernel("topk"),
    ),
)
