"""Functions whose rule differs between integers, floats and complex numbers."""

from __future__ import annotations

import numpy as np

from hlo2graph.ops import elementwise_complex as whole
from hlo2graph.ops import elementwise_integers as integers
from hlo2graph.ops.spec import Array


def absolute(x: Array) -> Array:
    """Return |x|; the lowest integer stays itself."""
    return whole.absolute(x) if x.dtype.kind == "c" else np.asarray(np.abs(x))


def sign(x: Array) -> Array:
    """Return -1, 0 or 1; NaN and the sign of zero are kept; x / |x| of a complex number."""
    if x.dtype.kind == "c":
        return whole.sign(x)
    if x.dtype.kind == "f":
        return np.asarray(np.where((x == 0) | np.isnan(x), x, np.copysign(1, x)))
    return np.asarray(np.sign(x))


def exponential(x: Array) -> Array:
    """Return e to the x."""
    return whole.exponential(x) if x.dtype.kind == "c" else np.asarray(np.exp(x))


def sine(x: Array) -> Array:
    """Return sin x."""
    return whole.sine(x) if x.dtype.kind == "c" else np.asarray(np.sin(x))


def cosine(x: Array) -> Array:
    """Return cos x."""
    return whole.cosine(x) if x.dtype.kind == "c" else np.asarray(np.cos(x))


def divide(x: Array, y: Array) -> Array:
    """Return x / y."""
    if x.dtype.kind == "c":
        return whole.divide(x, y)
    return integers.divide(x, y) if x.dtype.kind in "iu" else np.asarray(np.divide(x, y))


def exponential_minus_one(x: Array) -> Array:
    """Return e to the x, less 1."""
    return whole.exponential_minus_one(x) if x.dtype.kind == "c" else np.asarray(np.expm1(x))


def tan(x: Array) -> Array:
    """Return tan x."""
    return whole.tan(x) if x.dtype.kind == "c" else np.asarray(np.tan(x))


def tanh(x: Array) -> Array:
    """Return tanh x."""
    return whole.tanh(x) if x.dtype.kind == "c" else np.asarray(np.tanh(x))


def remainder(x: Array, y: Array) -> Array:
    """Return the remainder of x / y rounded towards zero."""
    return integers.remainder(x, y) if x.dtype.kind in "iu" else np.asarray(np.fmod(x, y))


def power(x: Array, y: Array) -> Array:
    """Return x to the y."""
    if x.dtype.kind in "iu":
        return integers.power(x, y)
    if x.dtype.kind == "c":
        return whole.power(x, y)
    found = np.power(x, y)
    if x.dtype.kind == "f":
        # NumPy takes the square root for some layouts of y, which is NaN or -0 here.
        found = np.where((y == 0.5) & ((x == 0) | np.isneginf(x)), np.abs(x), found)
    return np.asarray(found)


def maximum(x: Array, y: Array) -> Array:
    """Return the larger; NaN if either is NaN; 0 is larger than -0.

    Of complex numbers the one with the larger real part, `x` of equals, `y` where one is NaN.
    """
    if x.dtype.kind == "c":
        return np.where(x.real >= y.real, x, y)
    larger = np.asarray(np.maximum(x, y))
    if x.dtype.kind != "f":
        return larger
    zero = larger == 0
    return np.where(zero & (x == y), x + y, larger) if zero.any() else larger


def minimum(x: Array, y: Array) -> Array:
    """Return the smaller; NaN if either is NaN; -0 is smaller than 0.

    Of complex numbers the one with the smaller real part, `x` of equals, `y` where one is NaN.
    """
    if x.dtype.kind == "c":
        return np.where(x.real <= y.real, x, y)
    smaller = np.asarray(np.minimum(x, y))
    if x.dtype.kind != "f":
        return smaller
    zero = smaller == 0
    return np.where(zero & (x == y), -(-x - y), smaller) if zero.any() else smaller
