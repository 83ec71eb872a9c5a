"""XLA's own print of its graphs, in a log: `Execution graph: ExecutionGraph: 3 nodes, ...`.

XLA prints them while it compiles, with TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=command_executor=3.
What else the log holds is stepped over, what stands before a line too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo2graph.errors import ParseError, Source, Span

_HEAD = re.compile(r"ExecutionGraph: (?P<count>\d{1,9}) nodes,")
_NODE = re.compile(
    r"\bnode (?P<id>\d{1,9}) \(priority=(?P<priority>\d{1,9})\): "
    r"in=\[(?P<into>[^\]]*)\] out=\[(?P<out>[^\]]*)\]"
)
_EDGE = re.compile(r"NodeEdge \{kind: \w+, id: (\d{1,9})\}")


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """Edges (src, dst) in order, and each node's priority."""

    edges: tuple[tuple[int, int], ...]
    priorities: tuple[int, ...]


def parse_printed(text: str, filename: str = "<string>") -> tuple[PrintedGraph, ...]:
    """Return the graphs of a log, in order. Raises ParseError."""
    source = Source(filename, text)
    heads = list(_HEAD.finditer(text))
    if not heads:
        raise ParseError(
            "no graph of XLA's is printed here; its log has them with TF_CPP_MIN_LOG_LEVEL=0 "
            "TF_CPP_VMODULE=command_executor=3",
            Span(source, 0, 1),
        )
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return tuple(_graph(source, head, end) for head, end in zip(heads, ends, strict=True))


def _graph(source: Source, head: re.Match[str], end: int) -> PrintedGraph:
    nodes = list(_NODE.finditer(source.text, head.end(), end))
    if [int(node["id"]) for node in nodes] != list(range(int(head["count"]))):
        raise ParseError(
            f"{head['count']} nodes should follow, {len(nodes)} do",
            Span(source, head.start(), head.end()),
        )
    edges = [(int(src), int(node["id"])) for node in nodes for src in _EDGE.findall(node["into"])]
    return PrintedGraph(
        tuple(sorted(edges, key=lambda edge: (edge[1], edge[0]))),
        tuple(int(node["priority"]) for node in nodes),
    )
