"""How the threads of a row hold all of it in registers, so that it is read once.

Where a block's threads cannot, those of a cluster may: blocks that are on the device at once, and
hand over what they have folded through each other's shared memory. As these blocks are small, parts
of several rows are on each multiprocessor: while one is folded, others are read. Where there are
few rows, more multiprocessors than rows are busy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo2graph.backends.cuda.forms.folds.kept_row import Kept
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.cuda.team import Team
from hlo2graph.ops.region import Rows
from hlo2graph.program.device_figures import DeviceFigures

MOST_HELD = {256: 64, 512: 48, 1024: 32}  # 4-byte values a thread, by the threads of a block
MOST_LINES_HELD = 16000  # of a kernel that would compute all again if it held nothing
CLUSTERS = ((2, 256, 32), (4, 256, 32), (8, 256, 32), (8, 512, 48))  # blocks, threads, values
BESIDE = 16  # registers of a thread, for all but the values that it holds
REGISTERS = 1 << 16  # of a multiprocessor
LARGEST = 8  # blocks
WIDEST = 1024  # threads of a block
LONG = 1 << 14  # elements of a row that takes a block long


@dataclass(frozen=True, slots=True)
class Holding:
    """What a row's threads would hold.

    values: of 4 bytes, that an element takes.
    lines: of the kernel, for each of a thread's elements.
    each: how many elements a thread has where a row has so many threads.
    """

    values: int
    lines: int
    each: Callable[[int], int]

    def fits(self, threads: int, most_lines: int = MOST_LINES_HELD) -> bool:
        """Tell whether the threads of one block can."""
        return self._fits(threads, most_held(threads), most_lines)

    def cluster(
        self, threads: int, region: Rows, signature: Signature, kept: Kept | None
    ) -> Team | None:
        """Return the cluster that is to, if any, where a block of so many threads is for all else.

        One is where a block cannot: the smallest that can. What is read and `kept` is as good,
        where such rows fill the device. Where most multiprocessors would have no row, a large one
        is for what a block could hold.
        """
        device, rows = signature.device, region.results
        if looks(region, signature) < 2:
            return None
        if self.fits(threads):
            is_few = region.steps >= LONG and LARGEST * rows <= device.multiprocessors
            return self._smallest(device, LARGEST) if is_few else None
        is_kept = kept is not None and kept.is_for_all(region, signature)
        return None if is_kept else self._smallest(device, 2)

    def _smallest(self, device: DeviceFigures, least: int) -> Team | None:
        for blocks, threads, most in CLUSTERS:
            fits = self._fits(blocks * threads, most, MOST_LINES_HELD)
            if least <= blocks <= device.cluster and fits:
                return Team(1, blocks * threads, blocks)
        return None

    def _fits(self, threads: int, most_held: int, most_lines: int) -> bool:
        elements = self.each(threads)
        return elements * self.values <= most_held and elements * self.lines <= most_lines


def halves(block: Team, region: Rows, signature: Signature) -> Team | None:
    """Return the cluster of two blocks in place of one of the largest, of rows that take it long.

    A multiprocessor then has parts of two rows, and one is read while the other is folded.
    """
    is_long = block.slices == WIDEST and region.steps > LONG
    return Team(1, WIDEST, 2) if is_long and signature.device.cluster > 1 else None


def most_held(threads: int) -> int:
    """Return how many values each thread of a block of so many can hold."""
    return next(count for most, count in MOST_HELD.items() if threads <= most)


def resident(cluster: Team) -> int:
    """Return how many blocks of such clusters a multiprocessor is to have at once."""
    return REGISTERS // (cluster.threads * (most_of(cluster) + BESIDE))


def most_of(team: Team) -> int:
    """Return how many values each thread of such blocks, or clusters, can hold."""
    if team.blocks == 1:
        return most_held(team.slices)
    return next(most for _, threads, most in CLUSTERS if threads == team.threads)


def looks(region: Rows, signature: Signature) -> int:
    """Return how often elements are looked at: for each stage, and for what waits for the last."""
    count = region.space.shape.elements
    late = (w and s.elements == count for w, s in zip(region.waits, signature.results, strict=True))
    return len(region.stages) + any(late)
