"""XLA's graphs and our plans of the same program in numbers, to stand side by side.

Edges and thunks are counted in all, those of loops and branches too; width and path are the
entry's, where a loop is one thunk. Graphs that XLA launches one after the other add up to its path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hlo2graph.frontend.xla_dump import Printed, XlaBuffers, XlaThunk
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.inspect.xla_graph.graph import Mode, XlaGraph, build_xla_edges, nodes_of, segments
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats
from hlo2graph.program.thunks import Edge, Hazard, Slice
from hlo2graph.program.thunks import Sequence as Thunks
from hlo2graph.program.uses import nested


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run the program.

    graphs: CUDA graphs that are launched or nested, None for ours, which is always one.
    temp_bytes: what its temporaries take.
    is_nested: some of its thunks are those of loops or branches.
    """

    label: str
    thunks: int
    graphs: int
    edges: int
    by_hazard: Mapping[Hazard, int]
    width: int
    path: int
    temp_bytes: int
    is_nested: bool = False

    @property
    def false(self) -> int:
        """How many edges the program does not ask for."""
        return sum(count for hazard, count in self.by_hazard.items() if hazard in ARTEFACTS)


def xla_side(
    label: str,
    graphs: Sequence[XlaGraph],
    entry: Sequence[XlaThunk],
    printed: Sequence[Printed] | None,
    buffers: XlaBuffers,
    mode: Mode,
) -> Side:
    """Return the figures of XLA's graphs; `entry` are the thunks of the outermost sequence."""
    counts = Counter(edge.hazard for graph in graphs for edge in graph.edges)
    width, path = 0, 0
    for segment in segments(entry, printed):
        nodes = nodes_of(segment.thunks)
        edges = build_xla_edges(nodes, buffers, mode)
        levels = _levels(len(nodes), [(edge.src, edge.dst) for edge in edges])
        width = max(width, *Counter(levels).values()) if levels else width
        path += max(levels, default=0)
    return Side(
        label,
        sum(1 for _ in _all_nodes(entry)),
        len(graphs),
        sum(counts.values()),
        counts,
        width,
        path,
        buffers.temp_bytes,
        any(thunk.kind.holds_sequences for thunk in entry),
    )


def plan_side(label: str, plan: Plan) -> Side:
    """Return the figures of a plan of ours."""
    stats = plan_stats(plan)
    edges = list(_edges(plan.body))
    return Side(
        label,
        stats.nodes_in_all,
        1,
        len(edges),
        Counter(edge.hazard for edge in edges),
        stats.width,
        stats.critical_path,
        stats.arena_bytes,
        stats.nodes_in_all > stats.nodes,
    )


def _all_nodes(thunks: Sequence[XlaThunk]) -> Iterator[XlaThunk]:
    for node in nodes_of(thunks):
        yield node
        if node.kind.holds_sequences:
            for _, inner in node.inside:
                yield from _all_nodes(inner)


def _levels(count: int, edges: list[tuple[int, int]]) -> list[int]:
    found = [1] * count
    for src, dst in sorted(edges):
        found[dst] = max(found[dst], found[src] + 1)
    return found


def _edges(sequence: Thunks[Slice]) -> Iterator[Edge]:
    yield from sequence.edges
    for thunk in sequence.thunks:
        for _, inner in nested(thunk):
            yield from _edges(inner)
