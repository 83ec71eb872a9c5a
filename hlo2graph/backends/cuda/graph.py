"""A plan as one CUDA graph: a node a thunk, exactly the plan's edges, loops and branches inside.

Nodes are created with their dependency lists; nothing is captured and no node only joins others.
What launch_order.py adds, a beginning that is cheap to launch, is all that the plan does not say.
Edges between small kernels are programmatic where the device knows them: the later kernel is put on
the device while the earlier one runs, and itself waits for it (`hlo::follow`). So are those between
larger ones that share no memory, whose blocks the device holds all at once. A conditional node's
body holds kernels, copies and fills, and further conditional nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, assert_never

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.driver import Device, call, cuda, version_text
from hlo2graph.backends.cuda.launch_order import launch_order
from hlo2graph.backends.cuda.nodes import CopyNode, FillNode, KernelNode, LibraryNode, Node
from hlo2graph.backends.cuda.steps import (
    BranchStep,
    CopyStep,
    FillStep,
    GraphStep,
    KernelStep,
    LibraryStep,
    LoopStep,
    Step,
    StepSequence,
)
from hlo2graph.backends.cuda.temporaries.inside import Inside
from hlo2graph.errors import BackendError
from hlo2graph.options import chosen
from hlo2graph.program.device_figures import figures_for

CONDITIONALS = 12030  # driver version from which WHILE and IF nodes exist
SWITCHES = 12080  # from which IF-ELSE and SWITCH nodes, and empty bodies, exist
ROOM = 1.25  # blocks a multiprocessor, of kernels that leave room for others
PROGRAMMATIC = 12030  # from which edges may be programmatic
EARLIEST_WAITER = 90  # the architecture from which kernels can wait for each other
WITHOUT = chosen("capture", "-while,-conditional")
NO_GRAPH = f"update it, or leave these out of the graph: {WITHOUT}"


@dataclass(slots=True)
class GraphBuilder:
    """Adds sequences' nodes to graphs; `places` says for each node which HLO it is for.

    `at` is where the slices lie, and `held` the nodes that hold addresses of them. `nothing` is a
    kernel that does nothing: for start nodes, and because older drivers refuse an empty body.
    `notes` tells what was built differently from what the newest driver allows. `lanes` counts
    chains of nodes that cover all graphs, as the driver needs them to run side by side what may.
    """

    device: Device
    nothing: Any
    at: Addresses
    held: list[Node] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    lanes: int = 0
    _ends: set[int] = field(default_factory=set)  # the last node of each lane
    _small: set[int] = field(default_factory=set)  # nodes of kernels that leave room for others
    _bare: set[int] = field(default_factory=set)  # those of kernels that wait in room to spare

    def build(
        self, sequence: StepSequence, *, chain: bool = False, inside: Inside | None = None
    ) -> Any:
        """Return a new graph of `sequence`; a `chain` runs it in program order instead.

        `inside` is the arena that the graph allocates itself.
        """
        graph = call(cuda.cuGraphCreate, 0)
        try:
            first = [] if inside is None else [self._allocated(graph, inside)]
            if chain:
                ends = self.add(graph, sequence, first, chain=True)
            else:
                order = launch_order(sequence)
                if order.has_start and not first:
                    first = [self._start(graph)]
                ends = self.add(graph, order.sequence, first, chain=False)
            if inside is not None:
                base = self.at.bases[inside.first]
                self._counted(inside.free(graph, ends, base), "the end of the arena", ends)
        except BaseException:
            cuda.cuGraphDestroy(graph)
            raise
        return graph

    def add(
        self, graph: Any, sequence: StepSequence, after: Sequence[Any], *, chain: bool
    ) -> list[Any]:
        """Add `sequence` to `graph` behind `after`; return the nodes that nothing in it follows."""
        if chain:
            sequence = _chained(sequence)
        added: list[Any] = []
        for step, before in zip(sequence.steps, sequence.predecessors, strict=True):
            waits = [added[p] for p in before] if before else list(after)
            added.append(self._node(graph, step, waits, chain=chain))
        return [added[k] for k in sequence.sinks] if added else list(after)

    def _node(self, graph: Any, step: Step, after: list[Any], *, chain: bool) -> Any:
        match step:
            case KernelStep():
                return self._kernel(graph, step, after)
            case CopyStep():
                return self._added(CopyNode(step, self.at, self.device.context), graph, after)
            case FillStep():
                return self._added(FillNode(step, self.at, self.device.context), graph, after)
            case LibraryStep():
                return self._added(LibraryNode(step, self.at), graph, after)
            case LoopStep():
                return self._loop(graph, step, after, chain=chain)
            case BranchStep():
                return self._branch(graph, step, after, chain=chain)
            case GraphStep():
                raise AssertionError(f"{step.name} is a graph by itself")
            case _:
                assert_never(step)

    def _kernel(self, graph: Any, step: KernelStep, after: list[Any]) -> Any:
        blocks, device = prod(step.grid), self.device
        is_small = self._has_programmatic and blocks <= ROOM * device.multiprocessors
        most = device.multiprocessors * figures_for(device.arch).threads
        is_bare = self._has_programmatic and step.is_bare and blocks * step.threads <= most
        early = [
            n
            for n in after
            if (is_small and int(n) in self._small) or (is_bare and int(n) in self._bare)
        ]
        others = [n for n in after if n not in early]
        node = self._added(KernelNode(step, self.at), graph, others, early)
        if early:
            add, kinds = cuda.cuGraphAddDependencies, [_programmatic() for _ in early]
            doing = f"adding {step.place}"
            call(add, graph, early, [node] * len(early), kinds, len(early), doing=doing)
        if is_small:
            self._small.add(int(node))
        if is_bare:
            self._bare.add(int(node))
        return node

    @property
    def _has_programmatic(self) -> bool:
        waits = int(self.device.arch.removeprefix("sm_")) >= EARLIEST_WAITER
        return waits and self.device.driver_version >= PROGRAMMATIC

    def _added(
        self, node: Node, graph: Any, after: Sequence[Any], early: Sequence[Any] = ()
    ) -> Any:
        """Add a node behind `after`; `early` are those that it gets other edges from."""
        handle = node.add(graph, after)
        if node.step.slices:
            self.held.append(node)
        return self._counted(handle, node.step.place, (*after, *early))

    def _counted(self, handle: Any, place: str, after: Sequence[Any]) -> Any:
        self.places[int(handle)] = place
        self.nodes += 1
        self.edges += len(after)
        goes_on = next((int(n) for n in after if int(n) in self._ends), None)
        if goes_on is None:
            self.lanes += 1
        else:
            self._ends.remove(goes_on)
        self._ends.add(int(handle))
        return handle

    def _loop(self, graph: Any, step: LoopStep, after: list[Any], *, chain: bool) -> Any:
        """The condition once in front, then a WHILE node whose body ends with the condition."""
        self._require(CONDITIONALS, step.place, "WHILE nodes")
        handle = self._handle(graph, step.place)
        setter = step.setter.with_handle(handle)
        ready = self._kernel(graph, setter, self.add(graph, step.condition, after, chain=chain))
        kind = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        node, (body,) = self._conditional(graph, [ready], handle, kind, 1, step.place)
        ran = self.add(body, step.body, (), chain=chain)
        self._kernel(body, setter, self.add(body, step.condition, ran, chain=chain))
        return node

    def _branch(self, graph: Any, step: BranchStep, after: list[Any], *, chain: bool) -> Any:
        """A kernel that reads the selector, then one IF-ELSE or SWITCH node."""
        self._require(CONDITIONALS, step.place, "IF nodes")
        if self.device.driver_version < SWITCHES:
            return self._one_by_one(graph, step, after, chain=chain)
        kinds = cuda.CUgraphConditionalNodeType
        kind = kinds.CU_GRAPH_COND_TYPE_IF if step.is_pred else kinds.CU_GRAPH_COND_TYPE_SWITCH
        handle = self._handle(graph, step.place)
        ready = self._kernel(graph, step.setter.with_handle(handle), after)
        size = len(step.branches)
        node, bodies = self._conditional(graph, [ready], handle, kind, size, step.place)
        for body, branch in zip(bodies, step.branches, strict=True):
            self.add(body, branch, (), chain=chain)
        return node

    def _one_by_one(self, graph: Any, step: BranchStep, after: list[Any], *, chain: bool) -> Any:
        """An IF node for each branch, one behind the other, for drivers that have no SWITCH.

        All conditions are set before the first branch runs: a branch may overwrite the selector.
        """
        kind = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
        handles = [self._handle(graph, step.place) for _ in step.branches]
        for number, handle in enumerate(handles):
            after = [self._kernel(graph, step.setter.for_branch(handle, number), after)]
        for handle, branch in zip(handles, step.branches, strict=True):
            node, (body,) = self._conditional(graph, after, handle, kind, 1, step.place)
            if not self.add(body, branch, (), chain=chain):
                self._kernel(body, self._nothing(step.name, step.place), [])
            after = [node]
        self.notes.append(
            f"{step.name} became {len(step.branches)} IF nodes: driver "
            f"{self.device.driver_text} has no SWITCH nodes ({version_text(SWITCHES)} has)"
        )
        return after[0]

    def _allocated(self, graph: Any, inside: Inside) -> Any:
        """Add the node that allocates the arena, and let slices lie there."""
        node, base = inside.allocate(graph)
        assert isinstance(self.at.bases, list)
        for index, address in inside.layout.at(base).items():
            self.at.bases[index] = address
        return self._counted(node, "the arena", ())

    def _start(self, graph: Any) -> Any:
        return self._kernel(graph, self._nothing("start", "the start node"), [])

    def _nothing(self, name: str, place: str) -> KernelStep:
        return KernelStep(name, place, self.nothing, (1, 1, 1), 1, 0, ())

    def _handle(self, graph: Any, place: str) -> Any:
        make, context = cuda.cuGraphConditionalHandleCreate, self.device.context
        return call(make, graph, context, 0, 0, doing=f"adding {place}")

    def _conditional(
        self, graph: Any, after: list[Any], handle: Any, kind: Any, size: int, place: str
    ) -> tuple[Any, list[Any]]:
        params = cuda.CUgraphNodeParams()
        params.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = kind
        params.conditional.size = size
        params.conditional.ctx = self.device.context
        add, doing = cuda.cuGraphAddNode, f"adding {place}"
        node = call(add, graph, after, None, len(after), params, doing=doing)
        return self._counted(node, place, after), list(params.conditional.phGraph_out)[:size]

    def _require(self, version: int, place: str, what: str) -> None:
        if self.device.driver_version < version:
            raise BackendError(
                f"{place} needs {what}, which come with driver {version_text(version)}; this one "
                f"is {self.device.driver_text}: {NO_GRAPH}"
            )


def _programmatic() -> Any:
    """Return the kind of edge behind which a kernel may be put on the device early."""
    kind = cuda.CUgraphEdgeData()
    kind.from_port = cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    kind.type = cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    return kind


def _chained(sequence: StepSequence) -> StepSequence:
    before = tuple((k - 1,) if k else () for k in range(len(sequence.steps)))
    return StepSequence(sequence.steps, before)
