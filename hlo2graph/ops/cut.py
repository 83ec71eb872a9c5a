"""Arrays seen as part of others: cut out and reshaped, but where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.hlo import Computation, DType, Instruction, Shape, SliceDim
from hlo2graph.ops.expect import integers

CUTTING = frozenset({"reshape", "slice", "transpose"})


@dataclass(frozen=True, slots=True)
class Cut:
    """An array of `dims` whose elements lie in that of `source`: offset and strides in elements."""

    source: str
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def whole(name: str, shape: Shape) -> Cut:
        """Return all of the array `name`."""
        strides = [0] * shape.rank
        step = 1
        for dim in shape.minor_to_major:
            strides[dim] = step
            step *= shape.dims[dim]
        return Cut(name, shape.dtype, shape.dims, tuple(strides))


def cut_of(computation: Computation, name: str) -> Cut | None:
    """Return what instruction `name` is of the parameter that it is cut out of, if it is."""
    chain = [computation[name]]
    while chain[-1].opcode in CUTTING:
        chain.append(computation[chain[-1].operands[0]])
    source = chain.pop()
    if source.opcode != "parameter" or not isinstance(source.shape, Shape):
        return None
    found: Cut | None = Cut.whole(source.name, source.shape)
    for instr in reversed(chain):
        found = found and seen_as(found, instr)
    return found


def seen_as(cut: Cut, instr: Instruction) -> Cut | None:
    """Return the result of a slice, reshape or transpose of `cut`, if it lies in the same bytes."""
    assert isinstance(instr.shape, Shape)
    match instr.opcode:
        case "slice":
            return _sliced(cut, instr, instr.shape.dims)
        case "reshape":
            strides = _reshaped(cut, instr.shape.dims)
            if strides is None:
                return None
            return replace(cut, dims=instr.shape.dims, strides=strides)
        case _:
            order = integers(instr, "dimensions")
            turned = tuple(cut.strides[d] for d in order)
            return replace(cut, dims=instr.shape.dims, strides=turned)


def _sliced(cut: Cut, instr: Instruction, dims: tuple[int, ...]) -> Cut:
    parts = instr.attrs["slice"]
    assert isinstance(parts, tuple)
    offset, strides = cut.offset, []
    for part, stride in zip(parts, cut.strides, strict=True):
        assert isinstance(part, SliceDim)
        offset += part.start * stride
        strides.append(part.stride * stride)
    return replace(cut, dims=dims, strides=tuple(strides), offset=offset)


def _reshaped(cut: Cut, target: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of `cut` as an array of `target` dimensions, if one stride each does."""
    if 0 in target:
        return None
    axes = [(n, s) for n, s in zip(cut.dims, cut.strides, strict=True) if n != 1]
    found: list[int] = []
    size, stride = 1, 0  # what is left of the axis, or of several taken as one
    for n in reversed(target):
        if n == 1:
            found.append(0)
            continue
        if size == 1:
            size, stride = axes.pop()
        while size % n and axes and axes[-1][1] == stride * size:
            size *= axes.pop()[0]
        if size % n:
            return None
        found.append(stride)
        size, stride = size // n, stride * n
    return tuple(reversed(found))
