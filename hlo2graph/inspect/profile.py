"""When each node of a plan ran: a table by HLO name. `trace` makes a picture of the same.

On cuda the times are stamps that the kernels write themselves, in a graph of the same nodes and
edges; on the host the pool's threads take them around each thunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo2graph.backends.host import HostExecutable
from hlo2graph.backends.node_times import NodeTimes
from hlo2graph.inspect.figures import columns, plural, time_text
from hlo2graph.inspect.verdict import Longest
from hlo2graph.program.thunks import Conditional, Slice, Thunk, While
from hlo2graph.program.thunks import Sequence as Thunks

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable

RUNS = 5
SHOWN = 40  # nodes that the table lists
BY_KERNELS = "time stamps written by the kernels; copies, fills and library calls have none"
BY_THREADS = "time stamps around each thunk"


@dataclass(frozen=True, slots=True)
class NodeTotal:
    """Seconds of one node in a run; where it ran often, of the launches whose stamps are kept."""

    name: str
    launches: int
    each: float
    total: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The run of median length, node by node; `span` is from its first stamp to its last.

    holders: the loops and conditionals that hold other nodes, where they have stamps. body: what
    ran, loops written out as they were. how: where the times come from.
    """

    nodes: tuple[NodeTimes, ...]
    span: float
    how: str
    body: Thunks[Slice]
    holders: tuple[NodeTimes, ...] = ()

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
    from hlo2graph.backends.cuda.stamps import StampedGraph

    graph = StampedGraph(executable)
    whole = "; all thunks in one graph" if not executable.cutter.holds_all() else ""
    runs = []
    for _ in range(RUNS + 1):
        executable.write_inputs(args)
        nodes = graph.run()
        runs.append(Profile(nodes, _span(nodes), BY_KERNELS + whole, executable.graph_body))
    return _median(runs)


def host_profile(executable: HostExecutable, args: Sequence[object], threads: int) -> Profile:
    """Run a few times on a pool with time stamps; return the run of median length."""
    runs = []
    for _ in range(RUNS + 1):
        executable.write_inputs(args)
        times: dict[int, list[tuple[int, int]]] = defaultdict(list)
        thunks: dict[int, Thunk[Slice]] = {}
        for stamp in executable.execute_stamped(threads):
            thunks[id(stamp.thunk)] = stamp.thunk
            times[id(stamp.thunk)].append((stamp.begin, stamp.end))
        found = [
            (thunks[key], NodeTimes(thunks[key].name, len(held), np.array(sorted(held))))
            for key, held in times.items()
        ]
        is_holder = [isinstance(thunk, While | Conditional) for thunk, _ in found]
        nodes, holders = (
            tuple(n for (_, n), held in zip(found, is_holder, strict=True) if held is wanted)
            for wanted in (False, True)
        )
        how = f"{BY_THREADS}, {plural(threads, 'thread')}"
        runs.append(Profile(nodes, _span(nodes), how, executable.plan.body, holders))
    return _median(runs)


def longest_thunk(executable: HostExecutable, args: Sequence[object]) -> Longest | None:
    """Return which thunk of the outermost sequence takes longest, None if all are soon over."""
    executable.write_inputs(args)
    outermost = {id(thunk) for thunk in executable.plan.body.thunks}
    stamps = executable.execute_stamped(threads=1)
    took = {s.thunk.name: s.end - s.begin for s in stamps if id(s.thunk) in outermost}
    total = sum(took.values())
    if not total:
        return None
    name = max(took, key=lambda thunk: took[thunk])
    return Longest(name, took[name] / total)


def _median(runs: list[Profile]) -> Profile:
    """Return the run of median length; the first one warms up."""
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
        f"{found.overlap:.2f} at once ({found.how})",
        *columns(rows, left=1),
    ]
    if len(totals) > SHOWN:
        rest = totals[SHOWN:]
        took = time_text(sum(n.total for n in rest))
        lines.append(f"and {len(rest):,} more, {took} together; --json FILE lists all")
    return "\n".join(lines)


def profile_json(found: Profile) -> dict[str, Any]:
    """Return the table as JSON, in seconds."""
    return {
        "how": found.how,
        "span": found.span,
        "overlap": found.overlap,
        "nodes": [
            {"name": n.name, "launches": n.launches, "each": n.each, "total": n.total}
            for n in found.totals
        ],
    }


def _total(node: NodeTimes) -> NodeTotal:
    lengths = (node.times[:, 1] - node.times[:, 0]) * 1e-9
    each = float(np.mean(lengths))
    return NodeTotal(node.name, node.launches, each, each * node.launches)


def _span(nodes: Sequence[NodeTimes]) -> float:
    if not nodes:
        return 0.0
    begin = min(int(n.times[:, 0].min()) for n in nodes)
    return (max(int(n.times[:, 1].max()) for n in nodes) - begin) * 1e-9
