"""batch-norm-training, batch-norm-inference and batch-norm-grad.

Follow the OpenXLA sections BatchNormTraining, BatchNormInference and BatchNormGrad. Statistics are
over all dimensions but the feature's; the variance is the biased one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.device import OwnKernel
from hlo2graph.ops.device_compute import batch_norm_inference
from hlo2graph.ops.expect import as_arrays, host_arrays, integer, require
from hlo2graph.ops.reduction import as_result, result_types
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import compute_dtype

_ATTRS = frozenset({"epsilon", "feature_index"})


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> tuple[Shape, Shape]:
    """Check the operands; return the shapes of the whole and of a feature's numbers."""
    arrays = as_arrays(instr, operands)
    first = arrays[0]
    require(instr, first.dtype.is_float, f"takes floating-point numbers, got {first}")
    feature = integer(instr, "feature_index")
    require(
        instr,
        0 <= feature < first.rank,
        f"feature_index={feature} is out of range for {first}",
    )
    require(instr, "epsilon" in instr.attrs, "needs the attribute epsilon")
    whole = Shape(first.dtype, first.dims)
    each = Shape(arrays[1].dtype, (first.dims[feature],))
    for number, array in enumerate(arrays[1:], 1):
        gradient = instr.opcode == "batch-norm-grad" and number == 4
        wanted = whole if gradient else each
        require(
            instr,
            array.compatible(wanted),
            f"operand {number} must be {wanted}, got {array}",
        )
    return whole, each


def _epsilon(instr: Instruction) -> float:
    held = instr.attrs["epsilon"]
    assert isinstance(held, int | float)
    return float(np.float32(held))  # XLA holds it as a float32


def _infer_training(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    whole, each = _check(instr, operands)
    return TupleShape((whole, each, each))


def _infer_inference(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return _check(instr, operands)[0]


def _wide(instr: Instruction, operands: Sequence[HostValue]) -> tuple[list[Array], tuple[int, ...]]:
    """Return the operands in working precision, features broadcastable, and the other axes."""
    arrays = host_arrays(operands)
    work = compute_dtype(result_types(instr)[0].dtype)
    rank, feature = arrays[0].ndim, integer(instr, "feature_index")
    spread = [-1 if d == feature else 1 for d in range(rank)]
    wide = [a.astype(work, copy=False).reshape(spread if a.ndim == 1 else a.shape) for a in arrays]
    return wide, tuple(d for d in range(rank) if d != feature)


def _training(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (value, scale, offset), axes = _wide(instr, operands)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = value.dtype.type(_count(value, axes))
        mean = value.sum(axes, keepdims=True) / count
        variance = np.square(value - mean).sum(axes, keepdims=True) / count
        normal = (value - mean) / np.sqrt(variance + value.dtype.type(_epsilon(instr)))
    return as_result(instr, [normal * scale + offset, mean, variance])


def _count(value: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([value.shape[a] for a in axes], dtype=np.int64))


def _inference(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (value, scale, offset, mean, variance), __ = _wide(instr, operands)
    with np.errstate(invalid="ignore", divide="ignore"):
        normal = (value - mean) / np.sqrt(variance + value.dtype.type(_epsilon(instr)))
    return as_result(instr, [normal * scale + offset])


def _grad(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (value, scale, mean, variance, gradient), axes = _wide(instr, operands)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = value.dtype.type(_count(value, axes))
        root = 1 / np.sqrt(variance + value.dtype.type(_epsilon(instr)))
        normal = (value - mean) * root
        to_offset = gradient.sum(axes, keepdims=True)
        to_scale = (gradient * normal).sum(axes, keepdims=True)
        to_value = scale * root * (gradient - (to_offset + normal * to_scale) / count)
    return as_result(instr, [to_value, to_scale, to_offset])


NORMALIZATION = (
    OpSpec(
        "batch-norm-training",
        3,
        _infer_training,
        _training,
        _ATTRS,
        required=frozenset({"epsilon", "feature_index"}),
        device=OwnKernel("batch-norm"),
    ),
    OpSpec(
        "batch-norm-inference",
        5,
        _infer_inference,
        _inference,
        _ATTRS,
        required=frozenset({"epsilon", "feature_index"}),
        device=batch_norm_inference,
    ),
    OpSpec(
        "batch-norm-grad",
        5,
        _infer_training,
        _grad,
        _ATTRS,
        required=frozenset({"epsilon", "feature_index"}),
        device=OwnKernel("batch-norm"),
    ),
)
