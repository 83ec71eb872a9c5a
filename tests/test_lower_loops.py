"""What loops and conditionals become: state, what is captured, trip counts."""

from __future__ import annotations

import pytest
from lowering import lowered, origins

from hlo2graph.program.thunks import (
    Conditional,
    Value,
    While,
)

LOOP = """{region}
body {{
  s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  w = f32[4] get-tuple-element(s), index=2
  u = f32[4] get-tuple-element(s), index=3
  step = s32[] constant({step})
  next = s32[] {op}(i, step)
  sum = f32[4] add(v, w)
  changed = f32[4] sine(u)
  ROOT state = (s32[], f32[4], f32[4], f32[4]) tuple(next, sum, w, changed)
}}
condition {{
  s = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({limit})
  ROOT again = pred[] compare({left}, {right}), direction={direction}
}}
"""
LOOP_ENTRY = """  start = s32[] constant({start})
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  init = (s32[], f32[4], f32[4], f32[4]) tuple(start, x, y, y)
  loop = (s32[], f32[4], f32[4], f32[4]) while(init), condition=condition, body=body{config}
  v = f32[4] get-tuple-element(loop), index=1
  w = f32[4] get-tuple-element(loop), index=2
  ROOT out = (f32[4], f32[4]) tuple(v, w)"""


def loop(
    start: int = 0,
    step: int = 1,
    limit: int = 10,
    direction: str = "LT",
    op: str = "add",
    flipped: bool = False,
    config: str = "",
) -> While[Value]:
    left, right = ("limit", "i") if flipped else ("i", "limit")
    program = lowered(
        LOOP_ENTRY.format(start=start, config=config),
        computations=LOOP.format(
            region="", step=step, op=op, limit=limit, left=left, right=right, direction=direction
        ),
    )
    [thunk] = [t for t in program.body.thunks if isinstance(t, While)]
    return thunk


def test_what_the_body_hands_through_is_captured_and_unused_state_is_gone():
    thunk = loop()
    assert origins(thunk.inits) == ["start", "x"]
    assert origins(thunk.results) == ["loop.0", "loop.1"]
    assert origins(thunk.body.params) == origins(thunk.condition.params) == ["s.0", "s.1"]
    _, add = thunk.body.thunks
    assert origins(add.reads) == ["s.1", "y"]


def test_the_result_of_invariant_state_is_the_init():
    program = lowered(
        LOOP_ENTRY.format(start=0, config=""),
        computations=LOOP.format(
            region="", step=1, op="add", limit=3, left="i", right="limit", direction="LT"
        ),
    )
    assert program.body.results[1] == program.body.params[1]


def test_state_is_invariant_through_calls_and_inner_loops():
    computations = """
    t {
      s = (f32[4], f32[4]) parameter(0)
      ROOT c = pred[] constant(false)
    }
    inner {
      s = (f32[4], f32[4]) parameter(0)
      a = f32[4] get-tuple-element(s), index=0
      b = f32[4] get-tuple-element(s), index=1
      n = f32[4] add(a, b)
      ROOT r = (f32[4], f32[4]) tuple(n, b)
    }
    same {
      ROOT s = (f32[4], f32[4]) parameter(0)
    }
    outer {
      s = (f32[4], f32[4]) parameter(0)
      c = (f32[4], f32[4]) call(s), to_apply=same
      ROOT w = (f32[4], f32[4]) while(c), condition=t, body=inner
    }"""
    program = lowered(
        """x = f32[4] parameter(0)
        y = f32[4] parameter(1)
        i = (f32[4], f32[4]) tuple(x, y)
        ROOT w = (f32[4], f32[4]) while(i), condition=t, body=outer""",
        computations=computations,
    )
    [outer] = program.body.thunks
    [inner] = outer.body.thunks
    [add] = inner.body.thunks
    assert origins(outer.inits) == ["x"]
    assert origins(add.reads) == ["s.0", "y"]


CONFIG = ', backend_config={{"known_trip_count":{{"n":"{}"}}}}'


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 10),
        ({"step": 3}, 4),
        ({"direction": "LE"}, 11),
        ({"start": 10}, 0),
        ({"start": 10, "limit": 0, "step": -2, "direction": "GT"}, 5),
        ({"start": 10, "limit": 0, "step": 2, "direction": "GE", "op": "subtract"}, 6),
        ({"direction": "GT", "flipped": True}, 10),
        ({"direction": "NE", "limit": 9, "step": 3}, 3),
        ({"direction": "NE", "step": 3}, None),
        ({"direction": "EQ"}, None),
        ({"step": 0}, None),
        ({"limit": 2147483647, "step": 2}, None),
        ({"op": "multiply"}, None),
        ({"op": "multiply", "config": CONFIG.format(7)}, 7),
        ({"config": CONFIG.format(7)}, 10),
        (
            {
                "op": "multiply",
                "config": ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"5\\"}}"',
            },
            5,
        ),
    ],
)
def test_trip_counts(given, count):
    assert loop(**given).trip_count == count


def test_a_counter_is_followed_into_fusions():
    computations = """
    bump {
      p = s32[] parameter(0)
      one = s32[] constant(1)
      ROOT r = s32[] add(p, one)
    }
    less {
      p = s32[] parameter(0)
      ten = s32[] constant(10)
      ROOT r = pred[] compare(p, ten), direction=LT
    }
    body {
      i = s32[] parameter(0)
      ROOT n = s32[] fusion(i), kind=kLoop, calls=bump
    }
    condition {
      i = s32[] parameter(0)
      ROOT c = pred[] fusion(i), kind=kLoop, calls=less
    }"""
    program = lowered(
        "z = s32[] constant(2)\nROOT w = s32[] while(z), condition=condition, body=body",
        computations=computations,
    )
    [thunk] = program.body.thunks
    assert thunk.trip_count == 8


def test_branches_capture_their_arguments():
    program = lowered(
        """p = pred[] parameter(0)
        x = f32[4] parameter(1)
        t = (f32[4], f32[4]) tuple(x, x)
        ROOT y = f32[4] conditional(p, t, x), true_computation=yes, false_computation=no""",
        computations="""yes {
          t = (f32[4], f32[4]) parameter(0)
          a = f32[4] get-tuple-element(t), index=1
          ROOT n = f32[4] negate(a)
        }
        no {
          ROOT a = f32[4] parameter(0)
        }""",
    )
    [thunk] = program.body.thunks
    assert isinstance(thunk, Conditional)
    yes, no = thunk.branches
    assert origins(yes.thunks[0].reads) == ["x"]
    assert no.results == (program.body.params[1],)


def test_results_of_a_conditional_that_nobody_uses_are_gone():
    program = lowered(
        """p = s32[] parameter(0)
        x = f32[4] parameter(1)
        c = (f32[4], f32[4]) conditional(p, x, x), branch_computations={b, b}
        ROOT y = f32[4] get-tuple-element(c), index=1""",
        computations="""b {
          a = f32[4] parameter(0)
          n = f32[4] negate(a)
          s = f32[4] sine(a)
          ROOT r = (f32[4], f32[4]) tuple(n, s)
        }""",
    )
    [thunk] = program.body.thunks
    assert origins(thunk.results) == ["c.1"]
    assert [[t.name for t in b.thunks] for b in thunk.branches] == [["s"], ["c/s"]]
