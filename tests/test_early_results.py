"""Results of rows that are read in rounds, written as soon as what they wait for is there."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

SIZE = 40000  # more than threads hold


def program(results: str, size: int = SIZE) -> str:
    """Return a program of two folds, of which the second waits for the first."""
    return f"""HloModule m
add {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT v = f32[] add(p, q) }}
ENTRY e {{
  x = f32[3,{size}] parameter(0)
  z = f32[] constant(0)
  s = f32[3] reduce(x, z), dimensions={{1}}, to_apply=add
  n = f32[3] constant({{{size}, {size}, {size}}})
  m = f32[3] divide(s, n)
  b = f32[3,{size}] broadcast(m), dimensions={{0}}
  d = f32[3,{size}] subtract(x, b)
  w = f32[3,{size}] multiply(d, d)
  t = f32[3] reduce(w, z), dimensions={{1}}, to_apply=add
  c = f32[3,{size}] broadcast(t), dimensions={{0}}
  y = f32[3,{size}] divide(d, c)
  e = f32[3,{size}] exponential(x)
  ROOT r = ({", ".join(f"f32[3,{size}]" if k in "dye" else "f32[3]" for k in results)})
    tuple({", ".join(results)})
}}
"""


ROUNDS = {"dt": 2, "dyt": 3, "edt": 2, "ey": 3}


@pytest.mark.parametrize("results", ROUNDS)
def test_no_round_is_for_what_an_earlier_one_could_write(results):
    plan = h2g.plan(program(results), target="sm_80")  # which has no clusters to hold rows
    (source,) = kernels_of(plan).values()
    assert source.text.count(" = slice;") == ROUNDS[results]


@pytest.mark.slow
@needs_gxx
def test_they_agree_with_the_host():
    plans = [h2g.plan(program(results), target="sm_80") for results in ROUNDS]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)
