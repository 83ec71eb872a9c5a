"""One edge in words: the hazard, the bytes, whose they are, and what being rid of it would cost."""

from __future__ import annotations

from typing import Any, TypeAlias

from hlo2graph.hlo.metadata import source_line
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.inspect.figures import bytes_text, plural
from hlo2graph.program.edges import Conflict, conflicts_of
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.thunks import Edge, Hazard, Sequence, Slice, Thunk
from hlo2graph.program.uses import reads, writes

_SAYS = {
    Hazard.RAW: "{dst} reads what {src} writes",
    Hazard.WAR: "{dst} overwrites what {src} reads",
    Hazard.WAW: "{dst} overwrites what {src} writes",
    Hazard.CONTROL: "{dst} has {src} among its control-predecessors",
    Hazard.EFFECT: "both have side effects, which keep program order",
    Hazard.REUSE: "{dst} writes over bytes that {src} still uses, to save memory",
    Hazard.INPLACE: "{dst} writes its result over {place}, which {src} uses",
    Hazard.ORDER: "the serial schedule was asked for",
}

MOST_RANGES = 3  # beside the longest, that the text lists

_Conflicts: TypeAlias = dict[tuple[int, int], list[Conflict]]


class EdgeWords:
    """Describes edges of one plan; `tables` are the module's source tables."""

    def __init__(self, plan: Plan, tables: str = "") -> None:
        self._plan, self._tables = plan, tables
        self._conflicts: dict[int, _Conflicts] = {}  # by the id of the sequence

    def lines(self, sequence: Sequence[Slice], edge: Edge) -> list[str]:
        """Return the edge and its reason, where its thunks come from, and its price."""
        src, dst = sequence.thunks[edge.src], sequence.thunks[edge.dst]
        place = self._place(dst, edge)
        said = _SAYS[edge.hazard].format(src=src.name, dst=dst.name, place=place)
        found = [f"{src.name} -> {dst.name}   {self.bytes(sequence, edge)}", f"    {said}"]
        if self.cost(sequence, edge):
            found.append(f"    {self.price(sequence, edge)}")
        if line := source_line(self._tables, dst.metadata):
            found.append(f"    {dst.name} is at {line}")
        return found

    def bytes(self, sequence: Sequence[Slice], edge: Edge) -> str:
        """Return `raw 2[0:16], 16 B of the arena; and raw 2[64:80]`."""
        if edge.slice is None:
            return str(edge.hazard)
        of = self._owner(edge.slice)
        more = self.more(sequence, edge)
        listed = ", ".join(f"{hazard} {held}" for hazard, held in more[:MOST_RANGES])
        if rest := more[MOST_RANGES:]:
            size = bytes_text(sum(held.size for _, held in rest))
            listed += f", {plural(len(rest), 'range')} more of {size}"
        also = f"; and {listed}" if more else ""
        return f"{edge.hazard} {edge.slice}, {bytes_text(edge.slice.size)} of {of}{also}"

    def _owner(self, held: Slice) -> str:
        """Return whose the bytes are."""
        allocation = self._plan.allocations[held.allocation]
        if allocation.kind is AllocationKind.TEMP:
            return "the arena"
        return f"{allocation.kind} {allocation.owner}".strip()

    def _place(self, dst: Thunk[Slice], edge: Edge) -> str:
        """Return what `dst` overwrites that is not one of its own buffers."""
        if edge.slice is None or any(map(edge.slice.overlaps, reads(dst))):
            return "its operand"
        is_given = self._plan.allocations[edge.slice.allocation].kind is AllocationKind.PARAMETER
        return f"{self._owner(edge.slice)}{', given up' if is_given else ''}"

    def more(self, sequence: Sequence[Slice], edge: Edge) -> tuple[Conflict, ...]:
        """Return what else than the edge's bytes its thunks conflict about; no bytes twice."""
        conflicts = self._conflicts.get(id(sequence))
        if conflicts is None:
            conflicts = self._conflicts[id(sequence)] = conflicts_of(sequence.thunks)
        if edge.slice is None:
            return ()
        told = [edge.slice]
        found = []
        for hazard, held in conflicts.get((edge.src, edge.dst), ()):
            if not any(map(held.is_inside, told)):
                told.append(held)
                found.append((edge.hazard if edge.hazard in ARTEFACTS else hazard, held))
        return tuple(found)

    def cost(self, sequence: Sequence[Slice], edge: Edge) -> int:
        """Return the bytes that an artefact's value would take at a place of its own."""
        if edge.hazard not in (Hazard.REUSE, Hazard.INPLACE) or edge.slice is None:
            return 0
        made = writes(sequence.thunks[edge.dst])
        shared = (edge.slice, *(held for _, held in self.more(sequence, edge)))
        return sum(w.size for w in made if any(map(w.overlaps, shared)))

    def price(self, sequence: Sequence[Slice], edge: Edge) -> str:
        """Return what it would take to be rid of the edge."""
        size = bytes_text(self.cost(sequence, edge))
        return f"without this edge {sequence.thunks[edge.dst].name} needs {size} of its own"

    def json(self, sequence: Sequence[Slice], edge: Edge) -> dict[str, Any]:
        """Return the same for programs."""
        held = edge.slice
        return {
            "src": sequence.thunks[edge.src].name,
            "dst": sequence.thunks[edge.dst].name,
            "hazard": str(edge.hazard),
            "allocation": held.allocation if held else None,
            "offset": held.offset if held else None,
            "size": held.size if held else None,
            "more": [
                {
                    "hazard": str(hazard),
                    "allocation": also.allocation,
                    "offset": also.offset,
                    "size": also.size,
                }
                for hazard, also in self.more(sequence, edge)
            ],
            "artefact": edge.hazard in ARTEFACTS,
            "cost_bytes": self.cost(sequence, edge),
            "source": source_line(self._tables, sequence.thunks[edge.dst].metadata),
        }
