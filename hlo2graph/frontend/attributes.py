"""Reads an instruction's attributes, each distinct text once, and checks the names in them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn

from hlo2graph.errors import Note
from hlo2graph.frontend.allowed import ALLOWED_ATTRS
from hlo2graph.frontend.asynchronous import find_sugar
from hlo2graph.frontend.context import Context, Scope, nearest
from hlo2graph.frontend.scan import Fault, skip_blank
from hlo2graph.frontend.syntax import AttributeNode, ListedNode, NestedNode
from hlo2graph.frontend.token import Token
from hlo2graph.frontend.values import read_value
from hlo2graph.hlo import KINDS, Attribute, AttrKind
from hlo2graph.ops import OPS

_REFERRING = frozenset({AttrKind.COMPUTATION, AttrKind.COMPUTATIONS, AttrKind.INSTRUCTIONS})


@dataclass(frozen=True, slots=True)
class _Read:
    """An attribute, read once for all places where its text stands."""

    name: str
    value: Attribute
    refers: bool  # it names computations or instructions


class AttributeReader:
    """Reads attributes; one serves a whole text."""

    def __init__(self, context: Context, nested: Callable[[NestedNode], str]) -> None:
        """`nested` reads a computation that stands in the place of its name, and returns one."""
        self._context = context
        self._nested = nested
        self._known: dict[str, _Read] = {}

    def read(self, nodes: list[AttributeNode], opcode: Token, scope: Scope) -> dict[str, Attribute]:
        """Return the attributes of an instruction."""
        allowed = self.allowed(opcode)
        attrs: dict[str, Attribute] = {}
        for node in nodes:
            if isinstance(node, Token):
                where = node
                read = self._known.get(node.text) or self._read(node, opcode, allowed)
                if read.refers:
                    self._check_names(read, node, scope)
            else:
                where = node.name
                read = self._read_nested(node)
            name = read.name
            if name not in allowed:
                self._refuse(name, where, opcode, allowed)
            if name in attrs:
                self._context.refuse(f"attribute {name} is given twice", where)
            attrs[name] = read.value
        return attrs

    def allowed(self, opcode: Token) -> frozenset[str]:
        """Return the attributes that an opcode may have; refuse an opcode that there is not."""
        allowed = ALLOWED_ATTRS.get(opcode.text)
        if allowed is not None:
            return allowed
        sugar = find_sugar(opcode.text)
        if not sugar:
            message = f"unknown opcode {opcode.text}"
            self._context.refuse(message, opcode, *nearest(opcode.text, OPS))
        return sugar.attrs

    def _read(self, token: Token, opcode: Token, allowed: Collection[str]) -> _Read:
        text = token.text
        name = text.partition("=")[0]
        if name not in allowed:
            self._refuse(name, token, opcode, allowed)
        at = skip_blank(text, len(name) + 1, len(text))
        try:
            value = read_value(name, text[at:], self._context.shapes)
        except Fault as fault:
            raise fault.located(self._context.source, token.start + at) from None
        read = _Read(name, value, KINDS[name] in _REFERRING)
        self._known[text] = read
        return read

    def _read_nested(self, node: NestedNode | ListedNode) -> _Read:
        name = node.name.text.partition("=")[0]
        if isinstance(node, NestedNode):
            return _Read(name, self._nested(node), refers=False)
        return _Read(name, tuple(map(self._listed, node.computations)), refers=False)

    def _listed(self, computation: Token | NestedNode) -> str:
        if isinstance(computation, NestedNode):
            return self._nested(computation)
        if computation.text not in self._context.computations:
            self._refuse_computation(computation.text, computation)
        return computation.text

    def _check_names(self, read: _Read, where: Token, scope: Scope) -> None:
        """Check that the computations or instructions named by an attribute exist by now."""
        names = (read.value,) if isinstance(read.value, str) else read.value
        assert isinstance(names, tuple)
        for name in names:
            assert isinstance(name, str)
            if KINDS[read.name] is AttrKind.INSTRUCTIONS:
                if name not in scope.instructions:
                    scope.refuse(name, where, self._context)
            elif name not in self._context.computations:
                self._refuse_computation(name, where)

    def _refuse_computation(self, name: str, where: Token) -> NoReturn:
        later = self._context.later.get(name)
        if later:
            note = Note("defined here", self._context.span(later))
            message = f"computation {name} is called before it is defined"
            self._context.refuse(message, where, note)
        self._context.refuse(
            f"no computation is named {name}", where, *nearest(name, self._context.computations)
        )

    def _refuse(self, name: str, where: Token, opcode: Token, allowed: Collection[str]) -> NoReturn:
        notes = nearest(name, allowed) or (Note(f"it may have {', '.join(sorted(allowed))}"),)
        self._context.refuse(f"{opcode.text} has no attribute {name}", where, *notes)
