"""What one run of a plan is launched by: one graph, or several with lone thunks between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hlo2graph.backends.cuda.budget import Holder
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.ports import Placement


class Launchable(Protocol):
    """A plan instantiated for ports at one placement, which may move to another."""

    @property
    def nodes(self) -> int:
        """Nodes of its graphs."""
        ...

    @property
    def edges(self) -> int:
        """Edges of its graphs."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was built differently from what the newest driver allows."""
        ...

    @property
    def refusals(self) -> list[str]:
        """Why graphs were instantiated anew."""
        ...

    @property
    def build_seconds(self) -> float:
        """What building it took."""
        ...

    @property
    def holder(self) -> Holder | None:
        """Whose calls launch it."""
        ...

    @property
    def size(self) -> int:
        """Bytes that its graphs count for; see budget.py."""
        ...

    @property
    def placement(self) -> Placement | None:
        """Where its ports lie; None after a move that failed midway."""
        ...

    @property
    def matters(self) -> tuple[int, ...]:
        """The ports that any node of a graph touches."""
        ...

    @property
    def launch(self) -> Callable[[], None]:
        """What enqueues a run on its own stream."""
        ...

    def launch_on(self, stream: Stream) -> None:
        """Enqueue a run on `stream`."""
        ...

    def nodes_to_move(self, placement: Placement) -> int:
        """Return how many nodes and lone thunks hold an address that `placement` changes."""
        ...

    def move(self, placement: Placement) -> int:
        """Let the ports lie at `placement` from the next run on; return what it changed."""
        ...

    def replace(self, placement: Placement) -> None:
        """Build graphs again for `placement`, and update those instantiated as a whole."""
        ...
