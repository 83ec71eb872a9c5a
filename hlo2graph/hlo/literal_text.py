"""A constant's value as HLO text, exact to the bit.

Numbers have the fewest digits that read back as the same number; a NaN other than the default one
shows its payload, as `nan(0x1)`; a negative zero is `-0.0`, since XLA reads `-0` as an integer.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from hlo2graph.hlo.dtype import DTYPES, DType, Kind
from hlo2graph.hlo.floats import MANTISSA_BITS
from hlo2graph.hlo.literal import AnyLiteral

_Array: TypeAlias = np.ndarray[Any, Any]
_LARGEST_WHOLE = 2.0**63


def format_literal(literal: AnyLiteral) -> str:
    """Return what stands between the parentheses of `constant(...)`."""
    if isinstance(literal, tuple):
        return f"({', '.join(map(format_literal, literal))})"
    array = literal.array
    if array is None or (array.size == 0 and array.shape[0] > 0):
        return "{...}"  # loses nothing of an array without elements
    elements = _elements(np.ascontiguousarray(array).reshape(-1), literal.shape.dtype)
    for size in reversed(array.shape):
        count = len(elements) // size if size else 1
        elements = [
            "{" + ", ".join(elements[i * size : (i + 1) * size]) + "}" for i in range(count)
        ]
    return elements[0]


def _elements(flat: _Array, dtype: DType) -> list[str]:
    if dtype.kind is Kind.PRED:
        return ["true" if value else "false" for value in flat.tolist()]
    if dtype.is_complex:
        half = DTYPES["f32" if dtype.name == "c64" else "f64"]
        parts = _elements(flat.view(half.numpy), half)
        return [f"({re}, {im})" for re, im in zip(parts[::2], parts[1::2], strict=True)]
    if dtype.is_integer:
        return [str(int(value)) for value in flat.tolist()]
    return _floats(flat, dtype)


def _floats(flat: _Array, dtype: DType) -> list[str]:
    wide = flat if dtype.name == "f64" else flat.astype(np.float32)
    texts: list[str] = [_trimmed(text) for text in wide.astype(str).tolist()]
    for index in np.flatnonzero(np.isnan(wide)).tolist():
        texts[index] = _nan(flat[index : index + 1], dtype)
    return texts


def _trimmed(text: str) -> str:
    """Return the shortest text of the same number; `-0.0` stays as it is.

    XLA reads whole numbers as integers of 64 bits.
    """
    if "e+" in text and (value := float(text)).is_integer() and abs(value) < _LARGEST_WHOLE:
        whole = str(int(value))
        return whole if len(whole) <= len(text) else text
    return text.removesuffix(".0") if text != "-0.0" else text


def _nan(one: _Array, dtype: DType) -> str:
    mantissa = MANTISSA_BITS.get(dtype.name)
    if mantissa is None:
        return "-nan" if np.signbit(one.astype(np.float32))[0] else "nan"
    bits = int(one.view(f"u{dtype.size}")[0])
    sign = "-" if bits >> (dtype.bits - 1) else ""
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan({payload:#x})"
