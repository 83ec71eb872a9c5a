"""What kernels, views, copies and fills a module becomes."""

from __future__ import annotations

import pytest
from lowering import ADD, lowered, names, opcodes, origins

from hlo2graph.frontend import parse
from hlo2graph.program.drop_dead import drop_dead
from hlo2graph.program.lower import lower
from hlo2graph.program.thunks import (
    Collective,
    Copy,
    Fill,
    Kernel,
)

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


def test_fusions_whose_lines_stand_in_another_order_share_a_computation():
    lines = ["n = f32[4] negate(p)", "s = f32[4] sine(q)", "ROOT t = f32[4] {}(n, s)"]

    def fusion(name, order, opcode="add"):
        body = [lines[k].format(opcode) for k in order]
        return "\n".join((f"{name} {{", *PAIR, *body, "}\n"))

    program = lowered(
        """x = f32[4] parameter(0)
        a = f32[4] fusion(x, x), kind=kLoop, calls=f_a
        b = f32[4] fusion(a, x), kind=kLoop, calls=f_b
        ROOT c = f32[4] fusion(b, x), kind=kLoop, calls=f_c""",
        computations=fusion("f_a", (0, 1, 2))
        + fusion("f_b", (1, 0, 2))
        + fusion("f_c", (0, 1, 2), "subtract"),
    )
    assert [t.computation for t in program.body.thunks] == ["f_a", "f_a", "f_c"]


def test_a_wrapper_takes_no_name_that_the_module_has():
    program = lowered(
        "x = f32[4] parameter(0)\nROOT y = f32[4] map(x, x), dimensions={0}, to_apply=wrapped_map",
        computations=ADD.replace("add {", "wrapped_map {"),
    )
    [kernel] = program.body.thunks
    assert kernel.computation == "wrapped_map.1"
    assert set(program.computations) == {"wrapped_map", "wrapped_map.1"}


PAIR = ("p = f32[4] parameter(0)", "q = f32[4] parameter(1)")
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
        r = f32[4] all-reduce-start(x), replica_groups={{0,1}}, to_apply=add
        g = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
        u = ((f32[4]), f32[4], u32[]) async-update(a)
        cd = f32[4] copy-done(c)
        ad = f32[4] async-done(u)
        rd = f32[4] all-reduce-done(r)
        gd = f32[8] all-gather-done(g)
        ROOT y = (f32[4], f32[4], f32[4], f32[8]) tuple(cd, ad, rd, gd)""",
        computations=ADD + "wrapped {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n",
        header=", replica_count=2",
    )
    assert names(program) == ["c", "n", "r", "g"]
    assert [type(t) for t in program.body.thunks] == [Copy, Kernel, Collective, Collective]
    assert opcodes(program, "wrapped_all_gather") == ["parameter", "all-gather"]
    assert "add" in program.computations


def test_a_receive_is_handed_on_whole():
    program = lowered(
        """t = token[] after-all()
        r = (f32[4], u32[], token[]) recv(t), channel_id=1
        b = (f32[4], u32[], token[]) opt-barrier(r)
        n = u32[] get-tuple-element(b), index=1
        d = (f32[4], token[]) recv-done(b), channel_id=1
        y = f32[4] get-tuple-element(d), index=0
        ROOT o = (f32[4], u32[]) tuple(y, n)"""
    )
    received, *_ = program.body.thunks
    assert isinstance(received, Collective)
    assert program.body.results == received.writes
