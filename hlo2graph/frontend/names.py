"""What may be the name of an instruction, a computation or a module."""

from __future__ import annotations

from hlo2graph.frontend.context import Context
from hlo2graph.frontend.cursor import KEYWORDS
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import DTYPES

RESERVED = KEYWORDS | frozenset(DTYPES)


def check_name(name: Token, context: Context) -> None:
    """Refuse a word of the language as a name, unless it is written `%word` or `word:`."""
    source, text = context.source.text, name.text
    has_percent = name.start > 0 and source[name.start - 1] == "%"
    behind = source[name.end : name.end + 1]
    if has_percent and behind == ":":
        context.refuse(f"expected '%{text}' or '{text}:', not both marks", name)
    if has_percent or behind == ":":
        return
    if behind == "=":
        message = f"expected a blank before the '=': '{text}=' is the name of an attribute"
        context.refuse(message, name)
    if text in RESERVED:
        kind = "an element type" if text in DTYPES else "a word of the language"
        context.refuse(f"{text} is {kind} and cannot be a name", name)


def check_instruction_name(name: Token, context: Context) -> None:
    """Refuse what cannot be the name of an instruction, however it is written."""
    text = name.text
    check_name(name, context)
    if text in DTYPES:
        context.refuse(f"{text} is an element type and cannot be a name", name)
    if text.startswith("__") and not text.startswith("__xla_"):
        context.refuse(f"{text} cannot be a name: two underscores begin the names of XLA", name)
