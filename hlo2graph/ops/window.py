"""reduce-window and select-and-scatter, and what any windowed operation needs.

Follows the OpenXLA sections ReduceWindow and SelectAndScatter. Positions in padding or between
dilated elements are no elements: they are left out, not filled with the init value, as in XLA:CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hlo2graph.hlo import AnyShape, Instruction, Shape, Window, WindowDim
from hlo2graph.hlo.dtype import PRED
from hlo2graph.ops import device_folds as device
from hlo2graph.ops.expect import (
    as_arrays,
    callee,
    folds,
    host_arrays,
    refuse,
    require,
    result_parts,
    takes_scalars,
)
from hlo2graph.ops.folding import (
    identity_of,
    region_fold,
    scatter_fold,
    simple_ufunc,
)
from hlo2graph.ops.reduction import as_result, result_types, results_of, split_inputs
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import compute_dtype


def check_window(instr: Instruction, window: Window, rank: int, what: str) -> None:
    """Require one window dimension for each of `rank` dimensions, and positive numbers in each."""
    require(
        instr,
        len(window.dims) == rank,
        f"window has {len(window.dims)} dimensions for {rank} {what}",
    )
    for number, dim in enumerate(window.dims):
        for word, value in (
            ("size", dim.size),
            ("stride", dim.stride),
            ("lhs_dilate", dim.lhs_dilate),
            ("rhs_dilate", dim.rhs_dilate),
        ):
            require(instr, value > 0, f"window {word} must be positive, got {value} at {number}")


def windowed_dim(size: int, dim: WindowDim) -> int:
    """Return how many positions the window takes along a dimension of `size` elements."""
    base = max(size - 1, 0) * dim.lhs_dilate + min(size, 1)
    padded = base + dim.pad_low + dim.pad_high
    span = (dim.size - 1) * dim.rhs_dilate + 1
    return (padded - span) // dim.stride + 1 if 0 < span <= padded else 0


def windowed_dims(dims: Sequence[int], window: Window) -> tuple[int, ...]:
    """Return the positions along each dimension."""
    return tuple(windowed_dim(n, w) for n, w in zip(dims, window.dims, strict=True))


def window_of(instr: Instruction, rank: int) -> Window:
    """Return the attribute `window`, checked; a scalar's has no dimensions, and is left out."""
    held = instr.attrs.get("window", Window(()))
    if not isinstance(held, Window):
        refuse(instr, "needs the attribute window")
    check_window(instr, held, rank, "dimensions of the operand")
    return held


def _infer_reduce_window(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    inputs, _ = split_inputs(instr, operands)
    window = window_of(instr, inputs[0].rank)
    folds(instr, "to_apply", computations, [s.dtype for s in inputs])
    dims = windowed_dims(inputs[0].dims, window)
    return results_of([Shape(s.dtype, dims) for s in inputs], instr)


def _reduce_window(
    instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator
) -> HostValue:
    arrays = host_arrays(operands)
    inputs, inits = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    window = window_of(instr, inputs[0].ndim)
    name = str(instr.attrs["to_apply"])
    dtype = result_types(instr)[0].dtype
    ufunc = simple_ufunc(evaluate, name) if len(inputs) == 1 else None
    if ufunc is not None:
        work = compute_dtype(dtype)
        total = inputs[0].astype(work, copy=False)
        for axis, dim in enumerate(window.dims):
            total = _reduce_axis(total, axis, dim, ufunc, identity_of(ufunc, dtype))
        return as_result(instr, [ufunc(inits[0].astype(work), total)])
    fold = region_fold(evaluate, name)
    out = windowed_dims(inputs[0].shape, window)
    held = tuple(np.broadcast_to(i, out) for i in inits)
    for index, inside in _taps(inputs[0].shape, out, window):
        folded = fold(held, [a[index] for a in inputs])
        held = tuple(np.where(inside, f, h) for f, h in zip(folded, held, strict=True))
    return as_result(instr, held)


def _reduce_axis(array: Array, axis: int, dim: WindowDim, ufunc: np.ufunc, fill: Array) -> Array:
    """Reduce windows along one axis; simple regions commute, so axes can go one by one."""
    if dim == WindowDim(1):
        return array
    rows = np.moveaxis(array, axis, -1)
    size, count = rows.shape[-1], windowed_dim(rows.shape[-1], dim)
    if not array.size or not count:
        return np.moveaxis(np.full((*rows.shape[:-1], count), fill, array.dtype), -1, axis)
    span = (dim.size - 1) * dim.rhs_dilate + 1
    places = np.arange((count - 1) * dim.stride + span) - dim.pad_low
    at, inside = _elements(places, size, dim)
    laid = np.where(inside, rows[..., at], fill)
    if dim.rhs_dilate == 1 and count * span > 4 * len(places) * span.bit_length():
        return np.moveaxis(_doubled(laid, span, ufunc)[..., :: dim.stride], -1, axis)
    windows = sliding_window_view(laid, span, axis=-1)[..., :: dim.stride, :: dim.rhs_dilate]
    return np.moveaxis(ufunc.reduce(windows, axis=-1, dtype=array.dtype), -1, axis)


def _doubled(rows: Array, span: int, ufunc: np.ufunc) -> Array:
    """Reduce each window of `span` elements along the last axis, from windows of 1, 2, 4, ...

    A cumulative sum is windows as long as the axis, for which this takes log(n) steps, not n.
    """
    count = rows.shape[-1] - span + 1
    width, done, windows, total = 1, 0, rows, None
    while width <= span:
        if width > 1:
            half = width // 2
            windows = ufunc(windows[..., :-half], windows[..., half:], dtype=rows.dtype)
        if span & width:
            part = windows[..., done : done + count]
            total = part if total is None else ufunc(total, part, dtype=rows.dtype)
            done += width
        width *= 2
    assert total is not None, "a span is positive"
    return total


def _positions(count: int, dim: WindowDim) -> Array:
    """Return [count, size]: each window element's place in the dilated, unpadded dimension."""
    first = np.arange(count)[:, None] * dim.stride - dim.pad_low
    return first + np.arange(dim.size) * dim.rhs_dilate


def _elements(positions: Array, size: int, dim: WindowDim) -> tuple[Array, Array]:
    """Return the element at each place, clamped into range, and whether there is one."""
    at, between = np.divmod(positions, dim.lhs_dilate)
    inside = (between == 0) & (at >= 0) & (at < size)
    return np.clip(at, 0, max(size - 1, 0)), inside


def _taps(
    dims: Sequence[int], out: Sequence[int], window: Window
) -> Iterator[tuple[tuple[Array, ...], Array]]:
    """Yield, for each window element in row-major order, its index arrays and where it exists."""
    if 0 in dims:
        return
    found = [
        _elements(_positions(count, dim), size, dim)
        for count, size, dim in zip(out, dims, window.dims, strict=True)
    ]
    for tap in product(*(range(dim.size) for dim in window.dims)):
        index = np.ix_(*(at[:, t] for (at, _), t in zip(found, tap, strict=True)))
        inside = np.ones(tuple(out), np.bool_)
        for axis, ((_, there), t) in enumerate(zip(found, tap, strict=True)):
            inside &= there[:, t].reshape([-1 if d == axis else 1 for d in range(len(out))])
        yield index, inside


def _infer_select_and_scatter(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    operand, source, init = as_arrays(instr, operands)
    window = window_of(instr, operand.rank)
    selected = callee(instr, "select", computations)
    takes_scalars(instr, selected, "select", [operand.dtype, operand.dtype])
    parts = result_parts(selected)
    require(
        instr,
        len(parts) == 1 and parts[0].compatible(Shape(PRED)),
        f"select={selected.name} must return pred[], it returns {selected.result.shape}",
    )
    folds(instr, "scatter", computations, [source.dtype])
    expected = Shape(operand.dtype, windowed_dims(operand.dims, window))
    require(
        instr,
        source.compatible(expected),
        f"the source must be {expected}, as the window gives it, got {source}",
    )
    require(
        instr,
        init.compatible(Shape(operand.dtype)),
        f"the init value must be {operand.dtype}[], got {init}",
    )
    return Shape(operand.dtype, operand.dims)


def _select_and_scatter(
    instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator
) -> HostValue:
    operand, source, init = host_arrays(operands)
    window = window_of(instr, operand.ndim)
    select = region_fold(evaluate, str(instr.attrs["select"]))
    numbers = np.arange(operand.size).reshape(operand.shape)
    best = np.zeros(source.shape, operand.dtype)
    chosen = np.full(source.shape, -1)
    for index, inside in _taps(operand.shape, source.shape, window):
        value = operand[index]
        (keep,) = select([best], [value])
        take = inside & ((chosen < 0) | ~keep.astype(np.bool_))
        best = np.where(take, value, best)
        chosen = np.where(take, numbers[index], chosen)
    result = np.full(operand.size, init, operand.dtype)
    hit = chosen >= 0
    scatter_fold(evaluate, str(instr.attrs["scatter"]), [result], chosen[hit], [source[hit]])
    return result.reshape(operand.shape)


def unpadded(dim: WindowDim) -> WindowDim:
    """Return the window dimension as it is over a dimension already padded and dilated."""
    return replace(dim, pad_low=0, pad_high=0, lhs_dilate=1)


WINDOW = (
    OpSpec(
        "reduce-window",
        (2, None),
        _infer_reduce_window,
        _reduce_window,
        frozenset({"window", "to_apply"}),
        required=frozenset({"to_apply"}),
        device=device.reduce_window,
    ),
    OpSpec(
        "select-and-scatter",
        3,
        _infer_select_and_scatter,
        _select_and_scatter,
        frozenset({"window", "select", "scatter"}),
        required=frozenset({"scatter", "select"}),
        device=device.select_and_scatter,
    ),
)
