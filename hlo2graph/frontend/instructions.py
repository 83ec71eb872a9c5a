"""Makes Instructions of the syntax tree's nodes, and checks the names in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn, cast

from hlo2graph.errors import HloError, Note, ParseError, Span
from hlo2graph.frontend.asynchronous import find_sugar, follow, write_out
from hlo2graph.frontend.attributes import AttributeReader
from hlo2graph.frontend.context import Context, Scope
from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.lexer import HOLDS_LITERAL
from hlo2graph.frontend.literals import read_literal
from hlo2graph.frontend.names import RESERVED, check_instruction_name
from hlo2graph.frontend.required import ARITY, missing
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.settled import SETTLED, assumed_shape, implied_shape, settled_shape
from hlo2graph.frontend.shapes import DEEPEST, MOST_ELEMENTS
from hlo2graph.frontend.structure import NEEDS_SHAPE, has_rule, structure_fault
from hlo2graph.frontend.syntax import CallNode, InstructionNode, NestedNode
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import (
    DTYPES,
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
_ASYNC = frozenset({"async-start", "async-update", "async-done"})
_MOST_LEAVES = 100_000  # of a tuple whose shape is not written
_REFERRING = frozenset({AttrKind.COMPUTATION, AttrKind.COMPUTATIONS, AttrKind.INSTRUCTIONS})


class InstructionReader:
    """Reads instructions; one serves a whole text."""

    def __init__(self, context: Context, nested: Callable[[NestedNode], str]) -> None:
        """`nested` reads a computation that stands in the place of its name, and returns one."""
        self._context = context
        self._attributes = AttributeReader(context, nested)
        self._started: dict[str, Instruction] = {}  # by the computation that they call

    def read(self, node: InstructionNode, scope: Scope) -> None:
        """Add the instruction of `node` to `scope`, after those nested in its operands."""
        name = node.name.text
        behind = self._context.source.text[node.name.start + len(name)]
        if behind in ":=" or name[0] == "_" or name in RESERVED:
            check_instruction_name(node.name, self._context)
        if name in scope.instructions:
            note = Note("defined here", scope.instructions[name].span)
            self._context.refuse(f"a second instruction is named {name}", node.name, note)
        call = node.call
        for argument in call.arguments:
            if argument.__class__ is CallNode:
                self._hoist(call, scope)
                break
        end = call.end
        if node.attributes:
            attrs: Mapping[str, Attribute] = self._attributes.read(
                node.attributes, call.opcode, scope
            )
            last = node.attributes[-1]
            end = (last if isinstance(last, Token) else last.name).end
        else:
            self._attributes.allowed(call.opcode)
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
        self._attributes.allowed(opcode)
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
            operands = self._operands(arguments, opcode, scope)
        elif opcode in HOLDS_LITERAL:
            self._context.refuse(f"expected a value in {opcode}()", call.opcode)
        if why := missing(opcode, attrs, len(operands)):
            raise ParseError(why, span)
        instr = Instruction(name, opcode, shape or _UNWRITTEN, operands, attrs, payload, span)
        if shape is None or opcode not in OPS:
            instr = self._completed(instr, call.opcode, scope)
        scope.instructions[name] = self._settled(instr, call.opcode, scope)

    def _settled(self, instr: Instruction, opcode: Token, scope: Scope) -> Instruction:
        """Return an instruction with the shape that it has, checked against its operands."""
        if has_rule(instr.opcode, instr.attrs):
            known = [scope.instructions[operand] for operand in instr.operands]
            if why := structure_fault(instr, known, self._context.computations):
                raise ParseError(why, instr.span)
        if opcode.text in SETTLED:
            shapes = [scope.instructions[operand].shape for operand in instr.operands]
            instr = replace(instr, shape=settled_shape(opcode.text, instr.shape, shapes))
        if instr.opcode in _ASYNC:
            self._check_async(instr, opcode, scope)
        if scope.is_open and instr.name in scope.instructions:
            self._context.refuse(f"{instr.name} is the name of an operand too", opcode)
        return instr

    def _check_async(self, instr: Instruction, opcode: Token, scope: Scope) -> None:
        """Check that starts call one computation each, and that what follows them agrees."""
        if instr.opcode == "async-start":
            calls = str(instr.attrs["calls"])
            other = self._started.setdefault(calls, instr)
            if other is not instr:
                note = Note("the other one", other.span)
                self._context.refuse(f"two async-starts call {calls}", opcode, note)
            scope.starts[instr.name] = instr
            return
        start = scope.starts[instr.operands[0]]
        sugar = find_sugar(opcode.text) if opcode.text not in OPS else None
        op = sugar.op if sugar else None
        if why := follow(instr, op, start, self._context):
            self._context.refuse(why, opcode)
        if instr.opcode == "async-update":
            scope.starts[instr.name] = start

    def _completed(self, instr: Instruction, opcode: Token, scope: Scope) -> Instruction:
        """Return the instruction written out in full, with the shape that it has."""
        sugar = find_sugar(instr.opcode)
        if sugar and instr.opcode not in OPS:
            if sugar.part == "start" and instr.shape is _UNWRITTEN:
                self._context.refuse(f"expected a shape before {instr.opcode}", opcode)
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
            if isinstance(shape, Shape) and not shape.dims and literal.text.strip() == "{...}":
                message = f"expected a value of type {shape.dtype}, found '{{...}}'"
                raise Fault(message, 0, len(literal.text))
            return read_literal(literal.text, shape, literal.start)
        except Fault as fault:
            raise fault.located(self._context.source, literal.start) from None

    def _operands(self, arguments: list[Token], opcode: str, scope: Scope) -> tuple[str, ...]:
        """Return the operands' names, each defined before and of the shape written with it."""
        known = scope.instructions
        names = []
        for operand in arguments:
            name = operand.text
            if name not in known:
                if opcode not in ARITY and not scope.is_open and self._is_no_operand(operand):
                    continue
                name = self._unknown(operand, scope)
            if operand.typed is not None:
                self._check_type(operand, known[name])
            names.append(name)
        return tuple(names)

    def _is_no_operand(self, token: Token) -> bool:
        """Tell whether a shape, a type or an opcode stands alone: XLA steps over it silently."""
        if token.type == "SHAPE":
            return True
        text = self._context.source.text
        is_type = token.text in DTYPES and token.typed is None and text[token.end] != ":"
        return (token.text in OPS or is_type) and text[token.start - 1] != "%"

    def _unknown(self, operand: Token, scope: Scope) -> str:
        """Return what an operand is that nothing defines; raise if that is nothing.

        In a single instruction it is a parameter, which may be a shape alone.
        """
        is_shape = operand.type == "SHAPE"
        if not scope.is_open:
            if is_shape:
                self._context.refuse("expected an operand's name behind this shape", operand)
            return self._element(operand, scope)
        if is_shape:
            name, shape = f"_{scope.parameters}", self._context.shape(operand.text, operand.start)
        elif operand.typed is None:
            message = f"expected a shape before {operand.text}, which is a parameter here"
            self._context.refuse(message, operand)
        else:
            start = self._context.source.text.rindex(operand.typed, 0, operand.start)
            name, shape = operand.text, self._context.shape(operand.typed, start)
        scope.instructions[name] = Instruction(
            name, "parameter", shape, payload=scope.parameters, span=self._context.span(operand)
        )
        scope.parameters += 1
        return name

    def _element(self, operand: Token, scope: Scope) -> str:
        """Return the get-tuple-element that `x#1` stands for; raise where there is no `x`."""
        name, _, index = operand.text.partition("#")
        found = scope.instructions.get(name)
        if not found:
            scope.refuse(name, operand, self._context)
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

    def _inferred(self, unwritten: Instruction, where: Token, scope: Scope) -> AnyShape:
        """Return the shape that follows from the operands, where none was written."""
        opcode = unwritten.opcode
        shapes = [scope.instructions[name].shape for name in unwritten.operands]
        if opcode in NEEDS_SHAPE:
            self._context.refuse(f"expected a shape before {opcode}", where)
        if assumed := assumed_shape(opcode, shapes):
            unwritten = replace(unwritten, shape=assumed)
        try:
            shape = implied_shape(unwritten, shapes)
            shape = shape or OPS[opcode].infer(unwritten, shapes, self._context.computations)
        except HloError as error:
            why = "" if str(_UNWRITTEN) in error.message else f": {error.message}"
            self._refuse_shape(opcode, where, why)
        self._check_inferred(shape, opcode, where)
        return shape

    def _check_inferred(self, shape: AnyShape, opcode: str, where: Token) -> None:
        """Hold a shape that nobody wrote to the limits of those written.

        A few short lines can make tuples of tuples with more leaves than memory.
        """
        if isinstance(shape, TupleShape):
            if shape.depth > DEEPEST:
                self._context.refuse(f"tuples are nested more than {DEEPEST} deep", where)
            if shape.leaf_count > _MOST_LEAVES:
                message = f"the tuple has {shape.leaf_count:,} leaves, more than {_MOST_LEAVES:,}"
                self._context.refuse(message, where)
        leaves = tuple(shape.leaves())
        if any(leaf is _UNWRITTEN for leaf in leaves):
            self._refuse_shape(opcode, where)
        if any(leaf.elements > MOST_ELEMENTS for leaf in leaves):
            self._context.refuse(f"{opcode} gives an array of 2^63 elements or more", where)

    def _refuse_shape(self, opcode: str, where: Token, why: str = "") -> NoReturn:
        self._context.refuse(
            f"expected a shape before {opcode}: none follows from the operands{why}", where
        )


def _parameter_number(text: str) -> int:
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)
    cursor = Cursor(text)
    number = cursor.integer("the parameter's number, 0 or more") if text.strip() else -1
    cursor.done()
    if number < 0:
        raise Fault("expected the parameter's number, 0 or more", 0, max(1, len(text)))
    return number
