"""What a strategy is: it runs a graph over ports that may lie elsewhere at each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hlo2graph.backends.cuda.copier import Copier
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.ports import Placement, Port


@dataclass(slots=True)
class Tally:
    """What the calls of one strategy took, counted."""

    launches: int = 0
    moved: int = 0  # launches for which some port lay elsewhere than before
    updates: int = 0  # nodes that were given other addresses
    builds: int = 0  # graphs that were instantiated
    hits: int = 0  # launches that found a graph of other addresses ready
    copies: int = 0
    copied: int = 0  # bytes
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = {
            "launches": self.launches,
            "moved": self.moved,
            "node updates": self.updates,
            "graphs built": self.builds,
            "hits": self.hits,
            "copies": self.copies,
        }
        return ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) or "not called"


class Movable(Protocol):
    """What runs for ports at one placement, and may be moved to another: a graph is."""

    @property
    def refusals(self) -> list[str]:
        """Why graphs were instantiated anew."""
        ...

    @property
    def build_seconds(self) -> float:
        """What building it took."""
        ...

    @property
    def placement(self) -> Placement | None:
        """Where its ports lie; None after a move that failed midway."""
        ...

    def launch_on(self, stream: Stream) -> None:
        """Enqueue a run on `stream`."""
        ...

    def nodes_to_move(self, placement: Placement) -> int:
        """Return how many nodes and lone thunks hold an address that `placement` changes."""
        ...

    def move(self, placement: Placement) -> int:
        """Let the ports lie at `placement` from the next run on; return how many nodes changed."""
        ...


class Beside(Protocol):
    """Kernels that read a table, which can be compiled on a thread beside the calls."""

    @property
    def says(self) -> str:
        """What compiling them took, or why there are none; nothing before it has ended."""
        ...

    @property
    def are_ready(self) -> bool:
        """They are compiled."""
        ...

    @property
    def failed(self) -> bool:
        """They cannot be compiled here."""
        ...

    def begin(self) -> None:
        """Begin to compile them, if nobody has."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """What a strategy works on: one instance's ports and graph.

    `home` is where the instance's own memory for the ports is. `graph` was built for it; a
    strategy may move it. `build` instantiates another one over the same memory;
    `build_with_table` one whose kernels, `table_kernels`, read the ports' addresses from a table at
    that address: it compiles them if they are not there.
    """

    ports: tuple[Port, ...]
    home: Placement
    graph: Launchable
    build: Callable[[Placement], Launchable]
    build_with_table: Callable[[int], Launchable]
    table_kernels: Beside
    copier: Copier


class Strategy(Protocol):
    """Runs a graph for ports at any placement. Calls follow each other; their streams wait.

    What a placement must keep to: each address is aligned as its port says, no port shares a byte
    with a written one, and none but the port's own home is the home of a written one.
    """

    @property
    def name(self) -> str:
        """How users call it."""
        ...

    @property
    def tally(self) -> Tally:
        """What it did so far."""
        ...

    @property
    def says(self) -> str:
        """What it did, in words."""
        ...

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Enqueue one run on `stream`, with the ports at `placement`."""
        ...
