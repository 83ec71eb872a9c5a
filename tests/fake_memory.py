"""Device memory of the fake driver that is no plain allocation: mapped pieces, nodes of graphs.

Memory that a graph allocates is there from its node to the one that frees it; what runs outside of
that is caught. It refuses what CUDA refuses: to map where nothing is reserved or something is
mapped, a second instantiation of a graph that allocates, an update of one, allocations in bodies.
"""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as real

from tests.fake_graphs import BAD, OK

GRANULE = 1 << 16
TOTAL = 1 << 30


class FakeMemory:
    """The part of FakeDriver that deals with such memory."""

    def __init__(self) -> None:
        self.reserved: dict[int, object] = {}  # by address: what makes the address our own
        self.created: dict[int, int] = {}
        self.promised: dict[int, object] = {}  # addresses of allocation nodes
        self.freed_by: dict[int, int] = {}  # address -> the graph whose node frees it

    # ---- addresses and pieces ------------------------------------------------------------------

    def cuMemGetAllocationGranularity(self, kind, which):
        return OK, GRANULE

    def cuMemAddressReserve(self, size, alignment, address, flags):
        assert size % GRANULE == 0
        block = (ctypes.c_ubyte * (64 * GRANULE + GRANULE))()  # of which pieces are mapped
        start = -(-ctypes.addressof(block) // GRANULE) * GRANULE
        self.reserved[start] = block
        return OK, real.CUdeviceptr(start)

    def cuMemCreate(self, size, kind, flags):
        if failures := self.fail.get("cuMemCreate"):
            return failures.pop(0), None
        handle = self._next()
        self.created[handle] = size
        return OK, real.CUmemGenericAllocationHandle(handle)

    def cuMemMap(self, address, size, offset, handle, flags):
        assert self.created[int(handle)] == size
        inside = any(s <= address and address + size <= s + 64 * GRANULE for s in self.reserved)
        if not inside or self.is_live(address, 1):
            return (BAD,)
        self.memory[address] = (ctypes.c_ubyte * size).from_address(address)
        return (OK,)

    def cuMemSetAccess(self, address, size, access, count):
        return (OK,)

    def cuMemRelease(self, handle):
        del self.created[int(handle)]
        return (OK,)

    def cuMemUnmap(self, address, size):
        assert len(self.memory.pop(address)) == size
        return (OK,)

    def cuMemAddressFree(self, address, size):
        self.reserved.pop(address, None)
        return (OK,)

    def cuCtxGetDevice(self):
        return OK, real.CUdevice(0)

    def cuMemGetInfo(self):
        used = sum(len(block) for block in list(self.memory.values()))
        return OK, TOTAL - used - 4096 * len(self.execs), TOTAL

    def cuDeviceGetGraphMemAttribute(self, device, which):
        return OK, sum(len(block) for block in self.promised.values())

    # ---- nodes ---------------------------------------------------------------------------------

    def cuGraphAddMemAllocNode(self, graph, after, count, params):
        if self.graphs[int(graph)].is_body:
            return BAD, None
        block = (ctypes.c_ubyte * (params.bytesize + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self.promised[address] = block
        params.dptr = real.CUdeviceptr(address)

        def run():
            assert not self.is_live(address, 1), "allocated twice"
            ctypes.memset(address, 0xA5, params.bytesize)
            self.memory[address] = block

        return self._add(graph, after, count, kind="alloc", run=run)

    def cuGraphAddMemFreeNode(self, graph, after, count, address):
        if int(address) not in self.promised or int(address) in self.freed_by:
            return BAD, None
        self.freed_by[int(address)] = int(graph)
        return self._add(
            graph, after, count, kind="free", run=lambda: self.memory.pop(int(address))
        )

    def is_known(self, address, size):
        """Memory that is there, or will be when a graph's node has allocated it."""
        return self.is_live(address, size) or any(
            start <= address and address + size <= start + len(block)
            for start, block in self.promised.items()
        )

    def allocates(self, graph):
        """A graph has nodes that allocate or free."""
        return any(n.kind in ("alloc", "free") for n in self.graphs[graph].nodes.values())
