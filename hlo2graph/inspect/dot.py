"""A picture in Graphviz's language.

Node ids are the thunk ids of the plan's text. Nodes and edges stand at the top of the file, in
clusters (loops, branches, repeated layers) there are only ids, so that simple readers see the whole
graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hlo2graph.inspect.dot_labels import quoted
from hlo2graph.inspect.picture import Arrow, Group, Node, Picture, picture_of_plan, selected
from hlo2graph.inspect.picture.labels import arrow_label, label_lines
from hlo2graph.inspect.picture.palette import CRITICAL, fills, line_of
from hlo2graph.program.plan import Plan

LOOPS = ("while", "conditional")


def dot(
    plan: Plan,
    *,
    depth: int | None = None,
    edges: str = "all",
    computation: str | None = None,
    limit: int | None = None,
    tables: str = "",
) -> str:
    """Return the plan in Graphviz's language; see picture_of_plan and selected for the options."""
    picture = picture_of_plan(plan, depth=depth, computation=computation, tables=tables)
    return dot_text(selected(picture, edges=edges, limit=limit))


def dot_text(picture: Picture, colour: str = "kind") -> str:
    """Return a picture in Graphviz's language, its nodes coloured by kind or by time."""
    writer = _Writer(picture, fills(picture, colour), colour == "time")
    caption = quoted("\n".join(picture.caption))
    lines = [
        f"digraph {quoted(picture.caption[0])} {{",
        f'  graph [label={caption}, labelloc=t, compound=true, fontname="Helvetica", fontsize=11];',
        '  node [shape=box, style=filled, fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=8];',
        *map(writer.node, picture.nodes),
        *writer.clusters(),
        *map(writer.edge, picture.arrows),
        "}",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Writer:
    picture: Picture
    fills: dict[str, str]
    with_time: bool

    def node(self, node: Node) -> str:
        label = quoted("\n".join(label_lines(node, with_time=self.with_time)))
        if node.kind == "note":
            return f"  {node.id} [label={label}, shape=note, style=dashed];"
        attributes = [
            f"label={label}",
            f"tooltip={quoted(node.tooltip)}",
            f'fillcolor="{self.fills[node.id]}"',
        ]
        if node.is_critical:
            attributes.append(f'penwidth=2.5, color="{CRITICAL}"')
        return f"  {node.id} [{', '.join(attributes)}];"

    def edge(self, arrow: Arrow) -> str:
        line = line_of(arrow)
        style = f'color="{line.colour}"' + (f", style={line.dash}" if line.dash != "solid" else "")
        label = arrow_label(arrow)
        attributes = [f"label={quoted(f' {label}')}"] if label else []
        attributes += [f"tooltip={quoted(arrow.tooltip)}", style]
        if arrow.is_critical:
            attributes.append("penwidth=2.5")
        if arrow.is_back:
            attributes.append("constraint=false")
        if arrow.src in self.picture.owners:
            attributes.append(f"ltail=cluster_{arrow.src}")
        if arrow.dst in self.picture.owners:
            attributes.append(f"lhead=cluster_{arrow.dst}")
        return f"  {arrow.src} -> {arrow.dst} [{', '.join(attributes)}];"

    def clusters(self) -> Iterator[str]:
        members: dict[str, list[Node]] = defaultdict(list)
        for node in self.picture.nodes:
            members[node.group].append(node)
        owned: dict[str, list[Group]] = defaultdict(list)
        frames: dict[str, list[Group]] = defaultdict(list)
        for group in self.picture.groups:
            (owned[group.owner] if group.owner else frames[group.parent]).append(group)

        def within(group: str, level: int) -> Iterator[str]:
            """Yield the clusters of what a group holds."""
            indent = "  " * (2 * level + 1)
            for frame in frames[group]:
                yield f"{indent}subgraph cluster_{frame.id} {{"
                yield f'{indent}  graph [label={quoted(frame.label)}, style="rounded,bold"];'
                yield from (f"{indent}  {node.id};" for node in members[frame.id])
                yield from within(frame.id, level + 1)
                yield f"{indent}}}"
            for node in members[group]:
                if owned[node.id]:
                    yield from opened(node, level)

        def opened(node: Node, level: int) -> Iterator[str]:
            """Yield the cluster of a node and of the sequences that it holds."""
            indent = "  " * (2 * level + 1)
            yield f"{indent}subgraph cluster_{node.id} {{"
            does = node.kind if node.kind in LOOPS else node.lines[0]
            title = quoted(f"{does} {node.name}")
            yield f'{indent}  graph [label={title}, style=rounded, color="#5d9c5d"];'
            yield f"{indent}  {node.id};"
            for group in owned[node.id]:
                yield f"{indent}  subgraph cluster_{group.id} {{"
                yield (
                    f"{indent}    graph "
                    f'[label={quoted(group.label)}, style=dashed, color="#999999"];'
                )
                yield from (f"{indent}    {inside.id};" for inside in members[group.id])
                yield from within(group.id, level + 1)
                yield f"{indent}  }}"
            yield f"{indent}}}"

        yield from within("", 0)
