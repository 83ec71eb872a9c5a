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


@pytest.fixture(scope="module")
def shared():
    plans = {name: h2g.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return plans, Kernels(list(plans.values()))


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_that_share_columns_agree_with_the_host(shared, name):
    plans, kernels = shared
    (source,) = kernels_of(plans[name]).values()
    assert "__cluster_dims__" in source.text
    agree_with_the_host(plans[name], kernels)


def test_targets_without_clusters_fold_in_two_steps():
    text = program("""  x = f32[8000,64] parameter(0)
  z = f32[] constant(3)
  ROOT s = f32[64] reduce(x, z), dimensions={0}, to_apply=add""")
    counts = [len(h2g.plan(text, target=target).body.thunks) for target in ("sm_80", "sm_90")]
    assert counts == [2, 1]
