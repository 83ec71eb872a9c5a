"""Loops cut out what their next round multiplies while this one computes."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module
from needs import needs_gxx
from rewriting import opcodes, rewritten, whole_arguments

import hlo2graph as h2g
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes.loops.look_ahead import look_ahead
from hlo2graph.passes.loops.simplify_loops import simplify_loops
from tests.emulation import EmulatedExecutable, Kernels

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
STATE = "(s32[], f32[4,40], f32[{n},4,40], f32[{n},4,40], f32[40,40])"


def scanned(rounds: int = 9, at: str = "n", step: int = 1, use: str = "") -> str:
    """Return a loop that multiplies its state, and a row of what it is given, and keeps both."""
    state = STATE.format(n=rounds)
    use = use or f"a = f32[4,40] dot(x, w), {PLAIN}"
    return module(
        f"""xs = f32[{rounds},4,40] parameter(0) w = f32[40,40] parameter(1)
        h = f32[4,40] parameter(2)
        none = s32[] constant(0) nothing = f32[] constant(0)
        ys = f32[{rounds},4,40] broadcast(nothing), dimensions={{}}
        s = {state} tuple(none, h, ys, xs, w)
        l = {state} while(s), body=body, condition=more
        last = f32[4,40] get-tuple-element(l), index=1
        all = f32[{rounds},4,40] get-tuple-element(l), index=2
        ROOT r = (f32[4,40], f32[{rounds},4,40]) tuple(last, all)""",
        f"""body {{
          s = {state} parameter(0)
          n = s32[] get-tuple-element(s), index=0
          h = f32[4,40] get-tuple-element(s), index=1
          ys = f32[{rounds},4,40] get-tuple-element(s), index=2
          xs = f32[{rounds},4,40] get-tuple-element(s), index=3
          w = f32[40,40] get-tuple-element(s), index=4
          zero = s32[] constant(0) one = s32[] constant({step})
          next = s32[] add(n, one)
          row = f32[1,4,40] dynamic-slice(xs, {at}, zero, zero), dynamic_slice_sizes={{1,4,40}}
          x = f32[4,40] reshape(row)
          {use}
          b = f32[4,40] dot(h, w), {PLAIN}
          c = f32[4,40] add(a, b)
          new = f32[4,40] tanh(c)
          kept = f32[1,4,40] reshape(new)
          more = f32[{rounds},4,40] dynamic-update-slice(ys, kept, n, zero, zero)
          ROOT r = {state} tuple(next, new, more, xs, w)
        }}""",
        f"""more {{
          s = {state} parameter(0)
          n = s32[] get-tuple-element(s), index=0
          end = s32[] constant({rounds * step})
          ROOT r = pred[] compare(n, end), direction=LT
        }}""",
    )


def test_the_next_rounds_row_is_a_part_of_the_state():
    before = simplify_loops(h2g.parse(scanned(40)))
    made = rewritten(before, look_ahead, arguments=whole_arguments(before))
    [loop] = [i for i in made.entry.instructions if i.opcode == "while"]
    assert len(loop.shape.parts) == 6
    assert opcodes(made.entry).count("dynamic-slice") == 1
    body = made.computations[str(loop.attrs["body"])]
    [cut] = [i for i in body.instructions if i.opcode == "dynamic-slice"]
    assert body[cut.operands[1]].opcode == "add"
    assert body.result.operands[-1] == cut.name


@pytest.mark.parametrize(
    "text",
    [
        scanned(40, at="next"),
        scanned(40, step=2),
        scanned(40, use="a = f32[4,40] negate(x)"),
        scanned(3),
    ],
    ids=["another-number", "every-second", "not-multiplied", "few-rounds"],
)
def test_other_loops_stay_as_they_are(text):
    before = simplify_loops(h2g.parse(text))
    assert look_ahead(before) is before


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [9, 40])
def test_kernels_of_a_loop_agree_with_the_host(rounds):
    text = scanned(rounds)
    plan = h2g.plan(text, target="sm_90")
    args = random_inputs(plan.inputs, 0)
    args[1] = args[1] * np.float32(0.05)  # or the rounds would make much of each rounding
    got = EmulatedExecutable(plan, Kernels([plan], precise=True))(*args)
    want = h2g.compile(text, backend="host")(*args)
    for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
        comparison = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
        assert comparison.ok, str(comparison)
