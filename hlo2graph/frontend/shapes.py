"""Reads a shape's text: `f32[2,<=4]{1,0:T(8,128)}`, `(s32[], (pred[2], token[]))`."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from hlo2graph.frontend.cursor import int64
from hlo2graph.frontend.scan import Fault, blank_comments, shown, skip_blank
from hlo2graph.hlo import DTYPES, UNBOUNDED, AnyShape, Kind, Layout, Shape, TupleShape

DEEPEST = 64  # levels of tuples in tuples
MOST_ELEMENTS = 2**63 - 1  # of a dimension; and of bytes of an array in a tuple
_ARRAY = re.compile(
    r"(?P<dtype>[A-Za-z]\w*+)\s*+\[(?P<dims>[^\[\]]*+)\](?>\s*+\{(?P<layout>[^{}]*+)\})?+", re.ASCII
)
_BUFFER = re.compile(r"b\s*+\(\s*+(?=[a-z])", re.ASCII)
_S = r"\s*+"
_INT = rf"-?\d++{_S}"
_SIZE = rf"(?>\d++|[*]){_S}"
_LEVEL = rf"[DCSH]\b{_S}[+]?{_S}~?{_S}"
_TYPE = rf"(?>{'|'.join(sorted(DTYPES, reverse=True))}){_S}"


def _list(item: str) -> str:
    """Return the pattern of items with commas between."""
    return rf"{item}(?>,{_S}{item})*+"


def _cut(*parts: str) -> str:
    """Return the pattern of these parts, of which the last ones may be missing: so XLA reads."""
    pattern = ""
    for part in reversed(parts):
        pattern = rf"(?>{part}{_S}{pattern})?+"
    return pattern


def _one(item: str) -> str:
    return _cut(r"\(", item, r"\)")


def _several(item: str) -> str:
    return _cut(r"\(", rf"(?>\)|{_list(item)}[,)]?+)")


_TILE = rf"\({_S}(?>{_list(_SIZE)})?+\){_S}"
_SPLIT = rf"\({_S}{_INT}:{_S}(?>{_list(_INT)})?+\){_S}"
_SUFFIX = re.compile(
    rf"{_S}(?>D\b{_S}{_several(_LEVEL)})?+"
    rf"(?>T\b{_S}(?>{_TILE})*+{_several(_SIZE)})?+"
    rf"(?>L\b{_S}{_one('0*+[1-9][0-9]*+')})?+"
    rf"(?>\#{_S}{_one(_TYPE)})?+(?>\*{_S}{_one(_TYPE)})?+"
    rf"(?>E\b{_S}{_one(_INT)})?+(?>S\b{_S}{_one(_INT)})?+"
    rf"(?>SC\b{_S}(?>{_SPLIT})*+{_cut('[(]', _INT, ':', f'(?>[)]|{_list(_INT)}[,)]?+)')})?+"
    rf"(?>M\b{_S}{_one(_INT)})?+",
    re.ASCII,
)
_BLANKS = " \t\r\n"
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_DIM = re.compile(r"\s*+(?:(?P<bound><=)?\s*+(?P<size>\d++|-0++)|(?P<unbounded>\?))\s*+", re.ASCII)


class ShapeReader:
    """Reads shapes, each distinct text once."""

    def __init__(self) -> None:
        self._known: dict[str, AnyShape] = {}

    def __call__(self, text: str) -> AnyShape:
        """Return the shape that `text` writes.

        Raises:
            Fault: it writes none; offsets are those in `text`.
        """
        known = self._known.get(text)
        if known is None:
            known = self._whole(blank_comments(text))
            self._known[text] = known
        return known

    def _whole(self, text: str) -> AnyShape:
        at = skip_blank(text, 0, len(text))
        shape, at = self.read_at(text, at)
        at = skip_blank(text, at, len(text))
        if at < len(text):
            raise Fault("unexpected text behind the shape", at, len(text))
        return shape

    def braced(self, text: str) -> tuple[AnyShape, ...]:
        """Return the shapes of `{f32[2]{0}, s32[]}`; raises Fault."""
        text = blank_comments(text)
        at = skip_blank(text, 0, len(text))
        if not text.startswith("{", at):
            raise Fault(f"expected shapes in braces, found {shown(text)}", 0, len(text))
        shapes, at = self._list(text, at, "}", 0)
        if text[at:].strip():
            raise Fault("unexpected text behind the shapes", at, len(text))
        return shapes

    def parameters(self, text: str) -> tuple[AnyShape, ...]:
        """Return the shapes of `(f32[2]{0}, s32[],)`; raises Fault.

        Unlike in a tuple, a last comma may stand there.
        """
        text = blank_comments(text)
        body = text[:-1].rstrip()
        if body.endswith(",") and body[1:-1].strip():
            text = f"{body[:-1]} {text[len(body) :]}"
        return self._list(text, 0, ")", 0)[0]

    def read_at(self, text: str, at: int) -> tuple[AnyShape, int]:
        """Return the shape that begins at `at`, and the offset behind it; raises Fault."""
        return self._read(text, at, 0)

    def _read(self, text: str, at: int, depth: int) -> tuple[AnyShape, int]:
        if text.startswith("(", at):
            if depth == DEEPEST:
                raise Fault(f"tuples are nested more than {DEEPEST} deep", at, at + 1)
            return self._tuple(text, at, depth)
        if buffer := _BUFFER.match(text, at):
            return self._buffer(text, buffer.end())
        found = _ARRAY.match(text, at)
        if not found:
            raise Fault("expected a shape such as f32[2,3]", at, at + 1)
        if depth and found["layout"] == "":
            raise Fault("expected a layout in these braces", found.end() - 2, found.end())
        key = found.group()
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = _array(found)
        return shape, found.end()

    def _buffer(self, text: str, at: int) -> tuple[AnyShape, int]:
        found = _ARRAY.match(text, at)
        if not found:
            raise Fault("expected an array such as f32[2,3] in the buffer b(...)", at, at + 1)
        end = skip_blank(text, found.end(), len(text))
        if not text.startswith(")", end):
            raise Fault("expected ')' behind the buffer's array", end, end + 1)
        array = _array(found)
        if not array.dtype.size:
            raise Fault(f"a buffer cannot hold {array.dtype}", *found.span())
        return replace(array, is_buffer=True), end + 1

    def _tuple(self, text: str, at: int, depth: int) -> tuple[AnyShape, int]:
        parts, end = self._list(text, at, ")", depth + 1)
        for part in parts:
            if isinstance(part, Shape):
                _check_part(part, at, end)
        return TupleShape(parts), end

    def _list(self, text: str, at: int, mark: str, depth: int) -> tuple[tuple[AnyShape, ...], int]:
        """Read the shapes between the bracket at `at` and the mark that closes it."""
        parts: list[AnyShape] = []
        end = len(text)
        at = skip_blank(text, at + 1, end)
        while not text.startswith(mark, at):
            part, at = self._read(text, at, depth)
            parts.append(part)
            at = skip_blank(text, at, end)
            if text.startswith(",", at):
                comma, at = at, skip_blank(text, at + 1, end)
                if text.startswith(mark, at):
                    raise Fault("expected a shape behind this ','", comma, comma + 1)
            elif not text.startswith(mark, at):
                where = "the tuple shape" if mark == ")" else "the list of shapes"
                raise Fault(f"expected ',' or '{mark}' in {where}", at, at + 1)
        return tuple(parts), at + 1


def _check_part(part: Shape, start: int, end: int) -> None:
    """Check a tuple's part at once, as XLA does; an array alone is for the verifier."""
    if abs(part.size) > MOST_ELEMENTS:
        raise Fault(f"{part} in a tuple has 2^63 bytes or more", start, end)
    if part.layout is None:
        return
    if sorted(part.minor_to_major) != list(range(part.rank)):
        message = f"the layout of {part} is no order of the {part.rank} dimensions"
        raise Fault(message, start, end)
    suffix = part.layout.suffix
    if suffix and (_SPARSE.search(suffix) or not _splits_fit(part, suffix)):
        raise Fault(f"the layout of {part} does not fit an array like that", start, end)


_SPARSE = re.compile(r"[#*]\s*\(|T\s*\(\s*\)")  # types of indices and pointers, a tile of nothing
_SPLITS = re.compile(r"\(\s*(-?\d{1,19})\s*:([^)]*)\)")


def _splits_fit(part: Shape, suffix: str) -> bool:
    """Tell whether a layout splits dimensions that there are, at places inside them, in order."""
    for dim, listed in _SPLITS.findall(suffix.partition("SC")[2]):
        at = [int(place[:19]) for place in listed.replace(",", " ").split()]
        size = part.dims[int(dim)] if 0 <= int(dim) < part.rank else 0
        if at != sorted({place for place in at if 0 < place < size}):
            return False
    return True


def _array(found: re.Match[str]) -> Shape:
    dtype = DTYPES.get(found["dtype"])
    if dtype is None:
        near = difflib.get_close_matches(found["dtype"], DTYPES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Fault(f"unknown element type {found['dtype']}{hint}", *found.span("dtype"))
    dims, dynamic = _dims(found)
    shape = Shape(dtype, dims, _layout(found, len(dims)), dynamic)
    if dtype.kind in (Kind.TOKEN, Kind.OPAQUE) and (dims or shape.layout):
        raise Fault(f"{dtype} has no dimensions and no layout", *found.span())
    return shape


def _dims(found: re.Match[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    text, start = found["dims"], found.start("dims")
    dims: list[int] = []
    dynamic: list[int] = []
    for part in text.split(",") if text.strip(_BLANKS) else ():
        dim = _DIM.fullmatch(part)
        if not dim or len(dim["size"] or "") > 19 or int(dim["size"] or 0) > MOST_ELEMENTS:
            raise Fault(
                f"expected a dimension such as 4, <=4 or ?, found {shown(part.strip())}",
                start,
                start + max(1, len(part)),
            )
        if dim["bound"]:
            dynamic.append(len(dims))
        dims.append(UNBOUNDED if dim["unbounded"] else int(dim["size"]))
        start += len(part) + 1
    return tuple(dims), tuple(dynamic)


def _layout(found: re.Match[str], rank: int) -> Layout | None:
    text = found["layout"]
    if text is None:
        return None
    order, _, suffix = text.partition(":")
    parts = [part.strip(_BLANKS) for part in order.split(",")] if order.strip(_BLANKS) else []
    if not all(_INTEGER.fullmatch(part) for part in parts):
        raise Fault(
            f"expected dimension numbers in the layout, found {shown(order)}", *found.span()
        )
    start = found.start("layout")
    integers = [int64(i.group(), start + i.start()) for i in _INTEGER.finditer(text)]
    numbers = tuple(integers[: len(parts)])
    if len(numbers) != rank:
        raise Fault(
            f"the layout {{{order}}} is no order of the {rank} dimensions",
            start - 1,
            found.end("layout") + 1,
        )
    if not _SUFFIX.fullmatch(suffix):
        at = start + len(order) + 1
        raise Fault("expected tiles such as T(8,128), S(1) or E(4)", at, at + max(1, len(suffix)))
    return Layout(numbers, suffix.strip()) if rank or suffix.strip() else None
