"""What the reading of a text, and of one computation in it, knows throughout."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from hlo2graph.errors import Note, ParseError, Source, Span
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.frontend.syntax import InstructionNode
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import AnyShape, Computation, Instruction

_FARTHEST = 3  # how much longer or shorter a name may be than one that was meant
_MOST_COMPARED = 1000


@dataclass(slots=True)
class Context:
    """The source, the shapes seen, and the computations read so far.

    `later` are the names of computations further down, for telling a late definition from none.
    """

    source: Source
    computations: dict[str, Computation] = field(default_factory=dict)
    later: dict[str, Token] = field(default_factory=dict)
    shapes: ShapeReader = field(default_factory=ShapeReader)

    def span(self, token: Token) -> Span:
        """Return the span of a token's text."""
        return Span(self.source, token.start, token.end)

    def refuse(self, message: str, where: Token, *notes: Note) -> NoReturn:
        """Raise a ParseError at a token."""
        raise ParseError(message, self.span(where), notes)

    def unused(self, wanted: str) -> str:
        """Return a name for one more computation: `wanted`, or with a number behind it."""
        name = wanted
        count = 0
        while name in self.computations or name in self.later:
            count += 1
            name = f"{wanted}.{count}"
        return name

    def shape(self, text: str, start: int) -> AnyShape:
        """Return the shape written as `text` at `start`."""
        try:
            return self.shapes(text)
        except Fault as fault:
            raise fault.located(self.source, start) from None


def nearest(name: str, known: Iterable[str]) -> tuple[Note, ...]:
    """Return a note with the names most like `name`, if any are."""
    alike = [other for other in known if abs(len(other) - len(name)) <= _FARTHEST]
    found = difflib.get_close_matches(name, alike[-_MOST_COMPARED:], 3)
    return (Note(f"did you mean {' or '.join(found)}?"),) if found else ()


@dataclass(slots=True)
class Scope:
    """A computation that is being read: its instructions so far.

    In one that `is_open`, operands that nothing defines are parameters.
    """

    nodes: list[InstructionNode]
    is_open: bool = False
    parameters: int = 0  # that operands of an open one are so far
    starts: dict[str, Instruction] = field(default_factory=dict)  # of async ops, by name
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

    def refuse(self, name: str, where: Token, context: Context) -> NoReturn:
        """Raise the error that `name` is not defined by now."""
        later = self.definition(name)
        if later:
            note = Note("defined here", context.span(later))
            context.refuse(f"{name} is used before it is defined", where, note)
        context.refuse(
            f"no instruction here is named {name}", where, *nearest(name, self.instructions)
        )
