"""Which dots run as kernels of ours, with the work around them, and which a library multiplies.

The rule, all of it, from shapes and types alone:

- Types that cuBLASLt does not take, and sums of fewer than FEWEST_STEPS products: ours.
- A large matrix times FEW_VECTORS, or on tensor cores as many as its type's limits say: ours, since
  memory bounds it.
- Products that tensor cores take (f32 that may round to TF32, floats of 16 bits and less, bytes):
  ours up to the flops that their type's limits say, which are more where a matrix is ragged;
  others, whose products our kernels add one by one: ours up to MOST_OTHER_FLOPS.
- Sums of more than MOST_STEPS products: the library's, which splits them over blocks, unless the
  whole is below FEWEST_FLOPS, where any kernel of ours is done before a library's has started.
- Dots whose results are looked at together, such as the gates of an LSTM, share a kernel where they
  `go_together`: up to MOST_TOGETHER, of up to MOST_RESULTS elements each and MOST_SUMS in all,
  beyond which they are sooner done side by side.

A kernel of ours takes in elementwise work on either side and costs one node; a call of the library
costs one or two, and everything around it is a kernel of its own. Passes ask before they put
something into a dot's fusion: a dot with company has no library call any more.

The limits are where cuBLASLt overtook our kernels on an H200 in tests/gpu/dots.py, for f16 as for
bf16, whose kernels differ in nothing but the multiplication's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import DType, Instruction, Shape
from hlo2graph.ops.expect import integers, written


@dataclass(frozen=True, slots=True)
class Limits:
    """Up to how much our kernels multiply on tensor cores: vectors of a matrix, and flops."""

    vectors: int
    flops: int
    ragged_flops: int  # where a library reads or writes a matrix element by element


SHORT = "f8"  # floats of at most eight bits
_HALF = Limits(8, 1 << 26, 1 << 29)
_BYTE = Limits(8, 1 << 31, 1 << 31)  # cuBLASLt takes few layouts of these
TENSOR_FLOATS = {"f32": Limits(16, 1 << 27, 3 << 27), "bf16": _HALF, "f16": _HALF}
TENSOR_BYTES = {"s8": _BYTE, "u8": _BYTE}
TENSOR_LIMITS = {**TENSOR_FLOATS, **TENSOR_BYTES, SHORT: _BYTE}
FEW_VECTORS = 4
MANY_ROWS = 1024  # enough to fill a device
FEWEST_STEPS = 32
FEWEST_FLOPS = 1 << 18
MOST_STEPS = 4096
LINE_BYTES = 16  # on which lines of a matrix begin, if they are not ragged
MOST_OTHER_FLOPS = 1 << 23
MOST_TOGETHER = 8
MOST_RESULTS = 1 << 14
MOST_SUMS = 1 << 16
_BATCH = "lhs_batch_dims"
SAME = frozenset({"f16", "bf16", "f32", "f64", "c64", "c128"})  # operands and result alike
WIDENED = {  # operands of one of these, and what the result may be instead
    frozenset({"f16"}): {"f32"},
    frozenset({"bf16"}): {"f32"},
    frozenset({"s8"}): {"s32"},
    frozenset({"f8e4m3fn"}): {"f16", "bf16", "f32"},
    frozenset({"f8e4m3fn", "f8e5m2"}): {"f16", "bf16", "f32"},
}


def runs_as_own_kernel(dot: Instruction, lhs: Shape, rhs: Shape) -> bool:
    """Tell whether the dot of operands of these shapes is computed by a kernel of ours."""
    if gains_nothing(dot, lhs, rhs):
        return True
    steps = _steps(dot, lhs)
    vectors, most = FEW_VECTORS, MOST_OTHER_FLOPS
    if kind := tensor_type(dot, lhs, rhs):
        limits = TENSOR_LIMITS[kind]
        is_ragged = any(map(_is_ragged, (lhs, rhs, written(dot))))
        vectors, most = limits.vectors, limits.ragged_flops if is_ragged else limits.flops
    products = prod(lhs.dims[d] for d in integers(dot, "lhs_batch_dims", ()))
    extents = [shape.elements // (products * steps) for shape in (lhs, rhs)]
    if min(extents) <= vectors and products * max(extents) >= MANY_ROWS:
        return True
    return steps <= MOST_STEPS and 2 * written(dot).elements * steps <= most


def go_together(dots: Sequence[tuple[Instruction, Shape, Shape]]) -> bool:
    """Tell whether one kernel computes these dots, given with the shapes of their operands.

    They have equal results, that come in the same way from equal types, and little of them.
    """
    alike = {
        (written(dot), lhs.dtype, rhs.dtype, _rows(dot, lhs), len(integers(dot, _BATCH, ())))
        for dot, lhs, rhs in dots
    }
    return (
        len(alike) == 1
        and len(dots) <= MOST_TOGETHER
        and 0 < written(dots[0][0]).elements <= min(MOST_RESULTS, MOST_SUMS // len(dots))
        and all(_steps(dot, lhs) >= FEWEST_STEPS for dot, lhs, _ in dots)
        and all(runs_as_own_kernel(*each) for each in dots)
    )


def gains_nothing(dot: Instruction, lhs: Shape, rhs: Shape) -> bool:
    """Tell whether no library takes the dot, or any kernel of ours is done before its has started.

    This alone decides where nothing is fused.
    """
    out, steps = written(dot), _steps(dot, lhs)
    known = library_takes(lhs.dtype, rhs.dtype, out.dtype)
    return not known or steps < FEWEST_STEPS or 2 * out.elements * steps < FEWEST_FLOPS


def _is_ragged(shape: Shape) -> bool:
    """Tell whether a library has to read or write a matrix element by element."""
    minor = next((shape.dims[d] for d in shape.minor_to_major if shape.dims[d] > 1), 0)
    return minor * shape.dtype.size % LINE_BYTES != 0


def _rows(dot: Instruction, lhs: Shape) -> int:
    """Return how many dimensions of the result come from lhs alone."""
    summed = integers(dot, "lhs_contracting_dims", ())
    return lhs.rank - len(summed) - len(integers(dot, _BATCH, ()))


def _steps(dot: Instruction, lhs: Shape) -> int:
    return prod(lhs.dims[d] for d in integers(dot, "lhs_contracting_dims", ()))


def library_takes(lhs: DType, rhs: DType, out: DType) -> bool:
    """Tell whether cuBLASLt multiplies elements of these types."""
    operands = frozenset({lhs.name, rhs.name})
    return (operands == {out.name} and out.name in SAME) or out.name in WIDENED.get(operands, ())


def takes_tensor_cores(dot: Instruction, lhs: Shape, rhs: Shape) -> bool:
    """Tell whether tensor cores may compute the dot, as the program's precision has it."""
    return (
        not asks_for_more(dot)
        and lhs.dtype is rhs.dtype
        and lhs.dtype.name in TENSOR_FLOATS
        and written(dot).dtype.name in {lhs.dtype.name, "f32"}
    )


def tensor_type(dot: Instruction, lhs: Shape, rhs: Shape) -> str | None:
    """Return the name of the type of a dot that tensor cores may compute, as TENSOR_LIMITS has it.

    Bytes are summed up exactly, in words. Floats of as few bits, of two types too, are SHORT: they
    are multiplied as f16, which has all their values.
    """
    to = written(dot).dtype
    if takes_tensor_cores(dot, lhs, rhs):
        return lhs.dtype.name
    if to.is_integer:
        is_exact = lhs.dtype is rhs.dtype and lhs.dtype.name in TENSOR_BYTES and to.bits <= 32
        return lhs.dtype.name if is_exact else None
    if asks_for_more(dot) or not (to.is_float and to.bits <= 32):
        return None
    return SHORT if is_short(lhs.dtype) and is_short(rhs.dtype) else None


def is_short(dtype: DType) -> bool:
    """Tell whether f16 has all values of the type."""
    return dtype.is_float and dtype.bits <= 8 and dtype.name != "f8e8m0fnu"


def asks_for_more(dot: Instruction) -> bool:
    """Tell whether the program asks for more than the default precision."""
    return "high" in str(dot.attrs.get("operand_precision", "")).lower()
