"""How the columns form divides its work: results a thread, threads side by side, slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.ctypes import compute_bytes
from hlo2graph.backends.cuda.forms.folds.folding import (
    MOST_LINES,
    fewer_for_lines,
    large_sizes,
    lines_each,
    power_below,
)
from hlo2graph.backends.cuda.source import ACCESS_BYTES, Signature
from hlo2graph.hlo import Computation, DType
from hlo2graph.ops.large_gpu import SHARED_BYTES
from hlo2graph.ops.region import Columns

LANES = 32  # threads side by side, where that leaves enough blocks
LEAST_RUN = 128  # bytes side by side that a block reads of a step, of the widest, even so
SECTOR = 32  # the same of arrays that lie in the device's cache, which has its own grain
CACHED = 4 << 20  # bytes of an array that is taken to lie there
FEWEST_SLICES = 8
FEWEST_STEPS = 16  # of a slice, where results for enough blocks let there be fewer slices
MOST_VECTOR = FEWEST_SLICES  # the last fold has a thread a result
FEW_BLOCKS = 3  # of a multiprocessor: with fewer, blocks get more threads, or take fewer lanes
MOST_AHEAD = 64  # elements that a thread waits for at once
BYTES_AHEAD = 64  # that a thread waits for at once


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """`lanes` threads of `vector` results side by side, `slices` of them; `ahead` steps a round."""

    vector: int
    lanes: int
    slices: int
    ahead: int

    @property
    def width(self) -> int:
        """Results of a block."""
        return self.vector * self.lanes

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.slices


def plan_columns(
    region: Columns, signature: Signature, computation: Computation, types: Sequence[DType]
) -> ColumnPlan:
    """Return the plan for the region of `computation`, whose reduces have results of `types`."""
    reads, writes = large_sizes(region, signature, computation)
    sizes = reads + writes or [types[0].size]
    is_cached = region.space.shape.elements * max(sizes) <= CACHED
    if is_cached and max(sizes) > 1:  # where flags are read a word at a time, as wide ones are
        reads = [size for size in reads if size > 1]
        sizes = [size for size in sizes if size > 1]
    vector = min(MOST_VECTOR, ACCESS_BYTES // min(*sizes, ACCESS_BYTES))
    run = region.results if region.is_contiguous else region.minor
    while run % vector:
        vector //= 2
    lines = lines_each(computation)
    vector = fewer_for_lines(vector, lines)
    lanes, few = LANES, FEW_BLOCKS * signature.device.multiprocessors
    while lanes > 1 and lanes // 2 * vector >= region.results:
        lanes //= 2
    least = SECTOR if is_cached else LEAST_RUN
    while (
        lanes > 1 and lanes * vector * max(sizes) > least and region.results < few * lanes * vector
    ):
        lanes //= 2
    blocks = -(-region.results // (lanes * vector))
    threads = 1024 if blocks < few else 512 if blocks < 2 * few else 256
    ahead = max(1, min(BYTES_AHEAD // (vector * sum(reads or sizes)), MOST_AHEAD // vector))
    ahead = max(1, min(ahead, MOST_LINES // (vector * lines)))
    slices = min(threads // lanes, power_below(max(1, region.steps // ahead)))
    if slices < FEWEST_SLICES and lanes == LANES:
        most = power_below(max(1, region.steps // FEWEST_STEPS))
        fewest = max(2, vector, min(FEWEST_SLICES, most))
        wider = lanes * FEWEST_SLICES // fewest
        if region.results >= 2 * few * wider * vector:
            return ColumnPlan(vector, wider, fewest, _evenly(region.steps, fewest, ahead))
    slices = max(slices, FEWEST_SLICES)
    while slices > FEWEST_SLICES and slices * lanes * vector * compute_bytes(types) > SHARED_BYTES:
        slices //= 2
    return ColumnPlan(vector, lanes, slices, _evenly(region.steps, slices, ahead))


def _evenly(steps: int, slices: int, most: int) -> int:
    """Return how many steps a thread takes at once, so that its last turn is about a whole one."""
    ahead = max(1, min(most, steps // slices))
    turns = -(-steps // (slices * ahead))
    return -(-steps // (slices * turns))
