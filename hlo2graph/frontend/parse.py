"""HLO text to Module, and the parts of a text that holds several."""

from __future__ import annotations

import re

from hlo2graph.collector import paused
from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.build import parse_module
from hlo2graph.frontend.identify import identify
from hlo2graph.hlo import Module

_SURROGATE = re.compile(r"[\ud800-\udfff]")
SEPARATOR = "// -----"
_SEPARATOR = re.compile(rf"^[ \t]*{SEPARATOR}[ \t\r]*$", re.MULTILINE)


def parse(text: str, filename: str = "<string>") -> Module:
    """Return the one module that `text` holds, its syntax and names checked.

    A byte order mark in front, which whoever read a file may have kept, is no part of it.

    Raises:
        ParseError: it holds none, several, or something else than HLO.
    """
    text = text.removeprefix("\ufeff")
    source = Source(filename, text)
    if not text.isascii() and (broken := _SURROGATE.search(text)):
        other = identify(_SURROGATE.sub("\ufffd", text))
        raise ParseError(other or "a byte here is no UTF-8", Span(source, *broken.span()))
    parts = _parts(text)
    if len(parts) > 1:
        start, end = parts[1]
        raise ParseError(
            f"the text holds {len(parts)} modules, of which one is wanted; the commands take "
            f"all, and so does a loop over its parts between '{SEPARATOR}' lines",
            Span(source, start + len(text[start:end]) - len(text[start:end].lstrip()), end),
        )
    try:
        with paused():
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
    return tuple("\n" * text.count("\n", 0, start) + text[start:end] for start, end in _parts(text))


def _parts(text: str) -> list[tuple[int, int]]:
    """Return where the parts between separators begin and end; one at least."""
    ends = [(found.start(), found.end()) for found in _SEPARATOR.finditer(text)]
    starts = [0, *(behind for _, behind in ends)]
    parts = list(zip(starts, [*(before for before, _ in ends), len(text)], strict=True))
    return [part for part in parts if text[slice(*part)].strip()] or parts[:1]
