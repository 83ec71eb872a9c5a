"""A plan as the CUDA graph that runs it: every node the driver gets, on any machine.

Loops that are written out are so here, a WHILE node has its condition in front and again at the end
of its body, and what launching adds (a start node, sources behind the longest) is there too.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from hlo2graph.backends.cuda.kernels import is_light, is_long
from hlo2graph.backends.cuda.launch_order import LIGHT_BYTES, Weight, node_order
from hlo2graph.backends.cuda.unroll import Unrolling, unrolled
from hlo2graph.inspect.dot_labels import Labels, shortened
from hlo2graph.inspect.explain.find import Instructions
from hlo2graph.inspect.figures import bytes_text, plural
from hlo2graph.inspect.picture.keys import Keys
from hlo2graph.inspect.picture.model import OUTERMOST, Arrow, Group, Node, Picture
from hlo2graph.program.device_figures import figures_for
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Edge,
    Fill,
    Kernel,
    Sequence,
    Slice,
    Thunk,
    While,
)

LAUNCH, CONDITION = "launch", "control"  # reasons of arrows that no edge of the plan gives

Waits: TypeAlias = list[tuple[str, Edge | str]]
"""Ids of nodes that are waited for, each with the edge or another reason."""


def picture_of_graph(
    plan: Plan,
    *,
    unroll_loops: str = "auto",
    tables: str = "",
    seconds: Callable[[Thunk[Slice]], float | None] = lambda _: None,
) -> Picture:
    """Return the nodes of the plan's CUDA graph; options as for running and for picture_of_plan.

    Raises InputError for an `unroll_loops` that is none.
    """
    body, written_out = unrolled(plan.body, Unrolling.of(unroll_loops), plan.schedule)
    held = Instructions(plan.computations)
    maker = _Maker(plan, Labels(plan, tables), held, Keys(plan.computations), seconds)
    maker.outermost(body)
    path = _longest(maker.nodes, maker.arrows)
    steps, marked = set(pairwise(path)), set(path)
    arrows = [replace(a, is_critical=(a.src, a.dst) in steps) for a in maker.arrows]
    nodes = [replace(n, is_critical=n.id in marked) for n in maker.nodes]
    loops = f"written out: {shortened(', '.join(written_out), 100)}" if written_out else ""
    counts = f"{plural(len(nodes), 'graph node')}, {plural(len(arrows), 'edge')}"
    longest = f"longest path {len(path)} (bold)"
    return Picture(
        (shortened(plan.name), counts, longest, *((loops,) if loops else ())),
        tuple(nodes),
        tuple(arrows),
        tuple(maker.groups),
    )


@dataclass(frozen=True, slots=True)
class _Wait:
    """A position that is waited for, and why."""

    position: int
    edge: Edge


@dataclass(frozen=True, slots=True)
class _Maker:
    """Adds nodes as GraphBuilder does; ids are in order of adding."""

    plan: Plan
    labels: Labels
    instructions: Instructions
    keys: Keys
    seconds: Callable[[Thunk[Slice]], float | None]
    nodes: list[Node] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def outermost(self, sequence: Sequence[Slice]) -> None:
        thunks, waits = _with_nodes(sequence)
        predecessors = [tuple(sorted({w.position for w in before})) for before in waits]
        order = node_order(predecessors, [self._weight(thunk) for thunk in thunks])
        start = [self._plain("start", "start", OUTERMOST)] if order.has_start else []
        added: list[str] = []
        for at, before in zip(order.order, order.predecessors, strict=True):
            reasons = {w.position: w.edge for w in waits[at]}
            after: Waits = [(added[p], reasons.get(order.order[p], LAUNCH)) for p in before]
            after = after or [(id, LAUNCH) for id in start]
            added.append(self._thunk(thunks[at], OUTERMOST, after))

    def _weight(self, thunk: Thunk[Slice]) -> Weight:
        match thunk:
            case Kernel() | Collective():
                called = self.plan.computations[thunk.computation]
                if is_light(called, figures_for(self.plan.target)):
                    return Weight.LIGHT
                return Weight.LONG if is_long(called, self.plan.computations) else Weight.KERNEL
            case Copy() | Fill() if thunk.target.size <= LIGHT_BYTES:
                return Weight.LIGHT
            case _:
                return Weight.OTHER

    def _add(self, sequence: Sequence[Slice], group: str, after: Waits) -> list[str]:
        """Add the nodes of a sequence; return those that nothing in it waits for."""
        thunks, waits = _with_nodes(sequence)
        added: list[str] = []
        for thunk, before in zip(thunks, waits, strict=True):
            found = {added[w.position]: w.edge for w in before}
            added.append(self._thunk(thunk, group, list(found.items()) or after))
        if not added:
            return [id for id, _ in after]
        followed = {w.position for before in waits for w in before}
        return [id for at, id in enumerate(added) if at not in followed]

    def _thunk(self, thunk: Thunk[Slice], group: str, after: Waits) -> str:
        match thunk:
            case While():
                return self._loop(thunk, group, after)
            case Conditional():
                return self._branch(thunk, group, after)
            case _:
                return self._node(thunk, group, after)

    def _loop(self, loop: While[Slice], group: str, after: Waits) -> str:
        ready = self._set(loop, group, self._add(loop.condition, group, after), after)
        node = self._node(loop, group, [(ready, CONDITION)])
        body = f"{node}_body"
        self.groups.append(Group(body, "body", node, group))
        ran = self._add(loop.body, body, [])
        again = self._add(loop.condition, body, [(id, CONDITION) for id in ran])
        self._set(loop, body, again, [])
        return node

    def _branch(self, conditional: Conditional[Slice], group: str, after: Waits) -> str:
        ready = self._set(conditional, group, [], after)
        node = self._node(conditional, group, [(ready, CONDITION)])
        for number, branch in enumerate(conditional.branches):
            inner = f"{node}_branch_{number}"
            self.groups.append(Group(inner, f"branch_{number}", node, group))
            ends = self._add(branch, inner, [])
            for source, target in zip(branch.results, conditional.results, strict=True):
                if source.size and source != target:
                    moved: Copy[Slice] = Copy(conditional.name, source, target)
                    ends = [self._node(moved, inner, [(id, CONDITION) for id in ends])]
        return node

    def _set(
        self,
        thunk: Thunk[Slice],
        group: str,
        ends: list[str],
        after: Waits,
    ) -> str:
        """Add the kernel that reads a predicate or selector and sets the condition."""
        reasons = dict(after)
        setter = self._plain(f"set {thunk.name}", "condition", group)
        waits = [(id, reasons.get(id, CONDITION)) for id in ends] if ends else after
        self.arrows.extend([_arrow(id, setter, why) for id, why in waits])
        return setter

    def _plain(self, name: str, kind: str, group: str) -> str:
        id = f"n{len(self.nodes)}"
        self.nodes.append(Node(id, shortened(name), kind, (kind,), group=group, key=(kind,)))
        return id

    def _node(self, thunk: Thunk[Slice], group: str, after: Waits) -> str:
        id = f"n{len(self.nodes)}"
        is_open = isinstance(thunk, While | Conditional)
        name, *lines = self.labels.node(thunk, (), is_open).split("\n")
        self.nodes.append(
            Node(
                id,
                name,
                kind_of(thunk),
                tuple(lines),
                self.labels.tooltip(thunk),
                group,
                self.instructions.of(thunk) | {thunk.name, thunk.name.rpartition("]/")[2]},
                self.keys.thunk(thunk),
                seconds=self.seconds(thunk),
            )
        )
        self.arrows.extend([_arrow(before, id, why) for before, why in after])
        return id


def _with_nodes(
    sequence: Sequence[Slice],
) -> tuple[list[Thunk[Slice]], list[list[_Wait]]]:
    """Return the thunks that become nodes, and for each what it waits for.

    Who waits for one that becomes none waits for what that waits for.
    """
    leading: list[list[Edge]] = [[] for _ in sequence.thunks]
    for edge in sequence.edges:
        leading[edge.dst].append(edge)
    kept: list[Thunk[Slice]] = []
    waits: list[list[_Wait]] = []
    ends: list[tuple[int, ...]] = []
    for thunk, edges in zip(sequence.thunks, leading, strict=True):
        before = {at: edge for edge in edges for at in ends[edge.src]}
        if _has_node(thunk):
            ends.append((len(kept),))
            kept.append(thunk)
            waits.append([_Wait(at, edge) for at, edge in sorted(before.items())])
        else:
            ends.append(tuple(sorted(before)))
    return kept, waits


def _has_node(thunk: Thunk[Slice]) -> bool:
    match thunk:
        case Copy():
            return bool(thunk.source.size) and thunk.source != thunk.target
        case Fill():
            return bool(thunk.target.size)
        case Kernel() | Collective():
            return any(w.size for w in thunk.writes)
        case _:
            return True


def _arrow(src: str, dst: str, why: Edge | str) -> Arrow:
    if isinstance(why, str):
        return Arrow(src, dst, why, why, why)
    if why.slice is None:
        return Arrow(src, dst, why.hazard, str(why.hazard), str(why.hazard))
    label = f"{why.hazard} {bytes_text(why.slice.size)}"
    return Arrow(src, dst, why.hazard, label, f"{why.hazard} {why.slice}")


def _longest(nodes: Several[Node], arrows: Several[Arrow]) -> list[str]:
    """Return the ids on a longest path through the outermost nodes."""
    into: dict[str, list[str]] = {}
    for arrow in arrows:
        into.setdefault(arrow.dst, []).append(arrow.src)
    depth: dict[str, int] = {}
    for node in nodes:  # in an order in which what is waited for comes first
        if not node.group:
            depth[node.id] = 1 + max((depth[s] for s in into.get(node.id, ())), default=0)
    path: list[str] = []
    at = max(depth, key=lambda id: depth[id], default=None)
    while at is not None:
        path.append(at)
        before = [s for s in into.get(at, ()) if depth[s] == depth[at] - 1]
        at = before[0] if before else None
    return path[::-1]
