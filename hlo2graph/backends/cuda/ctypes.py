"""The C++ type of each element type, and C++ literals of their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hlo2graph.hlo import DType


def storage_type(dtype: DType) -> str:
    """Return the C++ type of an element in memory."""
    return f"hlo::{dtype.name}"


def stored(dtype: DType, value: str) -> str:
    """Return the C++ of a compute value as it lies in memory."""
    return f"hlo::Store<{storage_type(dtype)}>::of({value})"


def compute_type(dtype: DType) -> str:
    """Return the C++ type of an element in a local: narrow types are widened."""
    if dtype.is_float and dtype.bits < 32:
        return "float"
    if dtype.is_integer and dtype.bits < 8:
        return "hlo::s8" if dtype.name.startswith("s") else "hlo::u8"
    return f"hlo::{dtype.name}"


def compute_bytes(dtypes: Iterable[DType]) -> int:
    """Return the bytes of locals, one of each type."""
    return sum(4 if compute_type(dtype) == "float" else dtype.size for dtype in dtypes)


def scalar_literal(dtype: DType, value: Any) -> str:
    """Return `value`, a NumPy scalar of `dtype`, as a C++ expression of the compute type."""
    if dtype.is_complex:
        part = np.float32 if dtype.bits == 64 else np.float64
        real, imag = (_float(part(x)) for x in (value.real, value.imag))
        return f"{compute_type(dtype)}{{{real}, {imag}}}"
    if dtype.is_float:
        return _float(np.float64(value) if dtype.bits == 64 else np.float32(value))
    if dtype.name == "pred":
        return "true" if value else "false"
    return _integer(dtype, int(value))


def _float(value: Any) -> str:
    """Return a float or double: hexadecimal, so that no digit is lost; specials by their bits."""
    single = isinstance(value, np.float32)
    if not np.isfinite(value):
        bits = int(value.view(np.uint32 if single else np.uint64))
        kind, tail = ("f32", "u") if single else ("f64", "ull")
        return f"hlo::bits_as<hlo::{kind}>({bits:#x}{tail})"
    text = repr(float(value))
    if float(value) == int(value) and abs(value) < 1e16:
        text = ("-" if np.signbit(value) else "") + f"{abs(int(value))}.0"
    else:
        text = float(value).hex()
    return f"{text}f" if single else text


def _integer(dtype: DType, value: int) -> str:
    if dtype.bits == 64:
        least = value == -(2**63)
        tail = "ull" if dtype.name == "u64" else "ll"
        return "(-9223372036854775807ll - 1)" if least else f"{value}{tail}"
    if dtype.name == "s32":
        return "(-2147483647 - 1)" if value == -(2**31) else str(value)
    if dtype.name == "u32":
        return f"{value}u"
    return f"({compute_type(dtype)}){value}"
