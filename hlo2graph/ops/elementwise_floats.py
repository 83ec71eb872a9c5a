"""Floating-point and complex functions that NumPy lacks or that need care at special values."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial import Chebyshev

from hlo2graph.ops import elementwise_complex as whole
from hlo2graph.ops.spec import Array

_ERF_SPLIT = 2.0  # below it, erf(x) / x is interpolated in x*x; above, erfc(x) exp(x*x) in x
_ERF_END = 6.0  # erf rounds to 1 in float64 from here on


def atan2(y: Array, x: Array) -> Array:
    """Return the angle of (x, y); for complex operands -i log((x + iy) / sqrt(x*x + y*y))."""
    if not np.iscomplexobj(y):
        return np.asarray(np.arctan2(y, x))
    return np.asarray(-1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)))


def logistic(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    if x.dtype.kind == "c":
        return whole.logistic(x)
    return np.asarray(1 / (1 + np.exp(-x)))


def sqrt(x: Array) -> Array:
    """Return the square root; of complex numbers, an imaginary part of -0 counts as 0."""
    return whole.lost(np.sqrt(x + 0), x) if x.dtype.kind == "c" else np.asarray(np.sqrt(x))


def log(x: Array) -> Array:
    """Return the natural logarithm."""
    return whole.lost(np.log(x), x) if x.dtype.kind == "c" else np.asarray(np.log(x))


def log_plus_one(x: Array) -> Array:
    """Return the natural logarithm of x + 1."""
    return whole.lost(np.log1p(x), x) if x.dtype.kind == "c" else np.asarray(np.log1p(x))


def rsqrt(x: Array) -> Array:
    """Return 1 / sqrt(x)."""
    if x.dtype.kind == "c":
        return whole.divide(np.ones_like(x), np.sqrt(x))
    return np.asarray(1 / np.sqrt(x))


def round_away(x: Array) -> Array:
    """Round to the nearest integer, ties away from zero; keeps the sign of zero."""
    whole = np.trunc(x)
    step = np.abs(x - whole) >= 0.5
    return np.asarray(np.copysign(np.where(step, np.abs(whole) + 1, np.abs(whole)), x))


def erf(x: Array) -> Array:
    """Return the error function, interpolated in float64, right to fourteen digits."""
    near, far = _erf_interpolants()
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    small = np.minimum(size, _ERF_SPLIT)
    large = np.clip(size, _ERF_SPLIT, _ERF_END)
    tail = far(large) * np.exp(-large * large)
    value = np.where(size < _ERF_SPLIT, small * near(small * small), 1 - tail)
    return np.asarray(np.copysign(value, wide).astype(x.dtype))


@cache
def _erf_interpolants() -> tuple[Chebyshev, Chebyshev]:
    def slope(squares: Array) -> Array:
        roots = np.sqrt(squares)
        return np.array([math.erf(r) / r if r else 2 / math.sqrt(math.pi) for r in roots])

    def tail(points: Array) -> Array:
        return np.array([math.erfc(p) * math.exp(p * p) for p in points])

    return (
        Chebyshev.interpolate(slope, 24, [0, _ERF_SPLIT**2]),
        Chebyshev.interpolate(tail, 30, [_ERF_SPLIT, _ERF_END]),
    )
