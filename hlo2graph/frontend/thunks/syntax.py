"""Thunk-sequence text to statements.

HLO computations are found first, by their braces; the grammar sees blanks in their place, and so
every offset stays an offset in the source. A line that begins with `%` opens a computation.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.grammars import read_grammar
from hlo2graph.frontend.scan import Fault, closing
from hlo2graph.frontend.thunks.lines import (
    AllocationLine,
    BoundLine,
    EdgeLine,
    NestedLines,
    Text,
    ThunkLine,
)

Statement: TypeAlias = tuple[str, object]  # the list of Text it belongs to, and itself

_OPENING = re.compile(
    r'//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/|"(?>[^"\\\n]++|\\.)*+"'
    r"|^[ \t]*(?P<name>%[\w.\-]++)",
    re.MULTILINE,
)
_SIGNATURE = re.compile(
    r"//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/|\]\{[\d,\s]*(?::[^{}]*)?\}|(?P<body>\{)"
)
_LAST_LINE = re.compile(r"\n\}(?![^\s,])")  # of a computation, as it is printed
_TRAILING = re.compile(r'(?:\s*,\s*\w+=(?:"(?>[^"\\\n]++|\\.)*+"|[^\s,"]++))*+')  # execution_thread
_SHOWN = {
    "ATTRIBUTE": "an attribute (key=value)",
    "COLON": "':'",
    "COMMA": "','",
    "COMPUTATION": "a computation",
    "CONSTANT": "the constant's value",
    "HEAD": "ThunkSequence",
    "ID": "a thunk id (t0)",
    "INT": "a number",
    "KIND": "parameter, constant, live-out or temp",
    "LBRACE": "'{'",
    "NAME": "a name",
    "RBRACE": "'}'",
    "SHAPE": "a shape (f32[2,3])",
    "SLICE": "bytes (0[0:64])",
    "STRING": "a string",
    "WORD": "a word",
    "__ANON_0": "'->'",
    "$END": "the end of the text",
}


def read_text(source: Source) -> tuple[Text, list[tuple[int, int]]]:
    """Return the statements, and where each HLO computation begins and ends.

    Raises ParseError.
    """
    text, computations = _without_computations(source)
    try:
        children: Any = _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(source, error) from None
    found = Text(source, *children[0])
    for kind, statement in children[1:]:
        getattr(found, kind).append(statement)
    return found, computations


def _without_computations(source: Source) -> tuple[str, list[tuple[int, int]]]:
    """Return the text with `%name { }` padded to the same length for each computation."""
    text = source.text
    parts: list[str] = []
    found: list[tuple[int, int]] = []
    at = 0
    while opening := _next_computation(text, at):
        start, name = opening
        body = next((m.start() for m in _SIGNATURE.finditer(text, start) if m["body"]), None)
        if body is None:
            message = f"computation {name} has no body, expected '{{'"
            raise ParseError(message, Span(source, start, start + len(name)))
        try:
            end = closing(text, body, len(text))
        except Fault as fault:  # a backend_config may have brackets that do not match
            last = _LAST_LINE.search(text, body)
            if last is None:
                raise fault.located(source, 0) from None
            end = last.end()
        trailing = _TRAILING.match(text, end)
        assert trailing, "it matches nothing too"
        end = trailing.end()
        parts += (text[at:start], name, " {", "}".rjust(end - start - len(name) - 2))
        found.append((start, end))
        at = end
    return "".join([*parts, text[at:]]), found


def _next_computation(text: str, at: int) -> tuple[int, str] | None:
    for match in _OPENING.finditer(text, at):
        if match["name"]:
            return match.start("name"), match["name"]
    return None


class _Statements(Transformer[Token, Any]):
    """Makes the statements while Lark parses."""

    def start(self, children: list[Any]) -> list[Any]:
        return children

    def header(self, children: list[Token]) -> tuple[Token, Token, tuple[Token, ...]]:
        head, name, *settings = children
        return head, name, tuple(settings)

    def arena(self, children: list[Token]) -> Statement:
        return "arenas", tuple(children)

    def allocation(self, children: list[Token]) -> Statement:
        return "allocations", AllocationLine(*children)

    def parameter(self, children: list[Token]) -> Statement:
        return "parameters", BoundLine(*children)

    def result(self, children: list[Token]) -> Statement:
        return "results", BoundLine(*children)

    def alias(self, children: list[Token]) -> Statement:
        return "aliases", children[0]

    def computation(self, children: list[Token]) -> Statement:
        return "computations", children[0]

    def thunk(self, children: list[Any]) -> Statement:
        id, kind, name, *rest = children
        attributes = tuple(c for c in rest if isinstance(c, Token))
        return "thunks", ThunkLine(id, kind, name, attributes, tuple(rest[len(attributes) :]))

    def nested(self, children: list[Any]) -> NestedLines:
        label, *rest = children
        attributes = tuple(c for c in rest if isinstance(c, Token))
        statements: list[Statement] = rest[len(attributes) :]
        thunks = tuple(s for _, s in statements if isinstance(s, ThunkLine))
        edges = tuple(s for _, s in statements if isinstance(s, EdgeLine))
        return NestedLines(label, attributes, thunks, edges)

    def edge(self, children: list[Token]) -> Statement:
        return "edges", EdgeLine(*children)

    def name(self, children: list[Token]) -> Token:
        return children[0]


@cache
def _parser() -> Lark:
    return Lark(read_grammar("thunks.lark"), parser="lalr", transformer=_Statements())


def _explained(source: Source, error: UnexpectedInput) -> ParseError:
    """Say what was found and what could have stood there."""
    if isinstance(error, UnexpectedToken):
        expected = error.accepts or error.expected
        if error.token.type == "$END":
            start, length, found = len(source.text.rstrip()), 1, "the end of the text"
        else:
            start, length = error.token.start_pos or 0, len(error.token)
            found = f"'{_shortened(error.token)}'"
    else:
        assert isinstance(error, UnexpectedCharacters), "the lexer and parser raise no other"
        position: Any = error.pos_in_stream  # an int, whatever the base class declares
        start, length = position, 1
        expected, found = error.allowed, repr(source.text[start])
    words = sorted(_SHOWN.get(name, f"'{name.lower()}'") for name in expected or ())
    return ParseError(
        f"found {found}, expected {' or '.join(words)}", Span(source, start, start + length)
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
