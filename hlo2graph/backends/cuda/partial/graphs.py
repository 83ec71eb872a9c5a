"""Several graphs, and lone thunks between them, launched as if they were one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import assert_never

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.bind import Stopwatch
from hlo2graph.backends.cuda.budget import Holder
from hlo2graph.backends.cuda.built import BuiltGraph, GraphMaker
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.backends.cuda.serial import Do, Gate, SerialStream
from hlo2graph.backends.cuda.steps import (
    BranchStep,
    CopyStep,
    FillStep,
    GraphStep,
    KernelStep,
    LibraryStep,
    LoopStep,
    StepSequence,
)
from hlo2graph.backends.cuda.temporaries.opened import OpenedArena

MOST_PATTERNS = 64  # sets of ports that moved together, for which what to do is kept ready


class PartialGraph:
    """A script instantiated: a graph for each GraphStep, a serial stream for all.

    A run returns before it is done, as that of one graph does, unless the host steers a loop or a
    branch of it.
    """

    def __init__(
        self,
        maker: GraphMaker,
        home: Addresses,
        stream: Stream,
        placement: Placement,
        timed: Stopwatch | None = None,
        holder: Holder | None = None,
    ) -> None:
        assert maker.script is not None
        self.holder = holder
        self._maker, self._stream = maker, stream
        self._script = maker.script
        each, bases = Stopwatch(), list(home.bases)
        self._arena: OpenedArena | None = None
        if maker.inside is not None:
            self._arena = OpenedArena(maker.inside, "others" if holder is None else holder.name)
            for around in self._arena.graphs:
                maker.know(around)
            for index, address in maker.inside.layout.at(self._arena.address).items():
                bases[index] = address
        self.graphs = {
            step.number: BuiltGraph(
                replace(maker, steps=step.sequence, script=None, inside=None),
                Addresses(tuple(bases)),
                *(stream, placement, each, holder),
            )
            for step in graph_steps(maker.script)
        }
        self.refusals: list[str] = []  # why graphs were instantiated anew
        for graph in self.graphs.values():
            graph.refusals = self.refusals
        if timed is not None:
            timed.stages += each.summed()
        self._bases = bases
        self.placement: Placement | None = self._put(placement)
        self._serial, self._serial_on = self._on(stream), stream
        self._moves: dict[tuple[int, ...], list[Do]] = {}
        self.matters = tuple(sorted({k for g in self.graphs.values() for k in g.matters}))

    @property
    def nodes(self) -> int:
        """Nodes of its graphs."""
        return sum(graph.nodes for graph in self.graphs.values())

    @property
    def size(self) -> int:
        """Bytes that its graphs count for."""
        around = () if self._arena is None else self._arena.graphs
        sizes = (graph.size for graph in self.graphs.values())
        return sum(sizes) + sum(graph.size for graph in around)

    @property
    def edges(self) -> int:
        """Edges of its graphs."""
        return sum(graph.edges for graph in self.graphs.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What was built differently from what the newest driver allows."""
        return tuple(note for graph in self.graphs.values() for note in graph.notes)

    @property
    def build_seconds(self) -> float:
        """What building its graphs took."""
        return sum(graph.build_seconds for graph in self.graphs.values())

    def launch(self, gate: Gate | None = None) -> None:
        """Enqueue a run on its own stream; see SerialStream.enqueue for a `gate`."""
        self._enqueue(self._stream, gate)

    def launch_on(self, stream: Stream) -> None:
        """Enqueue a run on `stream`."""
        self._enqueue(stream, None)

    def nodes_to_move(self, placement: Placement) -> int:
        """Return how many nodes and lone thunks hold an address that `placement` changes."""
        inside = sum(graph.nodes_to_move(placement) for graph in self.graphs.values())
        return inside + len(self._moved(self._changed(placement)))

    def move(self, placement: Placement) -> int:
        """Let the ports lie at `placement` from the next run on; return what that changed."""
        changed = self._changed(placement)
        if not changed:
            self.placement = placement
            return 0
        self.placement = None
        inside = sum(graph.move(placement) for graph in self.graphs.values())
        return inside + self._follow(changed, placement)

    def replace(self, placement: Placement) -> None:
        """Build graphs that touch what moved again, and update those instantiated as a whole."""
        changed, self.placement = self._changed(placement), None
        for graph in self.graphs.values():
            if not set(changed).isdisjoint(graph.matters):
                graph.replace(placement)
        self._follow(changed, placement)

    def _follow(self, changed: tuple[int, ...], placement: Placement) -> int:
        """Let lone thunks follow the ports that moved; return how many there were."""
        self._put(placement)
        moves = self._moved(changed)
        for move in moves:
            move()
        self.placement = placement
        return len(moves)

    def _put(self, placement: Placement) -> Placement:
        for port, address in zip(self._maker.ports, placement, strict=True):
            self._bases[port.allocation] = address
        return placement

    def _changed(self, placement: Placement) -> tuple[int, ...]:
        held = self.placement
        if held is None:
            return tuple(range(len(placement)))
        return tuple(k for k, (a, b) in enumerate(zip(held, placement, strict=True)) if a != b)

    def _moved(self, changed: tuple[int, ...]) -> list[Do]:
        if changed not in self._moves:
            if len(self._moves) >= MOST_PATTERNS:
                self._moves.clear()
            allocations = [self._maker.ports[k].allocation for k in changed]
            self._moves[changed] = self._serial.to_move(allocations)
        return self._moves[changed]

    def _enqueue(self, stream: Stream, gate: Gate | None) -> None:
        if self._serial_on is not stream:
            self._serial, self._serial_on = self._on(stream), stream
            self._moves.clear()
        with nullcontext() if self._arena is None else self._arena.on(stream):
            self._serial.enqueue(gate)

    def _on(self, stream: Stream) -> SerialStream:
        movable = [port.allocation for port in self._maker.ports]
        return SerialStream(self._script, stream, Addresses(self._bases), self.graphs, movable)


def graph_steps(script: StepSequence) -> Iterator[GraphStep]:
    """Yield the GraphSteps of a script that run, those of loops and branches too."""
    for step in script.steps:
        match step:
            case GraphStep():
                yield step
            case LoopStep():
                if step.rounds is None:
                    yield from graph_steps(step.condition)
                yield from graph_steps(step.body)
            case BranchStep():
                for branch in step.branches:
                    yield from graph_steps(branch)
            case KernelStep() | CopyStep() | FillStep() | LibraryStep():
                pass
            case _:
                assert_never(step)


def built(
    maker: GraphMaker,
    home: Addresses,
    stream: Stream,
    placement: Placement,
    timed: Stopwatch | None = None,
    holder: Holder | None = None,
) -> BuiltGraph | PartialGraph:
    """Instantiate what `maker` makes: one graph, or a script; `holder` is whose calls launch it."""
    make: Callable[..., BuiltGraph | PartialGraph]
    make = BuiltGraph if maker.script is None else PartialGraph
    return make(maker, home, stream, placement, timed, holder)
