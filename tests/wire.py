"""Writes the few messages of XLA's protos that tests need: a field is a number and its bytes."""

from __future__ import annotations

import numpy as np


def varint(value: int) -> bytes:
    found = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def shape(element_type: int, dims=(), minor_to_major=None) -> bytes:
    order = reversed(range(len(dims))) if minor_to_major is None else minor_to_major
    layout = field(1, b"".join(map(varint, order)))
    return field(2, element_type) + field(3, b"".join(map(varint, dims))) + field(5, layout)


def literal(element_type: int, number: int, values: bytes, dims=(), minor_to_major=None) -> bytes:
    return field(1, shape(element_type, dims, minor_to_major)) + field(number, values)


def f32(array) -> bytes:
    array = np.asarray(array, np.float32)
    return literal(11, 8, array.tobytes(), array.shape)


def snapshot(module: bytes, *arguments: bytes) -> bytes:
    return field(1, field(1, module)) + b"".join(field(2, a) for a in arguments)


def unoptimized(module: bytes, *arguments: bytes) -> bytes:
    inputs = b"".join(field(1, a) for a in arguments)
    return field(1, module) + field(2, inputs) + field(2, inputs)
