"""Emulated kernels against the host."""

from __future__ import annotations

from collections.abc import Sequence

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


def agree_with_the_host(
    plan: Plan, kernels: Kernels, host: Plan | None = None, *, tf32: bool = False
) -> None:
    """Check a plan's kernels with its blocks in both orders, and against `plan` or `host` there."""
    arguments = random_inputs(plan.inputs, 0)
    got = both_ways(plan, kernels, arguments)
    want = HostExecutable(host or plan)(*arguments)
    for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
        found = compare(ours, theirs, tolerance_for(bound.shape.dtype, tf32=tf32), bound.name)
        assert found.ok, str(found)
