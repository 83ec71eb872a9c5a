"""The programs that the GPU is measured with, in small: each kernel form against the host."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import compare, tolerance_for
from tests.emulation import EmulatedExecutable, Kernels
from tests.gpu.form_programs import programs
from tests.gpu.forms import drawn

SMALL = 400_000  # bytes of the largest array, about


@pytest.mark.slow
@needs_gxx
def test_programs_agree_with_the_host():
    plans = {p.name: hlo2graph.plan(p.text, target="sm_90") for p in programs((SMALL,))}
    kernels = Kernels(list(plans.values()))
    for name, plan in plans.items():
        arguments = [drawn(*bound.array_type) for bound in plan.inputs]
        got = EmulatedExecutable(plan, kernels)(*arguments)
        want = HostExecutable(plan)(*arguments)
        for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
            found = compare(ours, theirs, tolerance_for(bound.shape.dtype), name)
            assert found.ok, f"{name}: {found}"


def test_bytes_count_each_array_once():
    (program,) = (p for p in programs((60_000,)) if p.name.startswith("add a row"))
    assert program.bytes == 2 * 60_000 + 1500 * 4
