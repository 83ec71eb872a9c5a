"""Functions of complex numbers as XLA composes them of real ones.

NumPy agrees where all parts are finite; at infinities and NaN it follows C, and XLA does not.
"""

from __future__ import annotations

import numpy as np

from hlo2graph.ops.spec import Array


def of_parts(real: Array, imaginary: Array) -> Array:
    """Return complex numbers, each part kept bit for bit."""
    shape = np.broadcast_shapes(real.shape, imaginary.shape)
    out = np.empty(shape, np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imaginary
    return out


def absolute(x: Array) -> Array:
    """Return |x|; NaN where either part is."""
    return np.where(np.isnan(x.real) | np.isnan(x.imag), np.nan, np.abs(x)).astype(x.real.dtype)


def sign(x: Array) -> Array:
    """Return x / |x|; zeros stay as they are."""
    size = absolute(x)
    by = np.where(size == 0, 1, size)
    return np.where(size == 0, x, of_parts(x.real / by, x.imag / by))


def lost(found: Array, x: Array) -> Array:
    """Return `found`, but not a number where a part of `x` is none: C says more, XLA does not."""
    return np.where(np.isnan(x), x.dtype.type(complex(np.nan, np.nan)), found)


def exponential(x: Array) -> Array:
    """Return e to the x; real where x is."""
    size = np.exp(x.real)
    imaginary = np.where(x.imag == 0, 0, size * np.sin(x.imag)).astype(size.dtype)
    return of_parts(size * np.cos(x.imag), imaginary)


def divide(x: Array, y: Array) -> Array:
    """Return x / y, at zeros and infinities as C says."""
    found = np.where(y == 0, of_parts(x.real / y.real, x.imag / y.real), np.divide(x, y))
    lost = np.isnan(found.real) & np.isnan(found.imag)
    finite = [np.isfinite(a.real) & np.isfinite(a.imag) for a in (x, y)]
    large, small = lost & np.isinf(x) & finite[1], lost & np.isinf(y) & finite[0]
    for where, size, top, bottom in ((large, np.inf, _box(x), y), (small, 0.0, x, _box(y))):
        if where.any():
            real = top.real * bottom.real + top.imag * bottom.imag
            imaginary = top.imag * bottom.real - top.real * bottom.imag
            size = found.real.dtype.type(size)
            found = np.where(where, of_parts(size * real, size * imaginary), found)
    return found


def _box(x: Array) -> Array:
    """Return 1 for what is infinite and 0 for what is not, in each part, with its sign."""
    return of_parts(*(np.copysign(np.isinf(a).astype(a.dtype), a) for a in (x.real, x.imag)))


def exponential_minus_one(x: Array) -> Array:
    """Return e to the x, less 1; real where x is."""
    found = np.expm1(x)
    return of_parts(found.real, np.where(x.imag == 0, x.imag, found.imag))


def logistic(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return divide(np.ones_like(x), 1 + exponential(-x))


def power(x: Array, y: Array) -> Array:
    """Return x to the y, by the size and the angle of x.

    XLA takes apart what would be not a number then: y = 0, x = 1, and real powers of 0 and of
    infinity.
    """
    size, angle = absolute(x), np.angle(x)
    turn = y.real * angle + y.imag * np.log(size)
    size = np.power(size, y.real) * np.exp(-y.imag * angle)
    real, imaginary = size * np.cos(turn), size * np.sin(turn)
    grows, shrinks = (y.imag == 0) & (y.real > 0), (y.imag == 0) & (y.real < 0)
    infinite = (x.real == np.inf) & (x.imag == 0)
    apart = (
        (grows & (x == 0) | shrinks & infinite, 0),
        (grows & infinite, np.inf),
        ((y == 0) | (x == 1), 1),
    )
    for where, number in apart:
        real, imaginary = np.where(where, number, real), np.where(where, 0, imaginary)
    return of_parts(real.astype(x.real.dtype), imaginary.astype(x.real.dtype))


def tanh(x: Array) -> Array:
    """Return tanh x; not a number along the imaginary axis where that is infinite."""
    found, none = np.tanh(x), x.dtype.type(complex(np.nan, np.nan))
    return np.where((x.real == 0) & ~np.isfinite(x.imag), none, found)


def tan(x: Array) -> Array:
    """Return tan x."""
    turned = tanh(of_parts(-x.imag, x.real))
    return of_parts(turned.imag, -turned.real)


def sine(x: Array) -> Array:
    """Return sin x."""
    return of_parts(np.sin(x.real) * np.cosh(x.imag), np.cos(x.real) * np.sinh(x.imag))


def cosine(x: Array) -> Array:
    """Return cos x."""
    return of_parts(np.cos(x.real) * np.cosh(x.imag), -np.sin(x.real) * np.sinh(x.imag))
