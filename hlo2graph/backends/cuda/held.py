"""What an executable holds of its GPU's memory, and what for."""

from __future__ import annotations

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.loaded import Loaded
from hlo2graph.backends.held import Memory
from hlo2graph.program.plan import AllocationKind


def memory_of(loaded: Loaded, instances: int) -> Memory:
    """Return what an executable of so many instances holds now."""
    placed, share = loaded.placed, loaded.share
    found = dict.fromkeys(AllocationKind, 0)
    for index, allocation in enumerate(loaded.plan.allocations):
        if index not in placed:
            times = 1 if allocation.literal is not None else instances
            found[allocation.kind] += times * allocation.size
    made = [graph for held in tuple(loaded.maker.made) if (graph := held()) is not None]
    return Memory(
        instances,
        found[AllocationKind.PARAMETER],
        found[AllocationKind.CONSTANT],
        found[AllocationKind.LIVE_OUT],
        found[AllocationKind.TEMP],
        sum(graph.exec is not None for graph in made),
        sum(graph.driver_bytes for graph in made),
        0 if share is None else share.arena.size,
        () if share is None else tuple(sorted(s.name for s in share.arena.sharers)),
        0 if loaded.maker.inside is None else _in_graphs(loaded.device),
    )


def _in_graphs(device: Device) -> int:
    which = cuda.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    ordinal = call(cuda.cuDeviceGet, device.ordinal)
    return int(call(cuda.cuDeviceGetGraphMemAttribute, ordinal, which))
