"""The Plan: all that a backend receives, and all that thunk-sequence text says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from hlo2graph.hlo import Computation, Literal, Shape
from hlo2graph.program.thunks import Sequence, Slice
from hlo2graph.program.uses import writes

ArrayType: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]
"""Name, dtype and shape of a parameter or result leaf, as a caller sees it."""


ALIGNMENT = 256
"""Bytes that an allocation's address, and every offset in the arena, is a multiple of.

That is what cudaMalloc gives.
"""


class AllocationKind(StrEnum):
    """XLA's words for what an allocation is for."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    LIVE_OUT = "live-out"
    TEMP = "temp"


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of memory. Its index is its place in Plan.allocations.

    `owner` names the parameter, constant or result it holds; '' for the temp arena.
    """

    size: int
    kind: AllocationKind
    owner: str = ""
    literal: Literal | None = None  # a constant's value


@dataclass(frozen=True, slots=True)
class Bound:
    """A parameter or result leaf with the bytes it lives in."""

    name: str
    shape: Shape
    slice: Slice

    @property
    def array_type(self) -> ArrayType:
        """Its name, and the dtype and shape of the array that holds it."""
        return self.name, self.shape.dtype.numpy, self.shape.dims


@dataclass(frozen=True, slots=True)
class ArenaSize:
    """Bytes of temporaries, each buffer rounded up to ALIGNMENT.

    size: of the arena.
    lower_bound: the most that is alive at once in this plan's program order. With these buffers no
        arena is smaller; other buffers, as those of a chain, which writes more in place, may do
        with less.
    sum: what the values would take each on its own, nothing written in place.
    """

    size: int
    lower_bound: int
    sum: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Thunks over slices, with the edges that order them; nested sequences hold their own."""

    name: str
    target: str  # host, sm_80, sm_90
    fuse: str  # none, default
    schedule: str  # concurrent, serialize
    allocations: tuple[Allocation, ...]
    computations: Mapping[str, Computation]
    inputs: tuple[Bound, ...]
    outputs: tuple[Bound, ...]
    body: Sequence[Slice]
    arena: ArenaSize
    aliases: tuple[str, ...] = field(default=())  # honoured or not, and why; one line each

    @property
    def donated(self) -> tuple[int, ...]:
        """The positions of inputs whose bytes a run overwrites."""
        written = {w.allocation for thunk in self.body.thunks for w in writes(thunk)}
        return tuple(i for i, b in enumerate(self.inputs) if b.slice.allocation in written)

    def to_json(self) -> dict[str, Any]:
        """Return what `plan --json` prints; program.text.json documents it."""
        from hlo2graph.program.text.json import plan_json

        return plan_json(self)

    def __repr__(self) -> str:
        thunks, edges = len(self.body.thunks), len(self.body.edges)
        return f"<Plan {self.name} for {self.target}, thunks={thunks}, edges={edges}>"

    def __str__(self) -> str:
        """Return the plan as thunk-sequence text."""
        from hlo2graph.program.text.plan import format_plan

        return format_plan(self)
