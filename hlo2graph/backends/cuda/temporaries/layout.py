"""Which allocations are an arena's, and where in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo2graph.program.plan import ALIGNMENT, AllocationKind, Plan


@dataclass(frozen=True, slots=True)
class Layout:
    """Allocations behind each other in one block of `size` bytes: the offset of each."""

    offsets: Mapping[int, int]
    size: int

    def at(self, base: int) -> dict[int, int]:
        """Return where each lies if the block lies at `base`."""
        return {index: base + offset for index, offset in self.offsets.items()}


def layout_of(plan: Plan) -> Layout:
    """Lay out the temporaries of a plan, but for those that parameters or results are in.

    Only thunk-sequence text has such: they must live between two runs.
    """
    seen = {bound.slice.allocation for bound in (*plan.inputs, *plan.outputs)}
    offsets: dict[int, int] = {}
    size = 0
    for index, allocation in enumerate(plan.allocations):
        if allocation.kind is AllocationKind.TEMP and allocation.size and index not in seen:
            offsets[index] = size
            size += -(-allocation.size // ALIGNMENT) * ALIGNMENT
    return Layout(offsets, size)
