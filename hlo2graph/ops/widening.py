"""Which NumPy type an HLO element type is computed in, and the way there and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo2graph.hlo import DTYPES, DType, Kind
from hlo2graph.ops.spec import Array

_OF_NUMPY = {
    dtype.numpy: dtype for dtype in DTYPES.values() if dtype.kind not in (Kind.TOKEN, Kind.OPAQUE)
}


def dtype_of(x: Array) -> DType:
    """Return the HLO element type of an array."""
    return _OF_NUMPY[x.dtype]


def compute_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type to compute in: the next one that has arithmetic of its own.

    Floats of at most 16 bits are computed in float32 and rounded once; integers below a byte in a
    byte, from which the cast back wraps.
    """
    match dtype.kind:
        case Kind.FLOAT if dtype.bits <= 16:
            return np.dtype(np.float32)
        case Kind.SIGNED if dtype.bits < 8:
            return np.dtype(np.int8)
        case Kind.UNSIGNED if dtype.bits < 8:
            return np.dtype(np.uint8)
        case _:
            return dtype.numpy


def widen(x: Array) -> Array:
    """Return `x` in the type that it is computed in."""
    return x.astype(compute_dtype(dtype_of(x)), copy=False)
