"""Integer functions: shifts past the width, bit counts, division that never traps.

Types below a byte come as bytes, so the functions that care take the width in bits first.
"""

from __future__ import annotations

import numpy as np

from hlo2graph.ops.spec import Array


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _pattern(bits: int, x: Array) -> Array:
    """Return the lowest `bits` bits as an unsigned number."""
    pattern = _unsigned(x)
    return pattern if bits == 8 * x.dtype.itemsize else pattern & ((1 << bits) - 1)


def _amount(bits: int, amount: Array) -> tuple[Array, Array]:
    """Return the shift amount made harmless, and where it reaches past the width.

    The amount counts as unsigned: a negative one reaches past any width.
    """
    count = _pattern(bits, amount)
    past = count >= bits
    return np.where(past, 0, count).astype(count.dtype), past


def shift_left(bits: int, x: Array, amount: Array) -> Array:
    """Return x << amount; 0 where the amount is not below the width."""
    count, past = _amount(bits, amount)
    shifted = np.left_shift(_pattern(bits, x), count)
    return np.asarray(np.where(past, 0, shifted)).astype(_unsigned(x).dtype).view(x.dtype)


def shift_right_logical(bits: int, x: Array, amount: Array) -> Array:
    """Return x >> amount with zeros coming in; 0 where the amount is not below the width."""
    count, past = _amount(bits, amount)
    shifted = np.right_shift(_pattern(bits, x), count)
    return np.asarray(np.where(past, 0, shifted)).astype(_unsigned(x).dtype).view(x.dtype)


def shift_right_arithmetic(bits: int, x: Array, amount: Array) -> Array:
    """Return x >> amount with copies of the top bit coming in, of unsigned numbers too."""
    count, _ = _amount(bits, amount)
    spare = 8 * x.dtype.itemsize - bits
    signed_type = np.dtype(f"i{x.dtype.itemsize}")
    signed = np.left_shift(_unsigned(x), spare).view(signed_type) >> spare
    past = _pattern(bits, amount) >= bits
    shift = np.where(past, bits - 1, count).astype(signed_type)
    return np.asarray(np.right_shift(signed, shift)).astype(signed_type).view(x.dtype)


def leading_zeros(bits: int, x: Array) -> Array:
    """Return how many zero bits stand above the highest one; the width for 0."""
    smeared = _pattern(bits, x)
    step = 1
    while step < bits:
        smeared = smeared | (smeared >> np.asarray(step, smeared.dtype))
        step *= 2
    return np.asarray(bits - np.bitwise_count(smeared).astype(x.dtype))


def popcount(bits: int, x: Array) -> Array:
    """Return how many bits are one."""
    return np.asarray(np.bitwise_count(_pattern(bits, x))).astype(x.dtype)


def high_product(bits: int, x: Array, y: Array) -> Array:
    """Return the upper half of the product in twice the width."""
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}8")
        product = x.astype(wide) * y.astype(wide) >> np.asarray(bits, wide)
        return np.asarray(product).astype(x.dtype)
    half, low = np.asarray(32, x.dtype), np.asarray(0xFFFFFFFF, x.dtype)
    x_high, x_low, y_high, y_low = x >> half, x & low, y >> half, y & low
    lowest = (_unsigned(x_low) * _unsigned(y_low) >> np.uint64(32)).view(x.dtype)
    middle = x_high * y_low + lowest
    other = x_low * y_high + (middle & low)
    return np.asarray(x_high * y_high + (middle >> half) + (other >> half))


def divide(x: Array, y: Array) -> Array:
    """Return x / y rounded towards zero; all ones for x / 0, x for the lowest number / -1."""
    zero = y == 0
    quotient = _truncated(x, np.where(zero, 1, y).astype(y.dtype))
    return np.where(zero, np.asarray(-1).astype(x.dtype), quotient)


def remainder(x: Array, y: Array) -> Array:
    """Return x - y * (x / y), which has the sign of x; x for x % 0."""
    zero = y == 0
    harmless = np.where(zero, 1, y).astype(y.dtype)
    return np.where(zero, x, x - harmless * _truncated(x, harmless))


def _truncated(x: Array, y: Array) -> Array:
    if x.dtype.kind == "u":
        return np.asarray(x // y)
    floor = x // y
    inexact = (floor * y != x) & ((x < 0) != (y < 0))
    return np.asarray(floor + inexact)


def power(x: Array, y: Array) -> Array:
    """Return x to the y, wrapping; 0 for a negative y, unless x is 1 or -1.

    As in XLA, the lowest six bits of y are all that counts, and its top bit is a sign in any type.
    """
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    square, left = x, _unsigned(y) & np.asarray(63, _unsigned(y).dtype)
    while left.any():
        result = np.where(left & 1, result * square, result).astype(x.dtype)
        square, left = square * square, left >> np.asarray(1, left.dtype)
    negative = y.view(f"i{y.dtype.itemsize}") < 0
    unit = (x == 1) | (x == np.asarray(-1).astype(x.dtype))
    odd = np.where(y & 1, x, x * x)
    return np.where(negative, np.where(unit, odd, 0), result).astype(x.dtype)
