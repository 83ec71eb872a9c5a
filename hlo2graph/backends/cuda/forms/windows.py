"""Windows over images: a thread computes a patch of results, which read the same rows.

A window's taps are slices of one padded image. What lies in the padding is chosen there, not jumped
over: all is then computed in one scope, where the compiler finds what several taps, or several
results, have in common, and all reads are under way at once.

Threads side by side have columns side by side. Where the image is dilated, a patch begins at a
multiple of its steps: the compiler then knows which taps lie between elements.
"""

from __future__ import annotations

from collections import defaultdict
from math import lcm

from hlo2graph.hlo import Computation, Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops.device_shaping import chosen_pad

FEWEST_TAPS = 6  # of a window, below which results share little
HEIGHTS = (8, 7, 4, 2)  # of results below each other, the best first
MOST = 8  # results of a patch

RULES = {"pad": chosen_pad}
"""Device rules of a kernel whose threads compute patches."""


def patch_of(computation: Computation, shape: Shape) -> tuple[int, int]:
    """Return how many rows and columns of results of `shape` suit a thread; (1, 1) without windows.

    The rows of an image are the second most minor dimension, what lies in a row the most minor one.
    """
    if shape.minor_to_major[:2] != (shape.rank - 1, shape.rank - 2) or not shape.elements:
        return 1, 1
    taps: dict[str, list[Instruction]] = defaultdict(list)
    for instr in computation.instructions:
        if instr.opcode == "slice" and computation[instr.operands[0]].opcode == "pad":
            taps[instr.operands[0]].append(instr)
    down = across = 1
    for name, found in taps.items():
        if not _is_window(computation[name], found, shape):
            return 1, 1
        *_, rows, columns = _padding(computation[name])
        down, across = lcm(down, rows.interior + 1), lcm(across, columns.interior + 1)
    if not taps:
        return 1, 1
    width = across if across <= MOST // down and shape.dims[-1] % across == 0 else 1
    for height in HEIGHTS:
        if shape.dims[-2] % height == height % down == 0 and height * width <= MOST:
            return height, width
    return 1, 1


def _is_window(pad: Instruction, taps: list[Instruction], shape: Shape) -> bool:
    """Tell whether taps are of all rows and columns of images such as those of `shape`."""
    if len(taps) < FEWEST_TAPS or not isinstance(pad.shape, Shape):
        return False
    for tap in taps:
        if not isinstance(tap.shape, Shape) or tap.shape.dims[-2:] != shape.dims[-2:]:
            return False
    return all(len({_places(tap)[dim].start for tap in taps}) > 1 for dim in (-2, -1))


def _places(tap: Instruction) -> tuple[SliceDim, ...]:
    held = tap.attrs["slice"]
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, SliceDim))


def _padding(pad: Instruction) -> tuple[PaddingDim, ...]:
    held = pad.attrs["padding"]
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, PaddingDim))
