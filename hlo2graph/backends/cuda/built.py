"""A plan's graph on the device, for arrays that lie at one placement and may move to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from weakref import ref

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.bind import Binder, Stopwatch
from hlo2graph.backends.cuda.budget import BUDGET, Holder, estimated_bytes, tick
from hlo2graph.backends.cuda.driver import Bound, Device
from hlo2graph.backends.cuda.graph import GraphBuilder
from hlo2graph.backends.cuda.graph_exec import GraphExec, GraphOwner
from hlo2graph.backends.cuda.kept_graph import KeptGraph
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.nodes import Node
from hlo2graph.backends.cuda.partial.bind import Cut
from hlo2graph.backends.cuda.ports import Placement, Port
from hlo2graph.backends.cuda.steps import StepSequence
from hlo2graph.backends.cuda.temporaries.inside import Inside
from hlo2graph.errors import BackendError
from hlo2graph.program.thunks import Sequence, Slice

MOST_LAUNCHERS = 64  # streams for which a launch is kept ready
MOST_PATTERNS = 64  # sets of ports that moved together, for which the updates are kept ready


@dataclass(frozen=True, slots=True)
class GraphMaker:
    """Builds graphs of the same steps, each over its own addresses.

    `cut` says how the plan is parted, where it is not to be one graph; `script` is it parted.
    `inside` is the arena, where graphs allocate it themselves.
    """

    device: Device
    steps: StepSequence
    nothing: Any  # the kernel that does nothing
    ports: tuple[Port, ...]
    cut: Cut | None = None
    script: StepSequence | None = None
    inside: Inside | None = None
    chain: bool = False
    keep: object = None  # what owns kernels of the steps that the executable does not
    made: list[ref[BuiltGraph | KeptGraph]] = field(default_factory=list)  # all there are

    def bound_by(self, binder: Binder, body: Sequence[Slice], keep: object) -> GraphMaker:
        """Return what makes graphs of `body`, the plan with loops written out, as `binder` has it.

        `keep` owns the binder's kernels.
        """
        script = None if self.cut is None else self.cut.bind(binder)
        return replace(self, steps=binder.bind(body), script=script, keep=keep)

    def know(self, graph: BuiltGraph | KeptGraph) -> None:
        """Count `graph` among those of the executable, as long as it lives."""
        self.made.append(ref(graph, self.made.remove))

    def build(self, home: Addresses, placement: Placement) -> tuple[GraphBuilder, Any]:
        """Return a new graph, and what built it; allocations that are no ports lie at `home`."""
        bases = list(home.bases)
        for port, address in zip(self.ports, placement, strict=True):
            bases[port.allocation] = address
        builder = GraphBuilder(self.device, self.nothing, Addresses(bases))
        return builder, builder.build(self.steps, chain=self.chain, inside=self.inside)


class BuiltGraph:
    """One graph, instantiated and on the device; `placement` is where its ports lie now."""

    def __init__(
        self,
        maker: GraphMaker,
        home: Addresses,
        stream: Stream,
        placement: Placement,
        timed: Stopwatch | None = None,
        holder: Holder | None = None,
    ) -> None:
        self._maker, self._home, self._stream = maker, home, stream
        self.owner = "others" if holder is None else holder.name
        self.holder, self.size, self.used = holder, 0, 0
        self.driver_bytes = 0  # what the driver took for it
        self.exec: GraphExec | None = None
        self._launch: Bound | None = None
        self.refusals: list[str] = []  # why the graph was instantiated anew
        self._start(placement, timed or Stopwatch())
        maker.know(self)

    def _start(self, placement: Placement, timed: Stopwatch) -> None:
        start = perf_counter()
        with timed("build"):
            builder, graph = self._maker.build(self._home, placement)
        with GraphOwner(graph) as owner:
            made = self._instantiated(builder, graph, timed)
            self.exec = made.own(owner)
        self.build_seconds = perf_counter() - start
        self._take(builder, placement)

    def _instantiated(self, builder: GraphBuilder, graph: Any, timed: Stopwatch) -> GraphExec:
        """Instantiate a graph within the process's budget, and put it on the device."""

        def make() -> GraphExec:
            with timed("instantiate"):
                made = GraphExec(graph, builder.places, self._maker.device)
            with timed("upload"):
                own = Stream()  # ours may be held back
                made.upload(own.handle)
                own.synchronize("putting the graph on the device")
            return made

        return BUDGET.instantiate(self, estimated_bytes(builder.lanes, builder.nodes), make)

    def drop(self) -> None:
        """Let go of what is instantiated; who calls has waited for its last run."""
        self.exec, self._launch, self.driver_bytes = None, None, 0
        self._moves.clear()
        self._launchers.clear()

    @property
    def ready(self) -> GraphExec:
        """What is instantiated, built again if it was dropped."""
        if self.exec is None:
            assert self.placement is not None
            self._start(self.placement, Stopwatch())
            BUDGET.count_rebuilt()
            assert self.exec is not None
        return self.exec

    @property
    def graph(self) -> Any:
        """The graph that is instantiated."""
        return self.ready.graph

    def _take(self, builder: GraphBuilder, placement: Placement) -> None:
        assert self.exec is not None
        self.nodes, self.edges, self.notes = builder.nodes, builder.edges, tuple(builder.notes)
        self.placement: Placement | None = placement
        self._at = builder.at
        self._held: dict[int, list[Node]] = {}  # by port
        ports = {port.allocation: k for k, port in enumerate(self._maker.ports)}
        for node in builder.held:
            for allocation in {part.allocation for part in node.step.slices}:
                if allocation in ports:
                    self._held.setdefault(ports[allocation], []).append(node)
        self.matters = tuple(sorted(self._held))  # the ports that any node touches
        self._moves: dict[tuple[int, ...], list[tuple[Node, Callable[[], None]]]] = {}
        self._counts: dict[tuple[int, ...], int] = {}  # of the nodes that these ports touch
        self._launchers: dict[int, Bound] = {}
        self._launch = self.exec.launcher(self._stream)

    def launch(self) -> None:
        """Enqueue a run on its own stream."""
        self.launch_on(self._stream)

    def launch_on(self, stream: Stream) -> None:
        """Enqueue a run on `stream`."""
        made = self.exec or self.ready
        self.used = tick()
        if stream is self._stream and self._launch is not None:
            self._launch()
            return
        handle = int(stream)
        if handle not in self._launchers:
            if len(self._launchers) >= MOST_LAUNCHERS:
                self._launchers.clear()
            self._launchers[handle] = made.launcher(stream)
        self._launchers[handle]()

    def nodes_to_move(self, placement: Placement) -> int:
        """Return how many nodes hold an address that `placement` changes."""
        changed = self._changed(placement)
        if changed not in self._counts:
            if len(self._counts) >= MOST_PATTERNS:
                self._counts.clear()
            self._counts[changed] = len(self._touched(changed))
        return self._counts[changed]

    def move(self, placement: Placement) -> int:
        """Let the ports lie at `placement` from the next run on; return how many nodes changed.

        Where the driver refuses, the graph is instantiated anew, and `refusals` says why.
        """
        if placement == self.placement:
            self.placement = placement
            return 0
        if self.placement is None or self.exec is None:  # an earlier move failed; it was dropped
            self._start(placement, Stopwatch())
            return self.nodes
        if not self._held:
            self.placement = placement
            return 0
        moves = self._moved(self._changed(placement))
        self.placement = None
        bases = self._at.bases
        assert isinstance(bases, list)
        for port, address in zip(self._maker.ports, placement, strict=True):
            bases[port.allocation] = address
        try:
            for node, give in moves:
                node.move(self._at)
                give()
        except BackendError as error:
            self.refusals.append(str(error))
            self._start(placement, Stopwatch())
            return self.nodes
        self.placement = placement
        return len(moves)

    def replace(self, placement: Placement) -> None:
        """Build the graph again for `placement` and update the instantiated one as a whole.

        Where the driver refuses, the new graph is instantiated instead; so is one that allocates
        memory, which cannot be updated.
        """
        if self._maker.inside is not None or self.exec is None:
            self._start(placement, Stopwatch())
            return
        builder, graph = self._maker.build(self._home, placement)
        held, self.placement = self.placement, None
        with GraphOwner(graph) as owner:
            if refused := self.exec.update(graph, builder.places):
                self.placement = held
                self.refusals.append(f"cuGraphExecUpdate: {refused}")
                self.exec = self._instantiated(builder, graph, Stopwatch()).own(owner)
                self._take(builder, placement)
        self.placement = placement

    def _changed(self, placement: Placement) -> tuple[int, ...]:
        held = self.placement
        if held is None:
            return tuple(range(len(placement)))
        return tuple([k for k, at in enumerate(placement) if at != held[k]])

    def _moved(self, changed: tuple[int, ...]) -> list[tuple[Node, Callable[[], None]]]:
        """Return the nodes that touch any of these ports, each with what updates it."""
        if changed not in self._moves:
            if len(self._moves) >= MOST_PATTERNS:
                self._moves.clear()
            handle, found = self.ready.handle, self._touched(changed)
            self._moves[changed] = [(node, node.setter(handle)) for node in found]
        return self._moves[changed]

    def _touched(self, changed: tuple[int, ...]) -> tuple[Node, ...]:
        return tuple({id(n): n for port in changed for n in self._held.get(port, ())}.values())
