"""Simplification rule by rule: what is left, and that no bit of a result changes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from agreement import arguments_of
from hypothesis import given
from hypothesis import strategies as st
from random_chains import random_chain
from random_modules import random_module
from rewriting import ADD, MAX, lines, module_of, opcodes, results, rewritten
from test_random_modules import examples

import hlo2graph as h2g
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.inline_calls import MOST_COPIED, inline_calls
from hlo2graph.passes.rules.fold_constants import MOST_ELEMENTS
from hlo2graph.passes.simplify import simplify

SCALARS = """p = f32[] parameter(0)
i = s32[] parameter(1)
u = u32[] parameter(2)
b = pred[] parameter(3)
z = c64[] parameter(4)
x = bf16[] parameter(5)
j = s32[] parameter(6)
"""


SPECIAL = {
    "f": (0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-45, -3e38),
    "i": (0, 1, -1, 2**31 - 1, -(2**31), 7, -8),
    "u": (0, 1, 2**32 - 1, 2**31, 6, 33),
    "b": (False, True),
    "c": (0j, -1 + 2j, complex(np.nan, 0.0), complex(np.inf, -0.0)),
}


def left_of(body: str, before: str = "") -> list[str]:
    """Return the opcodes that are left of an entry, checked with special values too."""
    module = module_of(body, before)
    made = rewritten(module, simplify)
    dtypes = [p.shape.dtype.numpy for p in module.entry.parameters]
    if all(not p.shape.dims for p in module.entry.parameters):
        for k in range(18):
            special = (SPECIAL.get(d.kind, SPECIAL["f"]) for d in dtypes)
            drawn = [held[(k * (1 + at)) % len(held)] for at, held in enumerate(special)]
            given = [np.array(v).astype(d) for v, d in zip(drawn, dtypes, strict=True)]
            assert same_bits(results(made, given), results(module, given))
    return opcodes(made.entry)


@pytest.mark.parametrize(
    ("constant", "expression", "left"),
    [
        ("f32[] constant(1)", "f32[] multiply(p, c)", []),
        ("f32[] constant(0)", "f32[] multiply(p, c)", ["multiply"]),  # of an infinity, NaN
        ("f32[] constant(-0.0)", "f32[] add(p, c)", []),
        ("f32[] constant(0)", "f32[] add(p, c)", ["add"]),  # -0 + 0 is 0
        ("f32[] constant(0)", "f32[] subtract(p, c)", []),
        ("f32[] constant(-0.0)", "f32[] subtract(p, c)", ["subtract"]),
        ("f32[] constant(0)", "f32[] subtract(p, p)", ["subtract"]),
        ("f32[] constant(-inf)", "f32[] maximum(p, c)", []),
        ("f32[] constant(-inf)", "f32[] minimum(c, p)", ["minimum"]),  # NaN stays NaN
        ("f32[] constant(inf)", "f32[] minimum(c, p)", []),
        ("f32[] constant(1)", "f32[] divide(p, c)", []),
        ("f32[] constant(8)", "f32[] divide(p, c)", ["multiply"]),
        ("f32[] constant(3)", "f32[] divide(p, c)", ["divide"]),
        ("f32[] constant(1e-45)", "f32[] divide(p, c)", ["divide"]),
        ("bf16[] constant(8)", "bf16[] divide(x, c)", ["multiply"]),
        ("bf16[] constant(9)", "bf16[] divide(x, c)", ["divide"]),
        ("f32[] constant(1)", "f32[] power(p, c)", []),
        ("f32[] constant(2)", "f32[] power(p, c)", ["power"]),
        ("c64[] constant((1, 0))", "c64[] multiply(z, c)", ["multiply"]),
        ("bf16[] constant(-inf)", "bf16[] maximum(x, c)", []),
        ("s32[] constant(0)", "s32[] add(i, c)", []),
        ("s32[] constant(0)", "s32[] subtract(i, i)", []),
        ("s32[] constant(0)", "s32[] multiply(i, c)", []),
        ("s32[] constant(0)", "s32[] and(i, c)", []),
        ("s32[] constant(-1)", "s32[] and(i, c)", []),
        ("s32[] constant(-1)", "s32[] or(i, c)", []),
        ("s32[] constant(0)", "s32[] xor(i, i)", []),
        ("s32[] constant(4)", "s32[] divide(i, c)", ["divide"]),  # rounds towards zero
        ("s32[] constant(2)", "s32[] power(i, c)", ["multiply"]),
        ("s32[] constant(0)", "s32[] power(i, c)", []),
        ("s32[] constant(-2147483648)", "s32[] maximum(i, c)", []),
        ("s32[] constant(-2147483648)", "s32[] minimum(i, c)", []),
        ("u32[] constant(4)", "u32[] divide(u, c)", ["shift-right-logical"]),
        ("u32[] constant(16)", "u32[] remainder(u, c)", ["and"]),
        ("u32[] constant(12)", "u32[] remainder(u, c)", ["remainder"]),
        ("u32[] constant(0)", "u32[] shift-left(u, c)", []),
        ("u32[] constant(32)", "u32[] shift-right-logical(u, c)", []),
        ("s32[] constant(32)", "s32[] shift-right-arithmetic(i, c)", ["shift-right-arithmetic"]),
        ("u32[] constant(0)", "pred[] compare(u, c), direction=LT", []),
        ("u32[] constant(0)", "pred[] compare(c, u), direction=GT", []),
        ("u32[] constant(0)", "pred[] compare(c, u), direction=LT", ["compare"]),
        ("s32[] constant(0)", "pred[] compare(i, i), direction=GE", []),
        ("f32[] constant(0)", "pred[] compare(p, p), direction=EQ", ["compare"]),  # NaN
        ("pred[] constant(true)", "pred[] and(b, c)", []),
        ("pred[] constant(true)", "pred[] or(b, c)", []),
        ("pred[] constant(true)", "pred[] xor(b, c)", ["not"]),
        ("pred[] constant(true)", "s32[] select(c, i, i)", []),
    ],
)
def test_arithmetic_with_a_constant(constant, expression, left):
    assert left_of(f"{SCALARS}c = {constant}\nr = {expression}") == left


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("f32[] negate(p)", "f32[] negate(a)", []),
        ("f32[] negate(p)", "f32[] abs(a)", ["abs"]),
        ("s32[] not(i)", "s32[] not(a)", []),
        ("pred[] compare(p, p), direction=LT", "pred[] not(a)", ["compare", "not"]),
        ("pred[] compare(p, p), direction=EQ", "pred[] not(a)", ["compare"]),
        ("pred[] compare(i, j), direction=LT", "pred[] not(a)", ["compare"]),
        ("pred[] not(b)", "s32[] select(a, i, j)", ["select"]),
        ("s64[] convert(i)", "s32[] convert(a)", []),
        ("s64[] convert(i)", "f32[] convert(a)", ["convert", "convert"]),
        ("f64[] convert(i)", "s32[] convert(a)", []),
        ("f32[] convert(i)", "s32[] convert(a)", ["convert", "convert"]),  # loses low bits
        ("f32[] convert(x)", "bf16[] convert(a)", ["convert", "convert"]),  # changes NaNs
        ("u8[] convert(i)", "s32[] convert(a)", ["convert", "convert"]),
        ("u32[] bitcast-convert(p)", "f32[] bitcast-convert(a)", []),
        ("f32[] reduce-precision(p), exponent_bits=8, mantissa_bits=23", "f32[] abs(a)", ["abs"]),
        (
            "f32[] reduce-precision(p), exponent_bits=8, mantissa_bits=7",
            "f32[] abs(a)",
            ["reduce-precision", "abs"],
        ),
        ("f32[] real(z)", "f32[] copy(a)", ["real"]),
    ],
)
def test_one_after_the_other(first, second, left):
    assert left_of(f"{SCALARS}a = {first}\nr = {second}") == left


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = f32[8] reshape(p)\nr = f32[2,4] reshape(a)", []),
        ("a = f32[8] reshape(p)\nr = f32[4,2] reshape(a)", ["reshape"]),
        ("a = f32[4,2] transpose(p), dimensions={1,0}\nr = f32[2,4] transpose(a), "
         "dimensions={1,0}", []),
        ("r = f32[2,4]{0,1} copy(p)", ["copy"]),
        ("r = f32[2,4] copy(p)", []),
        ("r = f32[2,4] broadcast(p), dimensions={0,1}", []),
        ("a = f32[2,1,4] reshape(p)\nb = f32[2,4] reshape(a)\nr = f32[2,3,4] broadcast(b), "
         "dimensions={0,2}", ["broadcast"]),
        ("a = f32[2,4,3] broadcast(p), dimensions={0,1}\nr = f32[3,2,4] transpose(a), "
         "dimensions={2,0,1}", ["broadcast"]),
        ("a = f32[1,2,4] reshape(p)\nr = f32[2,1,4] transpose(a), dimensions={1,0,2}",
         ["reshape"]),
        ("a = f32[2,4,3] broadcast(p), dimensions={0,1}\nr = f32[2,4,1,3] reshape(a)",
         ["broadcast"]),
        ("a = f32[2,4] reverse(p), dimensions={1}\nr = f32[2,4] reverse(a), dimensions={0,1}",
         ["reverse"]),
        ("r = f32[2,4] slice(p), slice={[0:2], [0:4]}", []),
        ("a = f32[1,4] slice(p), slice={[1:2], [0:4]}\nr = f32[1,2] slice(a), "
         "slice={[0:1], [1:4:2]}", ["slice"]),
        ("a = f32[2,2] slice(p), slice={[0:2], [0:4:2]}\nr = f32[2,0] slice(a), "
         "slice={[0:2], [2:2]}", ["slice"]),
        ("a = f32[2,4,3] broadcast(p), dimensions={0,1}\nr = f32[2,4,2] slice(a), "
         "slice={[0:2], [0:4], [1:3]}", ["broadcast"]),
        ("a = f32[4,4] concatenate(p, q), dimensions={0}\nr = f32[1,4] slice(a), "
         "slice={[2:3], [0:4]}", ["slice"]),
        ("a = f32[4,4] concatenate(p, q), dimensions={0}\nr = f32[2,4] slice(a), "
         "slice={[1:3], [0:4]}", ["concatenate", "slice"]),
        ("r = f32[2,4] concatenate(p), dimensions={0}", []),
        ("a = f32[0,4] slice(p), slice={[1:1], [0:4]}\nr = f32[2,4] concatenate(a, p), "
         "dimensions={0}", []),
        ("a = f32[2,1] slice(p), slice={[0:2], [0:1]}\nb = f32[2,3] slice(p), "
         "slice={[0:2], [1:4]}\nr = f32[2,4] concatenate(a, b), dimensions={1}", []),
        ("a = f32[4,4] concatenate(p, q), dimensions={0}\nr = f32[6,4] concatenate(a, p), "
         "dimensions={0}", ["concatenate"]),
        ("r = f32[2,4] pad(p, s), padding=0_0x0_0", []),
        ("r = f32[2,2] pad(p, s), padding=0_0x-1_-1", ["slice"]),
        ("r = f32[2,4] pad(p, s), padding=0_0x-1_1", ["pad"]),
        ("r = f32[2,4] dynamic-slice(p, i, i), dynamic_slice_sizes={2,4}", []),
        ("c = s32[] constant(9)\nr = f32[1,4] dynamic-slice(p, c, i), "
         "dynamic_slice_sizes={1,4}", ["slice"]),
        ("r = f32[1,4] dynamic-slice(p, i, i), dynamic_slice_sizes={1,4}", ["dynamic-slice"]),
        ("r = f32[2,4] dynamic-update-slice(p, q, i, i)", []),
        ("r = s32[1,4] iota(), iota_dimension=0", ["broadcast"]),
        ("a = f32[2,4,1] reshape(p)\nr = f32[2,4] reduce(a, s), dimensions={2}, to_apply=sum",
         ["broadcast", "add"]),
        ("a = f32[2,4,1] reshape(p)\nc = f32[] constant(-inf)\nr = f32[2,4] reduce(a, c), "
         "dimensions={2}, to_apply=most", []),
        ("a = s32[1] reshape(i)\nr = f32[4] gather(p, a), offset_dims={0}, "
         "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, slice_sizes={1,4}",
         ["dynamic-slice", "reshape"]),
    ],
)  # fmt: skip
def test_moving_elements(body, left):
    given = (
        "p = f32[2,4] parameter(0)\nq = f32[2,4] parameter(1)\ns = f32[] parameter(2)\n"
        "i = s32[] parameter(3)\n"
    )
    assert left_of(given + body, ADD + MAX) == left


@pytest.mark.parametrize(
    ("dtype", "first", "second", "left"),
    [
        ("f32", "2", "1", ["select", "multiply"]),  # what the gradient of a maximum divides by
        ("f32", "-0.5", "3", ["select", "divide"]),
        ("bf16", "2", "0.125", ["select", "multiply"]),
        ("bf16", "2", "0", ["select", "divide"]),
    ],
)
def test_a_choice_of_powers_of_two_divides_nothing(dtype, first, second, left):
    name = "p" if dtype == "f32" else "x"
    text = f"{SCALARS}c = {dtype}[] constant({first})\nd = {dtype}[] constant({second})\n"
    text += f"by = {dtype}[] select(b, c, d)\nr = {dtype}[] divide({name}, by)"
    assert left_of(text) == left
    assert left_of(text.replace(f"divide({name}, by)", f"divide(by, {name})")) == [
        "select",
        "divide",
    ]


def test_what_a_narrow_type_has_no_reciprocal_of_divides_as_before():
    text = f"{SCALARS}h = f16[] convert(p)\nc = f16[] constant(6e-08)\nr = f16[] divide(h, c)"
    assert left_of(text) == ["convert", "divide"]


@pytest.mark.parametrize("opcode", ["subtract", "divide"])
def test_a_start_comes_first_where_that_matters(opcode):
    region = ADD.replace("sum", "less").replace("add", opcode)
    text = "p = f32[2,1] parameter(0)\nc = f32[] constant(8)\n"
    text += "r = f32[2] reduce(p, c), dimensions={1}, to_apply=less"
    assert left_of(text, region) == ["reduce"]


def test_a_window_put_at_a_known_place_is_an_update():
    keep = "last { a = f32[] parameter(0)\nROOT b = f32[] parameter(1) }"
    text = (
        "p = f32[6,6] parameter(0)\nu = f32[4,4] parameter(1)\nc = s32[] constant(1)\n"
        "at = s32[2] broadcast(c), dimensions={}\n"
        "r = f32[6,6] scatter(p, at, u), update_window_dims={0,1}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, to_apply=last"
    )
    assert left_of(text, keep) == ["dynamic-update-slice"]
    added = text.replace("last", "sum")
    assert left_of(added, ADD) == ["slice", "add", "dynamic-update-slice"]
    unlike = "last { a = pred[] parameter(0)\nb = pred[] parameter(1)\n"
    unlike += "ROOT c = pred[] compare(a, b), direction=NE }"
    assert left_of(text.replace("f32", "pred"), unlike) == ["broadcast", "scatter"]
    outside = text.replace("constant(1)", "constant(3)")
    assert left_of(outside, keep) == ["broadcast", "scatter"]


@pytest.mark.parametrize(
    ("window", "update", "at", "left"),
    [
        ("[0:5], [1:6]", "f32[5,5]", "(1, 0)", ["slice", "negate", *["slice"] * 2, "concatenate"]),
        ("[1:6], [1:6]", "f32[5,5]", "(1, 1)", ["slice", "negate", "dynamic-update-slice"]),
        ("[2:5], [1:6]", "f32[3,5]", "(1, 1)", ["slice", "negate", "dynamic-update-slice"]),
        ("[0:4], [0:6]", "f32[4,6]", "(1, 0)", ["slice", "negate", "slice", "slice"]),
        ("[2:6], [0:6]", "f32[4,6]", "(0, 0)", ["slice", "negate", "slice"]),
    ],
    ids=["around", "in place", "too little", "rows", "an end"],
)
def test_updates_by_their_neighbours_are_joined_with_what_lies_around(window, update, at, left):
    row, column = at.strip("()").split(", ")
    body = f"""p = f32[6,6] parameter(0)
    s = {update} slice(p), slice={{{window}}}
    u = {update} negate(s)
    i = s32[] constant({row})
    j = s32[] constant({column})
    r = f32[6,6] dynamic-update-slice(p, u, i, j)"""
    ends = [] if left[-1] == "dynamic-update-slice" else ["concatenate"]
    assert sorted(left_of(body)) == sorted([*left, *ends])


def test_updates_by_products_stay_in_place():
    body = """p = f32[4,4] parameter(0)
    d = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    s = f32[2,4] slice(d), slice={[0:2], [0:4]}
    i = s32[] constant(0)
    r = f32[4,4] dynamic-update-slice(p, s, i, i)"""
    assert left_of(body) == ["dot", "slice", "dynamic-update-slice"]


def test_constants_are_folded_up_to_a_size():
    small = f"a = s32[{MOST_ELEMENTS}] constant({{{', '.join(map(str, range(MOST_ELEMENTS)))}}})"
    text = f"{small}\nb = s32[{MOST_ELEMENTS}] multiply(a, a)\nr = s32[2] slice(b), slice={{[0:2]}}"
    assert left_of(text) == []
    grown = small.replace(str(MOST_ELEMENTS), str(MOST_ELEMENTS + 1), 1).replace("}", ", 1}")
    wide = MOST_ELEMENTS + 1
    assert left_of(f"{grown}\nr = s32[{wide}] multiply(a, a)") == ["multiply"]


@pytest.mark.parametrize(
    ("expression", "left"),
    [
        ("f32[9,9] add(a, b)", ["broadcast"]),
        ("f32[9,9] exponential(a)", ["broadcast", "exponential"]),  # rounds as it likes
        ("f32[9,9] divide(z, z)", ["broadcast", "divide"]),  # a NaN
        ("pred[9,9] compare(a, b), direction=LT", ["broadcast"]),
    ],
)
def test_equal_elements_are_computed_once(expression, left):
    spread = "\n".join(
        f"{name}s = f32[] constant({value})\n{name} = f32[9,9] broadcast({name}s), dimensions={{}}"
        for name, value in (("a", 2), ("b", 0.1), ("z", 0))
    )
    assert left_of(f"{spread}\nr = {expression}") == left


def test_equal_instructions_are_computed_once():
    body = """p = f32[2,4] parameter(0)
    z = f32[] constant(0)
    y = f32[] constant(0)
    a = f32[2] reduce(p, z), dimensions={1}, to_apply=sum, metadata={op_name="a"}
    b = f32[2] reduce(p, y), dimensions={1}, to_apply=total, metadata={op_name="b"}
    c = f32[2] reduce(p, y), dimensions={1}, to_apply=most
    r = (f32[2], f32[2], f32[2]) tuple(a, b, c)"""
    total = ADD.replace("sum", "total")
    assert left_of(body, ADD + total + MAX) == ["reduce", "reduce"]


def test_random_numbers_are_drawn_as_often_as_written():
    draw = "rng(z, o), distribution=rng_uniform"
    body = f"""z = f32[] constant(0)
    o = f32[] constant(1)
    a = f32[4] {draw}
    b = f32[4] {draw}
    r = (f32[4], f32[4]) tuple(a, b)"""
    assert opcodes(simplify(module_of(body)).entry) == ["rng", "rng"]


def test_what_has_a_control_dependency_stays():
    body = """p = f32[4] parameter(0)
    a = f32[4] copy(p)
    n = f32[4] negate(p)
    b = f32[4] copy(p), control-predecessors={n}
    r = (f32[4], f32[4]) tuple(a, b)"""
    made = rewritten(module_of(body), simplify).entry
    assert [i.name for i in made.instructions] == ["p", "n", "b", "r"]
    assert made.result.operands == ("p", "b")


def test_a_known_choice_is_made():
    two = (
        "first { x = f32[4] parameter(0)\nROOT n = f32[4] negate(x) }\n"
        "second { x = f32[4] parameter(0)\nROOT n = f32[4] abs(x) }\n"
    )
    body = """p = f32[4] parameter(0)
    c = s32[] constant(7)
    r = f32[4] conditional(c, p, p), branch_computations={first, second}"""
    made = rewritten(module_of(body, two), simplify, inline_calls)
    assert lines(made.entry) == ["n = f32[4] abs(p)"]
    assert list(made.computations) == ["main"]


@pytest.mark.parametrize("zero", ["0", "-0"])
def test_whether_a_number_is_positive_is_asked_of_what_is_left_of_it(zero):
    """So that nobody else may read the number itself; a NaN is as little positive as before."""
    body = f"""{SCALARS}c = f32[] constant({zero})
e = f32[] exponential(p)
m = f32[] maximum(c, e)
g = pred[] compare(e, c), direction=GT
l = pred[] compare(e, c), direction=GE
t = pred[] compare(e, c), direction=GT, type=TOTALORDER
ROOT r = (f32[], pred[], pred[], pred[]) tuple(m, g, l, t)"""
    made = rewritten(module_of(body), simplify)
    assert [made.entry[n].operands[0] for n in "glt"] == ["m", "e", "e"]
    left_of(body.replace("exponential", "negate"))


def test_calls_are_inlined_with_their_names_where_these_are_free():
    called = "f { x = f32[4] parameter(0)\nn = f32[4] negate(x)\nROOT e = f32[4] exponential(n) }\n"
    outer = "g { y = f32[4] parameter(0)\nROOT c = f32[4] call(y), to_apply=f }\n"
    body = """p = f32[4] parameter(0)
    a = f32[4] call(p), to_apply=g
    b = f32[4] call(a), to_apply=g, control-predecessors={p}
    r = f32[4] call(b), to_apply=f"""
    made = rewritten(module_of(body, called + outer), inline_calls)
    assert lines(made.entry) == [
        "n = f32[4] negate(p)",
        "e = f32[4] exponential(n)",
        "b = f32[4] call(e), to_apply=g, control-predecessors={p}",
        "n.1 = f32[4] negate(b)",
        "e.1 = f32[4] exponential(n.1)",
    ]


def test_a_call_that_lays_an_array_out_anew_becomes_a_copy():
    called = "f { x = f32[4,2]{0,1} parameter(0)\nROOT b = f32[2,4]{1,0} bitcast(x) }\n"
    body = "p = f32[4,2]{1,0} parameter(0)\nr = f32[2,4]{1,0} call(p), to_apply=f"
    made = rewritten(module_of(body, called), inline_calls)
    assert opcodes(made.entry) == ["copy", "bitcast"]


def test_large_computations_are_not_copied_everywhere():
    names = ["call0 { x = f32[2] parameter(0)\nROOT n = f32[2] negate(x) }\n"]
    names += [
        f"call{k} {{ x = f32[2] parameter(0)\ny = f32[2] call(x), to_apply=call{k - 1}\n"
        f"ROOT z = f32[2] call(y), to_apply=call{k - 1} }}\n"
        for k in range(1, 30)
    ]
    module = module_of(
        "p = f32[2] parameter(0)\nr = f32[2] call(p), to_apply=call29", "".join(names)
    )
    made = inline_calls(module)
    assert max(len(c.instructions) for c in made.computations.values()) <= 2 * MOST_COPIED


def test_survivors_keep_name_source_and_place():
    body = """p = f32[4] parameter(0), metadata={op_name="in"}
    one = f32[] constant(1)
    w = f32[4] broadcast(one), dimensions={}
    a = f32[4] multiply(p, w)
    e = f32[4] exponential(a), metadata={op_name="exp"}
    r = f32[4] negate(e)"""
    module = module_of(body)
    made = rewritten(module, simplify).entry
    assert [i.name for i in made.instructions] == ["p", "e", "r"]
    for instr in made.instructions:
        assert instr.span == module.entry[instr.name].span is not None
        assert instr.attrs == module.entry[instr.name].attrs


def test_what_is_made_comes_from_its_place_in_the_source():
    body = """p = f32[4] parameter(0)
    c = f32[] constant(4)
    w = f32[4] broadcast(c), dimensions={}
    r = f32[4] divide(p, w), metadata={op_name="mean"}"""
    module = module_of(body)
    for instr in rewritten(module, simplify).entry.instructions[1:]:
        assert instr.attrs["metadata"] == '{op_name="mean"}'
        assert instr.span == module.entry["r"].span


def test_sizes_known_at_run_time_alone_are_left():
    body = """p = f32[<=4] parameter(0)
    a = f32[<=4] negate(p)
    r = f32[<=4] negate(a)"""
    assert opcodes(simplify(module_of(body)).entry) == ["negate", "negate"]


def settled(module):
    """Inline and simplify until nothing changes: a branch that is known is a call to inline."""
    for _ in range(6):
        made = simplify(inline_calls(module))
        if format_module(made) == format_module(module):
            return made
        module = made
    raise AssertionError("simplifying does not come to an end")


@examples(80)
@given(st.integers(0, 2**32))
def test_random_modules_keep_their_bits(seed):
    rnd = Random(seed)
    text = random_module(rnd, rnd.choice((8, 20, 40)))
    rewritten(h2g.parse(text), settled)


@examples(150)
@given(st.integers(0, 2**32))
def test_random_chains_keep_their_bits(seed):
    rewritten(h2g.parse(random_chain(Random(seed))), simplify)


def test_what_stays_begun_stays_ended():
    """The sum among devices stays, which is more than a value; so its end does, read or not."""
    body = """x = f32[4] parameter(0)
      a = ((f32[4]), f32[4]) async-start(x), calls=summed
      b = f32[4] async-done(a)
      ROOT y = f32[4] negate(x)"""
    summed = """summed {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=sum
}
"""
    made = rewritten(module_of(body, ADD + summed), simplify)
    assert opcodes(made.entry) == ["async-start", "async-done", "negate"]


def test_special_values_pass_through_unchanged():
    body = """p = f32[8] parameter(0)
    one = f32[] constant(1)
    w = f32[8] broadcast(one), dimensions={}
    low = f32[] constant(-inf)
    l = f32[8] broadcast(low), dimensions={}
    h = f32[] constant(0.5)
    g = f32[8] broadcast(h), dimensions={}
    a = f32[8] multiply(p, w)
    b = f32[8] maximum(p, l)
    c = f32[8] divide(p, g)
    r = (f32[8], f32[8], f32[8]) tuple(a, b, c)"""
    module = module_of(body)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -1e-38], np.float32)
    made = simplify(module)
    assert opcodes(made.entry) == ["broadcast", "multiply"]
    assert same_bits(results(made, [special]), results(module, [special]))


def test_work_grows_with_the_program_alone():
    """Chains long enough that anything quadratic would be seen as a hang."""
    count = 5_000
    body = ["v0 = s32[8] parameter(0)", "one = s32[] constant(1)"]
    body += ["w = s32[8] broadcast(one), dimensions={}"]
    body += [f"v{k + 1} = s32[8] add(v{k}, w)" for k in range(count)]
    made = simplify(module_of("\n".join(body)))
    assert opcodes(made.entry) == ["broadcast", "add"]
    assert "constant(5000)" in format_module(made)
    assert arguments_of(format_module(made))
