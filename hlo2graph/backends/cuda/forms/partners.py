"""Who shares out a sum of products: the teams of a block, and the blocks of a cluster.

Each block computes some of the results, from what all of them have in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo2graph.ops.device import Expr
from hlo2graph.program.device_figures import DeviceFigures

FEWEST_CHUNKS = 8  # of a block that shares a sum with others


@dataclass(frozen=True, slots=True)
class Partners:
    """`cluster` blocks that lie together, of `teams` each."""

    cluster: int
    teams: int

    @staticmethod
    def of_tiles(device: DeviceFigures, tiles: int, chunks: int) -> int:
        """Return how many blocks share a tile, more than one where most would have none."""
        found = 1
        while (
            2 * found <= device.cluster
            and 2 * found * tiles <= device.multiprocessors
            and 2 * found * FEWEST_CHUNKS <= chunks
        ):
            found *= 2
        return found

    @property
    def all(self) -> int:
        """All teams."""
        return self.cluster * self.teams

    def first(self, each: int) -> str:
        """Return the number of the first of `each` that a block has, to which more is added."""
        return f"rank * {each} + " if self.cluster > 1 else ""

    @property
    def barrier(self) -> str:
        """What all wait at: behind it they see each other's shared memory."""
        return "hlo::cluster_meets();" if self.cluster > 1 else "__syncthreads();"

    def sum_up(self, total: Expr, words: int, tile: int, place: str) -> Iterator[str]:
        """Yield how what all teams have at one place is added; each has `words` of its block's."""
        held = "held"
        if self.cluster > 1:
            held = "hlo::of_block(held, r)"
            yield "#pragma unroll"
            yield f"for (int r = 0; r < {self.cluster}; ++r)"
        yield "#pragma unroll"
        team = f"((float (*)[{tile}])({held} + t * {words}))"
        yield f"for (int t = 0; t < {self.teams}; ++t) {total} = hlo::add({total}, {team}{place});"
