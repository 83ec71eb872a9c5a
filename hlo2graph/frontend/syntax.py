"""The syntax tree of HLO text, and the Lark parser that builds it from grammars/hlo.lark.

A tree holds tokens, nothing is interpreted yet; `computations` and `instructions` do that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from lark import Lark
from lark.exceptions import UnexpectedToken

from hlo2graph.frontend.expected import explain
from hlo2graph.frontend.grammars import read_grammar
from hlo2graph.frontend.lexer import HloLexer, Region
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.token import Token


class CallNode:
    """`shape opcode(arguments)`: a Token for each named operand or literal; `end` is behind it."""

    __slots__ = ("arguments", "end", "opcode", "shape")

    def __init__(
        self, shape: Token | None, opcode: Token, arguments: list[Token | CallNode], end: int
    ) -> None:
        self.shape = shape
        self.opcode = opcode
        self.arguments = arguments
        self.end = end


class InstructionNode:
    """`ROOT? name = call, attributes`."""

    __slots__ = ("attributes", "call", "name", "root")

    def __init__(
        self, root: Token | None, name: Token, call: CallNode, attributes: list[AttributeNode]
    ) -> None:
        self.root = root
        self.name = name
        self.call = call
        self.attributes = attributes


@dataclass(frozen=True, slots=True)
class NestedNode:
    """`name={ instructions }`: a computation in the place of its name."""

    name: Token
    instructions: list[InstructionNode]


@dataclass(frozen=True, slots=True)
class ListedNode:
    """`name={ %f, { instructions } }`: computations, some in the place of their names."""

    name: Token
    computations: list[Token | NestedNode]


AttributeNode: TypeAlias = Token | NestedNode | ListedNode


@dataclass(frozen=True, slots=True)
class ComputationNode:
    """`ENTRY? name signature? { instructions }, attributes`."""

    entry: Token | None
    name: Token
    signature: Token | None
    instructions: list[InstructionNode]
    attributes: list[Token]


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """`HloModule name, attributes`, tables, computations."""

    name: Token | None
    attributes: list[Token]
    tables: Token | None
    computations: list[ComputationNode]


class _Nodes:
    """Lark's callbacks: one for each rule, from the rule's children in order."""

    @staticmethod
    def call(children: list[Any]) -> CallNode:
        opcode, arguments, close = children[-3:]
        shape = children[0] if len(children) == 4 else opcode.shape
        if shape is not opcode.shape and opcode.shape is not None:
            second = opcode.shape
            raise Fault("expected an opcode, found a second shape", second.start, second.end)
        return CallNode(shape, opcode, arguments, close.start + 1)

    nested = call

    @staticmethod
    def arguments(children: list[Any]) -> list[Any]:
        return [child for child in children if child.__class__ is CallNode or child.type != "COMMA"]

    @staticmethod
    def instruction(children: list[Any]) -> InstructionNode:
        if children[0].type == "ROOT":
            return InstructionNode(children[0], children[1], children[2], children[3:])
        return InstructionNode(None, children[0], children[1], children[2:])

    @staticmethod
    def single(children: list[Any]) -> InstructionNode:
        if isinstance(children[0], InstructionNode):
            return children[0]
        call, *attributes = children
        start = (call.shape or call.opcode).start
        return InstructionNode(None, Token("RESULT", "_", start), call, attributes)

    @staticmethod
    def attribute(children: list[Any]) -> NestedNode:
        return NestedNode(children[0], children[1:-1])

    @staticmethod
    def several(children: list[Any]) -> ListedNode:
        return ListedNode(
            children[0], [child for child in children[1:-1] if not _is(child, "COMMA")]
        )

    @staticmethod
    def computation(children: list[Any]) -> ComputationNode:
        parts = {child.type: child for child in children if isinstance(child, Token)}
        return ComputationNode(
            parts.get("ENTRY"),
            parts["NAME"],
            parts.get("SIGNATURE"),
            [child for child in children if isinstance(child, InstructionNode)],
            [child for child in children if _is(child, "ATTRIBUTE")],
        )

    @staticmethod
    def computations(children: list[ComputationNode]) -> list[ComputationNode]:
        return children

    @staticmethod
    def module(children: list[Any]) -> ModuleNode:
        parts = {child.type: child for child in children if isinstance(child, Token)}
        return ModuleNode(
            parts.get("MODULE"),
            [child for child in children if _is(child, "ATTRIBUTE")],
            parts.get("TABLES"),
            [child for child in children if isinstance(child, ComputationNode)],
        )


def _is(child: object, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


@cache
def _parser(start: str) -> Lark:
    """Return a parser of one rule alone: with several, they share what they expect in errors."""
    return Lark(
        read_grammar("hlo.lark"),
        parser="lalr",
        lexer=HloLexer,
        start=start,
        transformer=_Nodes(),
    )


def read_module(region: Region) -> ModuleNode:
    """Return the tree of a whole module; raises ParseError."""
    return _read(region, "module")  # type: ignore[no-any-return]


def read_instruction(region: Region) -> InstructionNode:
    """Return the tree of a single instruction; raises ParseError."""
    return _read(region, "single")  # type: ignore[no-any-return]


def read_computations(region: Region) -> list[ComputationNode]:
    """Return the trees of computations alone; raises ParseError."""
    return _read(region, "computations")  # type: ignore[no-any-return]


def _read(region: Region, start: str) -> Any:  # noqa: ANN401
    try:
        return _parser(start).parse(region)
    except Fault as fault:
        raise fault.located(region.source) from None
    except UnexpectedToken as error:
        raise explain(region, error) from None
