"""Cuts HLO text into the coarse tokens of grammars/hlo.lark.

Two regular expressions find the tokens, one between computations and one in them. Neither ever
backtracks (groups are atomic, repetitions possessive), so any text takes linear time. What has
brackets in it to any depth is cut by `scan.closing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lark.lexer import Lexer

from hlo2graph.errors import Source
from hlo2graph.frontend.json import json_end
from hlo2graph.frontend.scan import Fault, closing, skip_blank
from hlo2graph.frontend.stray import stray
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import KINDS, AttrKind


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a source that is to be read as HLO; it may be a single instruction."""

    source: Source
    start: int
    end: int
    is_instruction: bool = False


W = r"(?>[ \t\r\n]++|//[^\r\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)*+"  # blanks and comments
ID = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_STRING = r"""(?>"(?>[^"\\]++|\\.)*+"|'(?>[^'\\]++|\\.)*+')"""
_TEXT = rf"[^{{}}\"'/]++|{_STRING}|/(?![/*])"
_FLAT = rf"\{{(?>{_TEXT})*+\}}"
_BRACES = rf"\{{(?>{_TEXT}|\{{(?>{_TEXT}|{_FLAT})*+\}})*+\}}"
_LAYOUT = rf"\{{{W}(?=\d|:|-\d)[^{{}}]*+\}}"
_ARRAY = rf"[a-z][a-z0-9]*+{W}\[[^\[\]{{}}()\";%]*+\](?>{W}{_LAYOUT})?+"
ARRAY = rf"(?>{_ARRAY}|b{W}\({W}{_ARRAY}{W}\))"  # the second is a buffer
_PLAIN = r"(?>[^\s,(){}\[\]\"'/]++|/(?![/*]))++"
_MIXED = rf"(?>{_PLAIN}|\[[^\[\]]*+\]|\([^()]*+\)|{_BRACES})++(?![\[({{\"'])"  # [1,2]<=[2]
_IOTA = rf"\[[^\[\]]*+\]{W}<={W}\[[^\[\]]*+\](?>{W}T\([^()]*+\))?+"
_MESH = rf"mesh\[[^\[\]]*+\](?>{W},{W}device_ids=\((?>[^()]++|\([^()]*+\))*+\))?+{W},?+{W}{_FLAT}"
_SHAPE = rf"{_ARRAY}(?![\[({{\"'<])"
_NUMBER = r"-?\d++(?=[%A-DF-Zac-dg-wyz]|x(?!\d))"  # a name may follow it at once
_VALUE = rf"(?>{_BRACES}|{_STRING}|{_IOTA}|{_MESH}|{_SHAPE}|{_NUMBER}|%{ID}|{_MIXED})"
_ATTRIBUTE = rf",{W}(?P<ATTRIBUTE>(?!literal=){ID}={W}{_VALUE})|,{W}(?P<_LONG>{ID}={W})"
_CALLING = "|".join(name for name, kind in KINDS.items() if kind is AttrKind.COMPUTATION)
_LISTING = "|".join(name for name, kind in KINDS.items() if kind is AttrKind.COMPUTATIONS)

_BETWEEN = re.compile(
    rf"{W}(?:"
    rf"{_ATTRIBUTE}"
    rf"|HloModule(?![\w.\-]){W}%?(?P<MODULE>{ID}):?+"
    rf"|(?P<TABLES>(?>File(?>Names|Locations)|FunctionNames|StackFrames)\b"
    rf"(?>{W}(?>-?\d++{W}(?>{_STRING}|\{{[^{{}}]*+\}})?+|File(?>Names|Locations)\b|FunctionNames\b"
    rf"|StackFrames\b))*+)"
    rf"|(?P<ENTRY>ENTRY)(?![\w.\-])"
    rf"|%?(?P<NAME>{ID}):?+"
    rf"|(?P<_SIGNATURE>\()"
    rf"|(?P<BEGIN>\{{)"
    rf")",
    re.DOTALL | re.ASCII,
)
_WITHIN = re.compile(
    rf"{W}(?:"
    rf"%?(?P<RESULT>{ID}):?+{W}="
    rf"|(?P<ROOT>ROOT)(?![\w.\-])"
    rf"|(?:(?P<typed>{ARRAY}){W})?+(?:(?P<OPCODE>(?!b{W}\({W}[a-z]\w*+{W}\[){ID}){W}\("
    rf"|(?P<_MARK>%)?+(?P<OPERAND>{ID}(?>\#\d{{1,9}})?+)(?(_MARK)|:?+)(?!{W}[(\[]))"
    rf"|(?P<SHAPE>{ARRAY})"
    rf"|,{W}(?P<NESTED>(?>{_CALLING})={W})\{{(?={W}(?>ROOT\b|%?{ID}{W}=))"
    rf"|,{W}(?P<LISTED>(?>{_LISTING})={W})\{{(?={W}(?>%?{ID}{W},{W})*+\{{)"
    rf"|{_ATTRIBUTE}"
    rf"|(?P<COMMA>,)"
    rf"|(?P<BEGIN>\{{)"
    rf"|(?P<CLOSE>\))"
    rf"|(?P<END>\}})"
    rf"|(?P<_TUPLE>\()"
    rf")",
    re.DOTALL | re.ASCII,
)
_OPERAND = re.compile(rf"{W}(%)?+({ID})(?(1)|:?+)(?!{W}[(\[])", re.DOTALL | re.ASCII)
_ARROW = re.compile(rf"{W}->{W}(?:{ARRAY}|(?P<tuple>\())", re.DOTALL | re.ASCII)
_INSTRUCTION = re.compile(rf"{W}(?>ROOT(?![\w.\-])|%?{ID}:?+{W}=|{ARRAY}|\()", re.DOTALL | re.ASCII)
_LONE_SHAPE = re.compile(_ARRAY, re.DOTALL | re.ASCII)
_PIECE = re.compile(rf"{_PLAIN}|(?P<string>{_STRING})|(?P<open>[\[({{])", re.DOTALL | re.ASCII)
HOLDS_LITERAL = frozenset({"constant", "parameter"})


def is_instruction(text: str, start: int, end: int) -> bool:
    """Return whether a single instruction is written here, and not a module."""
    return _INSTRUCTION.match(text, start, end) is not None


class HloLexer(Lexer):
    """Lark's lexer: yields the tokens of a `Region`."""

    __future_interface__ = 1

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:  # noqa: ANN401
        """Yield the tokens; a `Fault` where there is none."""
        region: Region = lexer_state.text
        text, at, end = region.source.text, region.start, region.end
        depth = 1 if region.is_instruction else 0  # of braces of computations
        pattern = _WITHIN if depth else _BETWEEN
        token: Token | None = None
        while found := pattern.match(text, at, end):
            kind = found.lastgroup
            assert kind
            at = found.end()
            if kind == "OPERAND":
                token = Token(kind, found[kind], found.start(kind), found["typed"])
                yield token
                continue
            if kind[0] == "_":
                token, at = _CUT[kind](text, found.start(kind), at, end)
                yield token
                continue
            name = found[kind]
            token = Token(kind, name, found.start(kind))
            if kind == "OPCODE":
                if shape := found["typed"]:
                    token.shape = Token("SHAPE", shape, found.start("typed"))
                yield token
                if name in HOLDS_LITERAL:
                    close = _literal_end(text, at, end)
                    yield Token("LITERAL", text[at:close], at)
                    at = close
                continue
            yield token
            if kind in _DEPTH:
                depth += _DEPTH[kind]
                pattern = _WITHIN if depth else _BETWEEN
        at = skip_blank(text, at, end)
        if at < end:
            expected = parser_state.parse_conf.states[parser_state.position]
            raise stray(text, at, end, token, expected)


_DEPTH = {"BEGIN": 1, "NESTED": 1, "LISTED": 1, "END": -1}


def _literal_end(text: str, at: int, end: int) -> int:
    """Return the offset of the parenthesis that closes a literal beginning at `at`."""
    close = text.find(")", at, end)
    if close < 0 or text.find("(", at, close) >= 0 or text.find("/*", at, close) >= 0:
        return closing(text, at - 1, end) - 1
    return close


def _cut_tuple(text: str, start: int, _: int, end: int) -> tuple[Token, int]:
    """Cut a tuple shape, and the operand that it types if one follows."""
    behind = closing(text, start, end)
    shape = text[start:behind]
    if operand := _OPERAND.match(text, behind, end):
        return Token("OPERAND", operand[2], operand.start(2), shape), operand.end()
    return Token("SHAPE", shape, start), behind


def _cut_signature(text: str, start: int, _: int, end: int) -> tuple[Token, int]:
    behind = closing(text, start, end)
    arrow = _ARROW.match(text, behind, end)
    if not arrow:
        raise Fault("expected '->' and the result's shape", behind, behind + 1)
    behind = closing(text, arrow.start("tuple"), end) if arrow["tuple"] else arrow.end()
    return Token("SIGNATURE", text[start:behind], start), behind


def _cut_long(text: str, start: int, at: int, end: int) -> tuple[Token, int]:
    """Cut an attribute nested deeper than the pattern goes, or a `literal=shape value`."""
    if text.startswith("backend_config=", start) and text.startswith("{", at):
        return Token("ATTRIBUTE", text[start : (behind := json_end(text, at, end))], start), behind
    if text.startswith("literal=", start) and (shape := _LONE_SHAPE.match(text, at, end)):
        at = skip_blank(text, shape.end(), end)
    behind = _value_end(text, at, end)
    return Token("ATTRIBUTE", text[start:behind], start), behind


def _value_end(text: str, at: int, end: int) -> int:
    start = at
    if text.startswith("{", at):
        return closing(text, at, end)
    while piece := _PIECE.match(text, at, end):
        at = closing(text, at, end) if piece["open"] else piece.end()
    if at == start and text[at : at + 1] in ("'", '"'):
        raise Fault("this string is never closed", at, at + 1)
    if at == start:
        equals = text.rindex("=", 0, at)
        raise Fault("expected a value behind this '='", equals, equals + 1)
    return at


_CUT = {"_TUPLE": _cut_tuple, "_SIGNATURE": _cut_signature, "_LONG": _cut_long}
