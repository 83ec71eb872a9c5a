"""scatter: updates folded into an operand at computed indices, in the order of the indices.

Follows the OpenXLA section Scatter. An update window that is not wholly inside is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops.device import OwnKernel
from hlo2graph.ops.expect import (
    as_arrays,
    dimensions,
    folds,
    host_arrays,
    integer,
    integers,
    refuse,
    require,
)
from hlo2graph.ops.folding import scatter_fold
from hlo2graph.ops.gather import IndexMap, batch_dims, read_map
from hlo2graph.ops.reduction import as_result, results_of
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec

_NAMES = (
    "scatter_dims_to_operand_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
)


def _infer(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    arrays = as_arrays(instr, operands)
    require(
        instr,
        len(arrays) % 2 == 1,
        f"takes n operands, the indices and n updates, got {len(arrays)} operands",
    )
    count = len(arrays) // 2
    inputs, indices, updates = arrays[:count], arrays[count], arrays[count + 1 :]
    index_map = read_map(instr, _NAMES, inputs[0], indices)
    for value, update in zip(inputs, updates, strict=True):
        require(
            instr,
            value.dims == inputs[0].dims,
            f"operands must have equal dimensions, got {inputs[0]} and {value}",
        )
        require(
            instr,
            value.dtype is update.dtype,
            f"updates must have the operand's element type, got {value} and {update}",
        )
        _check_update(instr, index_map, (value, indices, update))
    folds(instr, "to_apply", computations, [s.dtype for s in inputs])
    return results_of([Shape(s.dtype, s.dims) for s in inputs], instr)


def _check_update(
    instr: Instruction, index_map: IndexMap, shapes: tuple[Shape, Shape, Shape]
) -> None:
    value, indices, update = shapes
    window = dimensions(instr, "update_window_dims", update.rank, ordered=True)
    kept = index_map.window_dims(value.rank)
    require(
        instr,
        len(window) == len(kept),
        f"update_window_dims has {len(window)} dimensions, windows of {value} have {len(kept)}",
    )
    for at, dim in zip(window, kept, strict=True):
        if update.dims[at] > value.dims[dim]:
            refuse(
                instr,
                f"updates {update} are wider at {at} than the operand {value} at {dim}: "
                f"{update.dims[at]} > {value.dims[dim]}",
            )
    batch = tuple(n for d, n in enumerate(update.dims) if d not in window)
    expected = batch_dims(index_map, indices)
    require(
        instr,
        batch == expected,
        f"the updates' other dimensions must be {list(expected)}, as the indices have them, "
        f"got {list(batch)} in {update}",
    )


def _run(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    arrays = host_arrays(operands)
    count = len(arrays) // 2
    inputs, indices, updates = arrays[:count], arrays[count], arrays[count + 1 :]
    mapped, dropped, batching, paired = (integers(instr, name, ()) for name in _NAMES)
    index_map = IndexMap(integer(instr, "index_vector_dim"), mapped, dropped, batching, paired)
    window = integers(instr, "update_window_dims", ())
    order = [d for d in range(updates[0].ndim) if d not in window]
    moved = [u.transpose(*order, *window) for u in updates]
    sizes = moved[0].shape[len(order) :]
    positions, inside = _positions(index_map, indices, inputs[0].shape, sizes)
    targets = [a.flatten() for a in inputs]
    flat = positions[inside].reshape(-1)
    values = [m[inside].reshape(-1) for m in moved]
    scatter_fold(evaluate, str(instr.attrs["to_apply"]), targets, flat, values)
    return as_result(instr, [t.reshape(a.shape) for t, a in zip(targets, inputs, strict=True)])


def _positions(
    index_map: IndexMap, indices: Array, dims: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return each update element's flat position [batch..., window...] and which batches fit."""
    rank = len(dims)
    kept = index_map.window_dims(rank)
    extent = [1] * rank
    for dim, size in zip(kept, sizes, strict=True):
        extent[dim] = size
    batch = tuple(n for d, n in enumerate(indices.shape) if d != index_map.vector_dim)
    strides = [prod(dims[d + 1 :]) for d in range(rank)]
    base = np.zeros(batch, np.int64)
    inside = np.ones(batch, np.bool_)
    for dim, start in enumerate(index_map.starts(indices, rank)):
        inside &= (start >= 0) & (start <= dims[dim] - extent[dim])
        base = base + np.where(inside, start, 0) * strides[dim]
    offsets = np.zeros(sizes, np.int64)
    for axis, dim in enumerate(kept):
        tail = (1,) * (len(kept) - 1 - axis)
        offsets = offsets + (np.arange(sizes[axis]) * strides[dim]).reshape(-1, *tail)
    return base.reshape((*batch, *(1,) * len(kept))) + offsets, inside


SCATTER = OpSpec(
    "scatter",
    (3, None),
    _infer,
    _run,
    frozenset(
        {
            *_NAMES,
            "update_window_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "unique_indices",
            "to_apply",
        }
    ),
    required=frozenset(
        {
            "index_vector_dim",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "to_apply",
            "update_window_dims",
        }
    ),
    inplace=(0,),
    device=OwnKernel("scatter"),
)
