"""Which reduce-windows accumulate: each element folds all that is before it, or behind it."""

from __future__ import annotations

from math import prod

from hlo2graph.hlo import Instruction, Shape, WindowDim
from hlo2graph.ops.device_folds import window_dims

FEWEST = 64  # elements of a row below which each thread folds its own
SECTOR = 32  # bytes that memory hands over at least


def scanned_dim(instr: Instruction) -> int | None:
    """Return the dimension that a reduce-window accumulates along, if that is all it does."""
    dims = next(instr.shape.leaves()).dims
    window = window_dims(instr)
    wide = [d for d, w in enumerate(window) if w != WindowDim(1)]
    if len(wide) != 1:
        return None
    (along,) = wide
    length, found = dims[along], window[along]
    return along if length >= FEWEST and found in (_forwards(length), _backwards(length)) else None


def is_backwards(instr: Instruction, along: int) -> bool:
    """Tell whether what accumulates begins at the end."""
    return window_dims(instr)[along].pad_high > 0


def rows_side_by_side(shape: Shape, along: int) -> int:
    """Return how many rows along a dimension have their elements next to each other in memory."""
    order = shape.minor_to_major
    return prod(shape.dims[d] for d in order[: order.index(along)])


def fewest_together(shape: Shape, along: int) -> int:
    """Return of how many rows side by side a block should take elements at least.

    So many as make up a sector, or two where lines begin within one, parts of which are read twice
    and, what is worse, written twice.
    """
    sectors = 2 if rows_side_by_side(shape, along) * shape.dtype.size % SECTOR else 1
    return max(1, sectors * SECTOR // shape.dtype.size)


def cumulative(rank: int, along: int, length: int, *, backwards: bool) -> tuple[WindowDim, ...]:
    """Return the window of what accumulates along a dimension of so many elements."""
    window = [WindowDim(1)] * rank
    window[along] = _backwards(length) if backwards else _forwards(length)
    return tuple(window)


def _forwards(length: int) -> WindowDim:
    return WindowDim(length, pad_low=length - 1)


def _backwards(length: int) -> WindowDim:
    return WindowDim(length, pad_high=length - 1)
