"""HLO's element types: their names, widths and NumPy counterparts.

Sub-byte types (s4, u2, f4e2m1fn, ...) take one byte an element in memory, as in XLA's literals and
ml_dtypes' arrays; a layout's `E(bits)` is kept as text and does not change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np


class Kind(StrEnum):
    """What arithmetic an element type has."""

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"
    TOKEN = "token"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class DType:
    """An element type. `bits` is its width; `size` its bytes in memory."""

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """Bytes that one element takes in memory; 0 for token and opaque."""
        return (self.bits + 7) // 8

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the same bits (ml_dtypes' where NumPy has none)."""
        if self.kind in (Kind.TOKEN, Kind.OPAQUE):
            return np.dtype(np.uint8)
        found: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return found

    @property
    def is_float(self) -> bool:
        """A real floating-point type of any width."""
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        """c64 or c128."""
        return self.kind is Kind.COMPLEX

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; pred is neither."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest value of an integer type."""
        assert self.is_integer, f"{self} is no integer type"
        if self.kind is Kind.SIGNED:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


_NUMPY: dict[str, Any] = {
    "pred": np.bool_,
    "s1": ml_dtypes.int1 if hasattr(ml_dtypes, "int1") else np.int8,
    "s2": ml_dtypes.int2,
    "s4": ml_dtypes.int4,
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "u1": ml_dtypes.uint1 if hasattr(ml_dtypes, "uint1") else np.uint8,
    "u2": ml_dtypes.uint2,
    "u4": ml_dtypes.uint4,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "f6e2m3fn": ml_dtypes.float6_e2m3fn,
    "f6e3m2fn": ml_dtypes.float6_e3m2fn,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}


def _kind(name: str) -> Kind:
    if name == "pred":
        return Kind.PRED
    letters = {
        "s": Kind.SIGNED,
        "u": Kind.UNSIGNED,
        "f": Kind.FLOAT,
        "b": Kind.FLOAT,
        "c": Kind.COMPLEX,
    }
    return letters[name[0]]


def _bits(name: str) -> int:
    if name == "pred":
        return 8
    digits = name.removeprefix("bf").lstrip("sufc")
    return int(digits.split("e")[0])


DTYPES: dict[str, DType] = {name: DType(name, _kind(name), _bits(name)) for name in _NUMPY}
TOKEN = DTYPES["token"] = DType("token", Kind.TOKEN, 0)
OPAQUE = DTYPES["opaque"] = DType("opaque", Kind.OPAQUE, 0)
PRED, S32, F32 = DTYPES["pred"], DTYPES["s32"], DTYPES["f32"]
