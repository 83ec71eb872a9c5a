"""A plan loaded on a device: all that its instances share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hlo2graph.backends.cuda.built import GraphMaker
from hlo2graph.backends.cuda.driver import Device
from hlo2graph.backends.cuda.pointers import Site, Strategy
from hlo2graph.backends.cuda.pointers.table_kernels import TableKernels
from hlo2graph.backends.cuda.ports import Port
from hlo2graph.backends.cuda.temporaries.shared import Share
from hlo2graph.program.plan import Plan


@dataclass(frozen=True, slots=True)
class Loaded:
    """Kernels are loaded, thunks are steps; `maker` builds graphs of them.

    `table_kernels` are those that read addresses from a table, which is the allocation behind the
    plan's own. `move` is the kernel that copies arrays. `share` is the plan's part in a shared
    arena.
    """

    plan: Plan
    device: Device
    maker: GraphMaker
    ports: tuple[Port, ...]
    table_kernels: TableKernels
    strategy: Callable[[Site], Strategy]
    move: Any
    keep: object = field(repr=False)  # what owns the loaded kernels
    share: Share | None = None

    @property
    def placed(self) -> Mapping[int, int]:
        """Where the allocations lie that no instance has memory for; 0 is in its graph's own."""
        held = self.share or self.maker.inside
        return {} if held is None else held.placed
