"""Kernel forms and device rules at their edges, on the device against the host."""

from __future__ import annotations

import pytest
from kernel_programs import PROGRAMS

import hlo2graph as h2g
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for


@pytest.mark.parametrize("name", PROGRAMS)
def test_edge_cases_agree_with_the_host(name):
    plan = h2g.plan(PROGRAMS[name], target="sm_90", fuse="none")
    executable = h2g.compile(plan, "cuda", "highest")
    host = h2g.compile(plan, "host")
    for seed in (0, 1):
        args = random_inputs(plan.inputs, seed)
        got = executable(*args)
        assert same_bits(got, executable(*args)), "two runs differ"
        for ours, theirs, bound in zip(got, host(*args), plan.outputs, strict=True):
            found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
            assert found.ok, str(found)
