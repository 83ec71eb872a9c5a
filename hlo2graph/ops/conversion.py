"""Changing the element type: convert, bitcast-convert, reduce-precision, stochastic-convert.

Semantics follow OpenXLA's operation page, sections "ConvertElementType", "BitcastConvertType",
"ReducePrecision" and "StochasticConvert"; float to integer saturates and takes NaN to 0, as XLA
on the CPU does.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from hlo2graph.hlo import AnyShape, DType, Instruction, Kind, Shape
from hlo2graph.ops import device_compute as device
from hlo2graph.ops.expect import (
    COMPLEX,
    FLOATS,
    NUMBERS,
    accepts,
    as_array,
    as_arrays,
    integer,
    refuse,
    same,
    written,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import dtype_of, widen


def _infer_convert(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, target = as_array(instr, operands[0]), written(instr)
    return Shape(target.dtype, shape.dims, dynamic=shape.dynamic)


def _convert(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    return converted(np.asarray(operands[0]), written(instr).dtype)


def converted(x: Array, target: DType) -> Array:
    """Return `x` with its elements converted as HLO's convert does."""
    source = dtype_of(x)
    if source is target:
        return x
    if source.kind is Kind.COMPLEX and target.kind not in (Kind.COMPLEX, Kind.PRED):
        return converted(np.real(x), target)
    if target.kind is Kind.PRED:
        return np.asarray(widen(x) != 0)
    if source.kind is Kind.FLOAT and target.is_integer:
        return _saturated(widen(x), target)
    if source.name == "f64" and target.is_float and target.name not in ("f64", "f32", "f16"):
        return _to_odd(widen(x)).astype(target.numpy)
    return widen(x).astype(target.numpy)


def _to_odd(x: Array) -> Array:
    """Return float64s as float32s whose rounding to a narrower type is that of `x`.

    ml_dtypes rounds to float32 first, to nearest, which makes ties of what is none.
    """
    near = x.astype(np.float32)
    inexact = np.isfinite(near) & (near != x)
    bits = near.view(np.uint32)
    towards_zero = bits - (inexact & (np.abs(near) > np.abs(x))).astype(np.uint32)
    return np.where(inexact, towards_zero | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def _saturated(x: Array, target: DType) -> Array:
    """Return floats as integers: rounded towards zero, clamped to the range, NaN as 0."""
    low, high = target.limits
    wide = np.int64 if target.kind is Kind.SIGNED else np.uint64
    # The bounds of 64 bits round up as floats, so the end points are chosen, not clamped.
    inside = (x > low) & (x < high)
    whole = np.where(inside, x, 0).astype(wide)
    above = np.where(x >= high, np.asarray(high, wide), whole)
    return np.asarray(np.where(x <= low, np.asarray(low, wide), above)).astype(target.numpy)


def _infer_bitcast(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, target = as_array(instr, operands[0]), written(instr)
    if shape.dtype is not target.dtype and not COMPLEX.isdisjoint((shape.dtype, target.dtype)):
        refuse(instr, f"cannot turn {shape.dtype} into {target.dtype}")
    ratio = max(shape.dtype.bits, target.dtype.bits) // min(shape.dtype.bits, target.dtype.bits)
    dims = shape.dims
    if shape.dtype.bits > target.dtype.bits:
        dims = (*dims, ratio)
    elif shape.dtype.bits < target.dtype.bits:
        if not dims or dims[-1] != ratio:
            refuse(
                instr,
                f"to {target.dtype} needs {ratio} elements in the last dimension,"
                f" got {shape.without_layout_text()}",
            )
        dims = dims[:-1]
    return Shape(target.dtype, dims, dynamic=tuple(d for d in shape.dynamic if d < len(dims)))


def _bitcast(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x, target = np.asarray(operands[0]), written(instr).dtype
    source = dtype_of(x)
    if min(source.bits, target.bits) < 8 and source.bits != target.bits:
        return _repacked(x, source, target)
    flat = np.ascontiguousarray(x).reshape(x.shape)
    if source.bits == target.bits:
        return flat.view(target.numpy)
    if source.bits > target.bits:
        return flat[..., np.newaxis].view(target.numpy)
    return flat.view(target.numpy)[..., 0]


def _repacked(x: Array, source: DType, target: DType) -> Array:
    """Reinterpret where either type is below a byte: through single bits, lowest first."""
    pattern = np.ascontiguousarray(x).reshape(x.shape)
    raw = pattern[..., np.newaxis].view(np.uint8)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., : source.bits]
    if source.bits > target.bits:
        parts = bits.reshape(*x.shape, source.bits // target.bits, target.bits)
    else:
        parts = bits.reshape(*x.shape[:-1], target.bits)
    packed = np.packbits(parts, axis=-1, bitorder="little")
    if target.bits < 8:
        return packed[..., 0].astype(target.numpy) if target.is_integer else _small(packed, target)
    return packed.view(target.numpy)[..., 0]


def _small(packed: Array, target: DType) -> Array:
    return packed.view(target.numpy)[..., 0]


def _infer_reduce_precision(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> Shape:
    shape = as_array(instr, operands[0])
    accepts(instr, shape, FLOATS, "floating-point numbers")
    if integer(instr, "exponent_bits") < 1:
        refuse(instr, "needs at least one exponent bit")
    if integer(instr, "mantissa_bits") < 0:
        refuse(instr, "cannot have a negative number of mantissa bits")
    return Shape(shape.dtype, shape.dims, dynamic=shape.dynamic)


def _reduce_precision(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x = np.asarray(operands[0])
    exponent_bits, mantissa_bits = integer(instr, "exponent_bits"), integer(instr, "mantissa_bits")
    name = dtype_of(x).name
    if name in _AS_THEY_ARE:
        return _with_precision(x, exponent_bits, mantissa_bits)
    wide = x.astype(np.float16) if name.startswith("f8") and name != "f8e8m0fnu" else widen(x)
    return _with_precision(wide, exponent_bits, mantissa_bits).astype(x.dtype)


_AS_THEY_ARE = frozenset({"f64", "f32", "f16", "bf16"})


def _with_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to nearest even; too large becomes infinite, below the normal range becomes 0."""
    width, own_mantissa = 8 * x.dtype.itemsize, _mantissa_bits(dtype_of(x))
    own_exponent = width - 1 - own_mantissa
    word = np.dtype(f"u{x.dtype.itemsize}").type
    bits = np.ascontiguousarray(x).reshape(x.shape).view(word)
    sign = bits & word(1 << (width - 1))
    dropped = own_mantissa - mantissa_bits
    if dropped > 0:
        odd = (bits >> word(dropped)) & word(1)
        bits = (bits + odd + word((1 << (dropped - 1)) - 1)) & ~word((1 << dropped) - 1)
    if exponent_bits < own_exponent:
        bias, reach = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = word(((1 << own_exponent) - 1) << own_mantissa)
        exponent = bits & infinity
        bits = np.where(exponent > word((bias + reach) << own_mantissa), sign | infinity, bits)
        bits = np.where(exponent <= word((bias - reach) << own_mantissa), sign, bits)
    return np.where(np.isnan(x), x, bits.astype(word).view(x.dtype))


def _infer_stochastic(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    shape, random = as_arrays(instr, operands)
    target = written(instr)
    accepts(instr, shape, FLOATS, "floating-point numbers")
    if random.dtype.kind is not Kind.UNSIGNED or random.dtype.bits != shape.dtype.bits:
        refuse(instr, f"of {shape.dtype} needs random u{shape.dtype.bits}, got {random.dtype}")
    same(instr, Shape(shape.dtype, random.dims), shape, "dimensions of its random bits")
    accepts(instr, target, NUMBERS - COMPLEX, "a result of real numbers")
    return Shape(target.dtype, shape.dims, dynamic=shape.dynamic)


def _stochastic(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
    x, random = (np.asarray(operand) for operand in operands)
    target = written(instr).dtype
    if target.is_integer:
        return _randomly_rounded(x, random, target)
    return _randomly_shortened(x, random, target)


def _randomly_rounded(x: Array, random: Array, target: DType) -> Array:
    """Round away from zero with the probability of the fraction, then saturate."""
    wide = widen(x).astype(np.float64)
    size = np.abs(wide)
    whole = np.trunc(size)
    threshold = ((size - whole) * 2.0 ** (8 * random.dtype.itemsize)).astype(random.dtype)
    return _saturated(np.copysign(whole + (random < threshold), wide), target)


def _randomly_shortened(x: Array, random: Array, target: DType) -> Array:
    """Add random bits below the last kept one, then cut off."""
    source = dtype_of(x)
    dropped = _mantissa_bits(source) - _mantissa_bits(target)
    if dropped <= 0:
        return converted(x, target)
    bits = np.ascontiguousarray(x).reshape(x.shape).view(random.dtype)
    mask = random.dtype.type((1 << dropped) - 1)
    cut = ((bits + (random & mask)) & ~mask).view(x.dtype)
    return converted(np.where(np.isfinite(widen(x)), cut, x), target)


def _mantissa_bits(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype.numpy).nmant)  # type: ignore[no-untyped-call]


CONVERSION: tuple[OpSpec, ...] = (
    OpSpec(
        "convert",
        1,
        _infer_convert,
        _convert,
        elementwise=True,
        inplace=(0,),
        device=device.convert,
    ),
    OpSpec(
        "bitcast-convert", 1, _infer_bitcast, _bitcast, inplace=(0,), device=device.bitcast_convert
    ),
    OpSpec(
        "reduce-precision",
        1,
        _infer_reduce_precision,
        _reduce_precision,
        attrs=frozenset({"exponent_bits", "mantissa_bits"}),
        required=frozenset({"exponent_bits", "mantissa_bits"}),
        elementwise=True,
        inplace=(0,),
        device=device.reduce_precision,
    ),
    OpSpec(
        "stochastic-convert",
        2,
        _infer_stochastic,
        _stochastic,
        elementwise=True,
        device=device.stochastic_convert,
    ),
)
