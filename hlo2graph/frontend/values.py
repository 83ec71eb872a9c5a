"""Reads an attribute's value from its text, by the kind that hlo.attributes gives its name."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf

from hlo2graph.frontend.cursor import Cursor, int64
from hlo2graph.frontend.literals import check_typed_literal
from hlo2graph.frontend.raw import check_raw
from hlo2graph.frontend.scan import Fault, shown
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.frontend.words import WORDS, choose
from hlo2graph.hlo import (
    KINDS,
    Attribute,
    AttrKind,
    DimLabels,
    PaddingDim,
    Raw,
    SliceDim,
    Window,
    WindowDim,
)

_LARGEST_F32 = 3.4028234663852886e38


def read_value(name: str, text: str, shapes: ShapeReader) -> Attribute:
    """Return the value of attribute `name` written as `text`.

    Raises:
        Fault: it is not of the name's kind; offsets are those in `text`.
    """
    kind = KINDS[name]
    if name == "literal":
        check_typed_literal(text, shapes)
        return Raw(text)
    if kind is AttrKind.RAW or (name == "slice_sizes" and _is_list_of_lists(text)):
        check_raw(name, text)
        return Raw(text)
    if kind is AttrKind.SHAPE:
        return shapes(text)
    if kind is AttrKind.SHAPES:
        return shapes.braced(text)
    cursor = Cursor(text)
    if kind is AttrKind.WORD and name in WORDS:
        value: Attribute = choose(name, cursor)
    elif name == "cross_program_prefetch_index":
        value = cursor.int32()
    else:
        value = _READERS[kind](cursor)
    cursor.done()
    return value


def _is_list_of_lists(text: str) -> bool:
    cursor = Cursor(text)
    return cursor.eats("{") and cursor.sees("{")


def _float(cursor: Cursor) -> float:
    start = cursor.start
    value = cursor.decimal()
    if isinf(value) or abs(value) > _LARGEST_F32:
        raise Fault("the number is out of the range of f32", start, start + 1)
    return value


def _bool(cursor: Cursor) -> bool:
    if not cursor.sees("true") and not cursor.sees("false"):
        cursor.fail("true or false")
    value = cursor.sees("true")
    cursor.advance()
    return value


def _word(cursor: Cursor) -> str:
    return cursor.take("word", "a word")


def _ints(cursor: Cursor) -> tuple[int, ...]:
    return tuple(cursor.items("{", "}", cursor.integer, "integers in braces"))


def _computation(cursor: Cursor) -> str:
    return cursor.name("a computation's name")


def _computations(cursor: Cursor) -> tuple[str, ...]:
    what = "computations in braces"
    return tuple(cursor.items("{", "}", lambda: _computation(cursor), what))


def _instructions(cursor: Cursor) -> tuple[str, ...]:
    def read() -> str:
        return cursor.name("an instruction's name")

    cursor.want("{", "instructions in braces")
    names = [read()]
    while cursor.eats(","):
        names.append(read())
    cursor.want("}", "',' or '}'")
    return tuple(names)


def _dim_labels(cursor: Cursor) -> DimLabels:
    start = cursor.start
    text = cursor.take("labels", "labels such as b01f_01io->b01f")
    lhs, _, rest = text.partition("_")
    rhs, _, out = rest.partition("->")
    for labels, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        marks = [label for label in labels if label != "?"]
        spatial = sorted(label for label in marks if label not in letters)
        wanted = [str(number) for number in range(len(spatial))]
        if len(set(marks)) < len(marks) or spatial != wanted:
            message = f"the labels {labels} do not number the spatial dimensions from 0, each once"
            raise Fault(message, start, start + len(text))
    if len({sum(label.isdigit() for label in labels) for labels in (lhs, rhs, out)}) > 1:
        message = "lhs, rhs and result have different numbers of spatial dimensions"
        raise Fault(message, start, start + len(text))
    return DimLabels(lhs, rhs, out)


def _padding(cursor: Cursor) -> tuple[PaddingDim, ...]:
    start = cursor.start
    text = cursor.take("padding", "padding such as 0_1x2_2_1")
    rows = [[_part(number, start) for number in part.split("_")] for part in text.split("x")]
    return tuple(PaddingDim(*row) for row in rows)


def _slice(cursor: Cursor) -> tuple[SliceDim, ...]:
    what = "ranges in braces, such as {[0:4], [1:9:2]}"
    return tuple(cursor.items("{", "}", lambda: _range(cursor), what))


def _range(cursor: Cursor) -> SliceDim:
    cursor.want("[", "ranges such as {[0:4], [1:9:2]}")
    numbers = [cursor.integer()]
    cursor.want(":", "':' behind the start")
    numbers.append(cursor.integer())
    if cursor.eats(":"):
        numbers.append(cursor.integer())
    cursor.want("]", "':' or ']' behind the limit")
    return SliceDim(*numbers)


def _window(cursor: Cursor) -> Window:
    cursor.want("{", "a window in braces")
    fields: dict[str, list[tuple[int, ...]]] = {}
    start = cursor.start
    while not cursor.eats("}"):
        at, end = cursor.start, cursor.end
        name = cursor.key(_WINDOW_FIELD)
        if name not in _DEFAULTS or name in fields:
            raise Fault(f"expected {_WINDOW_FIELD}, found {shown(name + '=')}", at, end)
        fields[name] = _window_field(name, cursor)
    rank = len(fields.get("size", ()))
    sized = {len(values) for name, values in fields.items() if name != "rhs_reversal" or rank}
    if sized - {rank}:
        message = "a window's fields must have one number for each dimension of its size"
        raise Fault(message, start, cursor.end)
    columns = [fields.get(name, [default] * rank) for name, default in _DEFAULTS.items()]
    return Window(tuple(_window_dim(row) for row in zip(*columns, strict=False)))


_DEFAULTS: dict[str, tuple[int, ...]] = {
    "size": (1,),
    "stride": (1,),
    "pad": (0, 0),
    "lhs_dilate": (1,),
    "rhs_dilate": (1,),
    "rhs_reversal": (0,),
}
_WINDOW_FIELD = "a window's size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal, each once"


def _window_field(name: str, cursor: Cursor) -> list[tuple[int, ...]]:
    """Read the numbers of each dimension: a low and a high pad, or one number."""
    start, end = cursor.start, cursor.end
    if name != "pad" and cursor.kind == "integer":
        return [(cursor.integer(),)]
    if name == "pad":
        parts = cursor.take("padding", "a pad such as 1_1x0_2").split("x")
    else:
        parts = cursor.take("sizes", "numbers such as 3x3").split("x")
    numbers = [tuple(_part(number, start) for number in part.split("_")) for part in parts]
    if any(len(row) != len(_DEFAULTS[name]) for row in numbers):
        raise Fault("expected a low and a high pad, such as 1_1", start, end)
    return numbers


def _window_dim(row: tuple[tuple[int, ...], ...]) -> WindowDim:
    (size,), (stride,), (low, high), (lhs,), (rhs,), (reversal,) = row
    return WindowDim(size, stride, low, high, lhs, rhs, reversal == 1)


def _part(text: str, at: int) -> int:
    """Return a number that is a part of a token, and so does not wrap around."""
    value = int64(text, at)
    if (value < 0) is not text.startswith("-") and value:
        raise Fault(f"{shown(text)} is out of the range of 64 bits", at, at + len(text))
    return value


_READERS: dict[AttrKind, Callable[[Cursor], Attribute]] = {
    AttrKind.INT: Cursor.integer,
    AttrKind.FLOAT: _float,
    AttrKind.BOOL: _bool,
    AttrKind.WORD: _word,
    AttrKind.STRING: Cursor.string,
    AttrKind.INTS: _ints,
    AttrKind.COMPUTATION: _computation,
    AttrKind.COMPUTATIONS: _computations,
    AttrKind.INSTRUCTIONS: _instructions,
    AttrKind.WINDOW: _window,
    AttrKind.DIM_LABELS: _dim_labels,
    AttrKind.PADDING: _padding,
    AttrKind.SLICE: _slice,
}
