"""Operations whose positions or sizes are data: dynamic-slice, get-dimension-size, ...

Start indices are clamped so that the slice lies inside, as OpenXLA's operation page says. A pass
turns arrays whose size is known only at run time into whole ones; where it cannot, they are
inferred, drawn and planned, but not run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, Instruction, Shape
from hlo2graph.ops import device_shaping as device
from hlo2graph.ops.expect import (
    INTEGERS,
    accepts,
    as_array,
    as_arrays,
    dimension,
    integers,
    refuse,
    same,
    written,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec

_S32 = DTYPES["s32"]
# fmt: off
UNSIZED = frozenset({
    "all-gather", "all-gather-done", "all-gather-start", "all-reduce-done",
    "all-reduce-start", "all-to-all", "async-done", "async-start", "async-update",
    "cholesky",
    "collective-permute-done", "collective-permute-start", "copy-done",
    "copy-start", "fft", "infeed", "outfeed", "ragged-all-to-all", "ragged-dot", "recv",
    "recv-done", "reduce-scatter", "rng-bit-generator", "scaled-dot", "scan", "send",
    "send-done", "triangular-solve",
})
# fmt: on
"""Opcodes through which the size of an operand that a run decides is not followed."""

_AT_RUN_TIME = "makes an array whose size is known only at run time"


def _check_starts(instr: Instruction, rank: int, starts: Sequence[Shape]) -> None:
    """Accept a scalar index a dimension, or the older form: one vector of all of them."""
    vector = len(starts) == 1 and starts[0].rank == 1
    count = starts[0].dims[0] if vector else len(starts)
    for start in starts:
        accepts(instr, start, INTEGERS, "integers as start indices")
        if start.dims and not vector:
            refuse(instr, f"needs scalars as start indices, got {start.without_layout_text()}")
        if start.dtype is not starts[0].dtype:
            refuse(instr, f"mixes start indices of {starts[0].dtype} and {start.dtype}")
    if count != rank:
        refuse(instr, f"needs {rank} start indices, got {count}")


def _window(dims: Sequence[int], sizes: Sequence[int], starts: Sequence[HostValue]) -> list[slice]:
    """Return the ranges that start at the clamped indices."""
    wanted = [int(i) for start in starts for i in np.asarray(start).reshape(-1)]
    clamped = [min(max(0, at), n - size) for at, n, size in zip(wanted, dims, sizes, strict=True)]
    return [slice(at, at + size) for at, size in zip(clamped, sizes, strict=True)]


def _infer_dynamic_slice(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> Shape:
    shape, *starts = as_arrays(instr, operands)
    _check_starts(instr, shape.rank, starts)
    sizes = integers(instr, "dynamic_slice_sizes", () if shape.rank == 0 else None)
    if len(sizes) != shape.rank:
        refuse(instr, f"needs {shape.rank} dynamic_slice_sizes, got {len(sizes)}")
    for at, (size, whole) in enumerate(zip(sizes, shape.dims, strict=True)):
        if not 0 <= size <= whole:
            refuse(instr, f"takes {size} of the {whole} elements of dimension {at}")
    return Shape(shape.dtype, sizes)


def _dynamic_slice(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x = np.asarray(operands[0])
    return np.asarray(x[tuple(_window(x.shape, written(instr).dims, operands[1:]))])


def _infer_dynamic_update(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> Shape:
    shape, update, *starts = as_arrays(instr, operands)
    if update.dtype is not shape.dtype or update.rank != shape.rank:
        listed = f"{shape.without_layout_text()} and {update.without_layout_text()}"
        refuse(instr, f"needs an operand and an update of one type and rank, got {listed}")
    for at, (size, whole) in enumerate(zip(update.dims, shape.dims, strict=True)):
        if size > whole:
            refuse(instr, f"puts {size} elements into dimension {at} of {whole}")
    _check_starts(instr, shape.rank, starts)
    return shape.with_layout(None)


def _dynamic_update(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> Array:
    out, update = np.array(operands[0]), np.asarray(operands[1])
    out[tuple(_window(out.shape, update.shape, operands[2:]))] = update
    return out


def _infer_dynamic_reshape(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> Shape:
    shape, *sizes = as_arrays(instr, operands)
    target = written(instr)
    for size in sizes:
        same(instr, size, Shape(_S32), "each size")
    if len(sizes) != target.rank:
        refuse(instr, f"needs {target.rank} sizes, got {len(sizes)}")
    if shape.elements != target.elements:
        refuse(
            instr,
            f"cannot turn the at most {shape.elements} elements of {shape.without_layout_text()}"
            f" into the {target.elements} of {target.without_layout_text()}",
        )
    return Shape(shape.dtype, target.dims, dynamic=target.dynamic)


def _dynamic_reshape(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    return np.asarray(operands[0]).reshape(written(instr).dims)


def _infer_get_size(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    dimension(instr, "dimensions", as_array(instr, operands[0]).rank)
    return Shape(_S32)


def _get_size(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    dim = integers(instr, "dimensions")[0]
    return np.asarray(np.asarray(operands[0]).shape[dim]).astype(np.int32)


def _infer_set_size(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, size = as_arrays(instr, operands)
    dim = dimension(instr, "dimensions", shape.rank)
    same(instr, size, Shape(_S32), "the size")
    dynamic = tuple(sorted({*shape.dynamic, dim}))
    return Shape(shape.dtype, shape.dims, dynamic=dynamic)


def _set_size(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> Array:
    return np.asarray(operands[0])


def _why_not(instr: Instruction) -> str | None:
    return _AT_RUN_TIME if written(instr).dynamic else None


_DIMENSIONS = frozenset({"dimensions"})

DYNAMIC: tuple[OpSpec, ...] = (
    OpSpec(
        "dynamic-slice",
        (1, None),
        _infer_dynamic_slice,
        _dynamic_slice,
        frozenset({"dynamic_slice_sizes"}),
        required=frozenset({"dynamic_slice_sizes"}),
        device=device.dynamic_slice,
    ),
    OpSpec(
        "dynamic-update-slice",
        (2, None),
        _infer_dynamic_update,
        _dynamic_update,
        inplace=(0,),
        device=device.dynamic_update_slice,
    ),
    OpSpec(
        "dynamic-reshape",
        (1, None),
        _infer_dynamic_reshape,
        _dynamic_reshape,
        why_not=_why_not,
        device=device.reshape,
    ),
    OpSpec(
        "get-dimension-size",
        1,
        _infer_get_size,
        _get_size,
        _DIMENSIONS,
        required=frozenset({"dimensions"}),
        device=device.get_dimension_size,
    ),
    OpSpec(
        "set-dimension-size",
        2,
        _infer_set_size,
        _set_size,
        _DIMENSIONS,
        required=frozenset({"dimensions"}),
        inplace=(0,),
        why_not=_why_not,
        device=device.same_index,
    ),
)
