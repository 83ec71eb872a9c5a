"""Emulated kernels against the host."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan
from tests.emulation.emulator import EmulatedExecutable, Kernels


def both_ways(plan: Plan, kernels: Kernels, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """Return what a plan's kernels make, with their blocks and threads in both orders."""
    executable = EmulatedExecutable(plan, kernels)
    got = executable(*arguments)
    kernels.run_backwards(True)
    backwards = executable(*arguments)
    kernels.run_backwards(False)
    assert same_bits(got, backwards), f"a barrier is missing\n{plan}"
    return got


def agree_exactly(plan: Plan, kernels: Kernels) -> None:
    """Check that a plan's kernels make the bits that the host makes of it."""
    arguments = random_inputs(plan.inputs, 0)
    want = HostExecutable(plan)(*arguments)
    assert same_bits(both_ways(plan, kernels, arguments), want), str(plan)


def agree_with_the_host(
    plan: Plan,
    kernels: Kernels,
    host: Plan | None = None,
    *,
    tf32: bool = False,
    skipped: Collection[int] = (),
    seed: int = 0,
) -> None:
    """Check a plan's kernels with its blocks in both orders, and against `plan` or `host` there.

    Results that are drawn by chance are `skipped`, by number.
    """
    arguments = random_inputs(plan.inputs, seed)
    got = both_ways(plan, kernels, arguments)
    want = HostExecutable(host or plan)(*arguments)
    for number, (ours, theirs, bound) in enumerate(zip(got, want, plan.outputs, strict=True)):
        if number not in skipped:
            tolerance = tolerance_for(bound.shape.dtype, tf32=tf32)
            found = compare(ours, theirs, tolerance, bound.name)
            assert found.ok, f"{found}\n{plan}"
