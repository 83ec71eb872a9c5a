"""Arrays of no elements along one dimension and any number along another, and other extremes."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.errors import VerifyError

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (f"ROOT r = u8[0,{MOST}] iota(), iota_dimension=1", (0, MOST)),
        (f"x = f16[0,{2**40}] parameter(0) ROOT r = f16[{2**40},0] transpose(x), "
         "dimensions={1,0}", (2**40, 0)),
        (f"x = u8[0,{MOST}] parameter(0) ROOT r = s32[] get-dimension-size(x), dimensions={{1}}",
         ()),
    ],
)  # fmt: skip
def test_what_is_empty_may_be_as_wide_as_one_likes(body: str, shape: tuple[int, ...]) -> None:
    text = module(body)
    executable = h2g.compile(text, backend="host")
    given = [
        np.empty(bound.shape.dims, bound.shape.dtype.numpy) for bound in executable.plan.inputs
    ]
    assert executable(*given)[0].shape == shape
    kernels_of(h2g.plan(text, target="sm_90"))


@pytest.mark.parametrize("dims", [f"{MOST},0,2", f"2,{MOST},0"])
def test_what_no_array_can_be_is_refused(dims: str) -> None:
    with pytest.raises(VerifyError, match="2\\^63 bytes or more but for its empty dimensions"):
        h2g.parse(module(f"ROOT r = s8[{dims}] parameter(0)"))


def test_a_mark_on_nothing_is_an_empty_kernel() -> None:
    text = module(
        'x = ((), ()) parameter(0) ROOT r = ((), ()) custom-call(x), custom_call_target="Sharding"'
    )
    assert all(
        source.grid == (1, 1, 1) for source in kernels_of(h2g.plan(text, target="sm_90")).values()
    )


def test_randomly_rounding_to_truths_is_refused() -> None:
    text = "x = f16[] parameter(0) y = u16[] parameter(1) ROOT r = pred[] stochastic-convert(x, y)"
    with pytest.raises(VerifyError, match="a result of real numbers"):
        h2g.parse(module(text))


def test_groups_of_no_device_are_refused() -> None:
    text = "x = f32[4] parameter(0) ROOT r = f32[4] all-to-all(x), dimensions={0}, "
    with pytest.raises(VerifyError, match="has an empty group"):
        h2g.parse(module(text + "replica_groups=[2,0]<=[2]"))


@pytest.mark.parametrize("fuse", ["none", "default"])
def test_a_system_of_any_size_is_planned_at_once(fuse: str) -> None:
    text = module(
        f"a = f32[{2**31},{2**31}] parameter(0) b = f32[{2**31},3] parameter(1) "
        f"ROOT r = f32[{2**31},3] triangular-solve(a, b), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    )
    assert len(h2g.plan(text, target="sm_90", fuse=fuse).body.thunks) == 1
