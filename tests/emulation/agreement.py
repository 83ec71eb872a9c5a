"""Emulated kernels against the host."""

from __future__ import annotations

from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from hlo2graph.program.plan import Plan
from tests.emulation.emulator import EmulatedExecutable, Kernels


def agree_with_the_host(
    plan: Plan, kernels: Kernels, host: Plan | None = None, *, tf32: bool = False
) -> None:
    """Check a plan's kernels with its blocks in both orders, and against `plan` or `host` there."""
    arguments = random_inputs(plan.inputs, 0)
    executable = EmulatedExecutable(plan, kernels)
    got = executable(*arguments)
    kernels.run_backwards(True)
    assert same_bits(got, executable(*arguments)), "a barrier is missing"
    kernels.run_backwards(False)
    want = HostExecutable(host or plan)(*arguments)
    for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
        found = compare(ours, theirs, tolerance_for(bound.shape.dtype, tf32=tf32), bound.name)
        assert found.ok, str(found)
