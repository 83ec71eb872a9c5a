"""The bytes behind a plan's allocations, and arrays that look into them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np

from hlo2graph.errors import BackendError
from hlo2graph.hlo import Shape
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import ALIGNMENT, Allocation, AllocationKind
from hlo2graph.program.thunks import Slice

POISON = np.uint32(0x7FF5A5A5)  # NaN as f64, f32 and each second f16 or bf16; absurd as an integer
WRITTEN = (AllocationKind.TEMP, AllocationKind.LIVE_OUT)


class Arena:
    """One byte array per allocation."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        needed = sum(a.size for a in allocations)
        if needed > (there := _physical_memory()):
            raise BackendError(
                f"the program's buffers take {needed:,} bytes; this machine has {there:,}"
            )
        try:
            self._bytes = [_aligned(a.size) for a in allocations]
        except MemoryError as error:
            raise BackendError(f"no memory for buffers of {needed:,} bytes") from error
        self._written = [
            data[: -(-a.size // 4) * 4].view(np.uint32)
            for a, data in zip(allocations, self._bytes, strict=True)
            if a.kind in WRITTEN
        ]

    def poison(self) -> None:
        """Spoil every byte that only thunks write, so that a read before its write shows."""
        for words in self._written:
            words.fill(POISON)

    def raw(self, part: Slice) -> Array:
        """Return the bytes of a slice."""
        return self._bytes[part.allocation][part.offset : part.end]

    def view(self, part: Slice, shape: Shape) -> Array:
        """Return the slice as an array: laid out as the shape says, dimensions in logical order."""
        assert part.size == shape.size, f"{part} does not hold {shape}"
        if not shape.elements:
            return np.empty(shape.dims, shape.dtype.numpy)
        strides = [0] * shape.rank
        step = shape.dtype.numpy.itemsize
        for dim in shape.minor_to_major:
            strides[dim] = step
            step *= shape.dims[dim]
        return np.ndarray(
            shape.dims, shape.dtype.numpy, self._bytes[part.allocation], part.offset, strides
        )


def _aligned(size: int) -> Array:
    """Return at least `size` bytes, rounded up to whole poison words."""
    block = np.empty(size + 4 + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size + 4]


def _physical_memory() -> int:
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
