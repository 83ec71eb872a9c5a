"""One check of a plan: the proof, then runs in other orders where it can run."""

from __future__ import annotations

from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.check import prove
from hlo2graph.inspect.check.report import CheckReport
from hlo2graph.inspect.figures import bytes_text
from hlo2graph.inspect.self_check import check_orders
from hlo2graph.program.plan import Plan

MOST_BYTES = 2**31  # that a plan may hold for its runs to take no more than minutes


def check_plan(plan: Plan, *, runs: int, seed: int, elided: str | None = None) -> CheckReport:
    """Prove `plan`; where that holds, run it `runs` times in random orders and on a pool.

    A plan that cannot run here (an operation without a host rule, elided constants, more than
    MOST_BYTES) is proved alone, and the report says why. Raises InputError for a wrong `elided`.
    """
    proof = prove(plan)
    held = sum(allocation.size for allocation in plan.allocations)
    if not runs:
        return CheckReport(plan, proof)
    if not proof.ok:
        return CheckReport(plan, proof, skipped="the proof failed")
    if held > MOST_BYTES:
        limit = f"it holds {bytes_text(held)}, and runs are made up to {bytes_text(MOST_BYTES)}"
        return CheckReport(plan, proof, skipped=limit)
    try:
        executable = HostExecutable(plan, elided=elided)
    except UnsupportedError as error:
        return CheckReport(plan, proof, skipped=error.message)
    args = random_inputs(plan.inputs, seed)
    checks = check_orders(executable, args, executable(*args), seed=seed, runs=runs)
    return CheckReport(plan, proof, checks)
