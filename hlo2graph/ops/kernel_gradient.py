"""Gradients of kernels whose neighbouring taps share what they read: which they are, and how cut.

Such a gradient, of fewer taps than an image has places, sums for each tap the products of an
image's row, moved by the tap, and a row of what comes back. A block that has all taps of a row
reads each once.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.hlo import DimLabels, Instruction, Shape
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integer, written
from hlo2graph.ops.own_dot import takes_tensor_cores

TAPS = range(2, 6)  # of a row
FEWEST_WIDTH = 7  # places of a row, which are filled up to a multiple of a product's steps
SIDE = 64  # features of a block, of both sides, or half as many where that does not divide them


@dataclass(frozen=True, slots=True)
class TapRows:
    """`taps` of a row, in `rows` rows of them; so many features of either side in a block."""

    rows: int
    taps: int
    inputs: int
    outputs: int
    features: tuple[int, int]  # in all

    @property
    def tiles(self) -> int:
        """Blocks of one sum over all places."""
        return self.rows * (self.features[0] // self.inputs) * (self.features[1] // self.outputs)


def tap_rows(instr: Instruction, lhs: Shape, rhs: Shape) -> TapRows | None:
    """Return how a convolution is cut, if it is such a gradient and tensor cores may compute it."""
    labels, window, out = instr.attrs["dim_labels"], window_dims(instr), written(instr)
    assert isinstance(labels, DimLabels)
    if labels.lhs != "f01b" or labels.rhs != "i01o" or integer(instr, "batch_group_count", 1) != 1:
        return None
    if not lhs.is_row_major or not takes_tensor_cores(instr, lhs, rhs):
        return None
    for w in window:
        if (w.stride, w.lhs_dilate, w.rhs_dilate, w.reversal) != (1, 1, 1, False):
            return None
    rows, taps = (out.dims[labels.out.index(d)] for d in "01")
    features = lhs.dims[3], rhs.dims[3] // integer(instr, "feature_group_count", 1)
    sides = [next((n for n in (SIDE, SIDE // 2) if size % n == 0), 0) for size in features]
    if taps not in TAPS or window[1].size < FEWEST_WIDTH or not all(sides):
        return None
    if window[0].size * window[1].size <= rows * taps:
        return None
    return TapRows(rows, taps, sides[0], sides[1], features)
