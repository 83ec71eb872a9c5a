"""Where the allocations of a plan lie on the device, for one graph or stream.

Steps name slices; an address comes about where a step meets Addresses. So one set of steps serves
every graph of an executable, wherever its arrays lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hlo2graph.program.thunks import Slice

Operand: TypeAlias = int | Slice
"""An argument of a kernel: a number, or the address of a slice."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The address of each allocation, by its index in Plan.allocations.

    `bases` is a list where the addresses are those of a graph that moves.
    """

    bases: Sequence[int]

    def of(self, operand: Operand) -> int:
        """Return the address of a slice; a number stays as it is."""
        if isinstance(operand, Slice):
            return self.bases[operand.allocation] + operand.offset
        return operand
