"""Table: our kernels read the addresses of ports from device memory, so that a move is one copy.

What cannot read the table, copies and fills by the driver, library calls and the kernels that
belong to no HLO, is updated as by `update`.
"""

from __future__ import annotations

from ctypes import addressof, c_size_t, c_uint64, c_void_p, sizeof
from struct import Struct
from time import perf_counter

from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.pointers.strategy import Movable, Site
from hlo2graph.backends.cuda.pointers.table_kernels import CELL
from hlo2graph.backends.cuda.pointers.update import Update
from hlo2graph.backends.cuda.ports import Placement


class Table(Update):
    """Costs one small copy for a move, and for each kernel the time to read its addresses."""

    name = "table"

    def _movable(self, site: Site) -> Movable:
        return Tabled(site)


class Cells:
    """The table: an address for each port, on the device, and what is to be written there."""

    def __init__(self, count: int) -> None:
        self._memory = DeviceMemory(count * CELL, "allocating the table of addresses")
        self.address = self._memory.address
        self._host = (c_uint64 * count)()
        self._pack = Struct(f"={count}Q").pack_into
        self._stream = c_void_p()
        self._write = bound(
            "cuMemcpyHtoDAsync_v2",
            *(c_uint64(self.address), c_void_p(addressof(self._host))),
            *(c_size_t(sizeof(self._host)), self._stream),
            place="writing the table of addresses",
        )

    def write(self, placement: Placement, stream: Stream) -> None:
        """Enqueue the copy of the table; the driver has read ours when this returns."""
        self._pack(self._host, 0, *placement)
        self._stream.value = int(stream)
        self._write()


class Tabled:
    """A graph whose kernels read a table, which is written behind the run before."""

    def __init__(self, site: Site) -> None:
        self._cells = Cells(len(site.ports))
        self._graph = site.build_with_table(self._cells.address)
        self.refusals = self._graph.refusals
        self.placement: Placement | None = site.home
        self._written: Placement | None = None if site.ports else site.home
        self.write_seconds = 0.0  # of the host, for the table that was written last

    @property
    def build_seconds(self) -> float:
        """What building the graph took."""
        return self._graph.build_seconds

    def launch_on(self, stream: Stream) -> None:
        """Write the table, if anything moved, and enqueue a run on `stream`."""
        placement = self.placement
        if placement is not self._written:
            assert placement is not None
            self._written = None
            start = perf_counter()
            self._cells.write(placement, stream)
            self.write_seconds = perf_counter() - start
            self._written = placement
        self._graph.launch_on(stream)

    def nodes_to_move(self, placement: Placement) -> int:
        """Return how many nodes hold an address that `placement` changes."""
        return self._graph.nodes_to_move(placement)

    def move(self, placement: Placement) -> int:
        """Let the ports lie at `placement` from the next run on; return how many nodes changed."""
        if placement == self.placement:
            return 0
        self.placement = None
        nodes = self._graph.move(placement)
        self.placement = placement
        return nodes
