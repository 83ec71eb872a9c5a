"""Loops made smaller or taken apart: what is left, and that no bit of a result changes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from agreement import scalar_region
from hypothesis import given
from hypothesis import strategies as st
from random_modules import random_module
from rewriting import ADD, module_of, opcodes, results, rewritten, whole_arguments
from test_random_modules import examples

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.drop_barriers import drop_barriers
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.loops import choose_results
from hlo2graph.passes.loops.choose_results import MOST_KERNELS
from hlo2graph.passes.loops.double_rounds import double_rounds
from hlo2graph.passes.loops.own_inits import own_inits
from hlo2graph.passes.loops.simplify_loops import simplify_loops
from hlo2graph.passes.loops.unroll_loops import MOST_INSTRUCTIONS
from hlo2graph.passes.simplify import simplify
from hlo2graph.program.thunks import Copy, While
from hlo2graph.program.uses import writes

PASSES = (inline_calls, simplify, simplify_loops)


def loop(
    state: str,
    inits: str,
    body: str,
    results: str,
    rounds: int = 40,
    taken: str = "",
    more: str = "",
) -> Module:
    """Return a module with a loop; element 0 of its state counts the rounds."""
    shapes = state.split("; ")
    parts = "\n".join(
        f"e{k} = {shape} get-tuple-element(s), index={k}" for k, shape in enumerate(shapes)
    )
    whole = f"({', '.join(shapes)})"
    computations = f"""{more}
    body {{
      s = {whole} parameter(0)
      {parts}
      one = s32[] constant(1)
      next = s32[] add(e0, one)
      {body}
      ROOT r = {whole} tuple(next, {results})
    }}
    more {{
      s = {whole} parameter(0)
      {parts}
      n = s32[] constant({rounds})
      ROOT c = pred[] compare(e0, n), direction=LT
    }}
    """
    used = [int(k) for k in (taken or "1").split(",")]
    picked = "\n".join(f"g{k} = {shapes[k]} get-tuple-element(w), index={k}" for k in used)
    results = ", ".join(shapes[k] for k in used)
    return module_of(
        f"""p = f32[4] parameter(0)
        q = f32[4] parameter(1)
        m = f32[4,4] parameter(2)
        zero = s32[] constant(0)
        x = f32[] constant(0.5)
        half = f32[4] broadcast(x), dimensions={{}}
        t = {whole} tuple(zero, {inits})
        w = {whole} while(t), condition=more, body=body
        {picked}
        r = ({results}) tuple({", ".join(f"g{k}" for k in used)})""",
        computations,
    )


def state_of(module: Module) -> list[str]:
    """Return the state of the only loop."""
    [found] = [i for c in module.computations.values() for i in c.instructions
               if i.opcode == "while"]  # fmt: skip
    return [part.without_layout_text() for part in found.shape.parts]


HEAVY = "d = f32[4,4] dot(e1, e1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def test_a_few_rounds_of_little_work_are_written_out():
    made = rewritten(loop("s32[]; f32[4]", "p", "n = f32[4] negate(e1)", "n", 3), *PASSES)
    assert opcodes(made.entry) == ["negate"]


def test_rounds_that_use_their_number_are_written_out():
    body = "f = f32[] convert(e0)\nb = f32[4] broadcast(f), dimensions={}\na = f32[4] add(e1, b)"
    made = rewritten(loop("s32[]; f32[4]", "p", body, "a", 3), *PASSES)
    assert opcodes(made.entry) == ["broadcast", "add"] * 3
    assert list(made.computations) == ["main"]


@pytest.mark.parametrize("rounds", [MOST_INSTRUCTIONS // 3, MOST_INSTRUCTIONS // 3 + 1])
def test_many_rounds_stay_a_loop(rounds):
    body = "a = f32[4] add(e1, e1)\nb = f32[4] multiply(a, e1)"
    made = rewritten(loop("s32[]; f32[4]", "p", body, "b", rounds), *PASSES, exact=False)
    assert ("while" in opcodes(made.entry)) is (3 * rounds > MOST_INSTRUCTIONS)


@pytest.mark.parametrize(
    "body",
    [
        "b = f32[4] copy(e1)\nd = f32[4,4] broadcast(b), dimensions={0}\nz = f32[] constant(0)\n"
        "n = f32[4] reduce(d, z), dimensions={1}, to_apply=sum",
        "z = f32[100] iota(), iota_dimension=0\ny = f32[4] dynamic-slice(z, e0), "
        "dynamic_slice_sizes={4}\nn = f32[4] add(y, e1)",
    ],
)
def test_rounds_that_look_at_neighbours_stay_a_loop(body):
    made = rewritten(loop("s32[]; f32[4]", "p", body, "n", 3, more=ADD), *PASSES)
    assert opcodes(made.entry) == ["while"]


@pytest.mark.parametrize(("rounds", "left"), [(0, []), (1, ["dot"]), (2, ["while"])])
def test_no_round_and_one_round_are_no_loop(rounds, left):
    made = rewritten(loop("s32[]; f32[4,4]", "m", HEAVY, "d", rounds), *PASSES)
    assert opcodes(made.entry) == left


def test_loops_in_loops_are_written_out_from_the_inside():
    inner = """inner {
      a = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(a), index=0
      v = f32[4] get-tuple-element(a), index=1
      o = s32[] constant(1)
      j = s32[] add(i, o)
      w = f32[4] multiply(v, v)
      ROOT b = (s32[], f32[4]) tuple(j, w)
    }
    again {
      a = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(a), index=0
      o = s32[] constant(2)
      ROOT b = pred[] compare(i, o), direction=LT
    }"""
    body = """z = s32[] constant(0)
      t = (s32[], f32[4]) tuple(z, e1)
      u = (s32[], f32[4]) while(t), condition=again, body=inner
      n = f32[4] get-tuple-element(u), index=1"""
    made = rewritten(loop("s32[]; f32[4]", "p", body, "n", 2, more=inner), *PASSES)
    assert opcodes(made.entry) == ["multiply"] * 4


def test_what_no_round_changes_is_the_init_itself():
    made = rewritten(
        loop("s32[]; f32[4]; f32[4]", "p, q", "a = f32[4] subtract(e1, e2)", "a, e2", 400,
             taken="1,2"), *PASSES)  # fmt: skip
    assert made.entry.result.operands == ("g1", "q")


def test_constants_go_into_the_loop():
    body = "a = f32[4] multiply(e1, e2)"
    made = rewritten(loop("s32[]; f32[4]; f32[4]", "p, half", body, "a, e2", 400), *PASSES)
    assert state_of(made) == ["s32[]", "f32[4]"]
    assert "broadcast" in opcodes(made.computations["body"])


def test_state_that_nobody_needs_goes():
    body = "a = f32[4] negate(e1)\nb = f32[4] add(e2, e1)\nc = f32[4] add(e3, e2)"
    made = rewritten(
        loop("s32[]; f32[4]; f32[4]; f32[4]", "p, q, q", body, "a, b, c", 400, taken="2"), *PASSES
    )
    assert state_of(made) == ["s32[]", "f32[4]", "f32[4]"]
    assert opcodes(made.computations["body"]) == ["add", "negate", "add"]


def test_what_is_said_of_each_element_goes_with_the_elements():
    body = "a = f32[4] negate(e1)\nb = f32[4] add(e2, e1)"
    module = loop("s32[]; f32[4]; f32[4]", "p, q", body, "a, b", 400)
    text = format_module(module)
    each = ", sharding={{replicated}, {replicated}, {replicated}}"
    marked = "\n".join(
        line + each if " while(" in line or "(s32[], f32[4], f32[4]) tuple(" in line else line
        for line in text.splitlines()
    )
    made = rewritten(h2g.parse(marked), *PASSES)
    assert state_of(made) == ["s32[]", "f32[4]"]
    assert "sharding" not in format_module(made)


def test_counters_that_run_alike_are_one():
    body = "k = s32[] add(e2, one)\nf = f32[] convert(e2)\n"
    body += "b = f32[4] broadcast(f), dimensions={}\na = f32[4] subtract(e1, b)"
    made = rewritten(
        loop("s32[]; f32[4]; s32[]", "p, zero", body, "a, k", 400, taken="1,2"), *PASSES
    )
    assert state_of(made) == ["s32[]", "f32[4]"]


def test_random_numbers_that_are_drawn_apart_stay_apart():
    draw = "rng(x0, x1), distribution=rng_uniform"
    body = f"x0 = f32[] constant(0)\nx1 = f32[] constant(1)\na = f32[4] {draw}\nb = f32[4] {draw}"
    module = loop("s32[]; f32[4]; f32[4]", "p, p", body, "a, b", 400, taken="1,2")
    made = module
    for rewrite in PASSES:
        made = rewrite(made)
    assert opcodes(made.computations["body"]).count("rng") == 2


def test_the_same_work_in_every_round_is_done_once_before():
    body = """d = f32[4,4] dot(e2, e2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    h = f32[4,4] exponential(d)
    z = f32[] constant(0)
    v = f32[4] reduce(h, z), dimensions={0}, to_apply=sum
    y = f32[2,2] reshape(v)
    x = f32[4] reshape(e1)
    b = f32[2,2] reshape(e1)
    c = f32[2,2] multiply(b, y)
    a = f32[4] reshape(c)"""
    made = rewritten(loop("s32[]; f32[4]; f32[4,4]", "p, m", body, "a, e2", 400, more=ADD), *PASSES)
    assert opcodes(made.entry) == ["dot", "exponential", "reduce", "while"]
    inside = opcodes(made.computations["body"])
    assert sorted(inside) == ["add", "multiply", "reshape", "reshape", "reshape"]
    assert state_of(made) == ["s32[]", "f32[4]", "f32[4]"]


def test_what_is_done_before_is_read_there_by_what_is_done_before():
    body = """d = f32[4,4] dot(e2, e2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    h = f32[4,4] exponential(d)
    z = f32[] constant(0)
    x = f32[4,4] multiply(h, e3)
    y = f32[4,4] multiply(x, d)
    v = f32[4,4] multiply(y, h)"""
    state = "s32[]; f32[4]; f32[4,4]; f32[4,4]"
    made = rewritten(loop(state, "p, m, m", body, "e1, e2, v", 400, taken="3"), *PASSES)
    assert opcodes(made.entry) == ["dot", "exponential", "while"]
    assert opcodes(made.computations["body"]).count("multiply") == 3


def test_what_would_need_more_memory_is_done_in_the_loop():
    body = """b = f32[4,4] broadcast(e2), dimensions={0}
    c = f32[4,4] exponential(b)
    z = f32[] constant(0)
    v = f32[4] reduce(c, z), dimensions={1}, to_apply=sum
    d = f32[4,64] broadcast(e2), dimensions={0}
    a = f32[4] multiply(e1, v)
    y = f32[64,4] broadcast(a), dimensions={1}
    o = f32[4,4] dot(d, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    n = f32[4] reduce(o, z), dimensions={1}, to_apply=sum"""
    made = rewritten(loop("s32[]; f32[4]; f32[4]", "p, q", body, "n, e2", 9, more=ADD), *PASSES)
    inside = opcodes(made.computations["body"])
    assert inside.count("broadcast") == 2
    assert "exponential" not in inside


def test_a_body_that_two_loops_share_is_changed_for_one():
    module = loop("s32[]; f32[4]; f32[4]", "p, half", "a = f32[4] multiply(e1, e2)", "a, e2", 400)
    text = format_module(module)
    second = """  %t2 = (s32[], f32[4], f32[4]) tuple(%zero, %p, %q)
  %w2 = (s32[], f32[4], f32[4]) while(%t2), condition=%more, body=%body
  %g2 = f32[4] get-tuple-element(%w2), index=1
  ROOT %r = (f32[4], f32[4]) tuple(%g1, %g2)
"""
    at = text.index("  ROOT %r = (f32[4]) tuple")
    entry = text.index("ENTRY")
    both = text[:at] + second + "}\n"
    both = both[:entry] + both[entry:].replace("-> (f32[4])", "-> (f32[4], f32[4])", 1)
    made = rewritten(h2g.parse(both), *PASSES)
    loops = [i for i in made.entry.instructions if i.opcode == "while"]
    assert [len(i.shape.parts) for i in loops] == [2, 3]
    assert loops[0].attrs["body"] != loops[1].attrs["body"]


def test_a_known_number_of_rounds_is_written_down():
    made = rewritten(loop("s32[]; f32[4,4]", "m", HEAVY, "d", 12), *PASSES)
    [found] = [i for i in made.entry.instructions if i.opcode == "while"]
    assert found.attrs["backend_config"] == '{"known_trip_count":{"n":"12"}}'


@pytest.mark.parametrize(("rounds", "left"), [(3, 3), (4, 2), (5, 2), (6, 3), (40, 20), (41, 20)])
def test_two_rounds_are_done_at_once(rounds, left):
    module = loop("s32[]; f32[4,4]", "m", HEAVY, "d", rounds, taken="0,1")
    module = simplify_loops(module)
    before = dict.fromkeys(module.computations)
    made = double_rounds(module)
    verify(made)
    drawn = [np.eye(4, dtype=np.float32)[:, ::-1] if a.ndim == 2 else a
             for a in whole_arguments(module)]  # fmt: skip
    assert same_bits(results(made, drawn), results(module, drawn))
    [found] = [i for i in made.entry.instructions if i.opcode == "while"]
    assert found.attrs["backend_config"] == f'{{"known_trip_count":{{"n":"{left}"}}}}'
    assert opcodes(made.entry) == ["dot"] * (rounds % 2 if rounds > 3 else 0) + ["while"]
    inside = opcodes(made.computations[str(found.attrs["body"])])
    assert inside.count("dot") == (2 if rounds > 3 else 1)
    assert len(made.computations) == len(before)


def test_loops_of_an_unknown_number_of_rounds_keep_their_bodies():
    module = loop("s32[]; f32[4,4]", "m", HEAVY.replace("e1, e1", "e1, e1"), "d", 400)
    assert double_rounds(module) is module
    scalars = simplify_loops(loop("s32[]; f32[]", "x", "a = f32[] sqrt(e1)", "a", 1000))
    assert double_rounds(scalars) is scalars


def test_filled_arrays_are_not_shared_by_loops():
    body = "a = f32[4] add(e1, e2)\nb = f32[4] subtract(e2, e1)\nc = f32[4] add(e3, a)"
    module = loop(
        "s32[]; f32[4]; f32[4]; f32[4]", "half, half, p", body, "a, b, c", 400, taken="1,2,3"
    )
    made = rewritten(module, own_inits).entry
    first, other, *_ = made["t"].operands[1:]
    assert first != other
    assert made[first].operands == made[other].operands == ("x",)
    assert own_inits(loop("s32[]; f32[4]", "half", "a = f32[4] add(e1, e1)", "a")).entry["t"]


def test_barriers_go_and_what_they_kept_apart_stays_apart():
    body = """p = f32[4] parameter(0)
    a = f32[4] exponential(p)
    t = (f32[4], f32[4]) tuple(p, a)
    o = (f32[4], f32[4]) opt-barrier(t)
    q = f32[4] get-tuple-element(o), index=0
    b = f32[4] exponential(q)
    c = f32[4] opt-barrier(b)
    r = f32[4] subtract(a, c)"""
    made = rewritten(simplify(module_of(body)), drop_barriers).entry
    assert opcodes(made) == ["exponential", "exponential", "subtract"]
    assert made["b"].operands == ("p",)


def test_barriers_with_control_dependencies_stay():
    body = """p = f32[4] parameter(0)
    n = f32[4] negate(p)
    o = f32[4] opt-barrier(p), control-predecessors={n}
    r = f32[4] abs(o)"""
    module = module_of(body)
    assert opcodes(drop_barriers(module).entry) == ["negate", "opt-barrier", "abs"]


def test_branches_give_only_what_is_read(monkeypatch):
    monkeypatch.setattr(choose_results, "MOST_KERNELS", 0)
    branches = """first {
      x = f32[4] parameter(0)
      a = f32[4] negate(x)
      z = f32[] constant(0)
      b = f32[] reduce(x, z), dimensions={0}, to_apply=sum
      ROOT t = (f32[4], f32[]) tuple(a, b)
    }
    """
    body = """p = f32[4] parameter(0)
    i = s32[] parameter(1)
    c = (f32[4], f32[]) conditional(i, p, p), branch_computations={first, first}
    r = f32[] get-tuple-element(c), index=1"""
    made = rewritten(module_of(body, ADD + branches), *PASSES)
    [chosen] = [i for i in made.entry.instructions if i.opcode == "conditional"]
    assert [part.dims for part in chosen.shape.leaves()] == [()]
    assert all(opcodes(made.computations[b]) == ["reduce"] for b in chosen.called())


LIGHT = """
first { x = f32[4] parameter(0) ROOT a = f32[4] negate(x) }
second { x = f32[4] parameter(0) ROOT a = f32[4] exponential(x) }
third { x = f32[4] parameter(0) ROOT a = f32[4] copy(x) }
"""


@pytest.mark.parametrize("selector", ["s32[]", "pred[]"])
def test_all_branches_of_little_work_are_computed(selector):
    count = 3 if selector == "s32[]" else 2
    names = ("first", "second", "third")[:count]
    body = f"""p = f32[4] parameter(0)
    q = f32[4] parameter(1)
    i = {selector} parameter(2)
    r = f32[4] conditional(i, {", ".join("pqp"[:count])}), """
    body += (
        f"branch_computations={{{', '.join(names)}}}"
        if count == 3
        else ("true_computation=first, false_computation=second")
    )
    module = module_of(body, LIGHT)
    made = rewritten(module, *PASSES)
    assert "conditional" not in opcodes(made.entry)
    assert opcodes(made.entry).count("select") == count - 1
    drawn = whole_arguments(module)
    for value in range(-2, 5):
        chosen = [*drawn[:2], np.asarray(value).astype(drawn[2].dtype)]
        assert same_bits(results(made, chosen), results(module, chosen))


@pytest.mark.parametrize("size", [1 << 14, (1 << 14) + 1])
def test_branches_that_give_much_are_chosen_between(size):
    body = f"""p = f32[{size}] parameter(0)
    i = s32[] parameter(1)
    r = f32[{size}] conditional(i, p, p), branch_computations={{first, second}}"""
    made = rewritten(module_of(body, LIGHT.replace("[4]", f"[{size}]")), *PASSES)
    assert ("conditional" in opcodes(made.entry)) is (size > 1 << 14)


@pytest.mark.parametrize(
    ("products", "size", "stays"),
    [(1, 4, False), (MOST_KERNELS, 4, False), (MOST_KERNELS + 1, 4, True), (1, 129, True)],
)
def test_branches_with_few_small_products_are_all_computed(products, size, stays):
    shape, dims = f"f32[{size},{size}]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    steps = [f"d{k} = {shape} dot(d{k - 1}, d{k - 1}), {dims}" for k in range(1, products)]
    lines = [f"d0 = {shape} dot(x, x), {dims}", *steps]
    body = f"""p = {shape} parameter(0)
    i = s32[] parameter(1)
    r = {shape} conditional(i, p, p), branch_computations={{first, second}}"""
    text = f"""first {{ x = {shape} parameter(0)
    {chr(10).join(lines)}
    ROOT n = {shape} negate(d{products - 1}) }}
    second {{ x = {shape} parameter(0)
    ROOT n = {shape} negate(x) }}
    """
    module = module_of(body, text)
    made = rewritten(module, *PASSES, arguments=whole_arguments(module))
    assert ("conditional" in opcodes(made.entry)) is stays


def test_branches_whose_whole_result_is_read_stay(monkeypatch):
    monkeypatch.setattr(choose_results, "MOST_KERNELS", 0)
    branches = """first {
      x = f32[4] parameter(0)
      z = f32[] constant(0)
      a = f32[] reduce(x, z), dimensions={0}, to_apply=sum
      ROOT t = (f32[], f32[4]) tuple(a, x)
    }
    """
    body = """p = f32[4] parameter(0)
    i = s32[] parameter(1)
    r = (f32[], f32[4]) conditional(i, p, p), branch_computations={first, first}"""
    made = rewritten(module_of(body, ADD + branches), *PASSES)
    [chosen] = [i for i in made.entry.instructions if i.opcode == "conditional"]
    assert chosen.shape == made.entry.result.shape


def test_a_choice_that_is_known_inside_a_loop_is_made_there():
    branches = """first { x = f32[4] parameter(0)\nROOT a = f32[4] negate(x) }
    second { x = f32[4] parameter(0)\nROOT a = f32[4] exponential(x) }
    """
    body = "a = f32[4] conditional(e2, e1, e1), branch_computations={first, second}"
    module = loop("s32[]; f32[4]; s32[]", "p, zero", body, "a, e2", 400, more=branches)
    made = rewritten(module, *PASSES)
    assert opcodes(made.computations["body"]) == ["add", "negate"]


def test_loops_with_effects_stay():
    body = "k = token[] after-all()\ni = (f32[4], token[]) infeed(k)\n"
    body += "a = f32[4] get-tuple-element(i), index=0"
    module = loop("s32[]; f32[4]; f32[4]", "p, q", body, "a, e2", 1)
    made = simplify_loops(module)
    assert opcodes(made.entry) == ["while"]
    assert made.computations["body"] is module.computations["body"]


def test_modules_without_loops_are_left():
    module = module_of(
        "p = f32[4] parameter(0)\nr = f32[4] negate(p)", scalar_region("f", "add", "f32")
    )
    assert simplify_loops(module) is module


@examples(80)
@given(st.integers(0, 2**32))
def test_random_modules_keep_their_bits(seed):
    rnd = Random(seed)
    text = random_module(rnd, rnd.choice((8, 20, 40)))
    made = h2g.parse(text)
    rewritten(made, *PASSES, *PASSES)


def test_between_two_rounds_there_is_a_barrier():
    module = simplify_loops(loop("s32[]; f32[4,4]", "m", HEAVY, "d", 400, taken="0,1"))
    made = double_rounds(module)
    [found] = [i for i in made.entry.instructions if i.opcode == "while"]
    inside = made.computations[str(found.attrs["body"])]
    assert opcodes(inside).count("opt-barrier") == 1
    assert opcodes(inside).count("dot") == 2


@pytest.mark.parametrize("is_used", [False, True])
def test_what_only_counts_goes_around_barriers(is_used):
    more = """
      c = f32[] convert(e0)
      b = f32[4,4] broadcast(c), dimensions={}
      f = f32[4,4] add(d, b)"""
    body, result = (HEAVY + more, "f") if is_used else (HEAVY, "d")
    made = double_rounds(
        simplify_loops(loop("s32[]; f32[4,4]", "m", body, result, 400, taken="0,1"))
    )
    [found] = [i for i in made.entry.instructions if i.opcode == "while"]
    inside = made.computations[str(found.attrs["body"])]
    behind: set[str] = set()
    for instr in inside.instructions:
        if instr.opcode == "opt-barrier" or not behind.isdisjoint(instr.operands):
            behind.add(instr.name)
    counted, other = inside.result.operands
    assert other in behind
    assert (counted in behind) == is_used


def test_a_stencil_that_counts_does_two_rounds_a_kernel_and_copies_nothing():
    text = """HloModule m
    body {
      s = (s32[], f32[100]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = f32[100] get-tuple-element(s), index=1
      one = s32[] constant(1)
      next = s32[] add(n, one)
      low = f32[99] slice(x), slice={[0:99]}
      high = f32[99] slice(x), slice={[1:100]}
      time = f32[] convert(n)
      times = f32[99] broadcast(time), dimensions={}
      both = f32[99] add(low, high)
      sums = f32[99] add(both, times)
      last = f32[1] slice(x), slice={[99:100]}
      new = f32[100] concatenate(sums, last), dimensions={0}
      ROOT r = (s32[], f32[100]) tuple(next, new)
    }
    more {
      s = (s32[], f32[100]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      end = s32[] constant(400)
      ROOT c = pred[] compare(n, end), direction=LT
    }
    ENTRY e {
      zero = s32[] constant(0)
      x = f32[100] parameter(0)
      t = (s32[], f32[100]) tuple(zero, x)
      w = (s32[], f32[100]) while(t), condition=more, body=body
      ROOT y = f32[100] get-tuple-element(w), index=1
    }"""
    [loop] = [t for t in h2g.plan(text, target="sm_90").body.thunks if isinstance(t, While)]
    assert loop.trip_count == 100
    moved = [t for t in loop.body.thunks if max(w.size for w in writes(t)) == 400]
    assert len(moved) == 2
    assert not any(isinstance(t, Copy) for t in moved)


@pytest.mark.parametrize(("aliased", "size"), [(False, 4), (True, 4), (False, 1 << 15)])
def test_parameters_that_rounds_write_over_are_copied_beside_other_work(aliased, size):
    shape = f"f32[{size}]"
    alias = ", input_output_alias={ {}: (0, {}, may-alias) }" if aliased else ""
    text = f"""HloModule m{alias}
    body {{
      s = (s32[], {shape}, {shape}) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = {shape} get-tuple-element(s), index=1
      kept = {shape} get-tuple-element(s), index=2
      one = s32[] constant(1)
      next = s32[] add(n, one)
      new = {shape} subtract(x, kept)
      ROOT r = (s32[], {shape}, {shape}) tuple(next, new, kept)
    }}
    more {{
      s = (s32[], {shape}, {shape}) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      end = s32[] constant(400)
      ROOT c = pred[] compare(n, end), direction=LT
    }}
    ENTRY e {{
      zero = s32[] constant(0)
      p = {shape} parameter(0)
      q = {shape} parameter(1)
      t = (s32[], {shape}, {shape}) tuple(zero, p, q)
      w = (s32[], {shape}, {shape}) while(t), condition=more, body=body
      ROOT y = {shape} get-tuple-element(w), index=1
    }}"""
    made = own_inits(h2g.parse(text))
    verify(made)
    copied = [i.operands for i in made.entry.instructions if i.opcode == "copy"]
    wanted = [] if aliased else [("zero",), ("p",)] if size == 4 else [("zero",)]
    assert copied == wanted


def test_a_branch_that_also_hands_its_result_on_keeps_it_whole_for_that():
    text = """HloModule m
    inner {
      s = (s32[], f32[4]) parameter(0)
      x = f32[4] get-tuple-element(s), index=1
      ROOT r = (f32[4]) tuple(x)
    }
    first {
      s = (s32[], f32[4]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = f32[4] get-tuple-element(s), index=1
      t = (s32[], f32[4]) tuple(n, x)
      c = (f32[4]) conditional(n, t, t), branch_computations={inner, inner}
      d = f32[4] get-tuple-element(c), index=0
      a = s32[] negate(n), control-predecessors={d}
      ROOT r = (s32[], f32[4]) tuple(n, x)
    }
    second {
      s = (s32[], f32[4]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = f32[4] get-tuple-element(s), index=1
      y = f32[4] negate(x)
      ROOT r = (s32[], f32[4]) tuple(n, y)
    }
    ENTRY e {
      i = s32[] parameter(0)
      x = f32[4] parameter(1)
      t = (s32[], f32[4]) tuple(i, x)
      c = (s32[], f32[4]) conditional(i, t, t), branch_computations={first, second}
      ROOT y = f32[4] get-tuple-element(c), index=1
    }"""
    made = simplify(h2g.parse(text))
    assert made.computations["first"].root in made.computations["first"]["c"].operands
    verify(simplify_loops(made))
