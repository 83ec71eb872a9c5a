"""A graph instantiated: launched, its nodes moved to other addresses, or updated as a whole."""

from __future__ import annotations

from ctypes import c_void_p
from sys import is_finalizing
from typing import Any

from hlo2graph.backends.cuda.driver import Bound, Device, bound, call, cuda, explain
from hlo2graph.errors import BackendError


class GraphOwner:
    """Destroys a graph at the end of its context, unless somebody else owns it by then."""

    __slots__ = ("_graph",)

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __enter__(self) -> GraphOwner:
        return self

    def release(self) -> Any:
        """Return the graph, which is the caller's from now on."""
        graph, self._graph = self._graph, None
        return graph

    def __exit__(self, *_: object) -> None:
        if self._graph is not None:
            cuda.cuGraphDestroy(self._graph)


class GraphExec:
    """An instantiated graph, destroyed with the object; so is `graph`, where that is given."""

    __slots__ = ("graph", "handle")

    def __init__(self, graph: Any, places: dict[int, str], device: Device) -> None:
        """Instantiate `graph`, which stays the caller's."""
        self.graph: Any = None
        self.handle: Any = None
        params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
        params.flags = int(
            cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        )
        status, handle = cuda.cuGraphInstantiateWithParams(graph, params)
        if status == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            call(cuda.cuDeviceGraphMemTrim, call(cuda.cuDeviceGet, device.ordinal))
            status, handle = cuda.cuGraphInstantiateWithParams(graph, params)
        if status != cuda.CUresult.CUDA_SUCCESS:
            failed = int(params.hErrNode_out) if params.hErrNode_out is not None else 0
            culprit = places.get(failed, "no node in particular")
            reason = getattr(params.result_out, "name", str(params.result_out))
            doing = f"{reason} at {culprit}"
            raise BackendError(explain("cuGraphInstantiateWithParams", status, doing))
        self.handle = handle

    def own(self, owner: GraphOwner) -> GraphExec:
        """Take over the graph that it was made of; return itself."""
        self.graph = owner.release()
        return self

    def upload(self, stream: Any) -> None:
        """Put the graph on the device ahead of its first launch."""
        call(cuda.cuGraphUpload, self.handle, stream)

    def update(self, graph: Any, places: dict[int, str]) -> str:
        """Take over the parameters of `graph`, made of the same nodes and edges.

        Returns why the driver refuses that and at which node, or nothing: it is done. What was
        refused is left as it was.
        """
        status, found = cuda.cuGraphExecUpdate(self.handle, graph)
        if status == cuda.CUresult.CUDA_SUCCESS:
            return ""
        if status != cuda.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
            raise BackendError(explain("cuGraphExecUpdate", status, "updating the graph"))
        node, before = (
            None if handle is None else places.get(int(handle))
            for handle in (found.errorNode, found.errorFromNode)
        )
        behind = f" behind {before}" if before else ""
        return f"{found.result.name} at {node or 'no node in particular'}{behind}"

    def launcher(self, stream: Any) -> Bound:
        """Return the call that enqueues one run of the graph on `stream`."""
        exec_, place = c_void_p(int(self.handle)), "launching the graph"
        return bound("cuGraphLaunch", exec_, c_void_p(int(stream)), place=place)

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing():
            if self.handle is not None:
                cuda.cuGraphExecDestroy(self.handle)
            if self.graph is not None:
                cuda.cuGraphDestroy(self.graph)
