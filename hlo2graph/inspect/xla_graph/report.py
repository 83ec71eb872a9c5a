"""What `xla` says of a dump of XLA's, as text and as JSON.

Schema `hlo2graph.xla`, version 1; sizes in bytes:

    schema    {"name": "hlo2graph.xla", "version": 1}
    module    string
    mode      "lhs", "concurrent" or "serialize"
    sides     [{"label", "thunks", "graphs", "edges", "hazards": {HAZARD: count}, "false", "width",
                "path", "temp_bytes"}]: XLA's graphs first, then ours
    graphs    [{"in": string, "nodes": [{"name", "kind", "priority", "reads": [SLICE],
                "writes": [SLICE]}], "edges": [{"src", "dst", "hazard", "slice": SLICE or null,
                "ours": bool or null}]}]: XLA's, in the order in which it prints them; `ours` is
                whether our plan of XLA's kernels orders the two, null where it lacks one
    unordered [{"kind": "index" or "control", "in", "src", "dst", "slice": SLICE or null, "text"}]
    notes     [string]
    same      with --against: whether XLA's own print has the same graphs, else null
    file      string; where the module after XLA's passes lies
    SLICE     {"allocation", "offset", "size"}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hlo2graph.frontend.xla_dump import (
    Printed,
    PrintedGraph,
    XlaBuffers,
    XlaThunk,
)
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.inspect.figures import bytes_text, columns, plural
from hlo2graph.inspect.xla_graph.beside import Beside
from hlo2graph.inspect.xla_graph.findings import Unordered, find_unordered
from hlo2graph.inspect.xla_graph.graph import Mode, XlaEdge, XlaGraph, build_graphs, fits
from hlo2graph.inspect.xla_graph.summary import Side, xla_side
from hlo2graph.program.thunks import Hazard, Slice

SCHEMA = {"name": "hlo2graph.xla", "version": 1}
HAZARDS = (
    *(Hazard.RAW, Hazard.WAR, Hazard.WAW, Hazard.CONTROL, Hazard.EFFECT),
    *(Hazard.INPLACE, Hazard.REUSE, Hazard.ORDER),
)


@dataclass(frozen=True, slots=True)
class XlaReport:
    """XLA's graphs of one module; sides of ours are added by whoever can plan."""

    module: str
    mode: Mode
    graphs: tuple[XlaGraph, ...]
    sides: tuple[Side, ...]
    unordered: tuple[Unordered, ...]
    notes: tuple[str, ...] = ()
    beside: Beside | None = None  # our plan of XLA's kernels
    differences: tuple[str, ...] | None = None  # from XLA's own print; None where not asked
    file: str = ""  # of the module after XLA's passes


def report_on(
    module: str,
    thunks: tuple[XlaThunk, ...],
    printed: tuple[Printed, ...] | None,
    buffers: XlaBuffers,
    mode: Mode,
) -> XlaReport:
    """Rebuild XLA's graphs, and look at them."""
    notes = []
    if printed is not None and not fits(thunks, printed):
        notes.append(
            "XLA's thunk sequence is not the one that the rules here give; the graphs are cut as "
            "if XLA took all it can"
        )
        printed = None
    graphs = build_graphs(thunks, printed, buffers, mode)
    sides = [xla_side(f"XLA, {mode}", graphs, thunks, printed, buffers, mode)]
    if mode is not Mode.CONCURRENT:
        free = build_graphs(thunks, printed, buffers, Mode.CONCURRENT)
        label = "XLA, by its buffers alone"
        sides.append(xla_side(label, free, thunks, printed, buffers, Mode.CONCURRENT))
    unordered = tuple(pair for graph in graphs for pair in find_unordered(graph))
    return XlaReport(module, mode, graphs, tuple(sides), unordered, tuple(notes))


def compare_printed(
    graphs: tuple[XlaGraph, ...], printed: tuple[PrintedGraph, ...]
) -> tuple[str, ...]:
    """Return how XLA's own print differs from what was rebuilt, nothing where it is the same.

    A log may hold the graphs of other modules before and after.
    """
    first = _differences(graphs, printed[: len(graphs)])
    for start in range(1, len(printed) - len(graphs) + 1):
        if not first:
            break
        if not _differences(graphs, printed[start : start + len(graphs)]):
            return ()
    if not graphs and printed:
        return (f"XLA prints {plural(len(printed), 'graph')}, not 0",)
    return first


def _differences(
    graphs: tuple[XlaGraph, ...], printed: tuple[PrintedGraph, ...]
) -> tuple[str, ...]:
    found = []
    if len(graphs) != len(printed):
        found.append(f"XLA prints {plural(len(printed), 'graph')}, not {len(graphs)}")
    for number, (graph, xla) in enumerate(zip(graphs, printed, strict=False)):
        edges = {(edge.src, edge.dst) for edge in graph.edges}
        name = f"graph {number}"
        if len(graph.nodes) != len(xla.priorities):
            found.append(f"{name}: XLA has {len(xla.priorities)} nodes, not {len(graph.nodes)}")
            continue
        missing, more = sorted(set(xla.edges) - edges), sorted(edges - set(xla.edges))
        found += [f"{name}: XLA has an edge {src} -> {dst}" for src, dst in missing]
        found += [f"{name}: XLA has no edge {src} -> {dst}" for src, dst in more]
        if not missing and not more and graph.priorities != xla.priorities:
            found.append(f"{name}: the edges are XLA's, the priorities are not")
    return tuple(found)


COUNTED = (
    "thunks and edges are counted in all; width and path have a loop or conditional for one thunk"
)


def xla_text(report: XlaReport, *, summary: bool = False, is_named: bool = False) -> str:
    """Return the table, what was found, and every graph unless `summary`.

    is_named: say the file too, as where there are several modules of one name.
    """
    lines = [
        f"{report.module}   {plural(len(report.graphs), 'graph')} of XLA's, mode {report.mode}",
        *[f"  {report.file}"] * is_named,
        *(f"  {line}" for line in table(report.sides)),
        *_found(report),
    ]
    if not summary:
        for graph in report.graphs:
            lines += ["", *_graph(graph, report.beside)]
    return "\n".join(lines) + "\n"


def table(sides: tuple[Side, ...]) -> list[str]:
    """Return the sides' figures, a line each, hazards that none has left out."""
    hazards = [h for h in HAZARDS if any(side.by_hazard.get(h) for side in sides)]
    names = ("thunks", "graphs", "edges", *map(str, hazards), "false", "width", "path", "temp")
    rows = [("", *names)]
    for side in sides:
        counts = (side.by_hazard.get(hazard, 0) for hazard in hazards)
        figures = (side.thunks, side.graphs, side.edges, *counts, side.false, side.width, side.path)
        rows.append((side.label, *map(str, figures), bytes_text(side.temp_bytes)))
    return columns(rows, 1)


def _found(report: XlaReport) -> Iterator[str]:
    if any(side.is_nested for side in report.sides):
        yield f"  note: {COUNTED}"
    yield from (f"  note: {note}" for note in report.notes)
    for pair in report.unordered:
        place = f"in {pair.where}: " if pair.where else ""
        yield f"  unordered: {place}{pair.text}"
    if report.differences is not None:
        for line in report.differences:
            yield f"  differs: {line}"
        if not report.differences:
            yield f"  same: XLA itself prints the same {plural(len(report.graphs), 'graph')}"


def _graph(graph: XlaGraph, beside: Beside | None) -> Iterator[str]:
    where = f" in {graph.where}" if graph.where else ""
    false = sum(edge.hazard in ARTEFACTS for edge in graph.edges)
    yield (
        f"graph{where}: {plural(len(graph.nodes), 'node')}, {plural(len(graph.edges), 'edge')}"
        f", {false} false"
    )
    for at, (node, priority) in enumerate(zip(graph.nodes, graph.priorities, strict=True)):
        used = f"reads={_braced(node.reads)}, writes={_braced(node.writes)}"
        yield f"  n{at}: {node.kind} {node.name}, priority={priority}, {used}"
    for edge in graph.edges:
        shared = f" {edge.slice}" if edge.slice is not None else ""
        ours = ""
        if edge.hazard in ARTEFACTS and _ours(graph, edge, beside) is False:
            ours = "; unordered in ours"
        yield f"  edge n{edge.src} -> n{edge.dst}, {edge.hazard}{shared}{ours}"


def _ours(graph: XlaGraph, edge: XlaEdge, beside: Beside | None) -> bool | None:
    if beside is None:
        return None
    return beside.orders(graph.where, graph.nodes[edge.src].name, graph.nodes[edge.dst].name)


def _braced(slices: tuple[Slice, ...]) -> str:
    return f"{{{', '.join(map(str, slices))}}}"


def xla_json(report: XlaReport) -> dict[str, Any]:
    """Return what `xla --json` prints."""
    return {
        "schema": SCHEMA,
        "module": report.module,
        "mode": str(report.mode),
        "sides": [_side_json(side) for side in report.sides],
        "graphs": [_graph_json(graph, report.beside) for graph in report.graphs],
        "unordered": [
            {
                "kind": pair.kind,
                "in": pair.where,
                "src": pair.src,
                "dst": pair.dst,
                "slice": _slice_json(pair.slice),
                "text": pair.text,
            }
            for pair in report.unordered
        ],
        "notes": list(report.notes),
        "same": None if report.differences is None else not report.differences,
        "file": report.file,
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "thunks": side.thunks,
        "graphs": side.graphs,
        "edges": side.edges,
        "hazards": {str(h): side.by_hazard[h] for h in HAZARDS if side.by_hazard.get(h)},
        "false": side.false,
        "width": side.width,
        "path": side.path,
        "temp_bytes": side.temp_bytes,
    }


def _graph_json(graph: XlaGraph, beside: Beside | None) -> dict[str, Any]:
    return {
        "in": graph.where,
        "nodes": [
            {
                "name": node.name,
                "kind": str(node.kind),
                "priority": priority,
                "reads": [_slice_json(s) for s in node.reads],
                "writes": [_slice_json(s) for s in node.writes],
            }
            for node, priority in zip(graph.nodes, graph.priorities, strict=True)
        ],
        "edges": [
            {
                "src": edge.src,
                "dst": edge.dst,
                "hazard": str(edge.hazard),
                "slice": _slice_json(edge.slice),
                "ours": _ours(graph, edge, beside),
            }
            for edge in graph.edges
        ],
    }


def _slice_json(held: Slice | None) -> dict[str, int] | None:
    if held is None:
        return None
    return {"allocation": held.allocation, "offset": held.offset, "size": held.size}
