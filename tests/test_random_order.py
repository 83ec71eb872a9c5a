"""Every sample in random topological orders and on a pool gives program order's very bits.

The bytes are real and poisoned before each run, so this finds a missing edge without a GPU; the
second half takes edges away and sees that it does.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from conftest import RUNNABLE

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.thunks import Hazard, While

OPTIONS = {
    "default": {},
    "fused": {"fuse": "default"},
    "reuse": {"max_buffer_reuse": -1},
    "serialize": {"schedule": "serialize"},
}
ORDERED_BY_DATA = (Hazard.RAW, Hazard.WAR, Hazard.WAW, Hazard.REUSE, Hazard.INPLACE)
TRIES = 40


CASES = [
    pytest.param(path, options, id=f"{path.stem}-{name}")
    for path in RUNNABLE
    for name, options in OPTIONS.items()
    if path.suffix == ".hlo" or not options  # thunk sequences are planned already
]


@pytest.mark.parametrize(("path", "options"), CASES)
def test_any_order_gives_the_same_bits(path, options):
    plan = h2g.plan(path.read_text(), filename=path.name, **options)
    executable = HostExecutable(plan, elided="random:0")
    args = random_inputs(plan.inputs, 0)
    want = executable(*args)
    rng = Random(0)
    for _ in range(8):
        assert same_bits(executable.run_random(rng, args), want)
    for threads in (1, 2, 4):
        assert same_bits(executable.run_parallel(args, threads), want)
    assert same_bits(executable(*args), want)


# No step here undoes or repeats another, so bits differ whenever two trade places.
BRANCHES = """
HloModule branches
ENTRY main (x: f32[8], y: f32[8]) -> (f32[8], f32[8], f32[8]) {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] exponential(x)
  b = f32[8] add(a, y)
  c = f32[8] multiply(a, a)
  d = f32[8] multiply(b, c)
  e = f32[8] add(c, d)
  f = f32[8] cosine(e)
  late = f32[8] sine(y)
  g = f32[8] subtract(f, late)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(d, f, g)
}
"""
# The donated state is read by two steps before a third writes over it.
DONATED = """
HloModule donated, input_output_alias={ {0}: (0, {}, must-alias) }
ENTRY main (state: f32[8], x: f32[8]) -> (f32[8], f32[8], f32[8]) {
  state = f32[8] parameter(0)
  x = f32[8] parameter(1)
  a = f32[8] multiply(state, x)
  b = f32[8] exponential(state)
  next = f32[8] add(state, x)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(next, a, b)
}
"""


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("text", "hazards"), [(BRANCHES, "raw"), (DONATED, "inplace war")])
def test_an_edge_taken_away_is_noticed(text, hazards, options):
    """Without any one edge, some order gives other bits."""
    plan = h2g.plan(text, **options)
    args = random_inputs(plan.inputs, 0)
    want = HostExecutable(plan)(*args)
    data = [e for e in plan.body.edges if e.hazard in ORDERED_BY_DATA]
    if not options:
        assert {str(e.hazard) for e in data} & set(hazards.split())
    for edge in data:
        assert notices(without(plan, edge), args, want), f"{edge} is not needed"


LOOP = """
HloModule loop
cond (s: (s32[], f32[8])) -> pred[] {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT again = pred[] compare(i, five), direction=LT
}
body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[8] sine(v)
  b = f32[8] exponential(v)
  w = f32[8] multiply(a, b)
  ROOT t = (s32[], f32[8]) tuple(next, w)
}
ENTRY main (x: f32[8]) -> f32[8] {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[8]) tuple(zero, x)
  loop = (s32[], f32[8]) while(init), condition=cond, body=body
  ROOT out = f32[8] get-tuple-element(loop), index=1
}
"""


def test_an_edge_taken_out_of_a_loop_s_body_is_noticed():
    plan = h2g.plan(LOOP)
    args = random_inputs(plan.inputs, 0)
    want = HostExecutable(plan)(*args)
    (at,) = (i for i, t in enumerate(plan.body.thunks) if isinstance(t, While))
    loop = plan.body.thunks[at]
    assert loop.body.edges
    for edge in loop.body.edges:
        taken = replace(loop, body=without_edge(loop.body, edge))
        thunks = (*plan.body.thunks[:at], taken, *plan.body.thunks[at + 1 :])
        broken = replace(plan, body=replace(plan.body, thunks=thunks))
        assert notices(broken, args, want), f"{edge} is not needed"


def without(plan, edge):
    return replace(plan, body=without_edge(plan.body, edge))


def without_edge(body, edge):
    """Return the sequence without `edge`, but with all order that only led through it.

    Edges are transitively reduced: taking one away must not free others.
    """
    through = [
        replace(edge, src=src, dst=dst)
        for src, dst in [
            *((e.src, edge.dst) for e in body.edges if e.dst == edge.src),
            *((edge.src, e.dst) for e in body.edges if e.src == edge.dst),
        ]
    ]
    kept = tuple(e for e in body.edges if e is not edge)
    return replace(body, edges=(*kept, *through))


def notices(plan, args, want):
    executable = HostExecutable(plan)
    rng = Random(0)
    return any(not same_bits(executable.run_random(rng, args), want) for _ in range(TRIES))
