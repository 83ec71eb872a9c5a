"""Finding where things end in text: blanks and comments, strings, brackets. All in linear time."""

from __future__ import annotations

import re

from hlo2graph.errors import Note, ParseError, Source, Span

_BLANK = re.compile(r"(?>[ \t\r\n]++|//[^\r\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)*+")
_INSIDE = r"[^()\[\]{}\"'/]"
_PART = re.compile(
    rf"""(?>{_INSIDE}++|\({_INSIDE}*+\)|\[{_INSIDE}*+\]|\{{{_INSIDE}*+\}})++"""
    r"""|(?P<string>"(?>[^"\\]++|\\.)*+"|'(?>[^'\\]++|\\.)*+')"""
    r"""|(?P<comment>//[^\r\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)|(?P<mark>.)""",
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\r\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/")
_WIDEST = 40  # characters of the user's text in a message
_PARTNER = {"(": ")", "[": "]", "{": "}"}


class Fault(Exception):
    """Text that cannot be read: what is wrong, and the offsets of the culprit.

    Internal to the frontend, which makes it a ParseError as soon as it knows the Source.
    """

    def __init__(self, message: str, start: int, end: int, notes: tuple[Note, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.notes = notes
        self.start = start
        self.end = end

    def located(self, source: Source, base: int = 0) -> ParseError:
        """Return the error for this fault in a text that begins at `base` of `source`."""
        return ParseError(
            self.message, Span(source, base + self.start, base + self.end), self.notes
        )


def skip_blank(text: str, at: int, end: int) -> int:
    """Return the offset of the first character from `at` on that is no blank and no comment."""
    found = _BLANK.match(text, at, end)
    assert found
    return found.end()


def blank_comments(text: str) -> str:
    """Return the text with blanks in the place of comments; there must be no strings in it."""
    return _COMMENT.sub(lambda found: " " * len(found[0]), text) if "/" in text else text


def shown(text: str) -> str:
    """Return the text in quotes, cut where it is long."""
    return f"'{text if len(text) <= _WIDEST else text[: _WIDEST - 3] + '...'}'"


def closing(text: str, at: int, end: int) -> int:
    """Return the offset behind the bracket that closes the one at `at`.

    Brackets in strings and comments do not count.

    Raises:
        Fault: it is never closed, or another bracket closes first.
    """
    opened = [at]
    for part in _PART.finditer(text, at + 1, end):
        mark = part["mark"]
        if mark is None:
            continue
        if mark in _PARTNER:
            opened.append(part.start())
        elif mark in ")]}":
            if _PARTNER[text[opened[-1]]] != mark:
                message = f"this '{text[opened[-1]]}' is not closed before a '{mark}' behind it"
                raise Fault(message, opened[-1], opened[-1] + 1)
            opened.pop()
            if not opened:
                return part.end()
        elif mark in "\"'":
            raise Fault("this string is never closed", part.start(), part.start() + 1)
    raise Fault(f"this '{text[opened[-1]]}' is never closed", opened[-1], opened[-1] + 1)
