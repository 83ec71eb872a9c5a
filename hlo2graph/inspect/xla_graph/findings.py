"""What XLA leaves unordered in its graphs that the program orders.

XLA does not count the index of a dynamic slice as read, and does not look at control-predecessors
when it orders by buffers. Both are right only where something else keeps the order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.frontend.xla_dump import XlaThunk
from hlo2graph.inspect.xla_graph.graph import Conflicts, XlaGraph
from hlo2graph.program.order import PartialOrder
from hlo2graph.program.thunks import Slice


@dataclass(frozen=True, slots=True)
class Unordered:
    """Two nodes of a graph in program order; `kind` is index or control."""

    kind: str
    where: str
    src: str
    dst: str
    slice: Slice | None
    text: str


def find_unordered(graph: XlaGraph) -> tuple[Unordered, ...]:
    """Return the pairs of nodes that the program orders and no path of the graph does."""
    order, conflicts = PartialOrder(), Conflicts()
    sources: list[list[int]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        sources[edge.dst].append(edge.src)
    found: list[Unordered] = []
    places = {node.name: at for at, node in enumerate(graph.nodes)}
    for at, node in enumerate(graph.nodes):
        order.join(sources[at])
        seen = conflicts.append(at, replace(node, reads=(*node.reads, *node.unseen)))
        found += [
            _index(graph, graph.nodes[src], node, shared)
            for src, shared in sorted(seen.items())
            if not order.precedes(src, at)
        ]
        before = sorted(places[name] for name in node.after if name in places)
        found += [
            _control(graph, graph.nodes[src], node) for src in before if not order.precedes(src, at)
        ]
    return tuple(found)


def _index(graph: XlaGraph, src: XlaThunk, dst: XlaThunk, shared: Slice) -> Unordered:
    if any(s.overlaps(shared) for s in src.unseen):
        text = f"{src.name} takes its index from {shared}, which {dst.name} overwrites"
    else:
        text = f"{dst.name} takes its index from {shared}, which {src.name} writes"
    return Unordered("index", graph.where, src.name, dst.name, shared, text)


def _control(graph: XlaGraph, src: XlaThunk, dst: XlaThunk) -> Unordered:
    text = f"{src.name} is a control-predecessor of {dst.name}"
    return Unordered("control", graph.where, src.name, dst.name, None, text)
