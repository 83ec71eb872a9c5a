"""ragged-dot: a dot whose rows, batches or contracted elements come in groups of given sizes.

Follows the OpenXLA section RaggedDot. Rows and contracted elements beyond the last group count as
zero; groups along a batch dimension change nothing, as in XLA's own rewrite to dense dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops import device_products as device
from hlo2graph.ops.dot import DOT_ATTRS, DotDims, check_pairs, contract, dot_dims, product_type
from hlo2graph.ops.expect import as_arrays, dimensions, host_arrays, require
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec


@dataclass(frozen=True, slots=True)
class Ragged:
    """A ragged dot's parts: the ragged lhs dimension, the rhs group dimension if there is one.

    `prefix` are the lhs dimensions that lead the ragged one in the group sizes.
    """

    dims: DotDims
    ragged: int
    group: tuple[int, ...]
    prefix: tuple[int, ...]


def _ragged(instr: Instruction, lhs_rank: int, rhs_rank: int) -> Ragged:
    ragged = dimensions(instr, "lhs_ragged_dims", lhs_rank, needed=True)
    require(instr, len(ragged) == 1, f"takes one ragged dimension, got {len(ragged)}")
    group = dimensions(instr, "rhs_group_dims", rhs_rank)
    dims = dot_dims(instr, lhs_rank, rhs_rank, group)
    (at,) = ragged
    free = at in dims.lhs_free
    require(
        instr,
        len(group) == (1 if free else 0),
        f"takes {'one rhs group dimension' if free else 'no rhs group dimensions'} where the "
        f"ragged dimension is {_part(dims, at)}, got {len(group)}",
    )
    taken = set(group) & {*dims.rhs_batch, *dims.rhs_contract}
    require(instr, not taken, "the rhs group dimension is also a batch or contracting one")
    order = next(part for part in (dims.lhs_batch, dims.lhs_contract, dims.lhs_free) if at in part)
    leading = () if at in dims.lhs_batch else dims.lhs_batch
    return Ragged(dims, at, group, (*leading, *order[: order.index(at)]))


def _part(dims: DotDims, at: int) -> str:
    if at in dims.lhs_batch:
        return "a batch one"
    return "a contracting one" if at in dims.lhs_contract else "a free one"


def _infer_ragged(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    lhs, rhs, sizes = as_arrays(instr, operands)
    parts = _ragged(instr, lhs.rank, rhs.rank)
    check_pairs(instr, lhs, rhs, parts.dims)
    require(instr, sizes.dtype.is_integer, f"group sizes must be integers, got {sizes}")
    prefix = tuple(lhs.dims[d] for d in parts.prefix)
    require(
        instr,
        sizes.rank == 1 or (sizes.rank == len(prefix) + 1 and sizes.dims[:-1] == prefix),
        f"group sizes must be [{','.join(map(str, (*prefix, 'groups')))}], got {sizes}",
    )
    groups = sizes.dims[-1]
    for d in parts.group:
        require(
            instr,
            rhs.dims[d] == groups,
            f"rhs has {rhs.dims[d]} groups, the group sizes {groups}",
        )
    lead = (groups,) if parts.ragged in parts.dims.lhs_contract else ()
    dims = (
        *lead,
        *(lhs.dims[d] for d in (*parts.dims.lhs_batch, *parts.dims.lhs_free)),
        *(rhs.dims[d] for d in parts.dims.rhs_free),
    )
    return Shape(product_type(instr, lhs, rhs), dims)


def _group_mask(lhs: Array, sizes: Array, parts: Ragged, group: int) -> Array:
    """Return which elements of `lhs` lie in `group`, broadcastable against it."""
    ends = np.cumsum(sizes.astype(np.int64), axis=-1)
    end, begin = ends[..., group], ends[..., group] - sizes[..., group].astype(np.int64)
    position = np.arange(lhs.shape[parts.ragged])
    inside = (position >= begin[..., None]) & (position < end[..., None])
    if sizes.ndim == 1:
        shape = [1] * lhs.ndim
        shape[parts.ragged] = len(position)
        return inside.reshape(shape)
    axes = (*parts.prefix, parts.ragged)
    shape = [lhs.shape[d] if d in axes else 1 for d in range(lhs.ndim)]
    return inside.transpose(np.argsort(axes)).reshape(shape)


def _ragged_dot(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    lhs, rhs, sizes = host_arrays(operands)
    assert isinstance(instr.shape, Shape)
    parts = _ragged(instr, lhs.ndim, rhs.ndim)
    dtype = instr.shape.dtype
    if parts.ragged in parts.dims.lhs_batch:
        return contract(lhs, rhs, parts.dims, dtype)
    zero = lhs.dtype.type(0)
    totals = []
    for group in range(sizes.shape[-1]):
        masked = np.where(_group_mask(lhs, sizes, parts, group), lhs, zero)
        if not parts.group:
            totals.append(contract(masked, rhs, parts.dims, dtype))
            continue
        (axis,) = parts.group
        dims = _without(parts.dims, axis)
        totals.append(contract(masked, rhs.take(group, axis), dims, dtype))
    if not parts.group:
        return np.stack(totals) if totals else np.zeros(instr.shape.dims, dtype.numpy)
    return sum(totals, np.zeros(instr.shape.dims, dtype.numpy))


def _without(dims: DotDims, axis: int) -> DotDims:
    """Return `dims` after rhs has lost the dimension `axis`."""

    def moved(parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(d - (d > axis) for d in parts)

    return DotDims(
        dims.lhs_batch,
        moved(dims.rhs_batch),
        dims.lhs_contract,
        moved(dims.rhs_contract),
        dims.lhs_free,
        moved(dims.rhs_free),
    )


RAGGED_DOT = OpSpec(
    "ragged-dot",
    3,
    _infer_ragged,
    _ragged_dot,
    DOT_ATTRS - {"algorithm"} | {"lhs_ragged_dims", "rhs_group_dims"},
    device=device.ragged_dot,
)
