"""What moves cost here, measured as they are made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.pointers.strategy import Site
from hlo2graph.backends.cuda.route import Move

SAMPLE = 1 << 22  # bytes of the copy that shows what a byte costs
SMALL = 256
ROUNDS = 8
FIRST_UPDATE = 1e-6  # seconds a node, until some were updated
WEIGHT = 0.2  # of a new measurement against those before
ON_DEVICE = 2e-6  # seconds that a small copy takes there, which a run waits for


@dataclass(slots=True)
class Costs:
    """Seconds: of copying at once, and of each byte, of a node's update, of building a graph."""

    copy: float
    byte: float
    update: float
    build: float

    def copying(self, size: int) -> float:
        """Return what a launch costs that copies so many bytes; the device's time is in it.

        A run waits for that.
        """
        return self.copy + self.byte * size if size else 0.0

    def __str__(self) -> str:
        return (
            f"{self.update * 1e6:.2f} us to update a node, {self.copy * 1e6:.2f} us and "
            f"{self.byte * 1e12:.2f} us a MB to copy, {self.build * 1e6:.0f} us to build a graph"
        )

    def learn_update(self, seconds: float, nodes: int) -> None:
        """Take a measured move of so many nodes into account."""
        if nodes:
            self.update += WEIGHT * (seconds / nodes - self.update)

    def learn_copy(self, seconds: float, launches: int) -> None:
        """Take into account what launches of copies took the host."""
        if launches:
            self.copy += WEIGHT * (seconds / launches + ON_DEVICE - self.copy)

    def learn_build(self, seconds: float) -> None:
        """Take a measured instantiation into account."""
        self.build += WEIGHT * (seconds - self.build)


def measured(site: Site, stream: Stream, build: float) -> Costs:
    """Measure copies on `stream`, which this waits for; `build` is what a graph took to build."""
    scratch = DeviceMemory(2 * SAMPLE, "allocating memory to time copies")
    start = scratch.address

    def copies(size: int) -> float:
        moves = [Move(start, start + SAMPLE, size)] * ROUNDS

        def go() -> None:
            for move in moves:
                site.copier([move], stream)
            stream.synchronize("timing copies")

        go()
        return _seconds(go) / ROUNDS

    small, large = copies(SMALL), copies(SAMPLE)
    return Costs(small, max(0.0, large - small) / SAMPLE, FIRST_UPDATE, build)


def _seconds(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start
