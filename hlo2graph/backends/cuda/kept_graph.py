"""Graphs that count in the process's budget, and are never dropped for it."""

from __future__ import annotations

from collections.abc import Callable

from hlo2graph.backends.cuda.budget import BUDGET, Holder, estimated_bytes
from hlo2graph.backends.cuda.graph_exec import GraphExec


class KeptGraph:
    """A graph that could not be built again unseen: other graphs hold addresses of it, say."""

    def __init__(
        self, owner: str, lanes: int, nodes: int, instantiate: Callable[[], GraphExec]
    ) -> None:
        """Instantiate a graph of so many lanes and nodes.

        Raises:
            BackendError: the driver refuses it.
        """
        self.owner = owner
        self.holder: Holder | None = None  # nobody may drop it
        self.size = self.driver_bytes = self.used = 0
        self.exec: GraphExec = BUDGET.instantiate(self, estimated_bytes(lanes, nodes), instantiate)

    def drop(self) -> None:
        """Never called, for want of a holder."""
        raise AssertionError(f"a graph of {self.owner} is kept")
