"""How sizes go through what moves elements: broadcast, slice, pad, concatenate, ..."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops.expect import integers
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import Place, UnfollowedError, Value


def set_size(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Note a size; one that is known to be the bound makes the dimension whole again."""
    value, size = values
    (dim,) = integers(instr, "dimensions")
    sizes = {**value.sizes, (0, dim): size.name}
    if body.known(size.name) == value.array.dims[dim]:
        sizes.pop((0, dim))
    return body.stands(instr, value.name, sizes)


def get_size(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Give the size that is known, or the dimension's."""
    (dim,) = integers(instr, "dimensions")
    return body.stands(instr, body.size_along(values[0], dim), {})


def broadcast(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Let each dimension take its size along."""
    dims = integers(instr, "dimensions", ())
    sizes = {(0, dims[dim]): size for dim, size in values[0].along.items()}
    return body.keep(instr, [values[0].name], sizes)


def transpose(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Let each dimension take its size along."""
    order = integers(instr, "dimensions")
    sizes = {(0, order.index(dim)): size for dim, size in values[0].along.items()}
    return body.keep(instr, [values[0].name], sizes)


def reverse(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Reverse the whole, then move what counts to the front."""
    (value,) = values
    turned = [d for d in integers(instr, "dimensions") if d in value.along]
    if not turned:
        return body.keep(instr, [value.name], value.sizes)
    shape = value.array
    name = body.add("reverse", shape, [value.name], dimensions=integers(instr, "dimensions"))
    for dim in turned:
        start = body.count("subtract", body.number(shape.dims[dim]), value.along[dim])
        name = body.shifted(name, shape, dim, start)
    return body.stands(instr, name, value.sizes)


def cut(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Follow a slice: it has as many elements as lie between its ends."""
    (value,) = values
    held = instr.attrs["slice"]
    assert isinstance(held, tuple)
    sizes: dict[Place, str] = {}
    for dim, size in value.along.items():
        taken = held[dim]
        assert isinstance(taken, SliceDim)
        if taken != SliceDim(0, value.array.dims[dim], 1):
            size = body.count("minimum", size, taken.limit)
            size = body.count("subtract", size, taken.start - (taken.stride - 1))
            size = body.count("divide", body.count("maximum", size, 0), taken.stride)
        sizes[0, dim] = size
    return body.keep(instr, [value.name], sizes)


def pad(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Pad what counts: behind it the whole array has nothing but padding."""
    value, fill = values
    held = instr.attrs["padding"]
    assert isinstance(held, tuple)
    sizes, seen = {}, {}
    for dim, size in value.along.items():
        padding = held[dim]
        assert isinstance(padding, PaddingDim)
        if padding.high > 0 or padding.interior:
            seen[dim] = size
        sizes[0, dim] = _padded(body, size, padding)
    name = body.masked(value.name, value.array, seen, fill.name)
    return body.keep(instr, [name, fill.name], sizes)


def _padded(body: Body, size: str, padding: PaddingDim) -> str:
    """Return the size with its padding."""
    if padding.interior:
        gaps = body.count("maximum", body.count("subtract", size, 1), 0)
        size = body.count("add", size, body.count("multiply", gaps, padding.interior))
    outside = padding.low + padding.high
    if not outside:
        return size
    grown = body.count("add", size, outside)
    return body.count("maximum", grown, 0) if outside < 0 else grown


def concatenate(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Write each operand over what lies behind the one before it."""
    (along,) = integers(instr, "dimensions")
    sizes: dict[Place, str] = {}
    for value in values:
        sizes |= {(0, d): size for d, size in value.along.items() if (0, d) not in sizes}
    if (0, along) not in sizes:
        return body.keep(instr, [v.name for v in values], sizes)
    shape = Shape(values[0].array.dtype, _dims(instr))
    name = body.add("concatenate", shape, [v.name for v in values], dimensions=(along,))
    start, first = body.size_along(values[0], along), body.number(0)
    for value in values[1:]:
        starts = [start if d == along else first for d in range(shape.rank)]
        name = body.add("dynamic-update-slice", shape, [name, value.name, *starts])
        start = body.count("add", start, body.size_along(value, along))
    sizes[0, along] = start
    return body.stands(instr, name, sizes)


def bitcast_convert(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Keep the sizes of the dimensions that stay."""
    rank = len(_dims(instr))
    sizes = {(0, dim): size for dim, size in values[0].along.items() if dim < rank}
    return body.keep(instr, [values[0].name], sizes)


def same_dims(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Follow a bitcast that moves nothing."""
    (value,) = values
    if value.array.dims != _dims(instr):
        raise UnfollowedError(instr.name)
    return body.keep(instr, [value.name], value.sizes)


def _dims(instr: Instruction) -> tuple[int, ...]:
    assert isinstance(instr.shape, Shape)
    return instr.shape.dims
