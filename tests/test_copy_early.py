"""A cache that an argument brings is copied while what is put there is computed."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module

import hlo2graph as h2g
from hlo2graph.program.thunks import Copy

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def cached(positions: int, made: str = f"dot(x, w), {PLAIN}", alias: str = "") -> str:
    text = module(f"""
      x = f32[4,64] parameter(0)
      w = f32[64,64] parameter(1)
      cache = f32[{positions},4,64] parameter(2)
      at = s32[] parameter(3)
      zero = s32[] constant(0)
      new = f32[4,64] {made}
      row = f32[1,4,64] reshape(new)
      all = f32[{positions},4,64] dynamic-update-slice(cache, row, at, zero, zero)
      two = s32[] constant(2)
      ROOT again = f32[{positions},4,64] dynamic-update-slice(all, row, two, zero, zero)""")
    return text.replace("HloModule m", f"HloModule m{alias}")


def copies(text: str) -> int:
    return sum(isinstance(t, Copy) for t in h2g.plan(text, target="sm_90").body.thunks)


def test_the_copy_waits_for_nothing():
    plan = h2g.plan(cached(2048), target="sm_90")
    [copy] = [k for k, t in enumerate(plan.body.thunks) if isinstance(t, Copy)]
    assert copy not in {edge.dst for edge in plan.body.edges}
    assert copy in {edge.src for edge in plan.body.edges}


@pytest.mark.parametrize("alias", ["", ", input_output_alias={ {}: (2, {}, must-alias) }"])
def test_the_argument_stays_unless_it_is_given_away(alias):
    text = cached(2048, alias=alias)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((4, 64), (64, 64), (2048, 4, 64))]
    [got] = h2g.compile(text, backend="host", target="sm_90", fuse="default")(*args, np.int32(7))
    want = args[2].copy()
    want[[7, 2]] = args[0] @ args[1]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert copies(text) == (not alias)


def test_what_is_small_or_known_at_once_is_copied_with_the_update():
    assert not copies(cached(64))
    assert not copies(cached(2048, "multiply(x, x)"))
