"""What stands on nodes and arrows, the same in every format."""

from __future__ import annotations

from hlo2graph.inspect.figures import time_text
from hlo2graph.inspect.picture.model import Arrow, Node


def label_lines(node: Node, *, with_time: bool) -> tuple[str, ...]:
    """Return what stands on a node."""
    name = f"{node.name} x {node.count:,}" if node.count > 1 else node.name
    time = (time_text(node.seconds),) if with_time and node.seconds else ()
    return (name, *node.lines, *time)


def arrow_label(arrow: Arrow) -> str:
    """Return what stands at an arrow, '' where nothing does."""
    many = f"x {arrow.count:,}" if arrow.count > 1 else ""
    return " ".join(part for part in (arrow.label, many) if part)
