"""An arena that one graph allocates and another frees, for all that is enqueued between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.graph_exec import GraphExec, GraphOwner
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.temporaries.inside import Inside


class OpenedArena:
    """Where several graphs and lone thunks use the same temporaries; it lies at `address`."""

    def __init__(self, inside: Inside) -> None:
        self.address = 0

        def open_(graph: Any) -> None:
            _, self.address = inside.allocate(graph)

        def close(graph: Any) -> None:
            inside.free(graph, [], self.address)

        self._opens = _instantiated(open_, inside.device)
        self._closes = _instantiated(close, inside.device)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Have the memory for what is enqueued on `stream` meanwhile."""
        self._opens.launcher(stream)()
        try:
            yield
        finally:
            self._closes.launcher(stream)()


def _instantiated(fill: Callable[[Any], None], device: Device) -> GraphExec:
    graph = call(cuda.cuGraphCreate, 0)
    with GraphOwner(graph) as owner:
        fill(graph)
        return GraphExec(graph, {}, device).own(owner)
