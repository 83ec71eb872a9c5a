"""Says what is wrong where no token begins, and what could stand there."""

from __future__ import annotations

import re
from collections.abc import Collection

from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import KINDS

_SHAPE = re.compile(r"[A-Za-z]\w*+\s*+(?P<bracket>\[)[^\[\]\n]*+(?P<end>\])?", re.ASCII)
_WORD = re.compile(r"[^\s,(){}\[\]]{1,40}|.", re.DOTALL)

_WORDS = {
    "MODULE": "'HloModule'",
    "ENTRY": "'ENTRY'",
    "NAME": "a computation",
    "SIGNATURE": "its parameters",
    "BEGIN": "'{'",
    "SHAPE": "a shape",
    "OPCODE": "an opcode and '('",
    "OPERAND": "an operand",
    "COMMA": "','",
    "CLOSE": "')'",
    "ATTRIBUTE": "an attribute ', name=value'",
    "RESULT": "an instruction 'name = ...'",
    "END": "'}'",
    "$END": "the end of the text",
}  # the tokens that can be asked for, in the order in which they are named


def choice(expected: Collection[str]) -> str:
    """Return the tokens that can stand here, in words."""
    words = [word for kind, word in _WORDS.items() if kind in expected]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def stray(text: str, at: int, end: int, before: Token | None, expected: Collection[str]) -> Fault:
    """Return the fault of text that no token begins with.

    `before` is the last token, `expected` are the kinds of tokens that can follow.
    """
    if text[at] in "\"'":
        return Fault("this string is never closed", at, at + 1)
    if text.startswith("/*", at):
        return Fault("this comment is never closed", at, at + 2)
    if before and (missing := missing_comma(before)):
        return missing
    if shape := _SHAPE.match(text, at, end):
        if not shape["end"]:
            bracket = shape.start("bracket")
            return Fault("this '[' of a shape is never closed", bracket, bracket + 1)
        return Fault("expected a shape such as f32[2,3]{1,0}", at, shape.end())
    word = _WORD.match(text, at, end)
    assert word
    return Fault(f"unexpected {word[0]!r}, expected {choice(expected)}", at, word.end())


def missing_comma(before: Token) -> Fault | None:
    """Return the fault of `name=` where it was to be an attribute, but was cut as a result."""
    if before.type != "RESULT" or before.text not in KINDS:
        return None
    return Fault(f"expected ',' before attribute {before.text}", before.start, before.end)
