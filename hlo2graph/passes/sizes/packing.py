"""Arrays of other dimensions, or without gaps: the elements that count keep their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from hlo2graph.hlo import Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import UnfollowedError, Value

LARGEST = 2**31 - 1  # elements that an s32 counts


def counted(body: Body, value: Value) -> str:
    """Return how many elements an array has."""
    static = prod(n for d, n in enumerate(value.array.dims) if d not in value.along)
    total = body.number(static)
    for size in value.along.values():
        total = body.count("multiply", total, size)
    return total


def repacked(body: Body, value: Value, dims: Sequence[int], sizes: Mapping[int, str]) -> str:
    """Return an array of `dims` whose elements within `sizes` are those of `value`, in order."""
    places = Shape(S32, tuple(dims))
    if max(places.elements, value.array.elements) > LARGEST:
        raise UnfollowedError(value.name)
    position = _position(body, places, sizes)
    found = _found(body, value, places, position)
    source = value.array
    flat = body.add("reshape", Shape(source.dtype, (source.elements,)), [value.name])
    index = body.add("reshape", Shape(S32, (places.elements, 1)), [found])
    taken = body.add(
        "gather",
        Shape(source.dtype, (places.elements,)),
        [flat, index],
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )
    return body.add("reshape", Shape(source.dtype, tuple(dims)), [taken])


def packed(body: Body, value: Value) -> str:
    """Return a bounded result as it leaves a program: its elements first, in order, then zeros."""
    shape = value.array
    zero = body.scalar(shape, np.asarray(0))
    longer = [d for d, n in enumerate(shape.dims) if n != 1 or d in value.along]
    if list(value.along) == longer[:1]:
        return body.masked(value.name, shape, value.along, zero)
    total, row = counted(body, value), Shape(shape.dtype, (shape.elements,))
    line = repacked(body, value, row.dims, {0: total})
    return body.add("reshape", shape, [body.masked(line, row, {0: total}, zero)])


def _position(body: Body, places: Shape, sizes: Mapping[int, str]) -> str:
    """Return for each place its number among those within the sizes."""
    strides = _strides(body, [sizes.get(d, n) for d, n in enumerate(places.dims)])
    total = body.zeros(places)
    for dim, stride in enumerate(strides):
        along = body.add("iota", places, iota_dimension=dim)
        step = body.add("multiply", places, [along, body.spread(stride, places)])
        total = body.add("add", places, [total, step])
    return total


def _found(body: Body, value: Value, places: Shape, position: str) -> str:
    """Return where in the whole of `value` its elements of those numbers lie."""
    dims = value.array.dims
    strides = _strides(body, [value.along.get(d, n) for d, n in enumerate(dims)])
    total = body.zeros(places)
    for dim, stride in enumerate(strides):
        size = body.spread(body.size_along(value, dim), places)
        at = body.add("divide", places, [position, body.spread(stride, places)])
        at = body.add("remainder", places, [at, size])
        pitch = body.spread(body.number(prod(dims[dim + 1 :])), places)
        total = body.add("add", places, [total, body.add("multiply", places, [at, pitch])])
    return total


def _strides(body: Body, sizes: Sequence[str | int]) -> list[str]:
    """Return how far apart neighbours along each dimension are."""
    strides, stride = [], body.number(1)
    for size in reversed(sizes):
        strides.append(stride)
        stride = body.count("multiply", stride, size)
    return strides[::-1]
