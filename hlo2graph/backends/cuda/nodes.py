"""The nodes of a graph that hold addresses: made from a step once, added, and moved later.

Creating and updating go through the same parameters: `add` gives them to a graph, `move` writes
where the step's slices lie now, `setter` gives them to an instantiated graph, for nodes in bodies
of conditional nodes too. An update is one driver call, its arguments converted before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any, Protocol

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.driver import bound, call, cuda
from hlo2graph.backends.cuda.products import CapturedGraph
from hlo2graph.backends.cuda.steps import (
    CopyStep,
    FillStep,
    KernelStep,
    LibraryStep,
    PackedArguments,
    Straight,
)


class Node(Protocol):
    """A node of a graph whose parameters hold the addresses of its step's slices."""

    @property
    def step(self) -> Straight:
        """What it runs."""
        ...

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Add it to `graph` behind `after`; return its handle."""
        ...

    def move(self, at: Addresses) -> None:
        """Write where its slices lie now into its parameters."""
        ...

    def setter(self, exec_: Any) -> Callable[[], None]:
        """Return the call that gives its parameters to an instantiated graph."""
        ...


class KernelNode:
    """A kernel."""

    __slots__ = ("_handle", "_packed", "_params", "step")

    def __init__(self, step: KernelStep, at: Addresses) -> None:
        self.step = step
        self._packed = PackedArguments(step.arguments, at)
        self._params = step.node_params(self._packed)
        self._handle: Any = None

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Add it to `graph` behind `after`; return its handle."""
        add, doing = cuda.cuGraphAddKernelNode, f"adding {self.step.place}"
        self._handle = call(add, graph, after, len(after), self._params, doing=doing)
        return self._handle

    def move(self, at: Addresses) -> None:
        """Write where its slices lie now into its arguments."""
        self._packed.move(at)

    def setter(self, exec_: Any) -> Callable[[], None]:
        """Return the call that gives its parameters to an instantiated graph."""
        return _setter("cuGraphExecKernelNodeSetParams_v2", exec_, self._handle, self._params, self)


class CopyNode:
    """A copy by the driver."""

    __slots__ = ("_context", "_handle", "_params", "step")

    def __init__(self, step: CopyStep, at: Addresses, context: Any) -> None:
        self.step = step
        self._params = step.node_params(at)
        self._context = context
        self._handle: Any = None

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Add it to `graph` behind `after`; return its handle."""
        add, doing = cuda.cuGraphAddMemcpyNode, f"adding {self.step.place}"
        self._handle = call(add, graph, after, len(after), self._params, self._context, doing=doing)
        return self._handle

    def move(self, at: Addresses) -> None:
        """Write where its slices lie now into its parameters."""
        self._params.srcDevice = at.of(self.step.source)
        self._params.dstDevice = at.of(self.step.target)

    def setter(self, exec_: Any) -> Callable[[], None]:
        """Return the call that gives its parameters to an instantiated graph."""
        context = c_void_p(int(self._context))
        api = "cuGraphExecMemcpyNodeSetParams"
        return _setter(api, exec_, self._handle, self._params, self, context)


class FillNode:
    """A fill by the driver."""

    __slots__ = ("_context", "_handle", "_params", "step")

    def __init__(self, step: FillStep, at: Addresses, context: Any) -> None:
        self.step = step
        self._params = step.node_params(at)
        self._context = context
        self._handle: Any = None

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Add it to `graph` behind `after`; return its handle."""
        add, doing = cuda.cuGraphAddMemsetNode, f"adding {self.step.place}"
        self._handle = call(add, graph, after, len(after), self._params, self._context, doing=doing)
        return self._handle

    def move(self, at: Addresses) -> None:
        """Write where its slice lies now into its parameters."""
        self._params.dst = at.of(self.step.target)

    def setter(self, exec_: Any) -> Callable[[], None]:
        """Return the call that gives its parameters to an instantiated graph."""
        context = c_void_p(int(self._context))
        api = "cuGraphExecMemsetNodeSetParams"
        return _setter(api, exec_, self._handle, self._params, self, context)


class LibraryNode:
    """What a library enqueues, as a child graph; it is captured anew when it moves."""

    __slots__ = ("_captured", "_handle", "step")

    def __init__(self, step: LibraryStep, at: Addresses) -> None:
        self.step = step
        self._captured = self._capture(at)
        self._handle: Any = None

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Add it to `graph` behind `after`; return its handle."""
        add, doing = cuda.cuGraphAddChildGraphNode, f"adding {self.step.place}"
        child = self._captured.handle
        self._handle = call(add, graph, after, len(after), child, doing=doing)
        return self._handle

    def move(self, at: Addresses) -> None:
        """Capture the call with the addresses that its slices have now."""
        self._captured = self._capture(at)

    def setter(self, exec_: Any) -> Callable[[], None]:
        """Return the call that gives its child graph to an instantiated graph."""
        set_child, doing = cuda.cuGraphExecChildGraphNodeSetParams, f"moving {self.step.place}"

        def give() -> None:
            call(set_child, exec_, self._handle, self._captured.handle, doing=doing)

        return give

    def _capture(self, at: Addresses) -> CapturedGraph:
        return CapturedGraph(lambda s: self.step.launcher(s, at)(), self.step.place)


def _setter(
    api: str, exec_: Any, handle: Any, params: Any, node: Node, *more: c_void_p
) -> Callable[[], None]:
    exec_pointer, pointer = c_void_p(int(exec_)), c_void_p(params.getPtr())
    arguments = (exec_pointer, c_void_p(int(handle)), pointer, *more)
    return bound(api, *arguments, place=f"moving {node.step.place}", keep=node)
