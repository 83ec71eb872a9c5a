"""What modules become when lowered."""

from __future__ import annotations

import pytest

from hlo2graph.errors import UnsupportedError, VerifyError
from hlo2graph.frontend import parse
from hlo2graph.hlo import Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.dtype import F32
from hlo2graph.program.drop_dead import drop_dead
from hlo2graph.program.lower import lower
from hlo2graph.program.lower.calls import part_range
from hlo2graph.program.lower.sequence import DEEPEST
from hlo2graph.program.thunks import (
    Alias,
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Program,
    Value,
    While,
)


def lowered(body: str, header: str = "", computations: str = "") -> Program:
    """Lower a module whose entry holds the lines `body`."""
    text = f"HloModule m{header}\n{computations}\nENTRY main {{\n{body}\n}}\n"
    return drop_dead(lower(parse(text)))


def names(program: Program) -> list[str]:
    return [thunk.name for thunk in program.body.thunks]


def origins(values: tuple[Value, ...]) -> list[str]:
    return [value.origin for value in values]


def opcodes(program: Program, computation: str) -> list[str]:
    return [i.opcode for i in program.computations[computation].instructions]


ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""


# ***** kernels and their computations *****


def test_a_value_read_twice_is_one_parameter():
    program = lowered("x = f32[4] parameter(0)\nROOT y = f32[4] add(x, x)")
    [kernel] = program.body.thunks
    assert isinstance(kernel, Kernel)
    assert kernel.reads == program.body.params
    assert opcodes(program, kernel.computation) == ["parameter", "add"]


def test_a_value_read_under_two_shapes_is_two_parameters():
    program = lowered(
        """x = f32[4] parameter(0)
        m = f32[2,2] reshape(x)
        ROOT y = f32[4,2,2] dot(x, m), lhs_contracting_dims={}, rhs_contracting_dims={}"""
    )
    [kernel] = program.body.thunks
    assert kernel.reads == program.body.params * 2
    shapes = [str(p.shape) for p in program.computations[kernel.computation].parameters]
    assert shapes == ["f32[4]", "f32[2,2]"]


def test_scalar_constants_are_embedded_and_others_are_buffers():
    program = lowered(
        """x = f32[2] parameter(0)
        i = s32[] constant(1)
        u = f32[1] constant({7})
        w = f32[2] constant({1, 2})
        v = f32[2] dynamic-update-slice(x, u, i)
        ROOT y = f32[2] add(v, w)"""
    )
    update, add = program.body.thunks
    assert origins(update.reads) == ["x"]
    assert opcodes(program, update.computation).count("constant") == 2
    assert origins(add.reads) == ["v", "w"]
    assert [value.origin for value, _ in program.constants] == ["w"]


def test_equal_constants_share_a_buffer_and_elided_ones_do_not():
    program = lowered(
        """a = f32[2] constant({1, 2})
        b = f32[2] constant({1, 2})
        c = f32[2] constant({...})
        d = f32[2] constant({...})
        x = f32[2] add(a, b)
        y = f32[2] add(c, d)
        ROOT z = f32[2] add(x, y)"""
    )
    assert [value.origin for value, _ in program.constants] == ["a", "c", "d"]
    assert [literal.is_elided for _, literal in program.constants] == [False, True, True]


def test_equal_kernels_share_a_computation_whatever_their_names():
    program = lowered(
        """x = f32[4] parameter(0)
        y = f32[4] negate(x), metadata={op_name="first"}
        ROOT z = f32[4] negate(y), metadata={op_name="second"}"""
    )
    first, second = program.body.thunks
    assert first.computation == second.computation == "wrapped_negate"
    assert (first.metadata, second.metadata) == ('{op_name="first"}', '{op_name="second"}')
    assert first.span is not None


def test_equal_fusions_share_the_first_ones_computation_callees_included():
    region = """r{0} {{
      a{0} = f32[] parameter(0)
      b{0} = f32[] parameter(1)
      ROOT s{0} = f32[] add(a{0}, b{0})
    }}
    f{0} {{
      p{0} = f32[4] parameter(0)
      z{0} = f32[] constant(0)
      ROOT t{0} = f32[] reduce(p{0}, z{0}), dimensions={{0}}, to_apply=r{0}
    }}
    """
    program = lowered(
        """x = f32[4] parameter(0)
        y = f32[4] parameter(1)
        a = f32[] fusion(x), kind=kLoop, calls=f_a
        b = f32[] fusion(y), kind=kLoop, calls=f_b
        ROOT c = (f32[], f32[]) tuple(a, b)""",
        computations=region.format("_a") + region.format("_b"),
    )
    assert [t.computation for t in program.body.thunks] == ["f_a", "f_a"]
    assert list(program.computations) == ["r_a", "f_a"]


def test_a_wrapper_takes_no_name_that_the_module_has():
    program = lowered(
        "x = f32[4] parameter(0)\nROOT y = f32[4] map(x, x), dimensions={0}, to_apply=wrapped_map",
        computations=ADD.replace("add {", "wrapped_map {"),
    )
    [kernel] = program.body.thunks
    assert kernel.computation == "wrapped_map.1"
    assert set(program.computations) == {"wrapped_map", "wrapped_map.1"}


FUSED = """f {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  unused = f32[4] parameter(2)
  n = f32[4] negate(q)
  ROOT both = (f32[4], (f32[4])) tuple(p, inner)
}
""".replace("ROOT", "inner = (f32[4]) tuple(n)\n  ROOT")


def test_a_fusion_reads_an_operand_per_parameter_and_writes_a_value_per_leaf():
    program = lowered(
        """x = f32[4] parameter(0)
        ROOT y = (f32[4], (f32[4])) fusion(x, x, x), kind=kLoop, calls=f""",
        computations=FUSED,
    )
    [kernel] = program.body.thunks
    assert kernel.reads == program.body.params * 3
    assert origins(kernel.writes) == ["y.0", "y.1.0"]


def test_a_fusion_of_a_tuple_is_inlined():
    program = lowered(
        """x = f32[4] parameter(0)
        t = (f32[4]) tuple(x)
        ROOT y = f32[4] fusion(t), kind=kLoop, calls=f""",
        computations="""f {
          t = (f32[4]) parameter(0)
          e = f32[4] get-tuple-element(t), index=0
          ROOT n = f32[4] negate(e)
        }""",
    )
    assert names(program) == ["n"]


def test_lowering_itself_keeps_dead_code():
    text = (
        "HloModule m\nENTRY main { p = f32[4] parameter(0)\n dead = f32[4] negate(p)\n"
        " ROOT r = f32[4] abs(p) }"
    )
    program = lower(parse(text))
    assert [thunk.name for thunk in program.body.thunks] == ["dead", "r"]
    assert [thunk.name for thunk in drop_dead(program).body.thunks] == ["r"]


def test_dead_code_is_left_out_with_its_computations():
    program = lowered(
        """x = f32[4] parameter(0)
        dead = f32[4] sine(x)
        deader = f32[4] cosine(dead)
        ROOT y = f32[4] negate(x)"""
    )
    assert names(program) == ["y"]
    assert list(program.computations) == ["wrapped_negate"]


def test_what_has_an_effect_stays():
    program = lowered(
        """x = f32[4] parameter(0)
        used = f32[4] sine(x)
        call = () custom-call(used), custom_call_target="t", custom_call_has_side_effect=true
        ROOT y = f32[4] negate(x)"""
    )
    assert names(program) == ["used", "call", "y"]
    assert [thunk.effect for thunk in program.body.thunks] == [False, True, False]


# ***** views, copies and fills *****


@pytest.mark.parametrize(
    ("operand", "line"),
    [
        ("f32[2,3]", "f32[6] reshape(x)"),
        ("f32[2,3]{1,0}", "f32[3,2]{1,0} reshape(x)"),
        ("f32[1,6]{0,1}", "f32[2,3]{1,0} reshape(x)"),
        ("f32[4,6]{0,1}", "f32[4,1,6]{0,2,1} reshape(x)"),
        ("f32[4,6]{0,1}", "f32[2,2,6]{1,0,2} reshape(x)"),
        ("f32[2,3]{1,0}", "f32[3,2]{0,1} transpose(x), dimensions={1,0}"),
        ("f32[1,3]{1,0}", "f32[3,1]{1,0} transpose(x), dimensions={1,0}"),
        ("f32[6]", "f32[1,6] broadcast(x), dimensions={1}"),
        ("f32[6]", "s32[6] bitcast-convert(x)"),
        ("f32[2,3]{0,1}", "f32[3,2]{1,0} bitcast(x)"),
    ],
)
def test_same_bytes_are_a_view(operand, line):
    program = lowered(f"x = {operand} parameter(0)\nROOT y = {line}")
    assert not program.body.thunks
    assert program.body.results == program.body.params
    assert str(program.outputs[0].shape) == line.split()[0]


@pytest.mark.parametrize(
    ("operand", "line"),
    [
        ("f32[2,3]{0,1}", "f32[6] reshape(x)"),
        ("f32[4,6]{0,1}", "f32[24]{0} reshape(x)"),
        ("f32[4,6]{0,1}", "f32[2,2,6]{0,1,2} reshape(x)"),
        ("f32[2,3]", "f32[3,2] transpose(x), dimensions={1,0}"),
        ("f32[2,2]", "f32[2,2] transpose(x), dimensions={1,0}"),
        ("f32[2,2]{1,0}", "f32[2,2]{0,1} copy(x)"),
        ("f32[6]", "f32[2,6] broadcast(x), dimensions={1}"),
        ("f32[2,2]", "f32[2,2] broadcast(x), dimensions={1,0}"),
    ],
)
def test_other_bytes_are_a_kernel(operand, line):
    program = lowered(f"x = {operand} parameter(0)\nROOT y = {line}")
    [kernel] = program.body.thunks
    assert isinstance(kernel, Kernel)
    [parameter] = program.computations[kernel.computation].parameters
    assert str(parameter.shape) == operand


def test_a_kernel_sees_its_operand_as_the_view_shows_it():
    program = lowered(
        """x = f32[2,3]{1,0} parameter(0)
        v = f32[3,2]{0,1} transpose(x), dimensions={1,0}
        ROOT y = f32[3,2]{0,1} negate(v)"""
    )
    [kernel] = program.body.thunks
    assert origins(kernel.reads) == ["x"]
    [parameter] = program.computations[kernel.computation].parameters
    assert str(parameter.shape) == "f32[3,2]{0,1}"


def test_an_argument_in_another_layout_than_a_fusion_says_is_laid_out_first():
    program = lowered(
        """x = f32[2,3]{0,1} parameter(0)
        ROOT y = f32[2,3] fusion(x), kind=kLoop, calls=f""",
        computations="f {\n  p = f32[2,3] parameter(0)\n  ROOT n = f32[2,3] negate(p)\n}",
    )
    assert names(program) == ["p.relayout", "y"]


@pytest.mark.parametrize(
    ("constant", "pattern"),
    [
        ("f32[] constant(1)", "0000803f"),
        ("pred[] constant(true)", "01"),
        ("c128[] constant((1, -2))", "000000000000f03f00000000000000c0"),
        ("f32[1] constant({1})", "0000803f"),
    ],
)
def test_a_broadcast_scalar_constant_is_a_fill(constant, pattern):
    dtype, dims = constant.split()[0].rstrip("]").split("[")
    given = "0" if dims else ""
    program = lowered(f"c = {constant}\nROOT y = {dtype}[1,8] broadcast(c), dimensions={{{given}}}")
    [fill] = program.body.thunks
    assert isinstance(fill, Fill)
    assert fill.pattern.hex() == pattern


def test_a_copy_of_bytes_is_a_copy_thunk():
    program = lowered("x = f32[2] parameter(0)\nROOT y = f32[2]{0:S(5)} copy(x)")
    assert [type(t) for t in program.body.thunks] == [Copy]


def test_asynchronous_operations_are_done_at_their_start():
    program = lowered(
        """x = f32[4] parameter(0)
        c = (f32[4], f32[4], u32[]) copy-start(x)
        a = ((f32[4]), f32[4], u32[]) async-start(x), calls=wrapped
        r = f32[4] all-reduce-start(x), replica_groups={}, to_apply=add
        g = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
        u = ((f32[4]), f32[4], u32[]) async-update(a)
        cd = f32[4] copy-done(c)
        ad = f32[4] async-done(u)
        rd = f32[4] all-reduce-done(r)
        gd = f32[8] all-gather-done(g)
        ROOT y = (f32[4], f32[4], f32[4], f32[8]) tuple(cd, ad, rd, gd)""",
        computations=ADD + "wrapped {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n",
    )
    assert names(program) == ["c", "n", "r", "g"]
    assert [type(t) for t in program.body.thunks] == [Copy, Kernel, Collective, Collective]
    assert opcodes(program, "wrapped_all_gather") == ["parameter", "all-gather"]
    assert "add" in program.computations


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


# ***** loops and conditionals *****

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
