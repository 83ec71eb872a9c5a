"""The wire format of protocol buffers, as far as telling messages apart and reading literals takes.

A message is a sequence of fields, each a number and a value; what a value means only its schema
says, which is XLA's `xla/service/hlo.proto` and `xla/xla_data.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10  # bytes


class WireError(ValueError):
    """The bytes are no message, or not the whole of one."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message; `number` and `varint` or `data`, whichever `kind` says."""

    number: int
    kind: int
    varint: int
    data: memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        WireError: its bytes are none.
    """
    nothing, at = memoryview(b""), 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise WireError("a field has number 0")
        value, size = 0, 0
        match kind:
            case 0:
                value, at = _varint(message, at)
            case 1 | 5:
                size = 8 if kind == FIXED64 else 4
            case 2:
                size, at = _varint(message, at)
            case _:
                raise WireError(f"a field is of kind {kind}")
        if at + size > len(message):
            raise WireError("it ends inside a field")
        yield Field(number, kind, value, message[at : at + size] if size else nothing)
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = 0
    for count in range(LONGEST_VARINT):
        if at + count >= len(message):
            raise WireError("it ends inside a number")
        byte = message[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise WireError("a number is too long")
