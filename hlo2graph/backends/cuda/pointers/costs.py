"""What moves cost here, measured as they are made.

All but the copies of large arrays is the host's time: by when it has launched a graph, the device
has done what was enqueued before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.pointers.strategy import Site
from hlo2graph.backends.cuda.pointers.table import Cells

SAMPLE = 1 << 22  # bytes of a copy that shows what a byte costs
AT_ONCE = 16  # such copies in one launch: the device takes longer than the host
SMALL, ROUNDS = 256, 8
FIRST_UPDATE = 2e-6  # seconds a node, until some were updated
WEIGHT = 0.2  # of a new measurement against those before
MOST = 3  # times those before that it counts for
READ = 3e-7  # seconds of the device that a node loses where it reads addresses from a table


@dataclass(slots=True)
class Costs:
    """Seconds: of copies at once, of each byte, of a node's update, of a table, of a new graph."""

    copy: float
    byte: float
    table: float
    build: float
    update: float = FIRST_UPDATE
    launch: float = 0.0  # of a graph that stays as it was

    def copying(self, size: int) -> float:
        """Return what a launch costs that copies so many bytes."""
        return self.copy + self.byte * size if size else 0.0

    def __str__(self) -> str:
        return (
            f"{self.update * 1e6:.2f} us to update a node, {self.copy * 1e6:.2f} us and "
            f"{self.byte * 1e12:.2f} us a MB to copy, {self.table * 1e6:.2f} us to write a table, "
            f"{self.build * 1e6:.0f} us to build a graph"
        )

    def learn_update(self, seconds: float, nodes: int) -> None:
        """Take into account what a launch behind the updates of so many nodes took, these included.

        The driver does part of an update when the graph is launched.
        """
        if nodes and self.launch:
            self.update = _learned(self.update, max(0.0, seconds - self.launch) / nodes)

    def learn_table(self, seconds: float) -> None:
        """Take into account what writing a table took."""
        self.table = _learned(self.table, seconds)

    def learn_copy(self, seconds: float, sets: int, launch: float) -> None:
        """Take into account what so many sets of copies took, and the launch between them."""
        if sets:
            self.copy = _learned(self.copy, seconds / sets)
        self.launch = _learned(self.launch, launch) if self.launch else launch

    def learn_build(self, seconds: float) -> None:
        """Take a measured instantiation into account."""
        self.build = _learned(self.build, seconds)


def _learned(known: float, found: float) -> float:
    """Return the mean of late; one call that was held up does not count for many."""
    return known + WEIGHT * (min(found, MOST * known) - known)


def measured(site: Site, stream: Stream, build: float) -> Costs:
    """Measure copies on `stream`, which this waits for; `build` is what a graph took to build."""
    scratch = DeviceMemory(2 * SAMPLE, "allocating memory to time copies")
    start, end = scratch.address, scratch.address + SAMPLE
    small, large = (
        site.copier.crossing([end] * count, [size] * count, inward=True)
        for count, size in ((1, SMALL), (AT_ONCE, SAMPLE))
    )
    cells, home = Cells(len(site.ports)), site.home
    small.aim([start])
    large.aim([start] * AT_ONCE)
    copy = _seconds(lambda: small(stream), ROUNDS, stream)
    at_once = _seconds(lambda: large(stream), 1, stream)
    table = _seconds(lambda: cells.write(home, stream), ROUNDS, stream)
    return Costs(copy, max(0.0, at_once - copy) / (AT_ONCE * SAMPLE), table, build)


def _seconds(do: Callable[[], object], times: int, stream: Stream) -> float:
    """Return what one of so many takes, from when the first is enqueued until all have run."""
    do()
    stream.synchronize("timing copies")
    start = time.perf_counter()
    for _ in range(times):
        do()
    stream.synchronize("timing copies")
    return (time.perf_counter() - start) / times
