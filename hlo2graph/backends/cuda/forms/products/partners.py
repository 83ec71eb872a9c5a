"""Who shares out a sum of products: the teams of a block, and the blocks of a cluster.

Each block of a cluster computes some of the results: the others write what they have of these to
its shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.products.staged_operand import FOUR
from hlo2graph.ops.device import Expr
from hlo2graph.program.device_figures import DeviceFigures

FEWEST_CHUNKS = 8  # of a block that shares a sum with others
MOST_BLOCKS = 2  # that share one: clusters of four and more lose half of their speed


def cluster_of(device: DeviceFigures, tiles: int, chunks: int) -> int:
    """Return how many blocks share a tile, more than one where most would have none."""
    found = 1
    while (
        2 * found <= min(device.cluster, MOST_BLOCKS)
        and 2 * found * tiles <= device.multiprocessors
        and 2 * found * FEWEST_CHUNKS <= chunks
    ):
        found *= 2
    return found


@dataclass(frozen=True, slots=True)
class Partners:
    """`cluster` blocks that lie together, of `teams` each."""

    cluster: int
    teams: int

    @property
    def all(self) -> int:
        """All teams."""
        return self.cluster * self.teams

    def first(self, each: int) -> str:
        """Return the number of the first of `each` that a block has, to which more is added."""
        return f"rank * {each} + " if self.cluster > 1 else ""


@dataclass(frozen=True, slots=True)
class SharedSums:
    """The sums of a tile, of `across` rows of `along`, as partners have them.

    A team has `words` of shared memory, which its sums come to, each row a word longer.
    """

    partners: Partners
    words: int
    across: int
    along: int

    @property
    def each(self) -> int:
        """Sums whose results a block computes."""
        return self.across * self.along // self.partners.cluster

    @property
    def held(self) -> int:
        """Words of a block: of its teams, and of what others have of its results."""
        met = self.across * self.along if self.partners.cluster > 1 else 0
        return self.partners.teams * self.words + met

    def meet(self, emit: ElementEmitter, threads: int) -> None:
        """Write how all of a result's sums come to its block."""
        cluster, teams = self.partners.cluster, self.partners.teams
        emit.line("__syncthreads();")
        if cluster == 1:
            return
        emit.line(f"float* const met = (float*)(held + {teams * self.words});")
        emit.line("hlo::cluster_waits();")
        head = f"int at = threadIdx.x * {FOUR}; at < {self.each * cluster}"
        emit.line(f"for ({head}; at += {threads * FOUR}) {{")
        emit.line(f"  float sum[{FOUR}] = {{}};")
        emit.line("  #pragma unroll")
        emit.line(f"  for (int t = 0; t < {teams}; ++t) {{")
        place = f"[at / {self.along}][at % {self.along} + k]"
        emit.line("    #pragma unroll")
        emit.line(f"    for (int k = 0; k < {FOUR}; ++k)")
        emit.line(f"      sum[k] = hlo::add(sum[k], {self._of_team}{place});")
        emit.line("  }")
        to = f"met + rank * {self.each} + at % {self.each}, at / {self.each}"
        words = ", ".join(f"hlo::bits_as<hlo::u32>(sum[{k}])" for k in range(FOUR))
        emit.line(f"  *(hlo::Four*)hlo::of_block({to}) = hlo::Four{{{{{words}}}}};")
        emit.line("}")
        emit.line("hlo::cluster_meets();")

    def sum_up(self, emit: ElementEmitter, total: Expr, width: int, k: int) -> None:
        """Write how all of one result's sums are added, number `k` of `width` side by side."""
        cluster, teams = self.partners.cluster, self.partners.teams
        count, name, value = teams, "t", f"{self._of_team}[across][along + {k}]"
        if cluster > 1:
            count, name = cluster, "r"
            value = f"met[r * {self.each} + at % {self.each // width} * {width} + {k}]"
        emit.line("#pragma unroll")
        head = f"for (int {name} = 0; {name} < {count}; ++{name})"
        emit.line(f"{head} {total} = hlo::add({total}, {value});")

    @property
    def _of_team(self) -> str:
        return f"((float (*)[{self.along + 1}])(held + t * {self.words}))"
