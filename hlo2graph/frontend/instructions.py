"""Makes Instructions of the syntax tree's nodes, and checks the names in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, cast

from hlo2graph.errors import HloError, Note, ParseError, Span
from hlo2graph.frontend.allowed import ALLOWED_ATTRS
from hlo2graph.frontend.asynchronous import find_sugar, write_out
from hlo2graph.frontend.context import Context, nearest
from hlo2graph.frontend.lexer import HOLDS_LITERAL, Token
from hlo2graph.frontend.literals import read_literal
from hlo2graph.frontend.scan import Fault, skip_blank
from hlo2graph.frontend.syntax import CallNode, InstructionNode, NestedNode
from hlo2graph.frontend.values import integer, read_value
from hlo2graph.hlo import (
    DTYPES,
    KINDS,
    AnyLiteral,
    AnyShape,
    Attribute,
    AttrKind,
    Instruction,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.module import NO_ATTRS
from hlo2graph.ops import OPS

_UNWRITTEN = Shape(DTYPES["opaque"])  # stands for a shape until it is inferred
_KEYWORDS = frozenset({"ROOT", "ENTRY", "HloModule", "true", "false", "inf", "nan"})
RESERVED = frozenset(DTYPES) | _KEYWORDS
_REFERRING = frozenset({AttrKind.COMPUTATION, AttrKind.COMPUTATIONS, AttrKind.INSTRUCTIONS})


@dataclass(slots=True)
class Scope:
    """A computation that is being read: its instructions so far."""

    nodes: list[InstructionNode]
    instructions: dict[str, Instruction] = field(default_factory=dict)
    anonymous: dict[str, int] = field(default_factory=dict)

    def unused(self, wanted: str) -> str:
        """Return `wanted`, or with a number behind it where that name is taken."""
        if not self.anonymous:
            self.anonymous.update((node.name.text, 0) for node in self.nodes)
        name = wanted
        while name in self.anonymous:
            self.anonymous[wanted] += 1
            name = f"{wanted}.{self.anonymous[wanted]}"
        self.anonymous[name] = 0
        return name

    def definition(self, name: str) -> Token | None:
        """Return where the text defines `name`."""
        return next((node.name for node in self.nodes if node.name.text == name), None)


@dataclass(frozen=True, slots=True)
class _Read:
    """An attribute, read once for all places where its text stands."""

    name: str
    value: Attribute
    refers: bool  # it names computations or instructions


class InstructionReader:
    """Reads instructions; one serves a whole text."""

    def __init__(self, context: Context, nested: Callable[[NestedNode, str], str]) -> None:
        """`nested` reads a computation that stands in the place of its name, and returns one."""
        self._context = context
        self._nested = nested
        self._attributes: dict[str, _Read] = {}

    def read(self, node: InstructionNode, scope: Scope) -> None:
        """Add the instruction of `node` to `scope`, after those nested in its operands."""
        name = node.name.text
        if name in scope.instructions or (
            name in RESERVED and is_reserved(self._context, node.name)
        ):
            self._refuse_name(node.name, scope)
        call = node.call
        for argument in call.arguments:
            if argument.__class__ is CallNode:
                self._hoist(call, scope)
                break
        end = call.end
        if node.attributes:
            attrs: Mapping[str, Attribute] = self._attrs(node, scope)
            last = node.attributes[-1]
            end = (last.name if isinstance(last, NestedNode) else last).end
        else:
            self._allowed(call.opcode)
            attrs = NO_ATTRS
        span = Span(self._context.source, node.name.start, end)
        self._add(name, call, attrs, span, scope)

    def _hoist(self, call: CallNode, scope: Scope) -> None:
        """Make instructions of all calls in `call`'s operands, innermost first; name them there."""
        pending = [(call, 0)]
        while pending:
            outer, index = pending.pop()
            while index < len(outer.arguments):
                argument = outer.arguments[index]
                if isinstance(argument, CallNode):
                    pending += [(outer, index), (argument, 0)]
                    break
                index += 1
            else:
                if outer is not call:
                    parent, place = pending[-1]
                    parent.arguments[place] = self._anonymous(outer, scope)

    def _anonymous(self, call: CallNode, scope: Scope) -> Token:
        opcode = call.opcode
        name = scope.unused(f"{opcode.text}.anon")
        start = (call.shape or opcode).start
        self._add(name, call, NO_ATTRS, Span(self._context.source, start, call.end), scope)
        return Token("OPERAND", name, start)

    def _add(
        self, name: str, call: CallNode, attrs: Mapping[str, Attribute], span: Span, scope: Scope
    ) -> None:
        opcode = call.opcode.text
        shape = self._context.shape(call.shape.text, call.shape.start) if call.shape else None
        payload: int | AnyLiteral | None = None
        operands: tuple[str, ...] = ()
        arguments = cast("list[Token]", call.arguments)  # no call is left in them
        if arguments and arguments[0].type == "LITERAL":
            payload = self._payload(call.opcode, arguments[0], shape)
        elif arguments:
            operands = self._operands(arguments, scope)
        elif opcode in HOLDS_LITERAL:
            self._context.refuse(f"expected a value in {opcode}()", call.opcode)
        if shape is None or opcode not in OPS:
            unfinished = Instruction(
                name, opcode, shape or _UNWRITTEN, operands, attrs, payload, span
            )
            scope.instructions[name] = self._completed(unfinished, call.opcode, scope)
            return
        scope.instructions[name] = Instruction(name, opcode, shape, operands, attrs, payload, span)

    def _completed(self, instr: Instruction, opcode: Token, scope: Scope) -> Instruction:
        """Return the instruction written out in full, with the shape that it has."""
        sugar = find_sugar(instr.opcode)
        if sugar and instr.opcode not in OPS:
            operands = [scope.instructions[name] for name in instr.operands]
            instr = write_out(instr, sugar, operands, self._context, opcode)
        if instr.shape is _UNWRITTEN:
            instr = replace(instr, shape=self._inferred(instr, opcode, scope))
        return instr

    def _payload(self, opcode: Token, literal: Token, shape: AnyShape | None) -> int | AnyLiteral:
        if shape is None:
            self._context.refuse(f"expected a shape before {opcode.text}", opcode)
        try:
            if opcode.text == "parameter":
                return _parameter_number(literal.text)
            return read_literal(literal.text, shape)
        except Fault as fault:
            raise fault.located(self._context.source, literal.start) from None

    def _operands(self, arguments: list[Token], scope: Scope) -> tuple[str, ...]:
        """Return the operands' names, each defined before and of the shape written with it."""
        known = scope.instructions
        names = []
        for operand in arguments:
            name = operand.text
            if name not in known:
                name = self._element(operand, scope)
            if operand.typed is not None:
                self._check_type(operand, known[name])
            names.append(name)
        return tuple(names)

    def _element(self, operand: Token, scope: Scope) -> str:
        """Return the get-tuple-element that `x#1` stands for; raise where there is no `x`."""
        name, _, index = operand.text.partition("#")
        found = scope.instructions.get(name)
        if not found:
            self._refuse_operand(operand, name, scope)
        parts = found.shape.parts if isinstance(found.shape, TupleShape) else ()
        if not index or int(index) >= len(parts):
            self._context.refuse(
                f"{name} has no element {index}: its shape is {found.shape}", operand
            )
        element = scope.unused(f"get-tuple-element.{name}.{index}")
        scope.instructions[element] = Instruction(
            element,
            "get-tuple-element",
            parts[int(index)],
            (name,),
            {"index": int(index)},
            span=self._context.span(operand),
        )
        return element

    def _check_type(self, operand: Token, defined: Instruction) -> None:
        assert operand.typed is not None
        start = self._context.source.text.rindex(operand.typed, 0, operand.start)
        written = self._context.shape(operand.typed, start)
        if written is not defined.shape and not written.compatible(defined.shape):
            raise ParseError(
                f"operand {operand.text} is said to be {written}, but is {defined.shape}",
                Span(self._context.source, start, operand.end),
                (Note("defined here", defined.span),),
            )

    def _attrs(self, node: InstructionNode, scope: Scope) -> dict[str, Attribute]:
        allowed = self._allowed(node.call.opcode)
        attrs: dict[str, Attribute] = {}
        for attribute in node.attributes:
            if isinstance(attribute, NestedNode):
                where = attribute.name
                read = self._read_nested(attribute, node.name.text)
            else:
                where = attribute
                read = self._attributes.get(where.text) or self._read_attribute(where)
                if read.refers:
                    self._check_names(read, where, scope)
            name = read.name
            if name not in allowed:
                self._refuse_attribute(name, where, node.call.opcode, allowed)
            if name in attrs:
                self._context.refuse(f"attribute {name} is given twice", where)
            attrs[name] = read.value
        return attrs

    def _read_attribute(self, token: Token) -> _Read:
        text = token.text
        name = text.partition("=")[0]
        at = skip_blank(text, len(name) + 1, len(text))
        if name not in KINDS:
            self._context.refuse(f"unknown attribute {name}", token, *nearest(name, KINDS))
        try:
            value = read_value(name, text[at:], self._context.shapes)
        except Fault as fault:
            raise fault.located(self._context.source, token.start + at) from None
        read = _Read(name, value, KINDS[name] in _REFERRING)
        self._attributes[text] = read
        return read

    def _read_nested(self, nested: NestedNode, owner: str) -> _Read:
        name = nested.name.text.partition("=")[0]
        return _Read(name, self._nested(nested, f"{owner}.{name}"), False)

    def _check_names(self, read: _Read, where: Token, scope: Scope) -> None:
        """Check that the computations or instructions named by an attribute exist by now."""
        names = (read.value,) if isinstance(read.value, str) else read.value
        assert isinstance(names, tuple)
        is_computation = KINDS[read.name] is not AttrKind.INSTRUCTIONS
        known = self._context.computations if is_computation else scope.instructions
        for name in names:
            assert isinstance(name, str)
            if name not in known:
                if is_computation:
                    self._refuse_computation(name, where)
                self._refuse_operand(where, name, scope)

    def _allowed(self, opcode: Token) -> frozenset[str]:
        allowed = ALLOWED_ATTRS.get(opcode.text)
        if allowed is not None:
            return allowed
        sugar = find_sugar(opcode.text)
        if not sugar:
            message = f"unknown opcode {opcode.text}"
            self._context.refuse(message, opcode, *nearest(opcode.text, OPS))
        return sugar.attrs

    def _inferred(self, unwritten: Instruction, where: Token, scope: Scope) -> AnyShape:
        """Return the shape that follows from the operands, where none was written."""
        opcode = unwritten.opcode
        shapes = [scope.instructions[name].shape for name in unwritten.operands]
        try:
            shape = OPS[opcode].infer(unwritten, shapes, self._context.computations)
        except HloError as error:
            self._context.refuse(
                f"the shape of this {opcode} has to be written, it does not follow from the "
                f"operands: {error.message}",
                where,
            )
        if _UNWRITTEN in shape.leaves():
            self._context.refuse(f"the shape of this {opcode} has to be written before it", where)
        return shape

    def _refuse_name(self, name: Token, scope: Scope) -> NoReturn:
        text = name.text
        if is_reserved(self._context, name):
            kind = "an element type" if text in DTYPES else "a word of the language"
            self._context.refuse(f"{text} is {kind} and cannot be a name", name)
        note = Note("defined here", scope.instructions[text].span)
        self._context.refuse(f"a second instruction is named {text}", name, note)

    def _refuse_operand(self, where: Token, name: str, scope: Scope) -> NoReturn:
        later = scope.definition(name)
        if later:
            note = Note("defined here", self._context.span(later))
            self._context.refuse(f"{name} is used before it is defined", where, note)
        self._context.refuse(
            f"no instruction here is named {name}", where, *nearest(name, scope.instructions)
        )

    def _refuse_computation(self, name: str, where: Token) -> NoReturn:
        later = self._context.later.get(name)
        if later:
            note = Note("defined here", self._context.span(later))
            message = f"computation {name} is called before it is defined"
            self._context.refuse(message, where, note)
        self._context.refuse(
            f"no computation is named {name}", where, *nearest(name, self._context.computations)
        )

    def _refuse_attribute(
        self, name: str, where: Token, opcode: Token, allowed: Collection[str]
    ) -> NoReturn:
        notes = nearest(name, allowed) or (Note(f"it may have {', '.join(sorted(allowed))}"),)
        self._context.refuse(f"{opcode.text} has no attribute {name}", where, *notes)


def is_reserved(context: Context, name: Token) -> bool:
    """The name is an element type, or a word of the language without a '%'."""
    bare = name.start == 0 or context.source.text[name.start - 1] != "%"
    return name.text in DTYPES or (bare and name.text in _KEYWORDS)


def _parameter_number(text: str) -> int:
    try:
        number = integer(text.strip())
    except Fault:
        number = -1
    if number < 0:
        raise Fault("expected the parameter's number, 0 or more", 0, max(1, len(text)))
    return number
