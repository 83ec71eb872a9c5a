"""When each kernel of the graph ran on the device: a table by HLO name, and a trace for Perfetto.

The times are stamps that the kernels write themselves, in a graph of the same nodes and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.stamps import NodeTimes, StampedGraph
from hlo2graph.inspect.figures import columns, plural, time_text

RUNS = 5
SHOWN = 40  # nodes that the table lists
HOW = "time stamps written by the kernels; copies, fills and library calls have none"


@dataclass(frozen=True, slots=True)
class NodeTotal:
    """Seconds of one node in a run; where it ran often, of the launches whose stamps are kept."""

    name: str
    launches: int
    each: float
    total: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The run of median length, node by node; `span` is from its first stamp to its last."""

    nodes: tuple[NodeTimes, ...]
    span: float

    @property
    def totals(self) -> tuple[NodeTotal, ...]:
        """The nodes by the time they took, longest first."""
        found = (_total(node) for node in self.nodes)
        return tuple(sorted(found, key=lambda n: -n.total))

    @property
    def overlap(self) -> float:
        """How many kernels ran at once, on average over the time that any of them did."""
        busy = sum(n.total for n in self.totals)
        return busy / self.span if self.span else 0.0


def profile(executable: CudaExecutable, args: Sequence[object]) -> Profile:
    """Run a few times with time stamps; return the run of median length."""
    graph = StampedGraph(executable)
    runs = []
    for _ in range(RUNS + 1):
        executable.write_inputs(args)
        nodes = graph.run()
        runs.append(Profile(nodes, _span(nodes)))
    return sorted(runs[1:], key=lambda r: r.span)[RUNS // 2]


def profile_text(found: Profile) -> str:
    """Return the table."""
    totals = found.totals
    rows = [["node", "launches", "each", "total", "share of span"]]
    rows += [
        [
            n.name,
            f"{n.launches:,}",
            time_text(n.each),
            time_text(n.total),
            f"{n.total / found.span:.1%}" if found.span else "-",
        ]
        for n in totals[:SHOWN]
    ]
    lines = [
        f"profile  {plural(len(totals), 'node')} in {time_text(found.span)}, on average "
        f"{found.overlap:.2f} at once ({HOW})",
        *columns(rows, left=1),
    ]
    if len(totals) > SHOWN:
        lines.append(f"and {len(totals) - SHOWN} more")
    return "\n".join(lines)


def profile_json(found: Profile) -> dict[str, Any]:
    """Return the table as JSON, in seconds."""
    return {
        "how": HOW,
        "span": found.span,
        "overlap": found.overlap,
        "nodes": [
            {"name": n.name, "launches": n.launches, "each": n.each, "total": n.total}
            for n in found.totals
        ],
    }


def trace_json(found: Profile, program: str) -> dict[str, Any]:
    """Return Chrome's trace format, which Perfetto opens: as many lanes as ran at once."""
    launches = sorted(
        (int(begin), int(end), node.name) for node in found.nodes for begin, end in node.times
    )
    start = launches[0][0] if launches else 0
    ends: list[int] = []  # of each lane
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": program}}
    ]
    for begin, end, name in launches:
        lane = next((k for k, free in enumerate(ends) if free <= begin), len(ends))
        ends[lane:] = [end, *ends[lane + 1 :]]
        event = {"ph": "X", "pid": 1, "tid": lane + 1, "name": name, "cat": "kernel"}
        events.append(event | {"ts": (begin - start) / 1e3, "dur": (end - begin) / 1e3})
    events += [
        {"ph": "M", "pid": 1, "tid": k + 1, "name": "thread_name", "args": {"name": f"lane {k}"}}
        for k in range(len(ends))
    ]
    return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"times": HOW}}


def _total(node: NodeTimes) -> NodeTotal:
    lengths = (node.times[:, 1] - node.times[:, 0]) * 1e-9
    each = float(np.mean(lengths))
    return NodeTotal(node.name, node.launches, each, each * node.launches)


def _span(nodes: Sequence[NodeTimes]) -> float:
    if not nodes:
        return 0.0
    begin = min(int(n.times[:, 0].min()) for n in nodes)
    return (max(int(n.times[:, 1].max()) for n in nodes) - begin) * 1e-9
