"""Loops whose results repeat: what is computed once is stored several times."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from tests.emulation import EmulatedExecutable
from tests.emulation.plans import planned


def spread(dtype: str, given: str, dims: str, along: str, more: str) -> str:
    return (
        f"HloModule m\nENTRY e {{\np = {dtype}[{given}] parameter(0)\n"
        f"b = {dtype}[{dims}] broadcast(p), dimensions={{{along}}}\n"
        f"ROOT r = {dtype}[{dims}] {more}\n}}\n"
    )


PROGRAMS = {
    "odd rows": spread("f32", "151", "100,151", "1", "negate(b)"),
    "whole rows": spread("bf16", "160", "99,160", "1", "negate(b)"),
    "planes": spread("f32", "3,35", "97,3,35", "1,2", "negate(b)"),
    "a dimension in the middle": spread("u8", "7", "400,7,9", "1", "not(b)"),
    "f8": spread("f8e4m3fn", "48", "101,48", "1", "negate(b)"),
}
OTHERS = {
    "columns": spread("f32", "151", "151,100", "0", "negate(b)"),
    "few rows": spread("f32", "151", "9,151", "1", "negate(b)"),
}


@pytest.fixture(scope="module")
def plans():
    with planned(PROGRAMS | OTHERS) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS | OTHERS)
def test_what_repeats_agrees_with_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    (source,) = kernels_of(plan).values()
    assert ("times" in source.text) == (name in PROGRAMS), source.text
    given = random_inputs(plan.inputs, 0)
    (got,), (want,) = EmulatedExecutable(plan, kernels)(*given), HostExecutable(plan)(*given)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
