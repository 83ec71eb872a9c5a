"""Comparing and choosing: compare, select, clamp. Each takes arrays of any one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, Instruction, Kind, Shape
from hlo2graph.ops import device_compute as device
from hlo2graph.ops.device import function
from hlo2graph.ops.elementwise import common
from hlo2graph.ops.elementwise_mixed import maximum, minimum
from hlo2graph.ops.expect import (
    PREDS,
    accepts,
    as_arrays,
    dynamic_of,
    in_total_order,
    refuse,
    word,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import dtype_of, widen

_DIRECTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_TYPES = {
    Kind.PRED: frozenset({"UNSIGNED"}),
    Kind.UNSIGNED: frozenset({"UNSIGNED"}),
    Kind.SIGNED: frozenset({"SIGNED"}),
    Kind.FLOAT: frozenset({"FLOAT", "TOTALORDER"}),
    Kind.COMPLEX: frozenset({"FLOAT"}),
}


def _infer_compare(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape = common(instr, operands)
    word(instr, "direction", _DIRECTIONS)
    if "type" in instr.attrs:
        word(instr, "type", _TYPES[shape.dtype.kind])
    if "order" in instr.attrs:
        word(instr, "order", ("PARTIAL", "TOTAL"))
    return Shape(DTYPES["pred"], shape.dims, dynamic=shape.dynamic)


def _compare(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    left, right = (np.asarray(x) for x in operands)
    direction = str(instr.attrs["direction"])
    if left.dtype.kind == "c" and direction not in ("EQ", "NE"):
        return _compare_complex(direction, left, right)
    if in_total_order(instr, dtype_of(left)):
        left, right = _total_order(left), _total_order(right)
    else:
        left, right = widen(left), widen(right)
    return np.asarray(_DIRECTIONS[direction](left, right))


def _compare_complex(direction: str, left: Array, right: Array) -> Array:
    """Compare the real parts; the imaginary parts decide between equals for LT and GT alone."""
    decided = _DIRECTIONS[direction](left.real, right.real)
    tied = (left.real == right.real) & _DIRECTIONS[direction](left.imag, right.imag)
    return np.asarray(decided | tied)


def _total_order(x: Array) -> Array:
    """Return integers ordered as -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    wide = widen(x)
    bits = np.ascontiguousarray(wide).reshape(x.shape).view(f"i{wide.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _infer_select(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    choice, on_true, on_false = as_arrays(instr, operands)
    accepts(instr, choice, PREDS, "pred as its first operand")
    return _matched(instr, (on_true, on_false), (choice,))


def _select(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> Array:
    choice, on_true, on_false = operands
    return np.where(np.asarray(choice), np.asarray(on_true), np.asarray(on_false))


def _infer_clamp(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    low, value, high = as_arrays(instr, operands)
    for bound in (low, high):
        accepts(instr, bound, {value.dtype}, f"bounds of the type {value.dtype}")
    return _matched(instr, (value,), (low, high))


def _clamp(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> Array:
    low, value, high = (np.asarray(x) for x in operands)
    bounded = minimum(maximum(widen(low), widen(value)), widen(high))
    return np.asarray(bounded).astype(value.dtype, copy=False)


def _matched(instr: Instruction, full: Sequence[Shape], other: Sequence[Shape]) -> Shape:
    """Return the shape of `full`, which those in `other` must have too unless scalar."""
    first = full[0]
    same = all(s.compatible(first) for s in full)
    if not same or any(s.dims not in ((), first.dims) for s in other):
        listed = ", ".join(s.without_layout_text() for s in (*full, *other))
        refuse(instr, f"needs operands of one shape, or scalars, got {listed}")
    wide = [s for s in (*full, *other) if s.rank == first.rank]
    return Shape(first.dtype, first.dims, dynamic=dynamic_of(*wide))


SELECTION: tuple[OpSpec, ...] = (
    OpSpec(
        "compare",
        2,
        _infer_compare,
        _compare,
        attrs=frozenset({"direction", "order", "type"}),
        required=frozenset({"direction"}),
        elementwise=True,
        device=device.compare,
    ),
    OpSpec(
        "select", 3, _infer_select, _select, elementwise=True, inplace=(1, 2), device=device.select
    ),
    OpSpec(
        "clamp", 3, _infer_clamp, _clamp, elementwise=True, inplace=(1,), device=function("clamp")
    ),
)
