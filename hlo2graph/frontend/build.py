"""Makes a Module, or Computations alone, of the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hlo2graph.errors import Note, ParseError, Source, Span
from hlo2graph.frontend.context import Context, Scope
from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.header import read_aliases, read_header
from hlo2graph.frontend.instructions import InstructionReader
from hlo2graph.frontend.lexer import Region, is_instruction
from hlo2graph.frontend.names import check_name
from hlo2graph.frontend.scan import Fault, shown
from hlo2graph.frontend.signature import result_shape
from hlo2graph.frontend.syntax import (
    ComputationNode,
    InstructionNode,
    ModuleNode,
    NestedNode,
    read_computations,
    read_instruction,
    read_module,
)
from hlo2graph.frontend.tables import check_tables
from hlo2graph.frontend.token import Token
from hlo2graph.frontend.values import read_value
from hlo2graph.hlo import AnyShape, Computation, Instruction, Module, TupleShape

_DEEPEST = 32
_NAMELESS = "_"  # what XLA calls a computation without a name, a number behind it where taken


class ComputationReader:
    """Reads computations in order, each of which may call those before it."""

    def __init__(self, source: Source, nodes: list[ComputationNode]) -> None:
        self.context = Context(source)
        self._instructions = InstructionReader(self.context, self._nested)
        self._nodes = nodes
        self._depth = 0  # of computations in the place of their names
        for node in nodes:
            self.context.later.setdefault(node.name.text, node.name)

    def read(self) -> dict[str, Computation]:
        """Return the computations by name; raises ParseError."""
        for node in self._nodes:
            self._computation(node)
        return self.context.computations

    def _computation(self, node: ComputationNode) -> None:
        name = node.name.text
        known = self.context.computations.get(name)
        if known:
            note = Note("defined here", known.span)
            self.context.refuse(f"a second computation is named {name}", node.name, note)
        check_name(node.name, self.context)
        computation = Computation(
            name,
            *self.body(node.instructions, name),
            self._thread(node.attributes),
            self.context.span(node.name),
        )
        if node.signature:
            self._check_signature(node.signature, computation)
        self.context.computations[name] = computation

    def _nested(self, node: NestedNode) -> str:
        if self._depth == _DEEPEST:
            self.context.refuse(f"computations are nested more than {_DEEPEST} deep", node.name)
        self._depth += 1
        body = self.body(node.instructions, _NAMELESS)  # which may have others in it
        name = self.context.unused(_NAMELESS)
        span = self.context.span(node.name)
        self.context.computations[name] = Computation(name, *body, span=span)
        self._depth -= 1
        return name

    def body(
        self, nodes: list[InstructionNode], called: str, *, is_open: bool = False
    ) -> tuple[tuple[Instruction, ...], str]:
        """Return the instructions and the name of the root of the computation `called` this.

        Where it `is_open`, operands that nothing defines are parameters.
        """
        scope = Scope(nodes, is_open=is_open)
        root: Token | None = None
        for node in nodes:
            if node.root:
                if root:
                    note = Note("the first one", self.context.span(root))
                    self.context.refuse("a computation has only one ROOT", node.root, note)
                root = node.name
            self._instructions.read(node, scope)
        self._check_numbers(scope.instructions.values(), called)
        name = root.text if root else nodes[-1].name.text
        return tuple(scope.instructions.values()), name

    def _check_numbers(self, instructions: Iterable[Instruction], name: str) -> None:
        """Check that the parameters are numbered from 0 on, each once."""
        numbered: dict[int, Instruction] = {}
        for instr in instructions:
            if instr.opcode == "parameter":
                assert isinstance(instr.payload, int)
                other = numbered.setdefault(instr.payload, instr)
                if other is not instr:
                    message = f"two parameters have the number {instr.payload}"
                    raise ParseError(message, instr.span, (Note("the other one", other.span),))
        for expected, number in enumerate(sorted(numbered)):
            if number != expected:
                message = f"{name} has a parameter {number}, but no parameter {expected}"
                raise ParseError(message, numbered[number].span)

    def _thread(self, attributes: list[Token]) -> str | None:
        thread: str | None = None
        for where in attributes:
            name, _, text = where.text.partition("=")
            if name != "execution_thread" or thread is not None:
                self.context.refuse(
                    f"a computation has no attribute {name} but one execution_thread", where
                )
            try:
                thread = str(
                    read_value("async_execution_thread", text.strip(), self.context.shapes)
                )
            except Fault as fault:
                raise fault.located(self.context.source, where.start + len(name) + 1) from None
        return thread

    def _check_signature(self, signature: Token, computation: Computation) -> None:
        try:
            written, at = result_shape(signature.text, self.context.shapes)
        except Fault as fault:
            raise fault.located(self.context.source, signature.start) from None
        root = computation.result
        if not written.compatible(root.shape):
            raise ParseError(
                f"{computation.name} is said to return {written}, but its root {root.name} "
                f"is {root.shape}",
                Span(self.context.source, signature.start + at, signature.end),
                (Note("the root", root.span),),
            )


def build_module(source: Source, node: ModuleNode) -> Module:
    """Return the module of a tree; raises ParseError."""
    reader = ComputationReader(source, node.computations)
    first = node.computations[0]
    if not node.name and not first.entry and first.signature:
        message = "expected a line 'HloModule name' before the first computation"
        reader.context.refuse(message, first.name)
    if node.name:
        check_name(node.name, reader.context)
    attrs = read_header(node.attributes, reader.context)
    entry = _entry(reader.context, node.computations)
    computations = reader.read()
    name = node.name.text if node.name else f"module_{entry.text}"
    tables = node.tables.text if node.tables else ""
    if node.tables:
        try:
            check_tables(tables)
        except Fault as fault:
            raise fault.located(source, node.tables.start) from None
    span = reader.context.span(node.name or entry)
    for token in node.attributes:
        if token.text.startswith("input_output_alias="):
            _check_aliases(attrs, computations[entry.text].result.shape, token, reader.context)
    return Module(name, computations, entry.text, attrs, tables, span)


def _check_aliases(
    attrs: Mapping[str, str], result: AnyShape, where: Token, context: Context
) -> None:
    """Check that each alias is of a part that the result has."""
    for alias in read_aliases(Cursor(attrs["input_output_alias"])):
        part = result
        for index in alias.output_index:
            parts = part.parts if isinstance(part, TupleShape) else ()
            if not 0 <= index < len(parts):
                known = result.without_layout_text()
                message = f"input_output_alias names a part that the result {known} lacks: "
                context.refuse(f"{message}{shown(str(alias))}", where)
            part = parts[index]


def _entry(context: Context, nodes: list[ComputationNode]) -> Token:
    marked = [node for node in nodes if node.entry]
    for second in marked[1:]:
        note = Note("the first one", context.span(marked[0].name))
        context.refuse("a module has only one ENTRY computation", second.name, note)
    return (marked or nodes)[-1].name


def _single(source: Source, node: InstructionNode) -> Module:
    """Return the module of one instruction, whose operands are the parameters."""
    reader = ComputationReader(source, [])
    reader.context.later[_NAMELESS] = node.name
    instructions, root = reader.body([node], _NAMELESS, is_open=True)
    span = reader.context.span(node.name)
    entry = Computation(_NAMELESS, instructions, root, span=span)
    computations = reader.context.computations | {entry.name: entry}
    return Module("_", computations, entry.name, {"is_scheduled": "true"}, span=span)


def parse_computations(source: Source, start: int, end: int) -> dict[str, Computation]:
    """Return the computations in `source.text[start:end]` by name; raises ParseError."""
    return ComputationReader(source, read_computations(Region(source, start, end))).read()


def parse_module(source: Source, start: int, end: int) -> Module:
    """Return the module in `source.text[start:end]`; raises ParseError."""
    if is_instruction(source.text, start, end):
        return _single(source, read_instruction(Region(source, start, end, is_instruction=True)))
    return build_module(source, read_module(Region(source, start, end)))
