"""Says what was found and what was expected where the grammar stops, in the reader's words."""

from __future__ import annotations

from lark.exceptions import UnexpectedToken

from hlo2graph.errors import ParseError, Span
from hlo2graph.frontend.lexer import Region, Token

_WORDS = {
    "MODULE": "'HloModule'",
    "TABLES": "source tables",
    "ENTRY": "'ENTRY'",
    "NAME": "a computation",
    "SIGNATURE": "its parameters",
    "BEGIN": "'{'",
    "END": "'}'",
    "ROOT": "'ROOT'",
    "RESULT": "an instruction 'name = ...'",
    "SHAPE": "a shape",
    "OPCODE": "an opcode and '('",
    "LITERAL": "a literal",
    "OPERAND": "an operand",
    "COMMA": "','",
    "CLOSE": "')'",
    "ATTRIBUTE": "an attribute ', name=value'",
    "NESTED": "",
    "$END": "the end of the text",
}


def explain(region: Region, error: UnexpectedToken) -> ParseError:
    """Return the error for a token that cannot stand where it does."""
    token = error.token
    expected = [_WORDS[kind] for kind in _WORDS if kind in error.expected and _WORDS[kind]]
    choice = " or ".join(filter(None, [", ".join(expected[:-1]), expected[-1]]))
    if not isinstance(token, Token):
        end = len(region.source.text[: region.end].rstrip())
        at = max(region.start, end - 1)
        return ParseError(
            f"the text ends too early, expected {choice}", Span(region.source, at, at + 1)
        )
    return ParseError(
        f"unexpected {_found(token)}, expected {choice}",
        Span(region.source, token.start, token.end),
    )


def _found(token: Token) -> str:
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return {
        "RESULT": f"'{text} ='",
        "OPCODE": f"'{text}('",
        "NESTED": f"'{text}{{'",
        "ATTRIBUTE": f"attribute '{text}'",
    }.get(token.type, f"'{text}'")
