"""What the page shows of a node and of an arrow when it is clicked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from hlo2graph.backends.cuda.kernels import kernels_of, key_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import Instruction, Literal, Module
from hlo2graph.hlo.metadata import op_name, source_line
from hlo2graph.hlo.printer import format_computation, format_instruction
from hlo2graph.inspect.explain.edges import EdgeWords
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.inspect.figures import bytes_text, plural, time_text
from hlo2graph.inspect.picture import Arrow, Node, Picture
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import (
    Collective,
    Edge,
    Kernel,
    Library,
    Sequence,
    Slice,
    Thunk,
    While,
)
from hlo2graph.program.uses import reads, writes

Json: TypeAlias = dict[str, Any]
LONGEST = 20_000  # characters of one text


MOST_ELEMENTS = 1000  # of a constant that is written out


class Texts:
    """Texts that many nodes share, each held once; a node refers to them by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text, cut where it is too long to be read."""
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}\n... {len(text) - LONGEST:,} characters more"
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """All texts in order."""
        return list(self._numbers)


class PlanDetails:
    """Describes thunks and edges of a plan; `module` is what it was made of, if that was HLO."""

    def __init__(self, plan: Plan, module: Module | None, texts: Texts) -> None:
        self._plan, self._texts = plan, texts
        self._tables = module.tables if module else ""
        self._words = EdgeWords(plan, self._tables)
        self._written = _instructions(module)
        self._thunks: dict[str, Thunk[Slice]] = {}
        self._ids: dict[str, str] = {}  # by name
        self._edges: dict[tuple[str, str], tuple[Sequence[Slice], Edge]] = {}
        self._note(number(plan.body))
        self._bodies: dict[str, int] = {}  # texts of computations
        self._kernels, self._no_kernels = _kernels(plan)

    def _note(self, numbered: Numbered) -> None:
        for id, thunk in numbered:
            self._thunks[f"t{id}"] = thunk
            self._ids.setdefault(thunk.name, f"t{id}")
            for _, inner in numbered.nested(id):
                self._note(inner)
        for edge in numbered.sequence.edges:
            ends = f"t{numbered.first + edge.src}", f"t{numbered.first + edge.dst}"
            self._edges[ends] = numbered.sequence, edge

    def thunk_ids(self, node: Node) -> list[str]:
        """Return the ids of the thunks that a node is drawn for, its own first.

        What belongs to the graph alone has none.
        """
        own = node.id
        if own not in self._thunks:
            known = (self._ids[name] for name in sorted(node.names) if name in self._ids)
            own = next(known, "")
        return list(dict.fromkeys(id for id in (own, *node.stands_for) if id in self._thunks))

    def node(self, node: Node) -> list[tuple[str, Any]]:
        """Return headings and what stands below: lines, or the number of a text."""
        ids = self.thunk_ids(node)
        if not ids:
            return [("About", [node.tooltip or "the graph's own: it computes nothing"])]
        id, thunk = ids[0], self._thunks[ids[0]]
        found: list[tuple[str, Any]] = [("Thunk", list(self._about(id, thunk, node)))]
        for title, slices in (("Reads", reads(thunk)), ("Writes", writes(thunk))):
            if slices:
                found.append((title, [self._slice(s) for s in slices]))
        return [*found, *self._code(thunk)]

    def _about(self, id: str, thunk: Thunk[Slice], node: Node) -> Iterator[str]:
        yield f"{id}: {kind_of(thunk)} {thunk.name}"
        if len(node.stands_for) > 1:
            yield f"one of {len(node.stands_for)} that are alike"
        if isinstance(thunk, While):
            times = "not known" if thunk.trip_count is None else plural(thunk.trip_count, "round")
            yield f"trip count: {times}"
        if name := op_name(thunk.metadata):
            yield f"op_name: {name}"
        if line := source_line(self._tables, thunk.metadata):
            yield f"source: {line}"
        if thunk.after:
            yield f"control-predecessors: {', '.join(thunk.after)}"
        if node.seconds:
            yield f"time: {time_text(node.seconds)}"

    def _slice(self, used: Slice) -> str:
        allocation = self._plan.allocations[used.allocation]
        is_arena = allocation.kind is AllocationKind.TEMP
        owner = "the arena" if is_arena else f"{allocation.kind} {allocation.owner}".strip()
        return f"{used}  {bytes_text(used.size)} of {owner}"

    def _code(self, thunk: Thunk[Slice]) -> Iterator[tuple[str, Any]]:
        if written := self._written.get(thunk.name):
            yield "HLO", self._texts.number(format_instruction(_light(written)))
        if not isinstance(thunk, Kernel | Library | Collective):
            return
        name = thunk.computation
        if name not in self._bodies:
            body = self._plan.computations[name]
            light = replace(body, instructions=tuple(map(_light, body.instructions)))
            self._bodies[name] = self._texts.number(format_computation(light))
        yield "Computation", self._bodies[name]
        if self._no_kernels:
            yield "CUDA C++", [self._no_kernels]
        else:
            yield "CUDA C++", self._texts.number(self._kernels[key_of(thunk)].text)

    def arrow(self, arrow: Arrow) -> tuple[list[str], bool]:
        """Return why an arrow is there, and whether only memory or a schedule asks for it."""
        found = self._edges.get((arrow.src, arrow.dst))
        if found is None:
            return [arrow.tooltip or arrow.label], arrow.reason in ARTEFACTS
        sequence, edge = found
        lines = [line.strip() for line in self._words.lines(sequence, edge)]
        is_artefact = edge.hazard in ARTEFACTS
        lines.append(
            "An artefact: the program does not ask for this order."
            if is_artefact
            else "The program itself asks for this order."
        )
        return lines, is_artefact


class ModuleDetails:
    """Describes instructions of a module."""

    def __init__(self, module: Module, picture: Picture, texts: Texts) -> None:
        self._tables, self._texts = module.tables, texts
        self._found: dict[str, Instruction] = {}
        by_path = {
            f"{computation.name}/{instr.name}": instr
            for computation in module.computations.values()
            for instr in computation.instructions
        }
        for node in picture.nodes:
            path = next((name for name in node.names if name in by_path), None)
            if path:
                self._found[node.id] = by_path[path]

    def thunk_ids(self, _: Node) -> list[str]:
        """Return none: an instruction is no thunk."""
        return []

    def node(self, node: Node) -> list[tuple[str, Any]]:
        """Return headings and what stands below; see PlanDetails."""
        instr = self._found.get(node.id)
        if instr is None:
            return [("About", [node.name])]
        metadata = str(instr.attrs.get("metadata", ""))
        lines = [f"{instr.opcode} {instr.name}"]
        if name := op_name(metadata):
            lines.append(f"op_name: {name}")
        if line := source_line(self._tables, metadata):
            lines.append(f"source: {line}")
        return [
            ("Instruction", lines),
            ("HLO", self._texts.number(format_instruction(_light(instr)))),
        ]

    def arrow(self, arrow: Arrow) -> tuple[list[str], bool]:
        """Return what flows along an arrow."""
        return [arrow.tooltip or arrow.label], False


def _light(instr: Instruction) -> Instruction:
    """Return an instruction without the values of a large constant."""
    held = instr.payload
    if isinstance(held, Literal) and held.shape.elements > MOST_ELEMENTS:
        return replace(instr, payload=Literal(held.shape, None))
    return instr


def _instructions(module: Module | None) -> Mapping[str, Instruction]:
    """Return instructions by name; of several of one name the entry's."""
    if module is None:
        return {}
    others = [c for name, c in module.computations.items() if name != module.entry_name]
    return {i.name: i for c in (*others, module.entry) for i in c.instructions}


def _kernels(plan: Plan) -> tuple[Mapping[Any, Any], str]:
    """Return the kernels, or why there are none."""
    try:
        check_support(plan)
        return kernels_of(plan), ""
    except UnsupportedError as error:
        return {}, f"{error.message}: there are no kernels"
