"""Arrays from XLA's LiteralProto: the arguments that a snapshot recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hlo2graph.hlo import DTYPES, DType, Kind
from hlo2graph.importers.wire import BYTES, VARINT, Field, WireError, fields

SHAPE, PARTS = 1, 10  # of LiteralProto
ELEMENT_TYPE, DIMENSIONS, LAYOUT = 2, 3, 5  # of ShapeProto
MINOR_TO_MAJOR = 1  # of LayoutProto
TUPLE, TOKEN = 13, 17  # of PrimitiveType
DEEPEST = 64  # levels of tuples

# PrimitiveType to the element type, and the field of LiteralProto that holds its values.
TYPES: dict[int, tuple[DType, int]] = {
    number: (DTYPES[name], at)
    for number, name, at in (
        *((1, "pred", 2), (30, "s1", 30), (26, "s2", 26), (21, "s4", 21), (2, "s8", 15)),
        *((3, "s16", 17), (4, "s32", 4), (5, "s64", 5), (31, "u1", 31), (27, "u2", 27)),
        *((22, "u4", 22), (6, "u8", 3), (7, "u16", 16), (8, "u32", 6), (9, "u64", 7)),
        *((32, "f4e2m1fn", 32), (29, "f8e3m4", 29), (28, "f8e4m3", 28), (20, "f8e4m3fn", 20)),
        *((23, "f8e4m3b11fnuz", 23), (25, "f8e4m3fnuz", 25), (19, "f8e5m2", 19)),
        *((24, "f8e5m2fnuz", 24), (33, "f8e8m0fnu", 33), (16, "bf16", 13), (10, "f16", 11)),
        *((11, "f32", 8), (12, "f64", 9), (15, "c64", 12), (18, "c128", 18)),
    )
}
VARINTS = ("pred", "s32", "s64", "u32", "u64")  # one number an element, not its bytes

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class _Shape:
    element_type: int = 0
    dims: list[int] = field(default_factory=list)
    minor_to_major: list[int] = field(default_factory=list)


def arrays_of(literal: memoryview, depth: int = 0) -> Iterator[Array]:
    """Yield the arrays of a literal: one, or a tuple's leaves in order.

    Raises:
        WireError: it is broken, or its values do not fill its shape.
    """
    found = tuple(fields(literal))
    shape = _shape(found)
    if depth > DEEPEST:
        raise WireError("a literal's tuples are nested too deeply")
    if shape.element_type == TUPLE:
        for part in found:
            if part.number == PARTS and part.kind == BYTES:
                yield from arrays_of(part.data, depth + 1)
    elif shape.element_type != TOKEN:
        yield _array(found, shape)


def _shape(literal: tuple[Field, ...]) -> _Shape:
    shape = _Shape()
    for outer in literal:
        if outer.number != SHAPE or outer.kind != BYTES:
            continue
        for inner in fields(outer.data):
            if inner.number == ELEMENT_TYPE:
                shape.element_type = inner.varint
            elif inner.number == DIMENSIONS:
                shape.dims += _numbers(inner)
            elif inner.number == LAYOUT:
                for part in fields(inner.data):
                    if part.number == MINOR_TO_MAJOR:
                        shape.minor_to_major += _numbers(part)
    return shape


def _array(literal: tuple[Field, ...], shape: _Shape) -> Array:
    if shape.element_type not in TYPES:
        raise WireError(f"a literal is of element type {shape.element_type}")
    dtype, at = TYPES[shape.element_type]
    order = shape.minor_to_major or list(reversed(range(len(shape.dims))))
    if sorted(order) != list(range(len(shape.dims))):
        raise WireError("a literal's layout is none of its shape")
    values = np.concatenate([np.zeros(0, dtype.numpy), *_values(literal, at, dtype)])
    if len(values) != prod(shape.dims):
        raise WireError(f"a literal of {prod(shape.dims)} elements holds {len(values)}")
    major_to_minor = order[::-1]
    try:
        laid_out = values.reshape([shape.dims[dim] for dim in major_to_minor])
    except (ValueError, OverflowError):  # no elements, but a dimension that no array can have
        raise WireError(f"a literal is of dimensions {shape.dims}") from None
    return np.ascontiguousarray(laid_out.transpose(np.argsort(major_to_minor)))


def _values(literal: tuple[Field, ...], at: int, dtype: DType) -> Iterator[Array]:
    for part in literal:
        if part.number != at:
            continue
        if dtype.name in VARINTS:
            yield np.asarray(_numbers(part), np.uint64).astype(dtype.numpy)
        elif part.kind != BYTES or len(part.data) % dtype.size:
            raise WireError("a literal's values end inside an element")
        elif dtype.bits < 8 and dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            yield _widened(part.data, dtype)
        else:
            yield np.frombuffer(part.data, dtype.numpy)


def _widened(data: memoryview, dtype: DType) -> Array:
    """Return integers of less than a byte, each in the low bits of one."""
    unused = 8 - dtype.bits
    raw = np.frombuffer(data, np.uint8) << unused
    signed = raw.view(np.int8) >> unused
    return (signed if dtype.kind is Kind.SIGNED else raw >> unused).astype(dtype.numpy)


def _numbers(part: Field) -> Any:  # noqa: ANN401, a list or an array of them
    """Return a repeated integer field's values, packed or one."""
    return [part.varint] if part.kind == VARINT else _unpacked(part.data).tolist()


def _unpacked(data: memoryview) -> Array:
    raw = np.frombuffer(data, np.uint8)
    if not len(raw):
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise WireError("it ends inside a number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    if place.max() > 9:
        raise WireError("a number is too long")
    found: Array = np.bitwise_or.reduceat(
        (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64), starts
    )
    return found
