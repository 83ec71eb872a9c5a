"""What goes wrong, where, and how it is shown: `file:line:col: error: ...` and a caret.

Every error that a user can cause is an `HloError` with a `Span` where text is at fault. A broken
invariant of our own is an `assert`, never an `HloError`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

WIDEST_LINE = 160  # columns of source shown under an error; a longer line is cut around the caret


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A text and the name it came under; finds lines and columns only when asked."""

    name: str
    text: str = field(repr=False)
    _starts: list[int] = field(default_factory=list, repr=False)

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column of `offset`."""
        if not self._starts:
            self._starts.append(0)
            at = self.text.find("\n")
            while at >= 0:
                self._starts.append(at + 1)
                at = self.text.find("\n", at + 1)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return line `number` (1-based) without its line break."""
        start = self._starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else None].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range [start, end) of a source's text."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        line, column = self.source.locate(self.start)
        return f"{self.source.name}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark under an error: where a name was defined, which name was perhaps meant."""

    message: str
    span: Span | None = None


class HloError(Exception):
    """The user's text or arrays are at fault; `str()` is the full report with its caret."""

    def __init__(
        self, message: str, span: Span | None = None, notes: tuple[Note, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.notes = notes

    def __str__(self) -> str:
        return "\n".join(
            [
                _show("error", self.message, self.span),
                *(_show("note", n.message, n.span) for n in self.notes),
            ]
        )


class ParseError(HloError):
    """The text is not what XLA's parser accepts."""


class VerifyError(HloError):
    """The text parses, but the program it describes is not legal HLO."""


class UnsupportedError(HloError):
    """The program is legal, but something in it cannot be run here; each such thing is named."""


class InputError(HloError):
    """An argument, an input file or an option does not fit the program."""


class BackendError(Exception):
    """The backend asked for is not there, or failed; carries no span."""


def _visible(character: str) -> str:
    """Return what stands for a character in a line that is shown, of a width that is known."""
    if character == "\t":
        return " "
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: of most of Asia's letters, two each."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in ("W", "F") else 1
        for c in text
    )


def _show(kind: str, message: str, span: Span | None) -> str:
    if span is None:
        return f"{kind}: {message}"
    line, column = span.source.locate(span.start)
    text = "".join(map(_visible, span.source.line(line)))
    cut = max(0, column - 1 - WIDEST_LINE // 2) if len(text) > WIDEST_LINE else 0
    shown = text[cut : cut + WIDEST_LINE]
    start = column - 1 - cut
    width = _columns(shown[start : start + span.end - span.start])
    marker = " " * _columns(shown[:start]) + "^" + "~" * (width - 1)
    return f"{span}: {kind}: {message}\n  {shown}\n  {marker}"
