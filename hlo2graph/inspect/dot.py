"""A plan as a Graphviz graph: thunks, their buffers, and why each waits for which.

Node ids are the thunk ids of the plan's text. Nodes and edges stand at the top of the file, in
clusters (loops, branches) there are only ids, so that simple readers see the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hlo2graph.errors import InputError
from hlo2graph.inspect.dot_find import find_sequence
from hlo2graph.inspect.dot_labels import Labels, counted, quoted, shortened
from hlo2graph.inspect.figures import bytes_text
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import critical_path, plan_stats
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Edge, Hazard, Slice, Thunk

EDGES = ("all", "data")

_FILL = {
    "kernel": "#dceaf7",
    "library": "#fde4c3",
    "copy": "#ececec",
    "fill": "#f6f6f6",
    "collective": "#e8daf3",
    "while": "#dcf0dc",
    "conditional": "#dcf0dc",
}
_STYLE = {
    Hazard.RAW: 'color="#333333"',
    Hazard.WAR: 'color="#b03a2e", style=dashed',
    Hazard.WAW: 'color="#b03a2e", style=dotted',
    Hazard.CONTROL: 'color="#1f6fb5", style=dashed',
    Hazard.EFFECT: 'color="#7d3c98", style=dashed',
    Hazard.REUSE: 'color="#d35400", style=dashed',
    Hazard.INPLACE: 'color="#d35400", style=dotted',
    Hazard.ORDER: 'color="#999999", style=dotted',
}
_CRITICAL = "#c0392b"


@dataclass(frozen=True, slots=True)
class _View:
    """What is drawn: how deep, which edges, how many nodes at most."""

    labels: Labels
    depth: int | None
    hazards: frozenset[Hazard]
    limit: int | None


def dot(
    plan: Plan,
    *,
    depth: int | None = None,
    edges: str = "all",
    computation: str | None = None,
    limit: int | None = None,
    tables: str = "",
) -> str:
    """Return the plan in Graphviz's language.

    depth: how many levels of loops and branches to open; None opens all, 0 none.
    edges: all, or data for those along which data flows (raw) alone.
    computation: draw only what is inside this loop or conditional: its name, or `name/body`.
    limit: draw the first so many thunks of each sequence, and say how many there are more.
    tables: the module's stack-frame tables, for source lines in labels.

    Raises InputError for options that fit nothing.
    """
    if edges not in EDGES:
        raise InputError(f"edges is one of {', '.join(EDGES)}, not {edges!r}")
    if (depth is not None and depth < 0) or (limit is not None and limit < 1):
        raise InputError("depth is 0 or more, limit 1 or more")
    numbered = number(plan.body)
    if computation is not None:
        numbered = find_sequence(numbered, computation)
    hazards = frozenset(Hazard) if edges == "all" else frozenset({Hazard.RAW})
    view = _View(Labels(plan, tables), depth, hazards, limit)
    title = plan.name if computation is None else f"{plan.name}: {computation}"
    lines = [
        f"digraph {quoted(shortened(title))} {{",
        f"  graph [label={quoted(_caption(plan, title))}, labelloc=t, compound=true, "
        'fontname="Helvetica", fontsize=11];',
        '  node [shape=box, style=filled, fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=8];',
        *_nodes(view, numbered, 0),
        *_clusters(view, numbered, 0),
        *_edges(view, numbered, 0),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _caption(plan: Plan, title: str) -> str:
    stats = plan_stats(plan)
    kinds = ", ".join(f"{count} {hazard}" for hazard, count in stats.by_hazard.items())
    counts = f"{counted(stats.nodes, 'thunk')}, {counted(stats.edges, 'edge')}" + (
        f" ({kinds})" if kinds else ""
    )
    return (
        f"{shortened(title)}\n{counts}, width {stats.width}\n"
        f"critical path {stats.critical_path} (bold), arena {bytes_text(stats.arena_bytes)}"
    )


def _shown(view: _View, numbered: Numbered) -> Iterator[tuple[int, Thunk[Slice]]]:
    for position, (id, thunk) in enumerate(numbered):
        if position == view.limit:
            return
        yield id, thunk


def _inside(
    view: _View, numbered: Numbered, id: int, level: int
) -> tuple[tuple[str, Numbered], ...]:
    """Return the sequences inside a thunk that are to be drawn."""
    return numbered.nested(id) if view.depth is None or level < view.depth else ()


def _nodes(view: _View, numbered: Numbered, level: int) -> Iterator[str]:
    critical = set(critical_path(numbered.sequence)) if level == 0 else ()
    for id, thunk in _shown(view, numbered):
        opened = _inside(view, numbered, id, level)
        hidden = () if opened else numbered.nested(id)
        attributes = [
            f"label={quoted(view.labels.node(thunk, hidden, bool(opened)))}",
            f"tooltip={quoted(view.labels.tooltip(thunk))}",
            f'fillcolor="{_FILL[kind_of(thunk)]}"',
        ]
        if id - numbered.first in critical:
            attributes.append(f'penwidth=2.5, color="{_CRITICAL}"')
        yield f"  t{id} [{', '.join(attributes)}];"
        for _, inner in opened:
            yield from _nodes(view, inner, level + 1)
    more = len(numbered.sequence.thunks) - (view.limit or len(numbered.sequence.thunks))
    if more > 0:
        note = quoted(f"{counted(more, 'more thunk')} not drawn")
        yield f"  more{numbered.first} [label={note}, shape=note, style=dashed];"


def _clusters(view: _View, numbered: Numbered, level: int) -> Iterator[str]:
    indent = "  " * (2 * level + 1)
    for id, thunk in _shown(view, numbered):
        opened = _inside(view, numbered, id, level)
        if not opened:
            continue
        title = quoted(f"{kind_of(thunk)} {shortened(thunk.name)}")
        yield f"{indent}subgraph cluster_t{id} {{"
        yield f'{indent}  graph [label={title}, style=rounded, color="#5d9c5d"];'
        yield f"{indent}  t{id};"
        for label, inner in opened:
            yield f"{indent}  subgraph cluster_t{id}_{label} {{"
            yield f'{indent}    graph [label="{label}", style=dashed, color="#999999"];'
            drawn = [f"t{inside}" for inside, _ in _shown(view, inner)]
            yield from (f"{indent}    {name};" for name in drawn)
            yield from _clusters(view, inner, level + 1)
            yield f"{indent}  }}"
        yield f"{indent}}}"


def _edges(view: _View, numbered: Numbered, level: int) -> Iterator[str]:
    critical = set(pairwise(critical_path(numbered.sequence))) if level == 0 else ()
    end = len(numbered.sequence.thunks) if view.limit is None else view.limit
    for edge in numbered.sequence.edges:
        if edge.hazard in view.hazards and edge.src < end and edge.dst < end:
            yield _edge(view, numbered, edge, level, (edge.src, edge.dst) in critical)
    for id, _ in _shown(view, numbered):
        for _, inner in _inside(view, numbered, id, level):
            yield from _edges(view, inner, level + 1)


def _edge(view: _View, numbered: Numbered, edge: Edge, level: int, critical: bool) -> str:
    src, dst = numbered.first + edge.src, numbered.first + edge.dst
    held = edge.slice
    label = str(edge.hazard) if held is None else f"{edge.hazard} {bytes_text(held.size)}"
    tooltip = str(edge.hazard) if held is None else f"{edge.hazard} {held}"
    attributes = [f'label=" {label}"', f'tooltip="{tooltip}"', _STYLE[edge.hazard]]
    if critical:
        attributes.append("penwidth=2.5")
    if _inside(view, numbered, src, level):
        attributes.append(f"ltail=cluster_t{src}")
    if _inside(view, numbered, dst, level):
        attributes.append(f"lhead=cluster_t{dst}")
    return f"  t{src} -> t{dst} [{', '.join(attributes)}];"
