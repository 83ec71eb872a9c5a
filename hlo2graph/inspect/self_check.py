"""Running a plan in other orders that its edges allow, and asking for the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import Comparison, same_bits
from hlo2graph.inspect.figures import plural
from hlo2graph.ops.spec import Array

ORDERS = 4


@dataclass(frozen=True, slots=True)
class Check:
    """The results held against a reference.

    against: what the reference is, in words. `comparisons` are by result leaf; where it is empty,
    the claim was equality bit for bit, and `ok` says whether it held in all `runs`, of which `how`
    tells. vague: why the comparisons, though none failed, tell nothing; '' where they do.
    """

    against: str
    runs: int
    ok: bool
    comparisons: tuple[Comparison, ...] = ()
    how: str = ""
    vague: str = ""

    @staticmethod
    def of(against: str, comparisons: tuple[Comparison, ...], vague: str = "") -> Check:
        """Make the check that these comparisons are."""
        return Check(against, 1, all(c.ok for c in comparisons), comparisons, vague=vague)

    @property
    def worst(self) -> Comparison:
        """The comparison furthest from its reference, wrong ones first."""
        return max(self.comparisons, key=lambda c: (not c.ok, c.worst))


def check_orders(
    executable: HostExecutable,
    args: Sequence[object],
    want: Sequence[Array],
    *,
    seed: int = 0,
    runs: int = ORDERS,
    threads: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Check, ...]:
    """Run in `runs` random orders, and `runs` times on a pool; `want` is program order's result.

    say: told what is run now.
    """
    rng = Random(seed)
    shuffled, pooled = [], []
    for number in range(1, runs + 1):
        say(f"random order {number} of {runs}")
        shuffled.append(same_bits(executable.run_random(rng, args), want))
    for number in range(1, runs + 1):
        say(f"run {number} of {runs} on a pool")
        pooled.append(same_bits(executable.run_parallel(args, threads), want))
    return (
        Check("program order", runs, all(shuffled), how=plural(runs, "random order")),
        Check("program order", runs, all(pooled), how=f"{plural(runs, 'run')} on a pool"),
    )
