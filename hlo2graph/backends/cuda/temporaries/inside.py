"""An arena that the graph itself allocates and frees.

The address is known when the node is made and stays, but the memory behind it is the graph's only
from that node to the one that frees it. Such a graph can be instantiated once, and not be updated
as a whole; the body of a conditional node can have no such nodes, so that they stand in the
outermost sequence, in front of everything and behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.temporaries.layout import Layout


@dataclass(frozen=True, slots=True)
class Inside:
    """Adds an arena's nodes to graphs."""

    device: Device
    layout: Layout

    @property
    def first(self) -> int:
        """The allocation that lies at the arena's address."""
        return next(iter(self.layout.offsets))

    @property
    def placed(self) -> Mapping[int, int]:
        """Addresses outside the graph: there are none."""
        return dict.fromkeys(self.layout.offsets, 0)

    def allocate(self, graph: Any) -> tuple[Any, int]:
        """Add the node that allocates, in front; return it and the address."""
        params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
        params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        params.poolProps.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        params.poolProps.location.id = self.device.ordinal
        params.bytesize = self.layout.size
        doing = f"allocating {self.layout.size:,} bytes in a graph"
        node = call(cuda.cuGraphAddMemAllocNode, graph, [], 0, params, doing=doing)
        return node, int(params.dptr)

    def free(self, graph: Any, after: Sequence[Any], address: int) -> Any:
        """Add the node that frees, behind `after`; return it."""
        add, doing = cuda.cuGraphAddMemFreeNode, "freeing a graph's memory"
        return call(add, graph, list(after), len(after), address, doing=doing)
