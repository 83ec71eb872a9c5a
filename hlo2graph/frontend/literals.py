"""Reads the literal of a constant: `1`, `{{1, 2}, {3, 4}}`, `( 1, {true} )`, `{...}`.

An array of plain numbers, or of pairs of such, is converted whole. What is left (NaNs with a
payload, commas too many, faults) goes element by element through `elements.walk`.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from hlo2graph.frontend.elements import walk
from hlo2graph.frontend.scan import Fault, blank_comments, closing, skip_blank
from hlo2graph.frontend.shapes import DEEPEST, ShapeReader
from hlo2graph.hlo import DTYPES, UNBOUNDED, AnyLiteral, AnyShape, Kind, Literal, Shape, TupleShape
from hlo2graph.ops.spec import Array

_ELIDED = re.compile(r"\{\s*\.\.\.\s*\}")
_NUMERALS = dict.fromkeys(map(ord, "0123456789.eE+-, \t\r\n{}infa"))
_INTEGERS = dict.fromkeys(map(ord, "0123456789-, \t\r\n{}"))
_BLANKS = dict.fromkeys(map(ord, " \t\r\n{}"))
_SKELETON = {code: None for code in range(128) if chr(code) not in "{}(),"}
_BLANK_BRACKETS = str.maketrans("{}()", "    ")
_PAIR = "(,)"  # what is left of a complex number without its digits
_LARGEST_ZEROS = 1 << 32  # bytes of an array given by its first element alone
_WRAPPED = 2.0**63  # whole numbers from here on are not what they look like
_PARTS = {"c64": DTYPES["f32"], "c128": DTYPES["f64"]}
_EXACT_NANS = ("f16", "bf16", "f32", "f64")


def read_literal(text: str, shape: AnyShape, begins: int = 0) -> AnyLiteral:
    """Return the literal of `shape` that `text` writes, which begins there in a longer one.

    Raises:
        Fault: it writes none; offsets are those in `text`.
    """
    text = blank_comments(text)
    start = skip_blank(text, 0, len(text))
    literal, end = _read(text, start, shape)
    if rest := text[end:].strip():
        at = text.index(rest[0], end)
        raise Fault(f"unexpected text behind the value of {_named(shape)}", at, at + len(rest))
    return _placed(literal, begins)


def check_typed_literal(text: str, shapes: ShapeReader) -> None:
    """Raise a Fault where `text` is no `f32[2]{0} {1, 2}`, nor a tuple of such in parentheses."""
    text = blank_comments(text)
    end = skip_blank(text, _typed(text, skip_blank(text, 0, len(text)), shapes, 0), len(text))
    if end < len(text):
        raise Fault("unexpected text behind the literal", end, len(text))


def _typed(text: str, at: int, shapes: ShapeReader, depth: int) -> int:
    """Return the offset behind the literal with its shape that begins at `at`."""
    if not text.startswith("(", at):
        shape, at = shapes.read_at(text, at)
        return _read(text, skip_blank(text, at, len(text)), shape)[1]
    if depth == DEEPEST:
        raise Fault(f"tuples are nested more than {DEEPEST} deep", at, at + 1)
    at = skip_blank(text, at + 1, len(text))
    while not text.startswith(")", at):
        at = skip_blank(text, _typed(text, at, shapes, depth + 1), len(text))
        at = skip_blank(text, at + text.startswith(",", at), len(text))
    return at + 1


def _read(text: str, at: int, shape: AnyShape) -> tuple[AnyLiteral, int]:
    if elided := _ELIDED.match(text, at):
        return _elided(shape, at), elided.end()
    if isinstance(shape, TupleShape):
        return _tuple(text, at, shape)
    end = _end(text, at, shape)
    array = _array(text, at, end, shape)
    return (_elided(shape, at) if array is None else Literal(shape, array)), end


def _placed(literal: AnyLiteral, begins: int) -> AnyLiteral:
    if isinstance(literal, tuple):
        return tuple(_placed(part, begins) for part in literal)
    return replace(literal, at=begins + literal.at) if literal.is_elided else literal


def _elided(shape: AnyShape, at: int) -> AnyLiteral:
    if isinstance(shape, TupleShape):  # so XLA prints each constant that is a tuple
        return tuple(_elided(part, at) for part in shape.parts)
    empty = np.zeros(shape.dims, shape.dtype.numpy) if shape.elements == 0 else None
    return Literal(shape, empty, at=at)


def _tuple(text: str, at: int, shape: TupleShape) -> tuple[AnyLiteral, int]:
    if not text.startswith("(", at):
        raise Fault(f"expected '(' to begin the value of {_named(shape)}", at, at + 1)
    parts: list[AnyLiteral] = []
    at = skip_blank(text, at + 1, len(text))
    for index, part in enumerate(shape.parts):
        if index:
            if text.startswith(")", at):
                raise Fault(
                    f"expected {len(shape.parts)} values in the tuple, found {index}", at, at + 1
                )
            at = skip_blank(text, at + text.startswith(",", at), len(text))
        literal, at = _read(text, at, part)
        parts.append(literal)
        at = skip_blank(text, at, len(text))
    if not text.startswith(")", at):
        raise Fault(f"expected ')' behind {len(shape.parts)} values of the tuple", at, at + 1)
    return tuple(parts), at + 1


def _end(text: str, at: int, shape: Shape) -> int:
    """Return the offset behind the array or scalar that begins at `at`."""
    if text.startswith("{", at) or (text.startswith("(", at) and shape.dtype.is_complex):
        return closing(text, at, len(text))
    found = _SCALAR.match(text, at)
    assert found
    return found.end()


_SCALAR = re.compile(r"-?nan\([^()]*+\)|[^\s,(){}]*+")


def _array(text: str, start: int, end: int, shape: Shape) -> Array | None:
    if shape.dtype.kind in (Kind.TOKEN, Kind.OPAQUE):
        raise Fault(f"a constant cannot be of type {shape.dtype}", start, max(end, start + 1))
    if UNBOUNDED in shape.dims:
        raise Fault(f"a constant has a size in each dimension, not {_named(shape)}", start, end)
    if shape.dims and not text.startswith("{", start):
        return _first_only(text, start, end, shape)
    body = text[start:end]
    flat = None
    if shape.dtype.is_complex:
        flat = _pairs(body, shape)
    elif _has_shape(body, shape.dims):
        flat = _numbers(body.translate(_BLANK_BRACKETS), shape)
    if flat is None:
        flat = walk(text, start, end, shape)
    return None if flat is None else flat.reshape(shape.dims)


def _first_only(text: str, start: int, end: int, shape: Shape) -> Array:
    """Read a lone value in the place of an array: as XLA does, zeros follow it."""
    if not 0 < shape.size <= _LARGEST_ZEROS:
        raise Fault(f"expected '{{' to begin the value of {_named(shape)}", start, end)
    array: Array = np.zeros(shape.dims, shape.dtype.numpy)
    array.flat[:1] = walk(text, start, end, Shape(shape.dtype))
    return array


def _pairs(body: str, shape: Shape) -> Array | None:
    """Convert complex numbers, each a pair in parentheses; None where one needs a closer look."""
    if not shape.elements or not _has_shape(body, shape.dims, _PAIR):
        return None
    parts = replace(shape, dtype=_PARTS[shape.dtype.name], dims=(*shape.dims, 2), layout=None)
    numbers = _numbers(body.translate(_BLANK_BRACKETS), parts)
    return None if numbers is None else numbers.view(shape.dtype.numpy)


def _has_shape(body: str, dims: tuple[int, ...], element: str = "") -> bool:
    """The brackets and commas of `body` are just those of an array of `dims`, of such elements."""
    if not body.isascii():
        return False
    skeleton = body.translate(_SKELETON)
    length = len(element)
    for size in reversed(dims):
        length = 2 + size * length + max(0, size - 1)
    if len(skeleton) != length:
        return False
    expected = element
    for size in reversed(dims):
        expected = "{" + ",".join([expected] * size) + "}"
    return skeleton == expected


def _numbers(body: str, shape: Shape) -> Array | None:
    """Convert numbers between commas; None where one needs a closer look."""
    dtype = shape.dtype
    if shape.elements == 0:
        return np.zeros(0, dtype.numpy) if not body.replace(",", "").strip() else None
    parts = body.split(",")
    try:
        if dtype.is_float:
            return _floats(body, parts, shape)
        if dtype.is_integer and not body.translate(_INTEGERS):
            return _integers(parts, shape)
        if dtype.kind is Kind.PRED:
            return np.array([_PREDICATES[part.strip()] for part in parts])
    except (ValueError, KeyError, OverflowError):
        pass
    return None


_PREDICATES = {"true": True, "false": False, "1": True, "0": False}


def _integers(parts: list[str], shape: Shape) -> Array | None:
    low, high = shape.dtype.limits
    wide: Array = np.array(list(map(int, parts)), np.int64 if low else np.uint64)
    if not low <= int(wide.min()) <= int(wide.max()) <= high:
        return None
    narrow: Array = wide.astype(shape.dtype.numpy)
    return narrow


def _floats(body: str, parts: list[str], shape: Shape) -> Array | None:
    dtype = shape.dtype
    if not _is_plain(body) or ("n" in body and dtype.name not in _EXACT_NANS):
        return None
    wide = np.array(list(map(float, parts)))
    with np.errstate(over="ignore"):
        narrow: Array = wide.astype(dtype.numpy)
    words = body.count("inf") + body.count("nan")
    return None if _is_odd(wide, words) or _overflows(narrow, words) else narrow


def _is_odd(numbers: Array, words: int) -> bool:
    """Some number may not be what it looks like.

    It is infinite without being written so, or so large that a whole number wraps around, or a
    negative zero, which as a whole number is none.
    """
    size = np.abs(numbers.astype(np.float64, copy=False))
    ordinary = np.count_nonzero(size < _WRAPPED)
    zeros = numbers[size == 0]
    return ordinary + words != size.size or bool(np.signbit(zeros).any())


def _overflows(narrow: Array, words: int) -> bool:
    return bool(np.count_nonzero(~np.isfinite(narrow)) != words)


def _is_plain(body: str) -> bool:
    """Python reads each of the numbers as XLA does: no sign before them but '-', no bare '.5'."""
    if body.translate(_NUMERALS) or "-nan" in body:
        return False
    if "+" in body and body.count("+") != body.count("e+") + body.count("E+"):
        return False
    return ",." not in f",{body.translate(_BLANKS)}"


def _named(shape: AnyShape) -> str:
    return shape.without_layout_text()
