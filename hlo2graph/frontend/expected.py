"""Says what was found and what was expected where the grammar stops, in the reader's words."""

from __future__ import annotations

from collections.abc import Collection

from lark.exceptions import UnexpectedToken

from hlo2graph.errors import Note, ParseError, Span
from hlo2graph.frontend.lexer import Region
from hlo2graph.frontend.scan import shown
from hlo2graph.frontend.stray import choice, missing_comma
from hlo2graph.frontend.token import Token


def explain(region: Region, error: UnexpectedToken) -> ParseError:
    """Return the error for a token that cannot stand where it does."""
    token = error.token
    expected = error.expected
    before = [value for value in error.state.value_stack if isinstance(value, Token)]
    if not isinstance(token, Token):
        return _too_early(region, expected, before)
    if before and (missing := missing_comma(before[-1])):
        return missing.located(region.source)
    span = Span(region.source, token.start, token.end)
    if token.type == "MODULE":
        note = Note("a text with several modules is split at lines '// -----'")
        return ParseError("a second module begins here, where one is wanted", span, (note,))
    if token.type == "COMMA" and "ATTRIBUTE" in expected:
        return ParseError("expected an attribute 'name=value' behind this ','", span)
    return ParseError(f"unexpected {_found(token)}, expected {choice(expected)}", span)


def _too_early(region: Region, expected: Collection[str], before: list[Token]) -> ParseError:
    at = max(region.start, len(region.source.text[: region.end].rstrip()) - 1)
    opened = [token for token in before if token.type in ("BEGIN", "NESTED", "LISTED")]
    notes = tuple(
        Note("opened here", Span(region.source, token.start, token.end)) for token in opened[-1:]
    )
    return ParseError(
        f"the text ends too early, expected {choice(expected)}",
        Span(region.source, at, at + 1),
        notes,
    )


def _found(token: Token) -> str:
    text = shown(
        token.text
        + {"RESULT": " =", "OPCODE": "(", "NESTED": "{", "LISTED": "{"}.get(token.type, "")
    )
    return f"attribute {text}" if token.type == "ATTRIBUTE" else text
