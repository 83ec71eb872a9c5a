"""scaled-dot: a dot of blocks of narrow numbers, each block with a scale of its own.

The operands are lhs, rhs and their scales. A scale has fewer elements along some dimensions, each
for as many neighbours as the sizes divide into, or is a scalar for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops import device_products as device
from hlo2graph.ops.dot import DOT_ATTRS, check_pairs, contract, dot_dims, product_type
from hlo2graph.ops.expect import as_arrays, host_arrays, refuse
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec


def _infer(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    lhs, rhs, lhs_scale, rhs_scale = as_arrays(instr, operands)
    dims = dot_dims(instr, lhs.rank, rhs.rank)
    check_pairs(instr, lhs, rhs, dims)
    _check_scale(instr, lhs, lhs_scale)
    _check_scale(instr, rhs, rhs_scale)
    sizes = (
        *(lhs.dims[d] for d in (*dims.lhs_batch, *dims.lhs_free)),
        *(rhs.dims[d] for d in dims.rhs_free),
    )
    return Shape(product_type(instr, lhs, rhs), sizes)


def _check_scale(instr: Instruction, shape: Shape, scale: Shape) -> None:
    if scale.rank == 0:
        return
    pairs = zip(shape.dims, scale.dims, strict=False)
    if scale.rank != shape.rank or not all(part and size % part == 0 for size, part in pairs):
        refuse(instr, f"has a scale {scale}, which does not divide {shape} into blocks")


def _scaled(array: Array, scale: Array) -> Array:
    """Return `array` times its scales, in single precision at least."""
    for axis in range(scale.ndim):
        scale = np.repeat(scale, array.shape[axis] // scale.shape[axis], axis)
    wide = np.float64 if np.float64 in (array.dtype, scale.dtype) else np.float32
    return np.asarray(array.astype(wide) * scale.astype(wide))


def scaled_dot(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    """Return the product of two arrays, given with their scales."""
    lhs, rhs, lhs_scale, rhs_scale = host_arrays(operands)
    assert isinstance(instr.shape, Shape)
    dims = dot_dims(instr, lhs.ndim, rhs.ndim)
    sides = _scaled(lhs, lhs_scale), _scaled(rhs, rhs_scale)
    return contract(*sides, dims, instr.shape.dtype)


def _host(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    return scaled_dot(instr, operands)


SCALED_DOT = OpSpec(
    "scaled-dot",
    4,
    _infer,
    _host,
    DOT_ATTRS,
    device=device.scaled_dot,
)
