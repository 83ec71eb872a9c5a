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


def exponential(x: Array) -> Array:
    """Return e to the x; real where x is."""
    size = np.exp(x.real)
    imaginary = np.where(x.imag == 0, 0, size * np.sin(x.imag)).astype(size.dtype)
    return of_parts(size * np.cos(x.imag), imaginary)


def sine(x: Array) -> Array:
    """Return sin x."""
    return of_parts(np.sin(x.real) * np.cosh(x.imag), np.cos(x.real) * np.sinh(x.imag))


def cosine(x: Array) -> Array:
    """Return cos x."""
    return of_parts(np.cos(x.real) * np.cosh(x.imag), -np.sin(x.real) * np.sinh(x.imag))
