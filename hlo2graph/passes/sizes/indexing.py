"""How sizes go through gather, scatter and slices at computed places.

Start indices are clamped by the bounds, as in XLA.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import Instruction
from hlo2graph.ops.expect import integer, integers
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import Place, UnfollowedError, Value, on_each_leaf


def dynamic_slice(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Keep the sizes of the dimensions that are taken whole."""
    taken = integers(instr, "dynamic_slice_sizes", ())
    value = values[0]
    sizes = {(0, d): size for d, size in value.along.items() if taken[d] == value.array.dims[d]}
    return body.keep(instr, [v.name for v in values], sizes)


def dynamic_update_slice(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Write only what counts of the update."""
    value, update, *starts = values
    names = [start.name for start in starts]
    part = {d: size for d, size in update.along.items() if value.along.get(d) != size}
    name = update.name
    if part:
        shape = update.array
        old = body.add("dynamic-slice", shape, [value.name, *names], dynamic_slice_sizes=shape.dims)
        name = body.add("select", shape, [body.inside(shape, part), name, old])
    return body.keep(instr, [value.name, name, *names], value.sizes)


def gather(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Give window dimensions taken whole the operand's sizes, others the indices'."""
    value, indices = values
    taken, offsets = integers(instr, "slice_sizes", ()), integers(instr, "offset_dims", ())
    gone = {
        *integers(instr, "collapsed_slice_dims", ()),
        *integers(instr, "operand_batching_dims", ()),
    }
    kept = [d for d in range(value.array.rank) if d not in gone]
    sizes: dict[Place, str] = {
        (0, to): value.along[d]
        for d, to in zip(kept, offsets, strict=True)
        if d in value.along and taken[d] == value.array.dims[d]
    }
    batch = [d for d in range(_rank(instr)) if d not in offsets]
    for d, to in zip(_batch_dims(instr, indices), batch, strict=True):
        if d in indices.along:
            sizes[0, to] = indices.along[d]
    return body.keep(instr, [value.name, indices.name], sizes)


def scatter(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Send updates that do not count out of bounds, where they are dropped."""
    count = (len(values) - 1) // 2
    targets, indices, updates = values[:count], values[count], values[count + 1 :]
    windows = integers(instr, "update_window_dims", ())
    scattered = [d for d in range(updates[0].array.rank) if d not in windows]
    dims = _batch_dims(instr, indices)
    sizes = {d: size for d, size in indices.along.items() if d in dims}
    for update in updates:
        for d, to in zip(scattered, dims, strict=True):
            if d in update.along:
                sizes.setdefault(to, update.along[d])
    _check_windows(instr, targets, updates)
    if sizes and not integers(instr, "scatter_dims_to_operand_dims", ()):
        raise UnfollowedError(instr.name)
    outside = body.scalar(indices.array, np.asarray(-1))
    name = body.masked(indices.name, indices.array, sizes, outside)
    operands = [*(t.name for t in targets), name, *(u.name for u in updates)]
    along = {d: size for target in targets for d, size in target.along.items()}
    return body.keep(instr, operands, on_each_leaf(instr.shape, along))


def _check_windows(instr: Instruction, targets: Sequence[Value], updates: Sequence[Value]) -> None:
    """Refuse windows that are to write a part of what the whole array has there."""
    windows = integers(instr, "update_window_dims", ())
    gone = {
        *integers(instr, "inserted_window_dims", ()),
        *integers(instr, "input_batching_dims", ()),
    }
    for target, update in zip(targets, updates, strict=True):
        kept = [d for d in range(target.array.rank) if d not in gone]
        for d, to in zip(windows, kept, strict=True):
            if d in update.along and to not in target.along:
                raise UnfollowedError(instr.name)


def _batch_dims(instr: Instruction, indices: Value) -> list[int]:
    """Return the dimensions of the indices but for that of the index vector."""
    vector = integer(instr, "index_vector_dim", indices.array.rank)
    if vector in indices.along:
        raise UnfollowedError(instr.name)
    return [d for d in range(indices.array.rank) if d != vector]


def _rank(instr: Instruction) -> int:
    return len(next(iter(instr.shape.leaves())).dims)
