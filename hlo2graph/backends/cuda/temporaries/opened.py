"""An arena that one graph allocates and another frees, for all that is enqueued between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.graph_exec import GraphExec, GraphOwner
from hlo2graph.backends.cuda.kept_graph import KeptGraph
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.temporaries.inside import Inside

NO_LANES = 0  # of what runs nothing: free memory fell by nothing for 800 of them on an H200


class OpenedArena:
    """Where several graphs and lone thunks use the same temporaries; it lies at `address`."""

    def __init__(self, inside: Inside, owner: str) -> None:
        """Make the two graphs, which count as those of `owner`."""
        self.address = 0

        def open_(graph: Any) -> None:
            _, self.address = inside.allocate(graph)

        def close(graph: Any) -> None:
            inside.free(graph, [], self.address)

        self.graphs = tuple(_instantiated(fill, inside.device, owner) for fill in (open_, close))

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Have the memory for what is enqueued on `stream` meanwhile."""
        opens, closes = (graph.exec.launcher(stream) for graph in self.graphs)
        opens()
        try:
            yield
        finally:
            closes()


def _instantiated(fill: Callable[[Any], None], device: Device, owner: str) -> KeptGraph:
    graph = call(cuda.cuGraphCreate, 0)
    with GraphOwner(graph) as held:
        fill(graph)
        made = KeptGraph(owner, NO_LANES, 1, lambda: GraphExec(graph, {}, device))
        made.exec.own(held)
        return made
