"""The values of constants inside kernels: of scalars, and of arrays as the words they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo2graph.hlo import Literal

_UNITS = {1: ("unsigned char", "u1"), 2: ("unsigned short", "u2"), 4: ("unsigned int", "u4")}
_WIDEST = ("unsigned long long", "u8")


@dataclass(frozen=True, slots=True, eq=False)
class NamedLiteral(Literal):
    """A scalar whose value is not known where a kernel is written: C++ knows it by its name."""

    name: str


def scalar_of(literal: Literal) -> Any:
    """Return the one element of a literal."""
    assert literal.array is not None
    return literal.array.reshape(()).astype(literal.shape.dtype.numpy)


def array_words(literal: Literal) -> tuple[str, str]:
    """Return the C++ integer type and the row-major elements' bits, which `hlo::constant` reads.

    Bits, because an array that lives on the device may not be initialised by function calls, which
    infinities and NaNs need.
    """
    dtype = literal.shape.dtype
    assert literal.array is not None
    array = np.ascontiguousarray(literal.array.astype(dtype.numpy, copy=False))
    unit, code = _UNITS.get(dtype.size, _WIDEST)
    words = array.reshape(-1).view(np.uint8).view(code)
    suffix = "ull" if unit == _WIDEST[0] else "u" if dtype.size == 4 else ""
    return unit, ", ".join(f"{word}{suffix}" for word in words.tolist())
