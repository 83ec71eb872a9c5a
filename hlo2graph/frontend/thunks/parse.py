"""Thunk-sequence text to a Plan: parse_plan(format_plan(plan)) == plan.

In: text as in grammars/thunks.lark. Out: a Plan whose slices lie in its allocations, whose HLO
computations are legal, and whose thunks fit the computations that they call. A text that has no
edge, and does not say `edges=none`, gets those that its hazards need; one that has edges keeps them
as they are. A text without an `arena` line gets its sizes measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lark import Token

from hlo2graph.errors import Note, ParseError, Source, Span, VerifyError
from hlo2graph.frontend.build import parse_computations
from hlo2graph.frontend.literals import read_literal
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.frontend.thunks.attributes import Attributes, Bytes, unquote
from hlo2graph.frontend.thunks.build import Builder
from hlo2graph.frontend.thunks.lines import AllocationLine, BoundLine, Text, span_of
from hlo2graph.frontend.thunks.syntax import read_text
from hlo2graph.frontend.verify import verify_calls, verify_computations
from hlo2graph.hlo import Computation, Literal, Shape
from hlo2graph.program.edges import with_edges
from hlo2graph.program.plan import Allocation, AllocationKind, ArenaSize, Bound, Plan
from hlo2graph.program.stats import measure_arena
from hlo2graph.program.text.plan import VERSION

_FIRST_WORD = re.compile(r"(?>\s++|//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)*+ThunkSequence\b")
_CONSTANT = re.compile(r"(\w+\[[^\]\n]*\](?:\{[^}\n]*\})?)\s*constant\s*\(")
_NOT_LINE_BREAK = re.compile(r"[^\r\n]")
_SETTINGS = ("version", "target", "fuse", "schedule", "edges")
_TARGET = re.compile(r"host|sm_[0-9]+[a-z]?")


def is_thunk_sequence(text: str) -> bool:
    """Tell whether the first word, behind comments, is `ThunkSequence`."""
    return _FIRST_WORD.match(text) is not None


def parse_plan(text: str, filename: str = "<string>") -> Plan:
    """Return the plan that thunk-sequence text describes.

    Raises ParseError or VerifyError.
    """
    source = Source(filename, text)
    found, computations = read_text(source)
    return _Reader(found, _computations(source, computations)).plan()


def _computations(source: Source, places: Sequence[tuple[int, int]]) -> dict[str, Computation]:
    """Read the HLO computations at `places`, which may call each other across what is between."""
    if not places:
        return {}
    text = source.text
    parts = [text[: places[0][0]]]
    for (start, end), (following, _) in pairwise(places):
        parts += (text[start:end], _NOT_LINE_BREAK.sub(" ", text[end:following]))
    parts.append(text[places[-1][0] :])
    readable = "".join(parts)
    if readable != text:
        source = Source(source.name, readable)
    found = parse_computations(source, places[0][0], places[-1][1])
    verify_computations(found)
    verify_calls(found)
    return found


class _Reader:
    """Turns a text's statements into a plan."""

    def __init__(self, text: Text, computations: Mapping[str, Computation]) -> None:
        self._text = text
        self._source = text.source
        self._shapes = ShapeReader()
        self._computations = computations
        self._allocations = tuple(map(self._allocation, range(len(text.allocations))))
        self._bytes = Bytes(text.source, self._allocations)

    def plan(self) -> Plan:
        """Return the plan."""
        text = self._text
        held = Attributes(self._bytes, text.head, text.settings, _SETTINGS)
        self._check_version(held)
        schedule = held.word("schedule", ("concurrent", "serialize"), "concurrent")
        inputs = self._bounds("parameter", text.parameters)
        outputs = self._bounds("result", text.results)
        self._check_parameters(inputs)
        builder = Builder(self._bytes, self._computations)
        params, results = (tuple(b.slice for b in bounds) for bounds in (inputs, outputs))
        body = builder.sequence(text.thunks, text.edges, params, results)
        if held.word("edges", ("none",), ""):
            if builder.edges:
                raise ParseError("edges=none, but there are edges", held.at("edges"))
        elif not builder.edges:
            body = with_edges(body, schedule=schedule)
        return Plan(
            name=self._name(text.name),
            target=held.matching("target", _TARGET, "host or sm_NN", "host"),
            fuse=held.word("fuse", ("none", "default"), "none"),
            schedule=schedule,
            allocations=self._allocations,
            computations=self._computations,
            inputs=inputs,
            outputs=outputs,
            body=body,
            arena=self._arena() or measure_arena(self._allocations, body),
            aliases=tuple(map(self._name, text.aliases)),
        )

    def _check_version(self, held: Attributes) -> None:
        version = held.number("version")
        if version is None:
            message = f"a thunk sequence says version={VERSION} behind its name"
            raise ParseError(message, held.at("version"))
        if version != VERSION:
            newer = "; a newer hlo2graph does" if version > VERSION else ""
            message = f"this is version {version}; this release reads version {VERSION}{newer}"
            raise ParseError(message, held.at("version"))

    def _allocation(self, position: int) -> Allocation:
        line = self._text.allocations[position]
        if int(line.index) != position:
            message = f"found allocation {line.index}, expected allocation {position} next"
            raise VerifyError(message, self._span(line.index))
        kind = AllocationKind(line.kind)
        if line.number is not None and kind is not AllocationKind.PARAMETER:
            raise ParseError(f"only a parameter has a number, not {kind}", self._span(line.number))
        literal = self._literal(line)
        owner = self._name(line.owner) if line.owner else ""
        return Allocation(int(line.size), kind, owner, literal)

    def _literal(self, line: AllocationLine) -> Literal | None:
        if line.constant is None:
            return None
        if line.kind != AllocationKind.CONSTANT:
            raise ParseError("only a constant has a value", self._span(line.constant))
        token = line.constant
        found = _CONSTANT.match(token)
        assert found, "the grammar's terminal has this form"
        shape = self._shape(token, found[1])
        if shape.size > int(line.size):
            message = f"{shape} has {shape.size} bytes, its allocation {line.size}"
            raise VerifyError(message, self._span(token))
        begins = (token.start_pos or 0) + found.end()
        try:
            literal = read_literal(token[found.end() : -1], shape, begins)
        except Fault as fault:
            raise fault.located(self._source, begins) from None
        assert isinstance(literal, Literal), "the shape is no tuple"
        return literal

    def _bounds(self, word: str, lines: Sequence[BoundLine]) -> tuple[Bound, ...]:
        found: list[Bound] = []
        for position, line in enumerate(lines):
            if int(line.number) != position:
                message = f"found {word} {line.number}, expected {word} {position} next"
                raise VerifyError(message, self._span(line.number))
            shape = self._shape(line.shape, str(line.shape))
            slice_ = self._bytes.read(line.slice, 0, str(line.slice))
            if slice_.size != shape.size:
                message = f"{shape} has {shape.size} bytes, not {slice_.size}"
                raise VerifyError(message, self._span(line.slice))
            found.append(Bound(self._name(line.name), shape, slice_))
        return tuple(found)

    def _check_parameters(self, inputs: tuple[Bound, ...]) -> None:
        """A parameter's bytes are in an allocation for parameters, which may say its number."""
        for line, bound in zip(self._text.parameters, inputs, strict=True):
            index = bound.slice.allocation
            kind = self._allocations[index].kind
            if kind is not AllocationKind.PARAMETER:
                message = f"a parameter lives in a parameter allocation, but {index} is {kind}"
                raise VerifyError(message, self._span(line.slice))
        for index, allocation in enumerate(self._text.allocations):
            number = allocation.number
            if number is None:
                continue
            if int(number) >= len(inputs) or inputs[int(number)].slice.allocation != index:
                message = f"parameter {number} is not in allocation {index}"
                raise VerifyError(message, self._span(number))

    def _arena(self) -> ArenaSize | None:
        if not self._text.arenas:
            return None
        head, size, *attributes = self._text.arenas[0]
        for other in self._text.arenas[1:]:
            note = Note("the first is here", self._span(head))
            raise ParseError("arena is given twice", self._span(other[0]), (note,))
        held = Attributes(self._bytes, head, tuple(attributes), ("lower_bound", "sum"))
        return ArenaSize(int(size), held.needed_number("lower_bound"), held.needed_number("sum"))

    def _shape(self, token: Token, text: str) -> Shape:
        """Return the shape that `token` begins with."""
        try:
            shape = self._shapes(text)
        except Fault as fault:
            raise fault.located(self._source, token.start_pos or 0) from None
        assert isinstance(shape, Shape), "the grammar lets no tuple through"
        return shape

    def _name(self, token: Token) -> str:
        return unquote(self._source, token, 0, str(token))

    def _span(self, token: Token) -> Span:
        return span_of(self._source, token)
