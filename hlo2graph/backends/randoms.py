"""Random arrays of any element type, for inputs that nobody gave and constants that were elided."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from hlo2graph.hlo import Kind, Shape
from hlo2graph.ops.spec import Array

SMALL = 8  # integers are in [0, SMALL): valid as most indices, and far from overflow
CHUNK = 1 << 20  # elements drawn at a time, so that narrow types never cost a float64 copy


def random_array(shape: Shape, rng: np.random.Generator) -> Array:
    """Draw an array: floats and complex parts from N(0, 1), integers small, pred fair.

    Integers lie in [0, 8), less where the type holds less; an exponent-only float (f8e8m0fnu) and
    the like get the nearest value that they have.
    """
    found = np.empty(shape.dims, shape.dtype.numpy)
    flat = found.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        with np.errstate(all="ignore"):
            part[...] = _draw(shape, part.size, rng).astype(part.dtype)
    return found


def _draw(shape: Shape, count: int, rng: np.random.Generator) -> Array:
    dtype = shape.dtype
    match dtype.kind:
        case Kind.FLOAT:
            drawn: Array = rng.standard_normal(count)
            return np.exp2(drawn) if dtype.name == "f8e8m0fnu" else drawn
        case Kind.COMPLEX:
            return rng.standard_normal(count) + 1j * rng.standard_normal(count)
        case Kind.SIGNED:
            return rng.integers(0, min(SMALL, 1 << (dtype.bits - 1)), count)
        case Kind.UNSIGNED:
            return rng.integers(0, min(SMALL, 1 << dtype.bits), count)
        case Kind.PRED:
            return rng.integers(0, 2, count)
        case Kind.TOKEN | Kind.OPAQUE:
            return np.zeros(count)
        case _:
            assert_never(dtype.kind)
