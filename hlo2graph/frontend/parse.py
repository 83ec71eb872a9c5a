"""HLO text to Module, and the parts of a text that holds several."""

from __future__ import annotations

import re

from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.build import parse_module
from hlo2graph.frontend.identify import identify
from hlo2graph.hlo import Module

_SURROGATE = re.compile(r"[\ud800-\udfff]")
SEPARATOR = "// -----"


def parse(text: str, filename: str = "<string>") -> Module:
    """Return the one module that `text` holds, its syntax and names checked.

    Raises:
        ParseError: it holds none, several, or something else than HLO.
    """
    source = Source(filename, text)
    if not text.isascii() and (broken := _SURROGATE.search(text)):
        other = identify(_SURROGATE.sub("\ufffd", text))
        raise ParseError(other or "a byte here is no UTF-8", Span(source, *broken.span()))
    parts = split(text)
    if len(parts) > 1:
        at = len(parts[1]) - len(parts[1].lstrip("\n"))
        raise ParseError(
            f"the text holds {len(parts)} modules, of which one is wanted; the commands take "
            f"all, and so does a loop over its parts between '{SEPARATOR}' lines",
            _line(source, at),
        )
    try:
        return parse_module(source, 0, len(text))
    except ParseError:
        if other := identify(text):
            start = len(text) - len(text.lstrip())
            if start == len(text):
                raise ParseError(f"{filename}: {other}") from None
            raise ParseError(other, Span(source, start, start + 1)) from None
        raise


def split(text: str) -> tuple[str, ...]:
    """Return the modules in a text that `// -----` lines separate.

    Each has as many empty lines in front as stand before it in the whole, so that its errors name
    the lines of the whole. Parts with nothing but blanks are left out.
    """
    if SEPARATOR not in text:
        return (text,)
    parts: list[str] = []
    lines: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if line.strip() == SEPARATOR:
            parts.append("\n".join(lines))
            lines = [""] * (number + 1)
        else:
            lines.append(line)
    parts.append("\n".join(lines))
    return tuple(part for part in parts if part.strip()) or (text,)


def _line(source: Source, number: int) -> Span:
    """Return the span of a line, counted from 0."""
    at = 0
    for _ in range(number):
        at = source.text.index("\n", at) + 1
    end = source.text.find("\n", at)
    return Span(source, at, end if end >= 0 else len(source.text))
