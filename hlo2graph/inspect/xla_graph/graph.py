"""The graphs that XLA makes of its thunks: which thunks are in one, and what orders them.

In: XLA's thunks, and its printed thunk sequence where there is one, for the grouping. Out: graphs
in the order in which XLA prints them. XLA orders two nodes where one writes bytes that the other
reads or writes, then drops every edge that others imply. In its modes LHS and SERIALIZE each node
waits for the one before, whatever it needs.

Each edge gets the reason that the program has for it, if it has one:

- raw: the later node needs an array that the earlier one makes;
- control: the schedule says so;
- war: a loop's state lives at one place, and the earlier node uses the old round's;
- inplace: the later node writes over its operand, or a parameter, that the earlier one reads;
- reuse: the two share bytes only because buffer assignment gave them out twice;
- order: nothing but the mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from hlo2graph.frontend.xla_dump import Leaf, Printed, XlaBuffers, XlaKind, XlaThunk
from hlo2graph.program.byte_map import ByteMap
from hlo2graph.program.order import PartialOrder
from hlo2graph.program.thunks import Hazard, Slice

_KINDS = {
    "kWhile": XlaKind.WHILE,
    "kConditional": XlaKind.CONDITIONAL,
    "kAsyncStart": XlaKind.START,
    "kAsyncDone": XlaKind.DONE,
}
_HOLDING = frozenset(_KINDS.values())


class Mode(StrEnum):
    """How XLA orders the nodes of a graph: by buffers alone, or each after the one before."""

    CONCURRENT = "concurrent"
    LHS = "lhs"
    SERIALIZE = "serialize"


@dataclass(frozen=True, slots=True)
class XlaEdge:
    """Node `dst` waits for node `src`; `slice` are bytes that they share, None for none."""

    src: int
    dst: int
    hazard: Hazard
    slice: Slice | None = None


@dataclass(frozen=True, slots=True)
class XlaGraph:
    """One of XLA's graphs. `where` says what holds it, '' for the entry."""

    where: str
    nodes: tuple[XlaThunk, ...]
    edges: tuple[XlaEdge, ...]

    @property
    def priorities(self) -> tuple[int, ...]:
        """For each node how many come after it."""
        after = [0] * len(self.nodes)
        for edge in sorted(self.edges, key=lambda e: -e.src):
            after[edge.src] |= after[edge.dst] | 1 << edge.dst
        return tuple(bits.bit_count() for bits in after)


@dataclass(frozen=True, slots=True)
class Segment:
    """Thunks of one sequence in a row that make a graph, or one thunk outside of any."""

    thunks: tuple[XlaThunk, ...]
    captured: bool


def fits(thunks: Sequence[XlaThunk], printed: Sequence[Printed]) -> bool:
    """Tell whether the printed sequence can be that of `thunks`: as many, loops where loops are."""
    lines = list(_flat(printed))
    if len(lines) != len(thunks):
        return False
    return all(
        _KINDS.get(line.kind) is (thunk.kind if thunk.kind in _HOLDING else None)
        and all(fits(inner, line.under(label)) for label, inner in _sequences(thunk))
        for line, thunk in zip(lines, thunks, strict=True)
    )


def _sequences(thunk: XlaThunk) -> tuple[tuple[str, tuple[XlaThunk, ...]], ...]:
    return thunk.inside if thunk.kind in _HOLDING else ()


def segments(thunks: Sequence[XlaThunk], printed: Sequence[Printed] | None) -> tuple[Segment, ...]:
    """Return how one sequence is cut into graphs; without XLA's print, as if it took all it can."""
    if printed is None:
        return tuple(_by_kind(thunks))
    found, at = [], 0
    for line in printed:
        if line.kind == "kCommandBuffer":
            count = len(line.under(""))
            found.append(Segment(tuple(thunks[at : at + count]), captured=True))
            at += count
        else:
            found.append(Segment((thunks[at],), captured=False))
            at += 1
    return tuple(found)


def _by_kind(thunks: Sequence[XlaThunk]) -> Iterator[Segment]:
    """Yield runs of what is in one graph; where computations say which, only those are."""
    told = any(thunk.graph for thunk in thunks)

    def home(thunk: XlaThunk) -> str | None:
        return (thunk.graph or None) if told else ("" if thunk.captured else None)

    for graph, run in groupby(thunks, key=home):
        if graph is not None:
            yield Segment(tuple(run), captured=True)
        else:
            yield from (Segment((thunk,), captured=False) for thunk in run)


def build_graphs(
    thunks: Sequence[XlaThunk],
    printed: Sequence[Printed] | None,
    buffers: XlaBuffers,
    mode: Mode,
) -> tuple[XlaGraph, ...]:
    """Return all graphs of a program, in XLA's order of printing.

    What is nested in a node comes before the graph that the node is in; a graph comes when the
    thunk behind it has been looked into.
    """
    return tuple(_Graphs(buffers, mode).sequence(thunks, printed, ""))


class _Graphs:
    def __init__(self, buffers: XlaBuffers, mode: Mode) -> None:
        self._buffers, self._mode = buffers, mode

    def sequence(
        self, thunks: Sequence[XlaThunk], printed: Sequence[Printed] | None, where: str
    ) -> Iterator[XlaGraph]:
        """Yield the graphs of a sequence that is not itself inside a graph."""
        lines = iter(_flat(printed)) if printed is not None else None
        pending: list[XlaGraph] = []
        for segment in segments(thunks, printed):
            held = [(thunk, next(lines) if lines else None) for thunk in segment.thunks]
            if segment.captured:
                yield from pending
                pending = list(self._graph(segment.thunks, where))
                continue
            for thunk, line in held:
                yield from self._beneath(thunk, line, where)
            yield from pending
            pending = []
        yield from pending

    def _beneath(self, thunk: XlaThunk, line: Printed | None, where: str) -> Iterator[XlaGraph]:
        """Yield the graphs of the sequences in a thunk that is in none."""
        if not thunk.kind.holds_sequences:
            return
        for label, inner in thunk.inside:
            if line is None and label == "condition":
                continue  # XLA makes a graph of the body alone
            under = line.under(label) if line else None
            yield from self.sequence(inner, under, _inside(where, thunk, label))

    def _graph(self, thunks: Sequence[XlaThunk], where: str) -> Iterator[XlaGraph]:
        """Yield the graphs of what the nodes hold, then that of the nodes."""
        nodes = nodes_of(thunks)
        for node in nodes:
            for label, inner in node.inside:
                yield from self._graph(inner, _inside(where, node, label))
        yield XlaGraph(where, nodes, build_xla_edges(nodes, self._buffers, self._mode))


def _flat(printed: Sequence[Printed]) -> Iterator[Printed]:
    """Yield the lines of thunks, those in command buffers too."""
    for line in printed:
        if line.kind == "kCommandBuffer":
            yield from line.under("")
        else:
            yield line


def nodes_of(thunks: Sequence[XlaThunk]) -> tuple[XlaThunk, ...]:
    """Return what has a node: an asynchronous computation stands where it starts."""
    return tuple(_nodes(thunks))


def _nodes(thunks: Sequence[XlaThunk]) -> Iterator[XlaThunk]:
    for thunk in thunks:
        if thunk.kind is XlaKind.START:
            for _, inner in thunk.inside:
                yield from _nodes(inner)
        elif thunk.kind is not XlaKind.DONE:
            yield thunk


def _inside(where: str, thunk: XlaThunk, label: str) -> str:
    return "/".join(part for part in (where, thunk.name, label) if part)


def build_xla_edges(
    nodes: Sequence[XlaThunk], buffers: XlaBuffers, mode: Mode
) -> tuple[XlaEdge, ...]:
    """Return the edges of one graph by its target, the nearest source first."""
    conflicts, order, reasons = Conflicts(), PartialOrder(), _Reasons(nodes, buffers)
    edges: list[XlaEdge] = []
    for at, node in enumerate(nodes):
        found = conflicts.append(at, node)
        if mode is Mode.CONCURRENT:
            sources = order.join(found)
        else:
            sources = order.join(range(max(0, at - 1), at))
        for src in sources:
            hazard = reasons.of(nodes[src], node, shared=src in found)
            edges.append(XlaEdge(src, at, hazard, found.get(src)))
    return tuple(edges)


class Conflicts:
    """Finds with whom a node shares bytes that one of the two writes."""

    def __init__(self) -> None:
        self._bytes: defaultdict[int, ByteMap] = defaultdict(ByteMap)
        self._empty: defaultdict[Slice, list[tuple[int, bool]]] = defaultdict(list)

    def append(self, at: int, node: XlaThunk) -> dict[int, Slice]:
        """Return the earlier nodes that `node` must follow, each with bytes they share."""
        found: dict[int, Slice] = {}
        for writes, slices in ((False, node.reads), (True, node.writes)):
            for used in slices:
                if not used.size:
                    self._meet(at, used, writes, found)
                    continue
                bytes_ = self._bytes[used.allocation]
                met = bytes_.write(at, used) if writes else bytes_.read(at, used)
                for src, _, start, end in met:
                    shared = Slice(used.allocation, start, end - start)
                    found[src] = max(found.get(src, shared), shared, key=lambda s: s.size)
        return found

    def _meet(self, at: int, used: Slice, writes: bool, found: dict[int, Slice]) -> None:
        """Let slices of no bytes conflict where they are the same, as XLA has it."""
        for src, wrote in self._empty[used]:
            if src != at and (wrote or writes):
                found.setdefault(src, used)
        self._empty[used].append((at, writes))


class _Reasons:
    """Says why one node waits for another."""

    def __init__(self, nodes: Sequence[XlaThunk], buffers: XlaBuffers) -> None:
        self._slices = buffers.slices
        given = {a.index for a in buffers.allocations if a.kind == "parameter"}
        # What a node has made may lie where a parameter was, too; then memory is used again.
        self._arguments = {
            leaf
            for leaf in frozenset[Leaf]().union(*(n.takes for n in nodes))
            if buffers.slices[leaf].allocation in given
        }.difference(*(n.makes for n in nodes))

    def of(self, src: XlaThunk, dst: XlaThunk, *, shared: bool) -> Hazard:
        """Return the best reason of all; `shared` if they conflict on bytes."""
        if src.makes & dst.takes:
            return Hazard.RAW
        if src.name in dst.after:
            return Hazard.CONTROL
        if not shared:
            return Hazard.ORDER
        if self._over(src.takes & dst.state, dst):
            return Hazard.WAR
        if self._over(src.takes & (dst.takes | self._arguments), dst):
            return Hazard.INPLACE
        return Hazard.REUSE

    def _over(self, leaves: frozenset[Leaf], dst: XlaThunk) -> bool:
        """Tell whether `dst` writes over one of the arrays."""
        return any(w.overlaps(self._slices[leaf]) for leaf in leaves for w in dst.writes)
