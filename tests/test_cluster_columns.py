"""Columns whose results are few: blocks of a cluster share out the steps."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host


def program(body: str) -> str:
    return f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
most {{ a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] maximum(a, b) }}
first {{
  a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  v = f32[] select(c, a, b) k = s32[] select(c, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}}
ENTRY e {{
{body}
}}"""


PROGRAMS = {
    "sum": program("""  x = f32[2309,24] parameter(0)
  z = f32[] constant(3)
  ROOT s = f32[24] reduce(x, z), dimensions={0}, to_apply=add"""),
    "most-bf16": program("""  x = bf16[4,1100,6] parameter(0)
  z = bf16[] constant(-inf)
  ROOT s = bf16[6] reduce(x, z), dimensions={0,1}, to_apply=most"""),
    "middle": program("""  x = f32[2,1500,8] parameter(0)
  z = f32[] constant(0)
  ROOT s = f32[2,8] reduce(x, z), dimensions={1}, to_apply=add"""),
    "where": program("""  x = f32[1031,5] parameter(0)
  n = s32[1031,5] iota(), iota_dimension=0
  z = f32[] constant(-inf)
  k = s32[] constant(0)
  ROOT s = (f32[5], s32[5]) reduce(x, n, z, k), dimensions={0}, to_apply=first"""),
    "statistics": program("""  x = f32[2048,20] parameter(0)
  y = f32[2048,20] exponential(x)
  q = f32[2048,20] multiply(y, y)
  z = f32[] constant(0)
  a = f32[20] reduce(y, z), dimensions={0}, to_apply=add
  b = f32[20] reduce(q, z), dimensions={0}, to_apply=add
  c = f32[20] divide(b, a)
  ROOT t = (f32[20], f32[2048,20], f32[20]) tuple(a, y, c)"""),
}
AGAIN = {
    "normalised": program("""  x = f32[2048,20] parameter(0)
  z = f32[] constant(0)
  n = f32[] constant(2048)
  s = f32[20] reduce(x, z), dimensions={0}, to_apply=add
  ns = f32[20] broadcast(n), dimensions={}
  mean = f32[20] divide(s, ns)
  means = f32[2048,20] broadcast(mean), dimensions={1}
  d = f32[2048,20] subtract(x, means)
  q = f32[2048,20] multiply(d, d)
  v = f32[20] reduce(q, z), dimensions={0}, to_apply=add
  var = f32[20] divide(v, ns)
  r = f32[20] rsqrt(var)
  rs = f32[2048,20] broadcast(r), dimensions={1}
  y = f32[2048,20] multiply(d, rs)
  ROOT t = (f32[2048,20], f32[20], f32[20]) tuple(y, mean, var)"""),
    "softmax-of-few": program("""  x = f32[3,40,24] parameter(0)
  z = f32[] constant(0)
  e = f32[3,40,24] exponential(x)
  s = f32[3,24] reduce(e, z), dimensions={1}, to_apply=add
  b = f32[3,40,24] broadcast(s), dimensions={0,2}
  ROOT y = f32[3,40,24] divide(e, b)"""),
    "side": program("""  x = f32[1100,12] parameter(0)
  z = f32[] constant(0)
  e = f32[1100,12] exponential(x)
  s = f32[12] reduce(e, z), dimensions={0}, to_apply=add
  b = f32[1100,12] broadcast(s), dimensions={1}
  y = f32[1100,12] divide(e, b)
  q = f32[12] reduce(y, z), dimensions={0}, to_apply=add
  ROOT t = (f32[1100,12], f32[12]) tuple(e, q)"""),
}


@pytest.fixture(scope="module")
def shared():
    texts = (PROGRAMS | AGAIN).items()
    plans = {name: h2g.plan(text, target="sm_90") for name, text in texts}
    return plans, Kernels(list(plans.values()))


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_that_share_columns_agree_with_the_host(shared, name):
    plans, kernels = shared
    (source,) = kernels_of(plans[name]).values()
    assert "__cluster_dims__" in source.text
    agree_with_the_host(plans[name], kernels)


@needs_gxx
@pytest.mark.parametrize("name", AGAIN)
def test_columns_that_are_looked_at_again_agree_with_the_host(shared, name):
    plans, kernels = shared
    (source,) = kernels_of(plans[name]).values()
    assert ("__cluster_dims__" in source.text) == (name != "softmax-of-few")
    agree_with_the_host(plans[name], kernels)


@pytest.mark.parametrize("name", AGAIN)
def test_targets_without_clusters_look_at_them_in_kernels_of_their_own(name):
    assert len(h2g.plan(AGAIN[name], target="sm_80").body.thunks) > 1


def test_targets_without_clusters_fold_in_two_steps():
    text = program("""  x = f32[8000,64] parameter(0)
  z = f32[] constant(3)
  ROOT s = f32[64] reduce(x, z), dimensions={0}, to_apply=add""")
    counts = [len(h2g.plan(text, target=target).body.thunks) for target in ("sm_80", "sm_90")]
    assert counts == [2, 1]
