"""The attributes of a thunk in thunk-sequence text: which there are, and reading their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from lark import Token

from hlo2graph.errors import Note, ParseError, Source, Span, VerifyError
from hlo2graph.frontend.context import nearest
from hlo2graph.frontend.thunks.lines import span_of
from hlo2graph.program.plan import Allocation
from hlo2graph.program.thunks import Slice

_BYTES = r"[0-9]{1,18}\[[0-9]{1,18}:[0-9]{1,18}\]"
_SLICE = re.compile(_BYTES)
_SLICES = re.compile(rf"\{{\s*(?:{_BYTES}(?:\s*,\s*{_BYTES})*+)?\s*\}}")
_ITEM = r'(?:%?[A-Za-z_][\w./\-]*+|"(?:[^"\\\n]|\\.)*+")'
_NAME = re.compile(_ITEM)
_NAMES = re.compile(rf"\{{\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*+)?\s*\}}")
_PATTERN = re.compile(r"\{\s*((?:[0-9a-fA-F]{2}\s*)+)\}", re.ASCII)  # as bytes.fromhex has it
_NUMBER = re.compile(r"[0-9]{1,18}")


def unquote(source: Source, token: Token, start: int, text: str) -> str:
    """Return the name that `text`, bare or quoted, stands for; it begins at `start` in `token`."""
    if not text.startswith('"'):
        return text.removeprefix("%")
    try:
        name: str = json.loads(text)
    except ValueError:
        raise ParseError(
            "this string has a bad escape", _within(source, token, start, len(text))
        ) from None
    return name


def _within(source: Source, token: Token, start: int, length: int) -> Span:
    begin = (token.start_pos or 0) + start
    return Span(source, begin, begin + length)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Reads slices, each checked against the allocations once."""

    source: Source
    allocations: tuple[Allocation, ...]
    _known: dict[str, Slice] = field(default_factory=dict)

    def read(self, token: Token, start: int, text: str) -> Slice:
        """Return the slice that `text` says; it begins at `start` in `token`."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._read(
                text, _within(self.source, token, start, len(text))
            )
        return found

    def _read(self, text: str, span: Span) -> Slice:
        index, begin, end = map(int, text[:-1].replace("[", ":").split(":"))
        if index >= len(self.allocations):
            raise VerifyError(
                f"there is no allocation {index}, the last is {len(self.allocations) - 1}", span
            )
        size = self.allocations[index].size
        if not begin <= end <= size:
            why = "ends before it begins" if begin > end else f"allocation {index} has {size} bytes"
            raise VerifyError(f"{text} is not within its allocation: {why}", span)
        return Slice(index, begin, end - begin)


class Attributes:
    """The attributes of one thunk or block, by key; each read once, by its kind of value."""

    def __init__(
        self, bytes_: Bytes, owner: Token, tokens: tuple[Token, ...], allowed: Iterable[str]
    ) -> None:
        self.source = bytes_.source
        self._bytes = bytes_
        self._owner = owner
        self._tokens: dict[str, tuple[Token, int]] = {}
        known = tuple(allowed)
        for token in tokens:
            key = token[: token.index("=")]
            if key not in known:
                self._fail(token, key, f"{owner} has no attribute {key}", known)
            if key in self._tokens:
                first = self.span(self._tokens[key][0])
                raise ParseError(
                    f"{key} is given twice", self.span(token), (Note("first given here", first),)
                )
            self._tokens[key] = token, len(key) + 1

    def __contains__(self, key: str) -> bool:
        return key in self._tokens

    def span(self, token: Token) -> Span:
        """Return where a token stands."""
        return span_of(self.source, token)

    def at(self, key: str) -> Span:
        """Return where an attribute, or else its owner, stands."""
        return self.span(self._tokens[key][0] if key in self._tokens else self._owner)

    def slices(self, key: str) -> tuple[Slice, ...]:
        """Return `key={0[0:4], 1[0:8]}`; an attribute that is not there holds none."""
        if key not in self:
            return ()
        token, start = self._match(key, _SLICES, "bytes in braces, as in {0[0:64], 1[0:4]}")
        read = self._bytes.read
        return tuple(read(token, m.start(), m[0]) for m in _SLICE.finditer(token, start))

    def slice(self, key: str) -> Slice:
        """Return `key=0[0:4]`."""
        token, start = self._match(key, _SLICE, "bytes, as in 0[0:64]")
        return self._bytes.read(token, start, token[start:])

    def names(self, key: str) -> tuple[str, ...]:
        """Return `key={a, "b c"}`, none where it is not there."""
        if key not in self:
            return ()
        token, start = self._match(key, _NAMES, "names in braces, as in {add.1, dot.2}")
        return tuple(
            unquote(self.source, token, m.start(), m[0]) for m in _NAME.finditer(token, start)
        )

    def name(self, key: str) -> str:
        """Return `key=%name`."""
        token, start = self._match(key, _NAME, "a name")
        return unquote(self.source, token, start, token[start:])

    def pattern(self, key: str) -> bytes:
        """Return `key={00 00 80 3f}`."""
        token, start = self._match(key, _PATTERN, "bytes in hexadecimal, as in {00 00 80 3f}")
        return bytes.fromhex(token[start + 1 : -1])

    def number(self, key: str) -> int | None:
        """Return `key=5`, None where it is not there."""
        return self.needed_number(key) if key in self else None

    def needed_number(self, key: str) -> int:
        """Return `key=5`."""
        token, start = self._match(key, _NUMBER, "a number")
        return int(token[start:])

    def flag(self, key: str) -> bool:
        """Return `key=true`, false where it is not there."""
        return key in self and self.word(key, ("true", "false"), "false") == "true"

    def word(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of a few words."""
        if key not in self:
            return default
        token, start = self._tokens[key]
        if token[start:] not in allowed:
            raise ParseError(f"{key} is one of {', '.join(allowed)}", self.span(token))
        return str(token[start:])

    def matching(self, key: str, form: re.Pattern[str], expected: str, default: str) -> str:
        """Return a word of some form."""
        if key not in self:
            return default
        token, start = self._match(key, form, expected)
        return str(token[start:])

    def text(self, key: str) -> str:
        """Return what stands behind `key=`, verbatim in braces, else unquoted."""
        if key not in self:
            return ""
        token, start = self._tokens[key]
        held = str(token[start:])
        return held if held.startswith("{") else unquote(self.source, token, start, held)

    def _match(self, key: str, form: re.Pattern[str], expected: str) -> tuple[Token, int]:
        if key not in self:
            raise ParseError(f"{self._owner} needs {key}=", self.span(self._owner))
        token, start = self._tokens[key]
        if not form.fullmatch(token, start):
            raise ParseError(f"{key} holds {expected}", self.span(token))
        return token, start

    def _fail(self, token: Token, key: str, message: str, known: tuple[str, ...]) -> NoReturn:
        notes = nearest(key, known) or (Note(f"it may have {', '.join(known)}"),)
        raise ParseError(message, _within(self.source, token, 0, len(key)), notes)
