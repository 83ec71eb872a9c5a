"""A picture as a Mermaid flowchart, which GitHub and many editors draw.

Mermaid refuses more than 500 edges and 50,000 characters unless its reader is told otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hlo2graph.inspect.dot_labels import plain
from hlo2graph.inspect.picture import Group, Node, Picture
from hlo2graph.inspect.picture.labels import arrow_label, label_lines
from hlo2graph.inspect.picture.palette import CRITICAL, fills, line_of


def mermaid_text(picture: Picture, colour: str = "kind") -> str:
    """Return the picture in Mermaid's language."""
    filled = fills(picture, colour)
    by_time = colour == "time"
    lines = ["---", f"title: {_title(picture.caption)}", "---", "flowchart TD"]
    lines += _groups(picture, by_time=by_time)
    for number, arrow in enumerate(picture.arrows):
        line = line_of(arrow)
        stroke = "==>" if arrow.is_critical else "-->" if line.dash == "solid" else "-.->"
        label = f"|{_quoted([arrow_label(arrow)])}|" if arrow_label(arrow) else ""
        lines.append(f"  {arrow.src} {stroke}{label} {arrow.dst}")
        lines.append(f"  linkStyle {number} stroke:{line.colour}")
    together: dict[str, list[str]] = defaultdict(list)
    for node in picture.nodes:
        edge = f",stroke:{CRITICAL},stroke-width:3px" if node.is_critical else ",stroke:#666666"
        together[f"fill:{filled[node.id]},color:#000000{edge}"].append(node.id)
    for number, (style, ids) in enumerate(together.items()):
        lines.append(f"  classDef c{number} {style}")
        lines.append(f"  class {','.join(ids)} c{number}")
    return "\n".join(lines) + "\n"


def _groups(picture: Picture, *, by_time: bool) -> Iterator[str]:
    members: dict[str, list[Node]] = defaultdict(list)
    for node in picture.nodes:
        members[node.group].append(node)
    inside: dict[str, list[Group]] = defaultdict(list)
    for group in picture.groups:
        inside[group.parent].append(group)

    def within(id: str, indent: str) -> Iterator[str]:
        names = {}
        for node in members[id]:
            names[node.id] = node.name
            yield f"{indent}{node.id}[{_quoted(label_lines(node, with_time=by_time))}]"
        for group in inside[id]:
            of = f"{names[group.owner]}: " if group.owner else ""
            yield f"{indent}subgraph {group.id} [{_quoted([of + group.label])}]"
            yield from within(group.id, indent + "  ")
            yield f"{indent}end"

    yield from within("", "  ")


def _quoted(lines: Iterable[str]) -> str:
    """Return text in quotes; what Mermaid would read as its own or as HTML becomes entities."""
    return '"' + "<br>".join(map(_escaped, lines)) + '"'


def _title(caption: Iterable[str]) -> str:
    """Return the caption as a YAML string in double quotes."""
    text = plain("; ".join(caption)).replace("\n", " ")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return "".join(
        char if char.isalnum() or char in " .,:_-+()[]=%/→…" else f"#{ord(char)};"
        for char in plain(text).replace("\n", " ")
    )
