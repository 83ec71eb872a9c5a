"""A plan as one CUDA graph: a node a thunk, exactly the plan's edges, loops and branches inside.

Nodes are created with their dependency lists; nothing is captured and no node only joins others.
A conditional node's body holds kernels, copies and fills, and further conditional nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.steps import (
    BranchStep,
    CopyStep,
    EmptyStep,
    FillStep,
    KernelStep,
    LoopStep,
    Step,
    StepSequence,
)
from hlo2graph.errors import BackendError

CONDITIONALS = 12030  # driver version from which WHILE and IF nodes exist
SWITCHES = 12080  # from which IF-ELSE and SWITCH nodes, and empty bodies, exist


@dataclass(slots=True)
class GraphBuilder:
    """Adds a sequence's nodes to a graph; `names` maps each node to its thunk's name."""

    device: Device
    names: dict[int, str] = field(default_factory=dict)

    def build(self, sequence: StepSequence, *, chain: bool = False) -> Any:
        """Return a new graph of `sequence`; a `chain` runs it in program order instead."""
        graph = call(cuda.cuGraphCreate, 0)
        self.add(graph, graph, sequence, [], chain=chain)
        return graph

    def add(
        self,
        top: Any,
        graph: Any,
        sequence: StepSequence,
        after: Sequence[Any],
        *,
        chain: bool,
    ) -> list[Any]:
        """Add `sequence` to `graph` behind `after`; return the nodes that nothing in it follows."""
        ends: list[list[Any]] = []
        followed: set[int] = set()
        for position, step in enumerate(sequence.steps):
            before = (
                [position - 1]
                if chain and position
                else []
                if chain
                else list(sequence.predecessors[position])
            )
            followed.update(before)
            waits = [n for p in before for n in ends[p]] or list(after)
            ends.append(self._node(top, graph, step, waits, chain=chain))
        return [n for p, nodes in enumerate(ends) if p not in followed for n in nodes] or list(
            after
        )

    def _node(
        self, top: Any, graph: Any, step: Step, after: list[Any], *, chain: bool
    ) -> list[Any]:
        """Add one step; return the nodes that a follower waits for (none it adds: `after`)."""
        doing = f"adding {step.name}"
        match step:
            case EmptyStep():
                return after
            case KernelStep():
                node = call(
                    cuda.cuGraphAddKernelNode,
                    graph,
                    after,
                    len(after),
                    step.node_params(),
                    doing=doing,
                )
            case CopyStep():
                node = call(
                    cuda.cuGraphAddMemcpyNode,
                    graph,
                    after,
                    len(after),
                    step.node_params(),
                    self.device.context,
                    doing=doing,
                )
            case FillStep():
                node = call(
                    cuda.cuGraphAddMemsetNode,
                    graph,
                    after,
                    len(after),
                    step.node_params(),
                    self.device.context,
                    doing=doing,
                )
            case LoopStep():
                node = self._loop(top, graph, step, after, chain=chain)
            case BranchStep():
                node = self._branch(top, graph, step, after, chain=chain)
            case _:
                assert_never(step)
        self.names[int(node)] = step.name
        return [node]

    def _loop(self, top: Any, graph: Any, step: LoopStep, after: list[Any], *, chain: bool) -> Any:
        """The condition once in front, then a WHILE node whose body ends with the condition."""
        self._require(CONDITIONALS, step.name, "WHILE nodes")
        handle = call(cuda.cuGraphConditionalHandleCreate, top, self.device.context, 0, 0)
        tested = self.add(top, graph, step.condition, after, chain=chain)
        setter = step.setter.with_handle(handle)
        ready = call(
            cuda.cuGraphAddKernelNode,
            graph,
            tested,
            len(tested),
            setter.node_params(),
            doing=step.name,
        )
        kind = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        node, (body,) = self._conditional(graph, [ready], handle, kind, 1, step.name)
        ran = self.add(top, body, step.body, [], chain=chain)
        tested = self.add(top, body, step.condition, ran, chain=chain)
        call(
            cuda.cuGraphAddKernelNode,
            body,
            tested,
            len(tested),
            setter.node_params(),
            doing=step.name,
        )
        return node

    def _branch(
        self, top: Any, graph: Any, step: BranchStep, after: list[Any], *, chain: bool
    ) -> Any:
        """A kernel that reads the selector, then one IF-ELSE or SWITCH node."""
        self._require(SWITCHES, step.name, "IF-ELSE and SWITCH nodes")
        handle = call(cuda.cuGraphConditionalHandleCreate, top, self.device.context, 0, 0)
        setter = step.setter.with_handle(handle)
        ready = call(
            cuda.cuGraphAddKernelNode,
            graph,
            after,
            len(after),
            setter.node_params(),
            doing=step.name,
        )
        kinds = cuda.CUgraphConditionalNodeType
        kind = kinds.CU_GRAPH_COND_TYPE_IF if step.is_pred else kinds.CU_GRAPH_COND_TYPE_SWITCH
        node, bodies = self._conditional(
            graph, [ready], handle, kind, len(step.branches), step.name
        )
        for body, branch in zip(bodies, step.branches, strict=True):
            self.add(top, body, branch, [], chain=chain)
        return node

    def _conditional(
        self, graph: Any, after: list[Any], handle: Any, kind: Any, size: int, name: str
    ) -> tuple[Any, list[Any]]:
        params = cuda.CUgraphNodeParams()
        params.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = kind
        params.conditional.size = size
        params.conditional.ctx = self.device.context
        node = call(
            cuda.cuGraphAddNode, graph, after, None, len(after), params, doing=f"adding {name}"
        )
        return node, list(params.conditional.phGraph_out)[:size]

    def _require(self, version: int, name: str, what: str) -> None:
        if self.device.driver_version < version:
            have, need = self.device.driver_version, version
            raise BackendError(
                f"{name} needs {what}, which come with driver {need // 1000}.{need % 1000 // 10}; "
                f"this one is {have // 1000}.{have % 1000 // 10}: update it, or run with --no-graph"
            )


class GraphExec:
    """An instantiated graph, destroyed with the object."""

    __slots__ = ("graph", "handle")

    def __init__(self, graph: Any, names: dict[int, str]) -> None:
        self.graph = graph
        self.handle = None
        params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
        status, self.handle = cuda.cuGraphInstantiateWithParams(graph, params)
        if status != cuda.CUresult.CUDA_SUCCESS:
            culprit = (
                names.get(int(params.hErrNode_out), "the graph") if params.hErrNode_out else ""
            )
            self.handle = None
            from hlo2graph.backends.cuda.driver import explain

            raise BackendError(explain("cuGraphInstantiateWithParams", status, f"at {culprit}"))

    def upload(self, stream: Any) -> None:
        """Put the graph on the device ahead of its first launch."""
        call(cuda.cuGraphUpload, self.handle, stream)

    def launch(self, stream: Any) -> None:
        """Enqueue one run of the graph."""
        call(cuda.cuGraphLaunch, self.handle, stream)

    def __del__(self) -> None:
        if cuda is not None:
            if self.handle is not None:
                cuda.cuGraphExecDestroy(self.handle)
            cuda.cuGraphDestroy(self.graph)
