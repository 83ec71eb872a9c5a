"""Corners at which results differed from those of XLA on the CPU, one module each."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, module, scalar_region

from hlo2graph.hlo import DTYPES

_COMPLEX = [complex(a, b) for a in (-1, 0, 1, np.nan) for b in (-1, 0, 1)]


def _pairs(values: list[complex]) -> list[np.ndarray]:
    grid = np.meshgrid(np.array(values, np.complex64), np.array(values, np.complex64))
    return [part.ravel() for part in grid]


@pytest.mark.parametrize("way", ["LT", "LE", "GT", "GE", "EQ", "NE"])
def test_complex_numbers_compare_by_their_real_parts_first(way: str) -> None:
    pairs = _pairs(_COMPLEX)
    shape = f"[{pairs[0].size}]"
    text = module(
        f"a = c64{shape} parameter(0) b = c64{shape} parameter(1) "
        f"ROOT r = pred{shape} compare(a, b), direction={way}"
    )
    agree(text, pairs, 0)


@pytest.mark.parametrize("opcode", ["maximum", "minimum", "clamp"])
def test_complex_numbers_have_an_order(opcode: str) -> None:
    pairs = _pairs(_COMPLEX)
    shape = f"c64[{pairs[0].size}]"
    operands = "a, b, a" if opcode == "clamp" else "a, b"
    text = module(
        f"a = {shape} parameter(0) b = {shape} parameter(1) ROOT r = {shape} {opcode}({operands})"
    )
    agree(text, pairs)


@pytest.mark.parametrize("dtype", ["s8", "u8", "s32", "u32", "s64", "u64"])
def test_six_bits_of_an_exponent_count(dtype: str) -> None:
    low, high = DTYPES[dtype].limits
    held = [low, high, high - 1, high // 2, *range(max(low, -3), 6), 63, 64, 65, 67]
    values = np.array(held, np.int64 if low else np.uint64).astype(DTYPES[dtype].numpy)
    grid = [part.ravel() for part in np.meshgrid(values, values)]
    shape = f"{dtype}[{grid[0].size}]"
    text = module(f"a = {shape} parameter(0) b = {shape} parameter(1) ROOT r = {shape} power(a, b)")
    agree(text, grid, 0)


@pytest.mark.parametrize("dtype", ["f8e3m4", "f8e4m3", "f8e5m2fnuz", "f8e4m3fn"])
@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 2), (4, 3), (3, 1), (5, 0)])
def test_eight_bits_are_reduced_through_sixteen(dtype: str, exponent: int, mantissa: int) -> None:
    held = np.arange(256).astype(np.uint8).view(DTYPES[dtype].numpy)
    values = np.where(np.isnan(held), np.zeros((), held.dtype), held)  # which NaN is not pinned
    text = module(
        f"a = {dtype}[256] parameter(0) ROOT r = {dtype}[256] reduce-precision(a), "
        f"exponent_bits={exponent}, mantissa_bits={mantissa}"
    )
    agree(text, [values], 0)


@pytest.mark.parametrize("result", ["s8", "u8", "u32", "s32"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "s8"])
def test_sums_of_floats_saturate_and_those_of_integers_wrap(dtype: str, result: str) -> None:
    left = np.array([[1.6, -1.3, 2.2]]).astype(DTYPES[dtype].numpy)
    right = np.array([[1, -1, 3, 100, -90], [0, 2, -3, 100, 120], [1, 2, -5, 127, 30]])
    text = module(
        f"a = {dtype}[1,3] parameter(0) b = {dtype}[3,5] parameter(1) ROOT r = {result}[1,5] "
        "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    agree(text, [left, right.astype(DTYPES[dtype].numpy)], 0)


@pytest.mark.parametrize("opcode", ["add", "maximum", "multiply", "and"])
@pytest.mark.parametrize("dtype", ["s4", "u4", "u8", "u32"])
def test_narrow_and_unsigned_types_fold(dtype: str, opcode: str) -> None:
    region = scalar_region("region", opcode, dtype)
    values = np.arange(24).reshape(4, 6).astype(np.int8).astype(DTYPES[dtype].numpy)
    start = np.array(1).astype(DTYPES[dtype].numpy)
    text = module(
        f"a = {dtype}[4,6] parameter(0) z = {dtype}[] parameter(1) "
        f"whole = {dtype}[4] reduce(a, z), dimensions={{1}}, to_apply=region "
        f"near = {dtype}[4,6] reduce-window(a, z), window={{size=3x3 pad=1_1x1_1}}, "
        f"to_apply=region ROOT r = ({dtype}[4], {dtype}[4,6]) tuple(whole, near)",
        region,
    )
    agree(text, [values, start], 0)


@pytest.mark.parametrize("opcode", ["abs", "sign", "exponential", "sine", "cosine"])
def test_infinite_parts_of_complex_numbers_give_nan_where_they_do_in_xla(opcode: str) -> None:
    parts = [0.0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan]
    values = np.array([complex(a, b) for a in parts for b in parts], np.complex64)
    result = "f32" if opcode == "abs" else "c64"
    text = module(f"a = c64[49] parameter(0) ROOT r = {result}[49] {opcode}(a)")
    agree(text, [values])


def test_a_square_root_takes_an_imaginary_zero_as_positive() -> None:
    values = np.array([complex(a, b) for a in (-2, -0.0, 3) for b in (-0.0, 0, 1)], np.complex64)
    text = module("a = c64[9] parameter(0) ROOT r = c64[9] sqrt(a)")
    agree(text, [values])
