"""A cursor over the tokens of a short text: the value of an attribute, a module's tables.

The tokens are those of HLO text: a word with '=' behind it is an attribute's name, `3x3` and
`0_1x2_2` and `b01f_01io->b01f` are one token each. Blanks and comments may stand between any two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from hlo2graph.frontend.scan import Fault, shown, skip_blank
from hlo2graph.hlo import DTYPES

_Item = TypeVar("_Item")
KEYWORDS = frozenset(
    {
        *("HloModule", "ENTRY", "ROOT"),
        *("FileNames", "FunctionNames", "FileLocations", "StackFrames"),
        *("true", "false", "inf", "nan"),
        *("maximal", "replicated", "manual", "unknown", "unreduced"),
        *("last_tile_dim_replicate", "shard_as", "shard_like"),
    }
)  # words that are no name unless '%' stands before them or ':' behind
STRING = r"""(?>"(?>[^"\\]++|\\[^\n])*+"|'(?>[^'\\]++|\\[^\n])*+')"""
_LABELS = r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}"
_PAD = r"-?\d+_-?\d+(?:_\d+)?"
_TOKEN = re.compile(
    rf"(?P<string>{STRING})"
    rf"|(?P<decimal>-?\d++(?:\.\d*+)?[eE][+-]?\d++|-?\d++\.\d*+|-\.\d++(?:[eE][+-]?\d++)?+"
    rf"|-?inf(?![\w.\-:=])|-?nan(?:\(0x[0-9a-fA-F]++\)|(?![\w.\-:=(])))"
    rf"|(?P<labels>{_LABELS})"
    rf"|(?P<sizes>\d+(?:x\d+)+)"
    rf"|(?P<padding>{_PAD}(?:x{_PAD})*)"
    rf"|(?P<integer>-?\d++)"
    rf"|(?P<attribute>[A-Za-z_][\w.\-]*+=)"
    rf"|(?P<name>%[A-Za-z_][\w.\-]*+|[A-Za-z_][\w.\-]*+:)"
    rf"|(?P<word>[A-Za-z_][\w.\-]*+)"
    rf"|(?P<mark>->|<=|\.\.\.|.)",
    re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]++)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_ESCAPED = dict(zip(b"ntrabfv\\?'\"", b"\n\t\r\a\b\f\v\\?'\"", strict=True))
_SURROGATES = range(0xD800, 0xE000)


class Cursor:
    """The token at hand: its `kind`, its `text`, where it is; kind "end" behind the last one."""

    __slots__ = ("end", "kind", "limit", "source", "start", "text")

    def __init__(self, source: str, at: int = 0, end: int | None = None) -> None:
        self.source = source
        self.limit = len(source) if end is None else end
        self.end = at
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        self.start = skip_blank(self.source, self.end, self.limit)
        found = _TOKEN.match(self.source, self.start, self.limit)
        if found:
            self.kind, self.text, self.end = found.lastgroup or "", found.group(), found.end()
        else:
            self.kind, self.text, self.end = "end", "", self.start

    def jump(self, at: int) -> None:
        """Go to the first token from offset `at` on."""
        self.end = at
        self.advance()

    def fail(self, expected: str) -> NoReturn:
        """Raise the fault that the token at hand is not what was expected."""
        if self.kind == "end":
            at = max(0, len(self.source[: self.limit].rstrip()) - 1)
            raise Fault(f"expected {expected}, but the text ends", at, at + 1)
        if self.text in "\"'":
            raise Fault("this string is never closed", self.start, self.end)
        raise Fault(f"expected {expected}, found {shown(self.text)}", self.start, self.end)

    def sees(self, mark: str) -> bool:
        """Return whether the token at hand is this mark or word."""
        return self.text == mark

    def eats(self, mark: str) -> bool:
        """Step over this mark or word, if it is at hand."""
        if self.text != mark:
            return False
        self.advance()
        return True

    def take(self, kind: str, expected: str) -> str:
        """Step over a token of a kind, and return its text."""
        if self.kind != kind:
            self.fail(expected)
        text = self.text
        self.advance()
        return text

    def want(self, mark: str, expected: str = "") -> None:
        """Step over a mark that has to be here."""
        if not self.eats(mark):
            self.fail(expected or f"'{mark}'")

    def done(self) -> None:
        """Check that nothing is left."""
        if self.kind != "end":
            raise Fault(f"unexpected {shown(self.text)} behind the value", self.start, self.end)

    def integer(self, expected: str = "an integer") -> int:
        """Read an integer of 64 bits."""
        if self.kind != "integer":
            self.fail(expected)
        value = int64(self.text, self.start)
        self.advance()
        return value

    def int32(self) -> int:
        """Read an integer of 32 bits."""
        start, end = self.start, self.end
        value = self.integer()
        if not -(1 << 31) <= value < 1 << 31:
            raise Fault(f"{value} is out of the range of 32 bits", start, end)
        return value

    def decimal(self) -> float:
        """Read a number, whole or not."""
        if self.kind == "integer":
            return float(self.integer())
        start, end = self.start, self.end
        text = self.take("decimal", "a number")
        value = float(text.partition("(")[0])
        if value in (float("inf"), -float("inf")) and "inf" not in text:
            raise Fault(f"{shown(text)} is out of the range of f64", start, end)
        return value

    def name(self, expected: str) -> str:
        """Read a name: `%x`, `x:`, or `x` that is no word of the language."""
        text = self.text
        if self.kind == "name":
            self.advance()
            return text.strip("%:")
        if text in KEYWORDS or text in DTYPES:
            self.fail(expected)
        return self.take("word", expected)

    def key(self, expected: str) -> str:
        """Read an attribute's name, and the '=' behind it."""
        return self.take("attribute", expected)[:-1]

    def string(self, expected: str = "a string in quotes") -> str:
        """Read a string, its escapes undone."""
        if self.kind != "string":
            self.fail(expected)
        value = unescape(self.text[1:-1], self.start + 1)
        self.advance()
        return value

    def items(self, opening: str, end: str, read: Callable[[], _Item], what: str) -> list[_Item]:
        """Read items in brackets with a comma between any two; `what` they are, for an error."""
        self.want(opening, what)
        found: list[_Item] = []
        if not self.eats(end):
            found.append(read())
            while self.eats(","):
                found.append(read())
            self.want(end, f"',' or '{end}'")
        return found


def int64(text: str, at: int = 0) -> int:
    """Return the integer of 64 bits that digits write; from 2^63 on they wrap around, as in XLA."""
    digits = text.lstrip("-").lstrip("0")
    value = int(digits or "0") if len(digits) <= 20 else 1 << 64
    if text[0] == "-":
        value = -value
    if not -(1 << 63) <= value < 1 << 64:
        raise Fault(f"{shown(text)} is out of the range of 64 bits", at, at + len(text))
    return value - (1 << 64) if value >= 1 << 63 else value


def unescape(text: str, at: int = 0) -> str:
    r"""Undo C escapes: `\"`, `\\`, `\n`, `\x41`, `\101`, `\u00e9`; a Fault where there is none."""
    if "\\" not in text:
        return text
    raw = text.encode("utf-8", "surrogateescape")

    def undo(found: re.Match[bytes]) -> bytes:
        try:
            return _unescaped(found)
        except ValueError:
            start = at + len(raw[: found.start()].decode("utf-8", "surrogateescape"))
            escape = found.group().decode("utf-8", "replace")
            raise Fault(f"{shown(escape)} is no escape", start, start + len(escape)) from None

    return _ESCAPE.sub(undo, raw).decode("utf-8", "surrogateescape")


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, other = found.groups()
    if other is not None:
        if other[0] not in _ESCAPED:
            raise ValueError
        return bytes([_ESCAPED[other[0]]])
    if octal or hexadecimal:
        return bytes([int(octal, 8) if octal else int(hexadecimal, 16)])
    code = int(short or long, 16)
    if code in _SURROGATES:
        raise ValueError
    return chr(code).encode()
