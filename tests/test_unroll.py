"""Loops written out: what only counted their rounds is gone, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.unroll import Unrolling, unrolled
from hlo2graph.inspect.check import prove
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.thunks import Copy, While

TEXT = """HloModule m
body {
  s = (s32[], f32[8], f32[40]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  all = f32[40] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  row = f32[8] dynamic-slice(all, AT), dynamic_slice_sizes={8}
  new = f32[8] subtract(row, x)
  ROOT r = (s32[], f32[8], f32[40]) tuple(next, new, all)
}
more {
  s = (s32[], f32[8], f32[40]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  end = s32[] constant(5)
  ROOT c = pred[] compare(n, end), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[8] parameter(0)
  all = f32[40] parameter(1)
  t = (s32[], f32[8], f32[40]) tuple(zero, x, all)
  w = (s32[], f32[8], f32[40]) while(t), condition=more, body=body
  n = s32[] get-tuple-element(w), index=0
  y = f32[8] get-tuple-element(w), index=1
  ROOT r = RESULT
}
"""
BOTH, VALUE = "(s32[], f32[8]) tuple(n, y)", "f32[8] negate(y)"


@pytest.mark.parametrize(
    ("at", "result", "counts"), [("one", VALUE, 0), ("n", VALUE, 5), ("one", BOTH, 5)]
)
def test_what_only_counts_rounds_is_left_out(at, result, counts):
    plan = h2g.plan(TEXT.replace("AT", at).replace("RESULT", result), target="host")
    body, done = unrolled(plan.body, Unrolling.of("auto"), plan.schedule)
    assert done == ("w (5 rounds)",)
    assert sum(thunk.name.endswith("]/next") for thunk in body.thunks) == counts
    written = replace(plan, body=body)
    assert prove(written).ok
    given = [np.arange(8, dtype=np.float32), np.arange(40, dtype=np.float32)]
    assert same_bits(h2g.compile(written, "host")(*given), h2g.compile(plan, "host")(*given))


def test_updates_one_behind_the_other_in_a_body_stay_in_the_states_place():
    text = """HloModule m
    body {
      s = (s32[], f32[40]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      all = f32[40] get-tuple-element(s), index=1
      end = f32[2] slice(all), slice={[38:40]}
      new = f32[2] negate(end)
      first = f32[40] dynamic-update-slice(all, new, n)
      one = s32[] constant(1)
      next = s32[] add(n, one)
      more = f32[2] exponential(new)
      second = f32[40] dynamic-update-slice(first, more, next)
      ROOT r = (s32[], f32[40]) tuple(next, second)
    }
    more {
      s = (s32[], f32[40]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      end = s32[] constant(5)
      ROOT c = pred[] compare(n, end), direction=LT
    }
    ENTRY e {
      zero = s32[] constant(0)
      x = f32[40] parameter(0)
      t = (s32[], f32[40]) tuple(zero, x)
      w = (s32[], f32[40]) while(t), condition=more, body=body
      ROOT y = f32[40] get-tuple-element(w), index=1
    }"""
    plan = h2g.plan(text, target="host")
    [loop] = [t for t in plan.body.thunks if isinstance(t, While)]
    assert prove(plan).ok
    places = {t.writes[0] for t in loop.body.thunks if t.name in ("first", "second")}
    assert places == {loop.results[1]}
    assert not any(isinstance(t, Copy) for t in loop.body.thunks)
