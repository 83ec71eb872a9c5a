"""Statements to sequences of thunks over slices, every size and name checked on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lark import Token

from hlo2graph.errors import Note, ParseError, Span, VerifyError
from hlo2graph.frontend.context import nearest
from hlo2graph.frontend.thunks.attributes import Attributes, Bytes, unquote
from hlo2graph.frontend.thunks.checks import (
    Surface,
    check_call,
    check_copy,
    check_fill,
    check_predicate,
    check_results,
    check_selector,
    surface,
)
from hlo2graph.frontend.thunks.lines import EdgeLine, NestedLines, ThunkLine, span_of
from hlo2graph.hlo import Computation
from hlo2graph.program.thunks import (
    Collective,
    Computing,
    Conditional,
    Copy,
    Edge,
    Fill,
    Hazard,
    Kernel,
    Library,
    Sequence,
    Slice,
    Thunk,
    While,
)

DEEPEST = 100  # loops and conditionals within each other

_ALLOWED = {
    "kernel": ("calls", "reads", "writes", "effect"),
    "library": ("calls", "reads", "writes", "workspace"),
    "collective": ("calls", "reads", "writes"),
    "copy": ("from", "to"),
    "fill": ("to", "bytes"),
    "while": ("state", "predicate", "trip_count"),
    "conditional": ("selector", "results"),
}
_WITHOUT_BYTES = (Hazard.CONTROL, Hazard.EFFECT, Hazard.ORDER)


@dataclass(slots=True)
class Builder:
    """Builds a plan's sequences; thunk ids are unique over all of them."""

    bytes: Bytes
    computations: Mapping[str, Computation]
    edges: int = 0  # how many have been read
    _ids: dict[str, Token] = field(default_factory=dict)
    _surfaces: dict[str, Surface] = field(default_factory=dict)

    def sequence(
        self,
        thunks: Iterable[ThunkLine],
        edges: Iterable[EdgeLine],
        params: tuple[Slice, ...],
        results: tuple[Slice, ...],
        depth: int = 0,
    ) -> Sequence[Slice]:
        """Return the thunks and edges as a sequence.

        Raises ParseError or VerifyError.
        """
        positions: dict[str, int] = {}
        names: dict[str, Token] = {}
        built: list[Thunk[Slice]] = []
        for line in thunks:
            self._enter(line, depth)
            thunk = self._thunk(line, depth)
            for name in thunk.after:
                if name not in names:
                    message = f"control-predecessors names {name}, no thunk before this one"
                    raise VerifyError(message, self._span(line.name), nearest(name, names))
            if thunk.name in names:
                self._twice(f"two thunks have the name {thunk.name}", line.name, names[thunk.name])
            names[thunk.name] = line.name
            positions[line.id] = len(built)
            built.append(thunk)
        found = tuple(self._edge(line, positions) for line in edges)
        self.edges += len(found)
        return Sequence(tuple(built), params, results, found)

    def _enter(self, line: ThunkLine, depth: int) -> None:
        if line.nested and depth >= DEEPEST:
            message = f"loops and conditionals are nested more than {DEEPEST} deep"
            raise ParseError(message, self._span(line.id))
        if line.id in self._ids:
            self._twice(f"two thunks have the id {line.id}", line.id, self._ids[line.id])
        self._ids[line.id] = line.id

    def _thunk(self, line: ThunkLine, depth: int) -> Thunk[Slice]:
        if line.kind not in _ALLOWED:
            message = f"{line.kind} is no kind of thunk"
            notes = nearest(line.kind, _ALLOWED) or (Note(f"the kinds are {', '.join(_ALLOWED)}"),)
            raise ParseError(message, self._span(line.kind), notes)
        allowed = (*_ALLOWED[line.kind], "control-predecessors", "metadata")
        held = Attributes(self.bytes, line.kind, line.attributes, allowed)
        if line.nested and line.kind not in ("while", "conditional"):
            raise ParseError(f"a {line.kind} has nothing nested", self._span(line.nested[0].label))
        match str(line.kind):
            case "copy" | "fill":
                return self._move(line, held)
            case "while":
                return self._while(line, held, depth)
            case "conditional":
                return self._conditional(line, held, depth)
            case _:
                return self._run(line, held)

    def _run(self, line: ThunkLine, held: Attributes) -> Computing[Slice]:
        name, after, metadata, span = self._common(line, held)
        called = self._call(held)
        match str(line.kind):
            case "kernel":
                return Kernel(name, *called, after, held.flag("effect"), metadata, span)
            case "library":
                workspace = held.slices("workspace")
                return Library(name, *called, workspace, after, metadata, span)
            case _:
                return Collective(name, *called, after, metadata, span)

    def _move(self, line: ThunkLine, held: Attributes) -> Copy[Slice] | Fill[Slice]:
        name, after, metadata, span = self._common(line, held)
        target = held.slice("to")
        if line.kind == "copy":
            source = held.slice("from")
            check_copy(source, target, held.at("to"))
            return Copy(name, source, target, after, metadata, span)
        pattern = held.pattern("bytes")
        check_fill(target, pattern, held.at("bytes"))
        return Fill(name, pattern, target, after, metadata, span)

    def _common(self, line: ThunkLine, held: Attributes) -> tuple[str, tuple[str, ...], str, Span]:
        """Return what every thunk has: name, control-predecessors, metadata, span."""
        source = self.bytes.source
        start = line.id.start_pos or 0
        last = line.attributes[-1] if line.attributes else line.name
        return (
            unquote(source, line.name, 0, str(line.name)),
            held.names("control-predecessors"),
            held.text("metadata"),
            Span(source, start, (last.start_pos or 0) + len(last)),
        )

    def _call(self, held: Attributes) -> tuple[str, tuple[Slice, ...], tuple[Slice, ...]]:
        name = held.name("calls")
        called = self._surfaces.get(name)
        if called is None:
            if name not in self.computations:
                message = f"there is no computation {name}"
                raise VerifyError(message, held.at("calls"), nearest(name, self.computations))
            called = self._surfaces[name] = surface(self.computations[name])
        reads, writes = held.slices("reads"), held.slices("writes")
        check_call(called, reads, writes, held)
        return name, reads, writes

    def _while(self, line: ThunkLine, held: Attributes, depth: int) -> While[Slice]:
        name, after, metadata, span = self._common(line, held)
        state, predicate = held.slices("state"), held.slice("predicate")
        check_predicate(predicate, held.at("predicate"))
        condition, body = self._blocks(line, ("condition", "body"))
        for block in (condition, body):
            Attributes(self.bytes, block.label, block.attributes, ())
        return While(
            name,
            state,
            state,
            self.sequence(condition.thunks, condition.edges, state, (predicate,), depth + 1),
            self.sequence(body.thunks, body.edges, state, state, depth + 1),
            held.number("trip_count"),
            after,
            metadata,
            span,
        )

    def _conditional(self, line: ThunkLine, held: Attributes, depth: int) -> Conditional[Slice]:
        name, after, metadata, span = self._common(line, held)
        selector, results = held.slice("selector"), held.slices("results")
        check_selector(selector, len(line.nested), held.at("selector"))
        labels = tuple(f"branch_{i}" for i in range(len(line.nested)))
        branches = []
        for block in self._blocks(line, labels):
            own = Attributes(self.bytes, block.label, block.attributes, ("results",))
            left = own.slices("results") if "results" in own else results
            check_results(left, results, own.at("results"))
            branches.append(self.sequence(block.thunks, block.edges, (), left, depth + 1))
        return Conditional(name, selector, tuple(branches), results, after, metadata, span)

    def _blocks(self, line: ThunkLine, labels: tuple[str, ...]) -> tuple[NestedLines, ...]:
        for block, label in zip(line.nested, labels, strict=False):
            if block.label != label:
                message = f"found {block.label}, expected {label} here"
                raise ParseError(message, self._span(block.label))
        if len(line.nested) != len(labels):
            message = f"a {line.kind} has {' and '.join(labels)}, in this order"
            raise ParseError(message, self._span(line.kind))
        return line.nested

    def _edge(self, line: EdgeLine, positions: Mapping[str, int]) -> Edge:
        src, dst = (self._end(token, positions) for token in (line.src, line.dst))
        if src >= dst:
            message = f"an edge leads forward, but {line.dst} does not come after {line.src}"
            raise VerifyError(message, self._span(line.dst))
        if line.hazard not in tuple(Hazard):
            message = f"{line.hazard} is no hazard"
            notes = nearest(line.hazard, Hazard) or (Note(f"the hazards are {', '.join(Hazard)}"),)
            raise ParseError(message, self._span(line.hazard), notes)
        hazard = Hazard(line.hazard)
        if line.slice is None:
            if hazard not in _WITHOUT_BYTES:
                message = f"{hazard} needs the bytes that both use, as in {hazard} 0[0:64]"
                raise ParseError(message, self._span(line.hazard))
            return Edge(src, dst, hazard)
        if hazard in _WITHOUT_BYTES:
            raise ParseError(f"{hazard} is about no bytes", self._span(line.slice))
        return Edge(src, dst, hazard, self.bytes.read(line.slice, 0, str(line.slice)))

    def _end(self, id: Token, positions: Mapping[str, int]) -> int:
        if id in positions:
            return positions[id]
        known = self._ids.get(id)
        if known is None:
            raise VerifyError(f"there is no thunk {id}", self._span(id), nearest(id, positions))
        message = f"{id} is in another sequence; an edge joins two thunks of one"
        raise VerifyError(message, self._span(id), (Note("defined here", self._span(known)),))

    def _twice(self, message: str, token: Token, first: Token) -> None:
        note = Note("the first is here", self._span(first))
        raise VerifyError(message, self._span(token), (note,))

    def _span(self, token: Token) -> Span:
        return span_of(self.bytes.source, token)
