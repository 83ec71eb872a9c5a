"""Loops that end when their state says so, several rounds at a time: results must not tell."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import ADD, module_of, opcodes, results

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Computation, Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.loops.guard_rounds import (
    LIGHT_ROUNDS,
    MOST_COPIED,
    MOST_ROUNDS,
    guard_rounds,
)
from hlo2graph.passes.loops.small import MOST_ELEMENTS
from hlo2graph.passes.order import PASSES
from hlo2graph.program.thunks import While

PASSES_BEFORE = PASSES["default"][: PASSES["default"].index(guard_rounds)]
STATE = "(s32[], f32[8], f32[6,8], f32[8], s32[])"
PARTS = f"""s = {STATE} parameter(0)
n = s32[] get-tuple-element(s), index=0
x = f32[8] get-tuple-element(s), index=1
log = f32[6,8] get-tuple-element(s), index=2
kept = f32[8] get-tuple-element(s), index=3
end = s32[] get-tuple-element(s), index=4"""
LOWER = """lower {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
"""


def searching(
    start: str = "s32[] parameter(1)", ordered: str = "NE", more: str = "new = f32[8] copy(made)"
) -> Module:
    """Return a module that counts up until it meets its first argument, 40 or so.

    It logs what it has in rows, over and over, and would go on behind the end if it were let.
    """
    return module_of(
        f"""to = s32[] parameter(0)
        from = {start}
        p = f32[8] constant({{1, 2, 3, 4, 5, 6, 7, 8}})
        zero = f32[] constant(0)
        log = f32[6,8] broadcast(zero), dimensions={{}}
        t = {STATE} tuple(from, p, log, p, to)
        w = {STATE} while(t), condition=more, body=body
        n = s32[] get-tuple-element(w), index=0
        x = f32[8] get-tuple-element(w), index=1
        l = f32[6,8] get-tuple-element(w), index=2
        r = (s32[], f32[8], f32[6,8]) tuple(n, x, l)""",
        f"""{ADD}{LOWER}
        body {{
          {PARTS}
          one = s32[] constant(1)
          next = s32[] add(n, one)
          xk = f32[8] multiply(x, kept)
          o = f32[] constant(0)
          total = f32[] reduce(xk, o), dimensions={{0}}, to_apply=sum
          part = f32[] constant(0.01)
          scaled = f32[] multiply(total, part)
          less = f32[8] broadcast(scaled), dimensions={{}}
          made = f32[8] subtract(x, less)
          {more}
          six = s32[] constant(6)
          at = s32[] remainder(n, six)
          z = s32[] constant(0)
          row = f32[1,8] reshape(new)
          logged = f32[6,8] dynamic-update-slice(log, row, at, z)
          ROOT r = {STATE} tuple(next, new, logged, kept, end)
        }}
        more {{
          {PARTS}
          ROOT c = pred[] compare(n, end), direction={ordered}
        }}""",
    )


def guarded(module: Module) -> Module:
    """Return what the passes up to the one in question make of a module."""
    for rewrite in PASSES_BEFORE:
        module = rewrite(module)
    made = guard_rounds(module)
    verify(made)
    assert h2g.parse(format_module(made)) == made
    return made


def body_of(module: Module) -> Computation:
    """Return the body of the only loop."""
    [loop] = [i for i in module.entry.instructions if i.opcode == "while"]
    return module.computations[str(loop.attrs["body"])]


def arguments(rounds: int) -> list[np.ndarray]:
    return [np.array(3 + rounds, np.int32), np.array(3, np.int32)]


@pytest.mark.parametrize("rounds", [*range(2 * MOST_ROUNDS + 2), 37])
def test_a_search_ends_where_it_ended(rounds):
    module = searching()
    made = guarded(module)
    assert opcodes(body_of(made)).count("opt-barrier") == MOST_ROUNDS - 1
    given = arguments(rounds)
    assert same_bits(results(made, given), results(module, given))


@pytest.mark.parametrize("rounds", [0, 1, MOST_ROUNDS, MOST_ROUNDS + 3])
@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_so_does_its_plan(rounds, target):
    module = searching()
    given = arguments(rounds)
    plan = h2g.plan(module, target=target, fuse="default")
    got = h2g.compile(plan, "host")(*given)
    for found, wanted in zip(got, results(module, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [MOST_COPIED // 8, MOST_COPIED // 8 + 1])
@pytest.mark.parametrize("rounds", [0, 1, MOST_ROUNDS + 3])
def test_a_large_update_in_place_stays_one(rows, rounds):
    module = h2g.parse(format_module(searching()).replace("f32[6,8]", f"f32[{rows},8]"))
    made = guarded(module)
    given = arguments(rounds)
    assert same_bits(results(made, given), results(module, given))
    body = body_of(made)
    updates = [i for i in body.instructions if i.opcode == "dynamic-update-slice"]
    assert len(updates) == MOST_ROUNDS
    chosen = [i.shape.dims for i in body.instructions if i.opcode == "select"]
    assert ((rows, 8) in chosen) is (rows * 8 <= MOST_COPIED)


def test_what_no_round_changes_is_not_chosen():
    body = body_of(guarded(searching()))
    assert opcodes(body).count("select") == 3 * (MOST_ROUNDS - 1)


@pytest.mark.parametrize(
    "more",
    [
        "v = f32[8] rng(o, part), distribution=rng_uniform\nnew = f32[8] add(made, v)",
        f"""v = f32[{MOST_ELEMENTS + 1}] broadcast(scaled), dimensions={{}}
        w = f32[{MOST_ELEMENTS + 1}] tanh(v)
        t = f32[8] slice(w), slice={{[0:8]}}
        new = f32[8] add(made, t)""",
        "new = f32[8] sort(made), dimensions={0}, to_apply=lower",
        'new = f32[8] custom-call(made), custom_call_target="mine"',
    ],
    ids=["rng", "large", "sort", "custom-call"],
)
def test_what_is_dear_or_an_effect_is_not_done_in_vain(more):
    module = inline_calls(searching(more=more))
    assert guard_rounds(module) is module


@pytest.mark.parametrize("rounds", [0, 1, LIGHT_ROUNDS - 1, LIGHT_ROUNDS, LIGHT_ROUNDS + 5])
def test_light_rounds_become_one_kernel(rounds):
    module = module_of(
        """from = s32[] parameter(0)
        to = s32[] parameter(1)
        t = (s32[], s32[]) tuple(from, to)
        w = (s32[], s32[]) while(t), condition=more, body=body
        r = s32[] get-tuple-element(w), index=0""",
        """body {
          s = (s32[], s32[]) parameter(0)
          n = s32[] get-tuple-element(s), index=0
          end = s32[] get-tuple-element(s), index=1
          one = s32[] constant(1)
          next = s32[] add(n, one)
          ROOT r = (s32[], s32[]) tuple(next, end)
        }
        more {
          s = (s32[], s32[]) parameter(0)
          n = s32[] get-tuple-element(s), index=0
          end = s32[] get-tuple-element(s), index=1
          ROOT c = pred[] compare(n, end), direction=NE
        }""",
    )
    given = arguments(rounds)[::-1]
    assert same_bits(results(guarded(module), given), results(module, given))
    plan = h2g.plan(module, target="sm_90")
    [loop] = [t for t in plan.body.thunks if isinstance(t, While)]
    assert len(loop.body.thunks) == 1
    assert same_bits(h2g.compile(plan, "host")(*given), results(module, given))


def test_a_known_number_of_rounds_is_left_to_others():
    known = searching("s32[] constant(-9)", "LT")
    counted = known.entry["to"]
    assert counted.opcode == "parameter"
    assert opcodes(body_of(guarded(known))).count("opt-barrier") == MOST_ROUNDS - 1
    text = format_module(known).replace("%to = s32[] parameter(0)", "%to = s32[] constant(40)")
    text = text.replace("ENTRY %main (to: s32[])", "ENTRY %main ()")
    assert "select" not in opcodes(body_of(guarded(h2g.parse(text))))


def test_loops_of_one_body_keep_their_own_conditions():
    module = module_of(
        """from = s32[] parameter(0)
        to = s32[] parameter(1)
        t = (s32[], s32[]) tuple(from, to)
        w = (s32[], s32[]) while(t), condition=other, body=body
        v = (s32[], s32[]) while(t), condition=less, body=body
        a = s32[] get-tuple-element(w), index=0
        b = s32[] get-tuple-element(v), index=0
        r = (s32[], s32[]) tuple(a, b)""",
        """body {
          s = (s32[], s32[]) parameter(0)
          n = s32[] get-tuple-element(s), index=0
          end = s32[] get-tuple-element(s), index=1
          three = s32[] constant(3)
          next = s32[] add(n, three)
          ROOT r = (s32[], s32[]) tuple(next, end)
        }
        """
        + "".join(
            f"""{name} {{
          s = (s32[], s32[]) parameter(0)
          n = s32[] get-tuple-element(s), index=0
          end = s32[] get-tuple-element(s), index=1
          ROOT c = pred[] compare(n, end), direction={direction}
        }}
        """
            for name, direction in (("other", "NE"), ("less", "LT"))
        ),
    )
    given = [np.array(-20, np.int32), np.array(70, np.int32)]
    made = guard_rounds(module)
    verify(made)
    assert made is not module
    assert same_bits(results(made, given), results(module, given))


def test_a_loop_tests_what_its_last_round_made():
    plan = h2g.plan(searching(), target="sm_90")
    [loop] = [t for t in plan.body.thunks if isinstance(t, While)]
    assert not loop.condition.thunks
    assert loop.condition.results[0] in loop.body.results


@pytest.mark.parametrize("changes", [False, True])
def test_what_no_round_changes_may_be_large(changes):
    state, matrix = "(s32[], s32[], f32[300,300])", "f32[300,300]"
    made = f"made = {matrix} negate(m)"
    parts = f"""s = {state} parameter(0)
    n = s32[] get-tuple-element(s), index=0
    end = s32[] get-tuple-element(s), index=1
    m = {matrix} get-tuple-element(s), index=2"""
    module = module_of(
        f"""from = s32[] parameter(0)
        to = s32[] parameter(1)
        p = {matrix} parameter(2)
        t = {state} tuple(from, to, p)
        w = {state} while(t), condition=more, body=body
        r = s32[] get-tuple-element(w), index=0""",
        f"""body {{
          {parts}
          {made if changes else ""}
          cut = f32[1,1] slice(m), slice={{[7:8], [9:10]}}
          one = f32[] reshape(cut)
          step = s32[] convert(one)
          next = s32[] add(n, step)
          ROOT r = {state} tuple(next, end, {"made" if changes else "m"})
        }}
        more {{
          {parts}
          ROOT c = pred[] compare(n, end), direction=NE
        }}""",
    )
    made = guard_rounds(module)
    assert (made is module) is changes
    given = [*arguments(9)[::-1], np.ones((300, 300), np.float32)]
    if not changes:
        assert same_bits(results(made, given), results(module, given))
