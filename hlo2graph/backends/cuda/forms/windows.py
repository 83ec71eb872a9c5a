"""Windows over images: a thread computes a patch of results, which read the same rows.

A window's taps are slices of one padded image. What lies in the padding is chosen there, not jumped
over: all is then computed in one scope, where the compiler finds what several taps, or several
results, have in common, and all reads are under way at once.

Threads side by side have columns side by side. Where the image is dilated, a patch begins at a
multiple of its steps: the compiler then knows which taps lie between elements.

Where channels lie side by side, a thread has some of them, as many as one access takes, and of
these results that follow each other in a row of the image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import lcm

from hlo2graph.backends.cuda.source import ACCESS_BYTES
from hlo2graph.hlo import Computation, Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops.device_shaping import chosen_pad

FEWEST_TAPS = 6  # of a window, below which results share little
HEIGHTS = (8, 7, 4, 2)  # of results below each other, the best first
MOST = 8  # results of a patch
LENGTHS = (4, 7, 2)  # of results in a row, of some channels each, the best first
MOST_OF_CHANNELS = 32  # results of such a strip

RULES = {"pad": chosen_pad}
"""Device rules of a kernel whose threads compute patches."""


def patch_of(computation: Computation, shape: Shape) -> tuple[int, int]:
    """Return how many rows and columns of results of `shape` suit a thread; (1, 1) without windows.

    The rows of an image are the second most minor dimension, what lies in a row the most minor one.
    """
    if shape.minor_to_major[:2] != (shape.rank - 1, shape.rank - 2) or not shape.elements:
        return 1, 1
    taps = _taps(computation)
    down = across = 1
    for name, found in taps.items():
        if not _is_window(computation[name], found, shape, (-2, -1)):
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


def strip_of(computation: Computation, shape: Shape) -> tuple[int, int]:
    """Return how many results in a row, and channels, suit a thread; (1, 1) without such windows.

    Channels are the most minor dimension, what lies in a row of the image the next one.
    """
    taps, width = _taps(computation), ACCESS_BYTES // max(1, shape.dtype.size)
    order = tuple(reversed(range(shape.rank)))
    if not taps or shape.rank < 3 or shape.minor_to_major != order or shape.dims[-1] % width:
        return 1, 1
    for name, found in taps.items():
        pad = computation[name]
        steps = {dim.stride for tap in found for dim in _places(tap)}
        steps |= {dim.interior + 1 for dim in _padding(pad)}
        if steps != {1} or not _is_window(pad, found, shape, (-3, -2)):
            return 1, 1
    for length in LENGTHS:
        if shape.dims[-2] % length == 0 and length * width <= MOST_OF_CHANNELS:
            return length, width
    return 1, 1


def _taps(computation: Computation) -> Mapping[str, list[Instruction]]:
    """Return the slices of each padded array."""
    taps: dict[str, list[Instruction]] = defaultdict(list)
    for instr in computation.instructions:
        if instr.opcode == "slice" and computation[instr.operands[0]].opcode == "pad":
            taps[instr.operands[0]].append(instr)
    return taps


def _is_window(
    pad: Instruction, taps: list[Instruction], shape: Shape, along: tuple[int, int]
) -> bool:
    """Tell whether taps are of all of an image's rows and columns, which lie `along` `shape`."""
    if len(taps) < FEWEST_TAPS or not isinstance(pad.shape, Shape):
        return False
    inner = min(along)
    for tap in taps:
        if not isinstance(tap.shape, Shape) or tap.shape.dims[inner:] != shape.dims[inner:]:
            return False
    return all(len({_places(tap)[dim].start for tap in taps}) > 1 for dim in along)


def _places(tap: Instruction) -> tuple[SliceDim, ...]:
    held = tap.attrs["slice"]
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, SliceDim))


def _padding(pad: Instruction) -> tuple[PaddingDim, ...]:
    held = pad.attrs["padding"]
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, PaddingDim))
