"""What lowering makes of calls, names, control dependencies, tokens and ports."""

from __future__ import annotations

import pytest
from lowering import lowered, names, opcodes, origins

from hlo2graph.errors import UnsupportedError, VerifyError
from hlo2graph.hlo import Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.dtype import F32
from hlo2graph.program.lower import lower
from hlo2graph.program.lower.calls import part_range
from hlo2graph.program.lower.sequence import DEEPEST
from hlo2graph.program.thunks import (
    Alias,
    Collective,
    Program,
)

# ***** calls, names and order *****


def test_calls_are_inlined_and_repeated_names_qualified():
    program = lowered(
        """x = f32[4] parameter(0)
        a = f32[4] call(x), to_apply=f
        b = f32[4] call(a), to_apply=f
        n = f32[4] call(b), to_apply=f
        ROOT y = f32[4] sine(n)""",
        computations="""f {
          p = f32[4] parameter(0)
          q = f32[4] cosine(p)
          ROOT n = f32[4] negate(q)
        }""",
    )
    assert names(program) == ["q", "a/n", "b/q", "b/n", "n/q", "n/n", "y"]


def test_a_qualified_name_that_is_taken_is_numbered():
    call = "ROOT r = f32[4] call(p), to_apply={}"
    computations = "g {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n"
    computations += f"f {{\n  p = f32[4] parameter(0)\n  {call.format('g')}\n}}\n"
    program = lowered(
        """x = f32[4] parameter(0)
        a = f32[4] call(x), to_apply=f
        b = f32[4] call(a), to_apply=f
        ROOT c = f32[4] call(b), to_apply=f""",
        computations=computations,
    )
    assert names(program) == ["n", "r/n", "r/n.1"]


def chain_of_calls(depth: int, calls: int = 1) -> str:
    text = "f_0 {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n"
    for k in range(1, depth):
        lines = [f"  c{i} = f32[] call(p), to_apply=f_{k - 1}" for i in range(calls)]
        lines[-1] = lines[-1].replace("  c", "  ROOT c")
        text += f"f_{k} {{\n  p = f32[] parameter(0)\n" + "\n".join(lines) + "\n}\n"
    return text


def test_calls_may_nest_deeply():
    program = lowered(
        "x = f32[] parameter(0)\nROOT y = f32[] call(x), to_apply=f_2999",
        computations=chain_of_calls(3000),
    )
    assert names(program) == ["n"]


def test_calls_that_multiply_are_refused():
    with pytest.raises(UnsupportedError, match="with its calls inlined, m has"):
        lowered(
            "x = f32[] parameter(0)\nROOT y = f32[] call(x), to_apply=f_59",
            computations=chain_of_calls(60, calls=2),
        )


def test_recursion_is_refused_in_modules_made_by_hand():
    shape = Shape(F32)
    parameter = Instruction("p", "parameter", shape, payload=0)
    call = Instruction("c", "call", shape, ("p",), {"to_apply": "f"})
    with pytest.raises(VerifyError, match="calls itself"):
        lower(Module("m", {"f": Computation("f", (parameter, call), "c")}, "f"))


def nested_loops(depth: int) -> Program:
    text = "t {\n  p = f32[] parameter(0)\n  ROOT c = pred[] compare(p, p), direction=LT\n}\n"
    text += "b0 {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n"
    for k in range(1, depth):
        loop = f"ROOT w = f32[] while(p), condition=t, body=b{k - 1}"
        text += f"b{k} {{\n  p = f32[] parameter(0)\n  {loop}\n}}\n"
    return lowered(
        f"x = f32[] parameter(0)\nROOT y = f32[] while(x), condition=t, body=b{depth - 1}",
        computations=text,
    )


def test_loops_nest_to_a_stated_depth():
    assert names(nested_loops(DEEPEST)) == ["y"]
    with pytest.raises(UnsupportedError, match=f"inside {DEEPEST} loops"):
        nested_loops(DEEPEST + 1)


def test_scheduled_and_other_order_is_the_texts():
    lines = "x = f32[4] parameter(0)\nb = f32[4] sine(x)\na = f32[4] cosine(x)\n"
    lines += "ROOT y = f32[4] add(a, b)"
    assert names(lowered(lines)) == ["b", "a", "y"]
    assert lowered(lines, ", is_scheduled=true").is_scheduled


# ***** control, tokens, ports *****


def after(program: Program) -> dict[str, tuple[str, ...]]:
    return {thunk.name: thunk.after for thunk in program.body.thunks}


def test_control_predecessors_are_names_of_thunks():
    program = lowered(
        """x = f32[4] parameter(0)
        a = f32[4] sine(x)
        v = f32[2,2] reshape(a)
        c = f32[4] call(x), to_apply=f
        dead = f32[4] tanh(x), control-predecessors={a}
        by_view = f32[4] negate(x), control-predecessors={v}
        by_call = f32[4] negate(x), control-predecessors={c}
        by_dead = f32[4] negate(x), control-predecessors={dead}
        by_parameter = f32[4] negate(x), control-predecessors={x}
        view = f32[2,2] reshape(by_view), control-predecessors={by_call}
        user = f32[2,2] negate(view)
        call = f32[4] call(x), to_apply=f, control-predecessors={a}
        ROOT r = (f32[4], f32[4], f32[4], f32[4], f32[4], f32[4], f32[2,2], f32[4])
          tuple(a, c, by_view, by_call, by_dead, by_parameter, user, call)""",
        computations="""f {
          p = f32[4] parameter(0)
          q = f32[4] cosine(p)
          ROOT n = f32[4] negate(q)
        }""",
    )
    assert after(program) == {
        "a": (),
        "q": (),
        "n": (),
        "by_view": ("a",),
        "by_call": ("q", "n"),
        "by_dead": ("a",),
        "by_parameter": (),
        "user": ("by_call",),
        "call/q": ("a",),
        "call/n": ("a",),
    }


def test_a_loop_waits_for_what_its_body_would():
    program = lowered(
        """x = f32[4] parameter(0)
        first = f32[4] sine(x)
        held = f32[4] copy(x)
        v = f32[4] bitcast(held), control-predecessors={first}
        s = (f32[4], f32[4]) tuple(first, v)
        ROOT w = (f32[4], f32[4]) while(s), condition=t, body=b""",
        computations="""t {
          s = (f32[4], f32[4]) parameter(0)
          ROOT c = pred[] constant(false)
        }
        b {
          s = (f32[4], f32[4]) parameter(0)
          e = f32[4] get-tuple-element(s), index=1
          n = f32[4] negate(e)
          ROOT r = (f32[4], f32[4]) tuple(n, e)
        }""",
    )
    *_, thunk = program.body.thunks
    assert thunk.after == ("first",)
    assert thunk.body.thunks[0].after == ()


def test_tokens_have_no_values_but_order_through_add_dependency():
    program = lowered(
        """x = f32[4] parameter(0)
        k = token[] after-all()
        in = (f32[4], token[]) infeed(k)
        k2 = token[] get-tuple-element(in), index=1
        all = token[] after-all(k, k2)
        y = f32[4] add-dependency(x, all)
        z = f32[4] negate(y)
        out = token[] outfeed(z, all)
        ROOT r = (f32[4], token[]) tuple(z, out)"""
    )
    feed, negate, out = program.body.thunks
    assert [type(t) for t in (feed, out)] == [Collective, Collective]
    assert origins(feed.writes) == ["in.0"]
    assert out.writes == ()
    assert after(program) == {"in": (), "z": ("in",), "out": ()}
    assert origins(negate.reads) == ["x"]
    assert opcodes(program, feed.computation) == ["after-all", "infeed", "get-tuple-element"]
    assert [port.name for port in program.outputs] == ["z"]


def test_ports_and_aliases_name_leaves():
    program = lowered(
        """a = (f32[2], (f32[3], f32[4])) parameter(1)
        b = f32[5] parameter(0)
        n = f32[5] negate(b)
        i = (f32[3], f32[4]) get-tuple-element(a), index=1
        ROOT r = (f32[5], (f32[3], f32[4])) tuple(n, i)""",
        header=", input_output_alias={ {0}: (0, {}, must-alias), {1,1}: (1, {1,1}) }",
    )
    assert [port.name for port in program.inputs] == ["b", "a.0", "a.1.0", "a.1.1"]
    assert [port.name for port in program.outputs] == ["n", "i.0", "i.1"]
    assert program.aliases == (Alias(0, 0, must=True), Alias(2, 3, must=False))


def test_tokens_have_no_bytes_to_share():
    program = lowered(
        """t = token[] parameter(0)
        n = f32[0] parameter(1)
        x = f32[2] parameter(2)
        ROOT r = (token[], token[], f32[2]) tuple(t, t, x)""",
        header=", input_output_alias={ {0}: (0, {}), {1}: (1, {}), {2}: (2, {}) }",
    )
    assert program.aliases == (Alias(0, 1, must=False),)


def test_results_of_one_name_are_named_by_their_place():
    program = lowered("x = f32[2] parameter(0)\nROOT r = (f32[2], f32[2]) tuple(x, x)")
    assert [port.name for port in program.outputs] == ["r.0", "r.1"]


def test_an_empty_array_has_a_value_of_size_0():
    program = lowered("x = f32[0,4] parameter(0)\nROOT y = f32[0,4] negate(x)")
    [kernel] = program.body.thunks
    assert [value.shape.size for value in kernel.writes] == [0]


def test_two_random_draws_are_two_kernels():
    program = lowered(
        "a = f32[] constant(0)\nb = f32[] constant(1)\n"
        "x = f32[8] rng(a, b), distribution=rng_uniform\n"
        "y = f32[8] rng(a, b), distribution=rng_uniform\nROOT t = (f32[8], f32[8]) tuple(x, y)"
    )
    assert len({thunk.computation for thunk in program.body.thunks}) == 2


def test_a_tuple_knows_where_the_leaves_of_its_parts_begin():
    leaf = Shape(F32, (4,))
    inner = TupleShape((leaf, TupleShape(()), leaf))
    outer = TupleShape((TupleShape(()), inner, leaf, inner))
    assert outer.starts == (0, 0, 2, 3)
    assert outer.leaf_count == len(list(outer.leaves())) == 5
    assert [part_range(outer, i) for i in range(4)] == [(0, 0), (0, 2), (2, 3), (3, 5)]
    assert (leaf.leaf_count, TupleShape(()).depth, inner.depth, outer.depth) == (1, 1, 2, 3)
