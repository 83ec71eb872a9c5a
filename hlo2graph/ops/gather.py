"""gather: slices of an operand at computed start indices.

Follows the OpenXLA section Gather; start indices are clamped so that every slice is inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops import device_shaping as device
from hlo2graph.ops.expect import (
    as_arrays,
    dimensions,
    host_arrays,
    integer,
    integers,
    refuse,
    require,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec


@dataclass(frozen=True, slots=True)
class IndexMap:
    """How index vectors address an operand: shared by gather and scatter.

    `mapped` are the operand dimensions that the vector's elements index, in order; `batching`
    pairs operand dimensions with dimensions of the indices; `dropped` are the operand's window
    dimensions of size 1 that have no dimension of their own.
    """

    vector_dim: int
    mapped: tuple[int, ...]
    dropped: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]

    def window_dims(self, rank: int) -> tuple[int, ...]:
        """Return the operand dimensions that a window keeps."""
        return tuple(d for d in range(rank) if d not in self.dropped + self.batching)

    def vectors(self, indices: Array) -> Array:
        """Return the indices as int64 [batch..., vector]."""
        if self.vector_dim == indices.ndim:
            indices = indices[..., None]
        vectors = np.moveaxis(indices, self.vector_dim, -1)
        if vectors.dtype.kind == "u" and vectors.dtype.itemsize == 8:
            vectors = np.minimum(vectors, np.iinfo(np.int64).max)
        return vectors.astype(np.int64)

    def starts(self, indices: Array, rank: int) -> list[Array]:
        """Return each operand dimension's start, broadcastable over the batch dimensions."""
        vectors = self.vectors(indices)
        batch = vectors.shape[:-1]
        found = [np.zeros((1,) * len(batch), np.int64) for _ in range(rank)]
        for k, dim in enumerate(self.mapped):
            found[dim] = vectors[..., k]
        for dim, source in zip(self.batching, self.indices_batching, strict=True):
            axis = source - (source > self.vector_dim)
            shape = [n if d == axis else 1 for d, n in enumerate(batch)]
            found[dim] = np.arange(batch[axis]).reshape(shape)
        return found


def read_map(instr: Instruction, names: Sequence[str], operand: Shape, indices: Shape) -> IndexMap:
    """Return and check an index map from the attributes `names`.

    In order: the map itself, the dropped dimensions, the operand's and the indices' batching.
    """
    mapped_name, dropped_name, batching_name, indices_name = names
    require(instr, indices.dtype.is_integer, f"indices must be integers, got {indices}")
    vector_dim = integer(instr, "index_vector_dim")
    require(
        instr,
        0 <= vector_dim <= indices.rank,
        f"index_vector_dim={vector_dim} is out of range for indices {indices}",
    )
    mapped = dimensions(instr, mapped_name, operand.rank)
    length = indices.dims[vector_dim] if vector_dim < indices.rank else 1
    require(
        instr,
        len(mapped) == length,
        f"{mapped_name} names {len(mapped)} dimensions, index vectors of {indices} have {length}",
    )
    dropped = dimensions(instr, dropped_name, operand.rank, ordered=True)
    batching = dimensions(instr, batching_name, operand.rank, ordered=True)
    paired = dimensions(instr, indices_name, indices.rank)
    require(
        instr,
        len(batching) == len(paired),
        f"{batching_name} and {indices_name} must be as long, got {len(batching)}, {len(paired)}",
    )
    require(instr, vector_dim not in paired, f"{indices_name} must not have index_vector_dim")
    for name, others in ((dropped_name, dropped), (mapped_name, mapped)):
        twice = set(batching) & set(others)
        require(
            instr,
            not twice,
            f"dimension {min(twice, default=0)} is in both {batching_name} and {name}",
        )
    for dim, source in zip(batching, paired, strict=True):
        require(
            instr,
            operand.dims[dim] == indices.dims[source],
            f"batching dimensions differ in size: {operand} has {operand.dims[dim]} at {dim}, "
            f"{indices} has {indices.dims[source]} at {source}",
        )
    return IndexMap(vector_dim, mapped, dropped, batching, paired)


def batch_dims(index_map: IndexMap, indices: Shape) -> tuple[int, ...]:
    """Return the sizes of the indices' dimensions other than the vector's."""
    return tuple(n for d, n in enumerate(indices.dims) if d != index_map.vector_dim)


_NAMES = (
    "start_index_map",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
)


def _infer(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    operand, indices = as_arrays(instr, operands)
    index_map = read_map(instr, _NAMES, operand, indices)
    sizes = integers(instr, "slice_sizes")
    require(
        instr,
        len(sizes) == operand.rank,
        f"slice_sizes must have one size a dimension of {operand}, got {len(sizes)}",
    )
    for dim, (size, bound) in enumerate(zip(sizes, operand.dims, strict=True)):
        if not 0 <= size <= bound:
            refuse(instr, f"slice size {size} is out of range for dimension {dim} of {operand}")
        if dim in index_map.dropped + index_map.batching:
            require(
                instr, size <= 1, f"slice size of collapsed dimension {dim} must be 1, got {size}"
            )
    window = [sizes[d] for d in index_map.window_dims(operand.rank)]
    batch = list(batch_dims(index_map, indices))
    offsets = dimensions(instr, "offset_dims", len(window) + len(batch), ordered=True)
    require(
        instr,
        len(offsets) == len(window),
        f"offset_dims has {len(offsets)} dimensions, the slices {len(window)}",
    )
    rank = len(window) + len(batch)
    dims = tuple((window if d in offsets else batch).pop(0) for d in range(rank))
    return Shape(operand.dtype, dims)


def _run(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    operand, indices = host_arrays(operands)
    mapped, dropped, batching, paired = (integers(instr, name, ()) for name in _NAMES)
    vector_dim = integer(instr, "index_vector_dim")
    index_map = IndexMap(vector_dim, mapped, dropped, batching, paired)
    sizes = integers(instr, "slice_sizes", ())
    offsets = integers(instr, "offset_dims", ())
    rank = operand.ndim
    starts = index_map.starts(indices, rank)
    window = index_map.window_dims(rank)
    whole = [d for d in window if sizes[d] == operand.shape[d]]
    partial = [d for d in range(rank) if d not in whole]
    inner = [d for d in window if d in partial]
    batch = tuple(n for d, n in enumerate(indices.shape) if d != vector_dim)
    index = []
    for dim in partial:
        start = np.clip(starts[dim], 0, operand.shape[dim] - max(sizes[dim], 1))
        start = start.reshape((*start.shape, *(1,) * len(inner)))
        if dim in inner:
            tail = len(inner) - 1 - inner.index(dim)
            start = start + np.arange(sizes[dim]).reshape(-1, *(1,) * tail)
        index.append(start)
    shape = (*batch, *(sizes[d] for d in inner), *(operand.shape[d] for d in whole))
    moved = operand.transpose(*partial, *whole)
    if not prod(shape) or not operand.size:
        return np.zeros(next(s.dims for s in instr.shape.leaves()), operand.dtype)
    taken = moved[tuple(index)] if index else moved
    taken = np.broadcast_to(taken, shape)
    # The window dimensions come out as (inner, whole); the result wants the operand's order.
    source = {dim: len(batch) + k for k, dim in enumerate([*inner, *whole])}
    remaining, slices = iter(range(len(batch))), iter(window)
    axes = [source[next(slices)] if d in offsets else next(remaining) for d in range(len(shape))]
    return np.array(taken.transpose(axes), order="C")


GATHER = OpSpec(
    "gather",
    2,
    _infer,
    _run,
    frozenset({*_NAMES, "offset_dims", "index_vector_dim", "slice_sizes", "indices_are_sorted"}),
    required=frozenset(
        {
            "collapsed_slice_dims",
            "index_vector_dim",
            "offset_dims",
            "slice_sizes",
            "start_index_map",
        }
    ),
    device=device.gather,
)
