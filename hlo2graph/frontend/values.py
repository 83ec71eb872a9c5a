"""Reads an attribute's value from its text, by the kind that hlo.attributes gives its name."""

from __future__ import annotations

import re
from collections.abc import Callable

from hlo2graph.frontend.raw import check_raw
from hlo2graph.frontend.scan import Fault, blank_comments, closing, shown, skip_blank
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

_NUMBER = re.compile(r"-?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?+|-?inf|nan", re.ASCII)
_INT = re.compile(r"-?\d+", re.ASCII)
_NAME = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.\-]*+)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*+")
_STRING = re.compile(r"""(["'])((?>[^"'\\]++|\\.|(?!\1)["'])*+)\1""", re.DOTALL)
_LABELS = re.compile(r"([0-9bf?]*)_([0-9io?]*)->([0-9bf?]*)")
_SLICE = re.compile(r"\[\s*(\d+)\s*:\s*(\d+)\s*(?::\s*(\d+)\s*)?\]", re.ASCII)
_PAD = re.compile(r"(-?\d+)_(-?\d+)(?:_(\d+))?", re.ASCII)
_WINDOW = re.compile(r"(\w+)=(\S+)")
_PAIRS = re.compile(r"\{\s*+\{")  # a list for each pair of a collective-permute
_LONGEST_INT = 20  # characters of a number of 64 bits


def read_value(name: str, text: str, shapes: ShapeReader) -> Attribute:
    """Return the value of attribute `name` written as `text`.

    Raises:
        Fault: it is not of the name's kind; offsets are those in `text`.
    """
    kind = KINDS[name]
    if kind is AttrKind.RAW:
        check_raw(name, blank_comments(text).strip())
        return Raw(text)
    if kind is AttrKind.WORD and name in WORDS:
        return choose(name, blank_comments(text).rstrip())
    if name == "slice_sizes" and _PAIRS.match(text):
        check_raw(name, blank_comments(text).strip())
        return Raw(text)
    if kind is AttrKind.SHAPE:
        return shapes(text)
    if kind is AttrKind.SHAPES:
        return tuple(shapes(part) for part in _split(text))
    if kind is not AttrKind.STRING:
        text = blank_comments(text)
    return _READERS[kind](text.rstrip())


def integer(text: str) -> int:
    """Return the 64-bit integer written as `text`."""
    if not _INT.fullmatch(text) or len(text) > _LONGEST_INT:
        raise Fault(f"expected an integer, found {shown(text)}", 0, max(1, len(text)))
    return int(text)


def _float(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise Fault(f"expected a number, found {shown(text)}", 0, len(text))
    return float(text)


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise Fault(f"expected true or false, found {shown(text)}", 0, len(text))
    return text == "true"


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise Fault(f"expected a word, found {shown(text)}", 0, len(text))
    return text


def _string(text: str) -> str:
    found = _STRING.fullmatch(text)
    if not found:
        raise Fault(f"expected a string in quotes, found {shown(text)}", 0, len(text))
    return unescape(found[2])


def unescape(text: str) -> str:
    r"""Undo C escapes: `\"`, `\\`, `\n`, `\x41`, `\101`."""
    if "\\" not in text:
        return text
    raw = text.encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_unescaped, raw).decode("utf-8", "surrogateescape")


_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = dict(zip(b"ntrabfv", b"\n\t\r\a\b\f\v", strict=True))


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = found.groups()
    if other is not None:
        return bytes([_ESCAPED.get(other[0], other[0])])
    return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])


def _ints(text: str) -> tuple[int, ...]:
    if not (text.startswith("{") and text.endswith("}")):
        raise Fault(f"expected integers in braces, found {shown(text)}", 0, len(text))
    return tuple(integer(part.strip()) for part in _items(text))


def _computation(text: str) -> str:
    return _name(text, "a computation's name")


def _name(text: str, what: str) -> str:
    found = _NAME.fullmatch(text)
    if not found:
        raise Fault(f"expected {what}, found {shown(text)}", 0, len(text))
    return found[1]


def _names(what: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        if not text.startswith("{"):
            raise Fault(f"expected {what}s in braces, found {shown(text)}", 0, len(text))
        return tuple(_name(part.strip(), f"{what}'s name") for part in _items(text))

    return read


def _dim_labels(text: str) -> DimLabels:
    found = _LABELS.fullmatch(text)
    if not found:
        raise Fault(f"expected labels such as b01f_01io->b01f, found {shown(text)}", 0, len(text))
    return DimLabels(*found.groups())


def _padding(text: str) -> tuple[PaddingDim, ...]:
    dims = []
    for part in text.split("x") if text else ():
        found = _PAD.fullmatch(part)
        if not found:
            raise Fault(f"expected padding such as 0_1x2_2_1, found {shown(text)}", 0, len(text))
        low, high, interior = found.groups()
        dims.append(PaddingDim(integer(low), integer(high), integer(interior or "0")))
    return tuple(dims)


def _slice(text: str) -> tuple[SliceDim, ...]:
    if not (text.startswith("{") and text.endswith("}")):
        raise Fault(f"expected ranges in braces, found {shown(text)}", 0, len(text))
    dims = []
    for part in _items(text):
        found = _SLICE.fullmatch(part.strip())
        if not found:
            raise Fault(
                f"expected ranges such as {{[0:4], [1:9:2]}}, found {shown(text)}", 0, len(text)
            )
        start, limit, stride = found.groups()
        dims.append(SliceDim(integer(start), integer(limit), integer(stride or "1")))
    return tuple(dims)


def _window(text: str) -> Window:
    if not (text.startswith("{") and text.endswith("}")):
        raise Fault(f"expected a window in braces, found {shown(text)}", 0, len(text))
    fields: dict[str, list[str]] = {}
    for part in text[1:-1].split():
        found = _WINDOW.fullmatch(part)
        if not found or found[1] not in _WINDOW_FIELDS or found[1] in fields:
            raise Fault(
                f"expected a window's size, stride, pad, lhs_dilate, rhs_dilate or "
                f"rhs_reversal, each once, found {shown(part)}",
                0,
                len(text),
            )
        fields[found[1]] = found[2].split("x")
    ranks = {len(values) for values in fields.values()}
    if len(ranks) > 1 or (fields and "size" not in fields):
        raise Fault(
            "a window's fields must have one number for each dimension of its size", 0, len(text)
        )
    return Window(tuple(_window_dim(fields, i) for i in range(ranks.pop() if ranks else 0)))


_WINDOW_FIELDS = frozenset({"size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"})


def _window_dim(fields: dict[str, list[str]], i: int) -> WindowDim:
    def number(field: str, default: int) -> int:
        return integer(fields[field][i]) if field in fields else default

    pad = _PAD.fullmatch(fields["pad"][i]) if "pad" in fields else None
    if "pad" in fields and (not pad or pad[3]):
        raise Fault(f"expected a pad such as 1_1, found {shown(fields['pad'][i])}", 0, 1)
    return WindowDim(
        number("size", 1),
        number("stride", 1),
        integer(pad[1]) if pad else 0,
        integer(pad[2]) if pad else 0,
        number("lhs_dilate", 1),
        number("rhs_dilate", 1),
        bool(number("rhs_reversal", 0)),
    )


def _items(text: str) -> list[str]:
    """Split `{a, b}`, whose items hold no comma, into its items."""
    if not (text.startswith("{") and text.endswith("}") and len(text) > 1):
        raise Fault(f"expected a list in braces, found {shown(text)}", 0, len(text))
    body = text[1:-1].strip()
    return body.split(",") if body else []


def _split(text: str) -> list[str]:
    """Split `{a, b}` at the commas that stand in no inner bracket."""
    if not text.startswith("{") or closing(text, 0, len(text)) != len(text):
        raise Fault(f"expected shapes in braces, found {shown(text)}", 0, len(text))
    parts: list[str] = []
    start = at = skip_blank(text, 1, len(text))
    last = len(text) - 1
    while at < last:
        if text[at] in "([{":
            at = closing(text, at, last)
        elif text[at] == ",":
            parts.append(text[start:at])
            start = at = at + 1
        else:
            at += 1
    if text[start:last].strip():
        parts.append(text[start:last])
    return parts


_READERS: dict[AttrKind, Callable[[str], Attribute]] = {
    AttrKind.INT: integer,
    AttrKind.FLOAT: _float,
    AttrKind.BOOL: _bool,
    AttrKind.WORD: _word,
    AttrKind.STRING: _string,
    AttrKind.INTS: _ints,
    AttrKind.COMPUTATION: _computation,
    AttrKind.COMPUTATIONS: _names("computation"),
    AttrKind.INSTRUCTIONS: _names("instruction"),
    AttrKind.WINDOW: _window,
    AttrKind.DIM_LABELS: _dim_labels,
    AttrKind.PADDING: _padding,
    AttrKind.SLICE: _slice,
}
