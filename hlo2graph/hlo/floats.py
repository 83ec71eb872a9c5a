"""The layout of the floating-point types whose NaNs carry a payload."""

from __future__ import annotations

MANTISSA_BITS = {
    "f8e3m4": 4,
    "f8e4m3": 3,
    "f8e5m2": 2,
    "f16": 10,
    "bf16": 7,
    "f32": 23,
    "f64": 52,
}
