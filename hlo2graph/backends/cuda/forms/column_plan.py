"""How the columns form divides its work: results a thread, threads side by side, slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import compute_bytes
from hlo2graph.backends.cuda.forms.folding import (
    MOST_LINES,
    large_sizes,
    lines_each,
    power_below,
)
from hlo2graph.backends.cuda.source import ACCESS_BYTES, SHARED_BYTES, Signature
from hlo2graph.hlo import Computation, DType
from hlo2graph.ops.region import SHARED_STEPS, Columns

LANES = 32  # threads side by side, where that leaves enough blocks
LEAST_RUN = 128  # bytes side by side that a block reads of a step, of the widest, even so
SECTOR = 32  # the same of arrays that lie in the device's cache, which has its own grain
CACHED = 4 << 20  # bytes of an array that is taken to lie there
FEWEST_SLICES = 8
FEWEST_STEPS = 16  # of a slice, where results for enough blocks let there be fewer slices
MOST_VECTOR = FEWEST_SLICES  # the last fold has a thread a result
FEW_BLOCKS = 3  # of a multiprocessor: with fewer, blocks get more threads, or take fewer lanes
THREADS = (512, 1024, 256)  # that hold what they fold: a kernel of few threads has a long text
REGISTERS = 1 << 16  # of a multiprocessor
AT_WORK = 32  # of a thread, beside those that hold something
MOST_AHEAD = 64  # elements that a thread waits for at once
BYTES_AHEAD = 64  # that a thread waits for at once


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """`lanes` threads of `vector` results side by side, `slices` of them; `ahead` steps a round.

    The blocks of a `cluster` share out the steps of the same results. Where what they fold is
    looked at again, one round may be `held` in registers till then.
    """

    vector: int
    lanes: int
    slices: int
    ahead: int
    cluster: int = 1
    held: bool = False

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
    vector = min(MOST_VECTOR, ACCESS_BYTES // min(*sizes, ACCESS_BYTES))
    run = region.results if region.is_contiguous else region.minor
    while run % vector:
        vector //= 2
    lanes, few = LANES, FEW_BLOCKS * signature.device.multiprocessors
    while lanes > 1 and lanes // 2 * vector >= region.results:
        lanes //= 2
    least = SECTOR if region.space.shape.elements * max(sizes) <= CACHED else LEAST_RUN
    while lanes * vector * max(sizes) > least and region.results < few * lanes * vector:
        lanes //= 2
    blocks = -(-region.results // (lanes * vector))
    cluster = _cluster(signature, region, blocks)
    steps, blocks = region.steps // cluster, blocks * cluster
    threads = 1024 if blocks < few else 512 if blocks < 2 * few else 256
    ahead = max(1, min(BYTES_AHEAD // (vector * sum(reads or sizes)), MOST_AHEAD // vector))
    ahead = max(1, min(ahead, MOST_LINES // (vector * lines_each(computation))))
    slices = min(threads // lanes, power_below(max(1, steps // ahead)))
    if slices < FEWEST_SLICES and lanes == LANES and cluster == 1 and not region.again:
        fewest = max(2, vector, min(FEWEST_SLICES, power_below(max(1, steps // FEWEST_STEPS))))
        wider = lanes * FEWEST_SLICES // fewest
        if region.results >= 2 * few * wider * vector:
            return ColumnPlan(vector, wider, fewest, _evenly(steps, fewest, ahead))
    slices = max(slices, FEWEST_SLICES)
    while slices > FEWEST_SLICES and slices * lanes * vector * compute_bytes(types) > SHARED_BYTES:
        slices //= 2
    plan = ColumnPlan(vector, lanes, slices, _evenly(steps, slices, ahead), cluster)
    return (
        _held(plan, region, len(reads), lines_each(computation)) if region.again else None
    ) or plan


def _held(plan: ColumnPlan, region: Columns, reads: int, lines: int) -> ColumnPlan | None:
    """Return the plan whose threads hold all that they fold, if some number has room for it."""
    least = plan.lanes * FEWEST_SLICES
    for threads in (n for n in THREADS if n >= least):
        slices = min(threads // plan.lanes, power_below(region.steps // plan.cluster))
        ahead = -(-region.steps // (slices * plan.cluster))
        held = ahead * plan.vector
        room = REGISTERS // threads - AT_WORK
        if slices >= FEWEST_SLICES and held * (reads + 1) <= room and held * lines <= MOST_LINES:
            return replace(plan, slices=slices, ahead=ahead, held=True)
    return None


def _cluster(signature: Signature, region: Columns, blocks: int) -> int:
    """Return how many blocks share results: more than one where most of a device has none."""
    device, found = signature.device, 1
    while (
        2 * found <= device.cluster
        and 2 * found * blocks <= device.multiprocessors
        and 2 * found * SHARED_STEPS <= region.steps
    ):
        found *= 2
    return found


def _evenly(steps: int, slices: int, most: int) -> int:
    """Return how many steps a thread takes at once, so that its last turn is about a whole one."""
    ahead = max(1, min(most, steps // slices))
    turns = -(-steps // (slices * ahead))
    return -(-steps // (slices * turns))
