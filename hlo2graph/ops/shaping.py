"""Operations that move elements without computing: broadcast, reshape, slice, pad, ...

Each follows the section of its name in OpenXLA's operation page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import UNBOUNDED, AnyShape, Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops import device_shaping as device
from hlo2graph.ops.conversion import converted
from hlo2graph.ops.expect import (
    NUMBERS,
    accepts,
    as_array,
    as_arrays,
    dimension,
    distinct,
    dynamic_of,
    integer,
    integers,
    refuse,
    written,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, Lowering, OpSpec


def _infer_broadcast(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, target = as_array(instr, operands[0]), written(instr)
    dims = integers(instr, "dimensions", () if shape.rank == 0 else None)
    if len(dims) != shape.rank:
        refuse(instr, f"needs a result dimension for each of {shape.rank}, got {len(dims)}")
    distinct(instr, dims, target.rank, "dimensions")
    for size, to in zip(shape.dims, dims, strict=True):
        if target.dims[to] != size:
            refuse(instr, f"puts {size} elements into dimension {to} of {target.dims[to]}")
    return Shape(shape.dtype, target.dims, dynamic=target.dynamic)


def _broadcast(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x, target = np.asarray(operands[0]), written(instr)
    if not target.dims:
        return x
    dims = integers(instr, "dimensions", ())
    order = sorted(range(len(dims)), key=dims.__getitem__)
    spread = [1] * target.rank
    for to, size in zip(dims, x.shape, strict=True):
        spread[to] = size
    return np.broadcast_to(x.transpose(order).reshape(spread), target.dims)


def _infer_reshape(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, target = as_array(instr, operands[0]), written(instr)
    if UNBOUNDED not in (*shape.dims, *target.dims) and shape.elements != target.elements:
        refuse(
            instr,
            f"cannot turn the {shape.elements} elements of {shape.without_layout_text()} into the"
            f" {target.elements} of {target.without_layout_text()}",
        )
    return Shape(shape.dtype, target.dims, dynamic=target.dynamic)


def _reshape(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    dims = written(instr).dims
    return np.asarray(operands[0]).reshape(dims) if dims else _as_scalar(operands[0])


def _as_scalar(operand: HostValue) -> Array:
    """Drop dimensions of one; arrays that stand for scalars (ops.spec) stay as they are."""
    x = np.asarray(operand)
    return x.reshape(()) if x.size == 1 else x


def _infer_transpose(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape = as_array(instr, operands[0])
    order = integers(instr, "dimensions", () if shape.rank == 0 else None)
    distinct(instr, order, shape.rank, "dimensions")
    if len(order) != shape.rank:
        refuse(instr, f"needs {shape.rank} dimensions, got {len(order)}")
    dynamic = tuple(i for i, dim in enumerate(order) if dim in shape.dynamic)
    return Shape(shape.dtype, tuple(shape.dims[dim] for dim in order), dynamic=dynamic)


def _transpose(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    return np.asarray(operands[0]).transpose(integers(instr, "dimensions", ()))


def _infer_reverse(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape = as_array(instr, operands[0])
    distinct(instr, integers(instr, "dimensions"), shape.rank, "dimensions")
    return shape.with_layout(None)


def _reverse(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    return np.flip(np.asarray(operands[0]), integers(instr, "dimensions"))


def _slices(instr: Instruction) -> tuple[SliceDim, ...]:
    value = instr.attrs.get("slice", ())
    dims = value if isinstance(value, tuple) else ()
    return tuple(dim for dim in dims if isinstance(dim, SliceDim))


def _infer_slice(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape = as_array(instr, operands[0])
    slices = _slices(instr)
    if len(slices) != shape.rank:
        refuse(instr, f"needs the attribute slice with {shape.rank} ranges, got {len(slices)}")
    for at, (size, part) in enumerate(zip(shape.dims, slices, strict=True)):
        if not 0 <= part.start <= part.limit <= size:
            refuse(instr, f"takes [{part.start}:{part.limit}] of dimension {at}, which has {size}")
        if part.stride < 1:
            refuse(instr, f"needs a positive stride, got {part.stride}")
    dims = tuple(-(-(part.limit - part.start) // part.stride) for part in slices)
    return Shape(shape.dtype, dims, dynamic=shape.dynamic)


def _slice(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    ranges = tuple(slice(part.start, part.limit, part.stride) for part in _slices(instr))
    return np.asarray(np.asarray(operands[0])[ranges])


def _padding(instr: Instruction) -> tuple[PaddingDim, ...]:
    value = instr.attrs.get("padding", ())
    dims = value if isinstance(value, tuple) else ()
    return tuple(dim for dim in dims if isinstance(dim, PaddingDim))


def _infer_pad(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, value = as_arrays(instr, operands)
    if value.dims or value.dtype is not shape.dtype:
        wanted = f"{shape.dtype}[] as the value to pad with"
        refuse(instr, f"needs {wanted}, got {value.without_layout_text()}")
    padding = _padding(instr)
    if len(padding) != shape.rank:
        refuse(instr, f"needs padding for {shape.rank} dimensions, got {len(padding)}")
    dims = []
    for at, (size, pad) in enumerate(zip(shape.dims, padding, strict=True)):
        if pad.interior < 0:
            refuse(instr, f"needs interior padding of at least 0, got {pad.interior}")
        dims.append(pad.low + pad.high + size + max(0, size - 1) * pad.interior)
        if dims[-1] < 0:
            refuse(instr, f"leaves {dims[-1]} elements in dimension {at}")
    return Shape(shape.dtype, tuple(dims), dynamic=shape.dynamic)


def _pad(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x, value = (np.asarray(operand) for operand in operands)
    out = np.full(written(instr).dims, value, x.dtype)
    places = [_place(*of) for of in zip(x.shape, out.shape, _padding(instr), strict=True)]
    out[tuple(to for _, to in places)] = x[tuple(source for source, _ in places)]
    return out


def _place(size: int, out_size: int, pad: PaddingDim) -> tuple[slice, slice]:
    """Return which elements of a dimension stay, and where in the result they go."""
    step = pad.interior + 1
    first = max(0, -(pad.low // step))
    end = max(first, min(size, (out_size - 1 - pad.low) // step + 1))
    low = pad.low + first * step
    return slice(first, end), slice(low, low + (end - first) * step, step)


def _infer_concatenate(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shapes = as_arrays(instr, operands)
    first = shapes[0]
    along = dimension(instr, "dimensions", first.rank)
    for shape in shapes[1:]:
        others = [n for i, n in enumerate(shape.dims) if i != along]
        wanted = [n for i, n in enumerate(first.dims) if i != along]
        if shape.dtype is not first.dtype or shape.rank != first.rank or others != wanted:
            listed = ", ".join(s.without_layout_text() for s in (first, shape))
            refuse(instr, f"needs operands that differ only in dimension {along}, got {listed}")
    dims = list(first.dims)
    dims[along] = sum(shape.dims[along] for shape in shapes)
    return Shape(first.dtype, tuple(dims), dynamic=dynamic_of(*shapes))


def _concatenate(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    return np.concatenate([np.asarray(x) for x in operands], integers(instr, "dimensions")[0])


def _infer_iota(instr: Instruction, _: Sequence[AnyShape], __: Computations) -> Shape:
    target = written(instr)
    accepts(instr, target, NUMBERS, "numbers as its result")
    distinct(instr, (integer(instr, "iota_dimension"),), target.rank, "iota_dimension")
    return target.with_layout(None)


def _iota(instr: Instruction, _: Sequence[HostValue], __: Evaluator) -> Array:
    target, along = written(instr), integer(instr, "iota_dimension")
    if not target.elements:
        return np.empty(target.dims, target.dtype.numpy)
    count = converted(np.arange(target.dims[along], dtype=np.int64), target.dtype)
    spread = [-1 if dim == along else 1 for dim in range(target.rank)]
    return np.broadcast_to(count.reshape(spread), target.dims)


def _infer_copy(_: Instruction, operands: Sequence[AnyShape], __: Computations) -> AnyShape:
    return operands[0]


def _copy(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return operands[0]


def _infer_bitcast(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, target = as_array(instr, operands[0]), written(instr)
    if shape.size != target.size:
        refuse(
            instr,
            f"needs results of as many bytes as its operand: {shape} has {shape.size},"
            f" {target} has {target.size}",
        )
    return target.with_layout(None)


def _bitcast(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> Array:
    (source,), target = as_arrays(instr, evaluate.operand_shapes(instr)), written(instr)
    x = np.asarray(operands[0])
    if not source.dims and not target.dims:
        return x.view(target.dtype.numpy)  # also of an array given as a scalar
    stored = np.ascontiguousarray(x.transpose(source.minor_to_major[::-1]))
    order = target.minor_to_major[::-1]
    laid_out = stored.reshape(-1).view(target.dtype.numpy).reshape([target.dims[i] for i in order])
    return laid_out.transpose(np.argsort(np.array(order, int)))


SHAPING: tuple[OpSpec, ...] = (
    OpSpec(
        "broadcast",
        1,
        _infer_broadcast,
        _broadcast,
        frozenset({"dimensions"}),
        device=device.broadcast,
    ),
    OpSpec(
        "reshape",
        1,
        _infer_reshape,
        _reshape,
        frozenset({"inferred_dimension"}),
        device=device.reshape,
    ),
    OpSpec(
        "transpose",
        1,
        _infer_transpose,
        _transpose,
        frozenset({"dimensions"}),
        required=frozenset({"dimensions"}),
        device=device.transpose,
    ),
    OpSpec(
        "reverse",
        1,
        _infer_reverse,
        _reverse,
        frozenset({"dimensions"}),
        required=frozenset({"dimensions"}),
        device=device.reverse,
    ),
    OpSpec(
        "slice",
        1,
        _infer_slice,
        _slice,
        frozenset({"slice"}),
        required=frozenset({"slice"}),
        device=device.slice_,
    ),
    OpSpec(
        "pad",
        2,
        _infer_pad,
        _pad,
        frozenset({"padding"}),
        required=frozenset({"padding"}),
        device=device.pad,
    ),
    OpSpec(
        "concatenate",
        (1, None),
        _infer_concatenate,
        _concatenate,
        frozenset({"dimensions"}),
        required=frozenset({"dimensions"}),
        device=device.concatenate,
    ),
    OpSpec(
        "iota",
        0,
        _infer_iota,
        _iota,
        frozenset({"iota_dimension"}),
        required=frozenset({"iota_dimension"}),
        device=device.iota,
    ),
    OpSpec("copy", 1, _infer_copy, _copy, elementwise=True, inplace=(0,), device=device.same_index),
    OpSpec("bitcast", 1, _infer_bitcast, _bitcast, lowering=Lowering.VIEW, device=device.bitcast),
)
