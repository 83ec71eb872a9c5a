"""Windows over images: a thread computes results below each other, which read the same rows.

A window's taps are slices of one padded image. What lies in the padding is chosen there, not jumped
over: all is then computed in one scope, where the compiler finds what several taps, or several
results, have in common, and all reads are under way at once.
"""

from __future__ import annotations

from collections import defaultdict
from math import lcm

from hlo2graph.hlo import Computation, Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops.device_shaping import chosen_pad

FEWEST_TAPS = 6  # of a window, below which results share little
HEIGHTS = (8, 7, 4, 2)  # of results below each other, the best first

RULES = {"pad": chosen_pad}
"""Device rules of a kernel whose threads compute results below each other."""


def height_of(computation: Computation, shape: Shape) -> int:
    """Return how many results of `shape`, below each other, suit a thread; 1 without windows.

    The rows of an image are the second most minor dimension, what lies in a row the most minor one.
    """
    if shape.minor_to_major[:2] != (shape.rank - 1, shape.rank - 2) or not shape.elements:
        return 1
    taps: dict[str, list[Instruction]] = defaultdict(list)
    for instr in computation.instructions:
        if instr.opcode == "slice" and computation[instr.operands[0]].opcode == "pad":
            taps[instr.operands[0]].append(instr)
    step = 1
    for name, found in taps.items():
        if not _is_window(computation[name], found, shape):
            return 1
        step = lcm(step, _padding(computation[name])[-2].interior + 1)
    if not taps:
        return 1
    return next((n for n in HEIGHTS if shape.dims[-2] % n == 0 and n % step == 0), 1)


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
