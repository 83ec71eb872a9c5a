"""Products: what goes into their dimension numbers and layouts, and what stays around them."""

from __future__ import annotations

import pytest
from rewriting import ADD, module_of, opcodes, results, rewritten, whole_arguments

from hlo2graph.hlo import Module
from hlo2graph.hlo.printer import format_instruction
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.matmul import product_of
from hlo2graph.ops.views import is_view
from hlo2graph.passes.lay_out_dots import lay_out_dots
from hlo2graph.passes.simplify import simplify
from hlo2graph.passes.split_dots import split_dots


def made_of(body: str, *passes, before: str = "") -> Module:
    module = module_of(body, before)
    return rewritten(module, *(passes or (simplify,)), arguments=whole_arguments(module))


def test_transposed_operands_are_read_as_they_are():
    made = made_of(
        """p = f32[3,5] parameter(0)
        q = f32[7,5] parameter(1)
        a = f32[5,3] transpose(p), dimensions={1,0}
        b = f32[5,7] transpose(q), dimensions={1,0}
        r = f32[3,7] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"""
    )
    assert format_instruction(made.entry.result) == (
        "%r = f32[3,7] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )


@pytest.mark.parametrize("layout", ["", "{0,1}"])
def test_a_product_that_is_transposed_is_made_the_other_way_round(layout):
    made = made_of(
        f"""g = f32[5,3] parameter(0)
        a = f32[5,4] parameter(1)
        w = f32[4,3] parameter(2)
        d = f32[3,4] dot(g, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        t = f32[4,3]{layout} transpose(d), dimensions={{1,0}}
        r = f32[4,3] subtract(w, t)"""
    )
    assert "transpose" not in opcodes(made.entry)
    (dot,) = (i for i in made.entry.instructions if i.opcode == "dot")
    assert format_instruction(dot) == (
        "%t = f32[4,3] dot(%a, %g), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    )


def test_products_of_many_matrices_are_made_the_other_way_round_too():
    made = made_of(
        """p = f32[2,5,3] parameter(0)
        q = f32[2,4,7,5] parameter(1)
        d = f32[2,3,4,7] dot(p, q), lhs_batch_dims={0}, rhs_batch_dims={0},
          lhs_contracting_dims={1}, rhs_contracting_dims={3}
        r = f32[2,4,7,3] transpose(d), dimensions={0,2,3,1}"""
    )
    assert made.entry.result.opcode == "dot"
    assert made.entry.result.operands == ("q", "p")


@pytest.mark.parametrize(
    "kept",
    [
        "t = f32[4,3] transpose(d), dimensions={1,0} s = f32[3,4] tanh(d)\n"
        "r = (f32[4,3], f32[3,4]) tuple(t, s)",
        "r = f32[4,3]{0,1} transpose(d), dimensions={1,0}",
    ],
    ids=["read-as-it-is-too", "a-result-that-lies-so"],
)
def test_a_product_stays_as_it_is_where_that_is_wanted(kept):
    made = made_of(
        f"""g = f32[5,3] parameter(0)
        a = f32[5,4] parameter(1)
        d = f32[3,4] dot(g, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        {kept}"""
    )
    assert "transpose" in opcodes(made.entry)


def test_batch_dimensions_move_where_a_library_can_still_multiply():
    made = made_of(
        """p = f32[6,2,4] parameter(0)
        q = f32[5,2,4] parameter(1)
        a = f32[2,6,4] transpose(p), dimensions={1,0,2}
        b = f32[2,4,5] transpose(q), dimensions={1,2,0}
        r = f32[2,6,5] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2},
        """.replace(",\n        ", ", rhs_batch_dims={0}, rhs_contracting_dims={1}").strip()
    )
    assert made.entry.result.operands == ("p", "q")
    assert made.entry.result.attrs["lhs_batch_dims"] == (1,)
    assert made.entry.result.attrs["rhs_contracting_dims"] == (2,)


def test_several_contracting_dimensions_stay_paired():
    made = made_of(
        """p = f32[3,4,5] parameter(0)
        q = f32[4,5,2] parameter(1)
        a = f32[4,5,3] transpose(p), dimensions={1,2,0}
        r = f32[3,2] dot(a, q), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}"""
    )
    assert made.entry.result.operands == ("p", "q")
    assert made.entry.result.attrs["lhs_contracting_dims"] == (1, 2)


@pytest.mark.parametrize(
    "body",
    [
        # Free dimensions in another order.
        """p = f32[3,4,5] parameter(0)
        q = f32[5,2] parameter(1)
        a = f32[4,3,5] transpose(p), dimensions={1,0,2}
        r = f32[4,3,2] dot(a, q), lhs_contracting_dims={2}, rhs_contracting_dims={0}""",
        # Two batch dimensions that are not one inside the other: no library has such strides.
        """p = f32[2,6,3,4] parameter(0)
        q = f32[2,3,4,5] parameter(1)
        a = f32[2,3,6,4] transpose(p), dimensions={0,2,1,3}
        r = f32[2,3,6,5] dot(a, q), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, """
        "rhs_batch_dims={0,1}, rhs_contracting_dims={2}",
    ],
)
def test_transposes_that_stay(body):
    assert opcodes(made_of(body).entry) == ["transpose", "dot"]


@pytest.mark.parametrize(
    ("narrow", "wide", "left"),
    [
        ("bf16", "f32", ["dot"]),
        ("f16", "f32", ["dot"]),
        ("s8", "s32", ["dot"]),
        ("f32", "f64", ["convert", "convert", "dot"]),
        ("s8", "f32", ["convert", "convert", "dot"]),
    ],
)
def test_widened_operands_are_multiplied_as_they_were(narrow, wide, left):
    body = f"""p = {narrow}[3,5] parameter(0)
    q = {narrow}[5,7] parameter(1)
    a = {wide}[3,5] convert(p)
    b = {wide}[5,7] convert(q)
    r = {wide}[3,7] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    assert opcodes(made_of(body).entry) == left


@pytest.mark.parametrize(
    ("shapes", "labels", "left"),
    [
        (("[2,3,4,6]", "[1,1,6,5]", "[2,3,4,5]"), "b01f_01io->b01f", ["reshape", "dot"]),
        (("[2,6,3,4]", "[5,6,1,1]", "[2,5,3,4]"), "bf01_oi01->bf01",
         ["reshape", "dot", "transpose"]),
        (("[2,6]", "[6,5]", "[2,5]"), "bf_io->bf", ["dot"]),
    ],
)  # fmt: skip
def test_a_convolution_of_points_is_a_product(shapes, labels, left):
    source, kernel, out = shapes
    window = "window={size=1x1}, " if "0" in labels else ""
    body = f"""p = f32{source} parameter(0)
    q = f32{kernel} parameter(1)
    r = f32{out} convolution(p, q), {window}dim_labels={labels}"""
    assert opcodes(made_of(body).entry) == left


@pytest.mark.parametrize(
    ("dims", "left"),
    [("0", "reversal=1x0"), ("0,1", "reversal=1x1"), ("0,2", None), ("3", None)],
)
def test_a_convolution_reads_a_kernel_that_is_reversed_in_its_place(dims, left):
    body = f"""p = f32[2,5,5,6] parameter(0)
    q = f32[3,3,6,4] parameter(1)
    t = f32[3,3,6,4] reverse(q), dimensions={{{dims}}}
    r = f32[2,3,3,4] convolution(p, t), window={{size=3x3}}, dim_labels=b01f_01io->b01f"""
    entry = made_of(body).entry
    assert opcodes(entry) == (["convolution"] if left else ["reverse", "convolution"])
    assert left is None or left in format_instruction(entry.result)


@pytest.mark.parametrize(
    ("shapes", "window", "labels", "left"),
    [
        (("[3,4,6,7]", "[3,5,6,7]", "[1,1,4,5]"), "6x7", "fb01_io01->01bf", ["dot", "reshape"]),
        (("[3,4,6,7]", "[3,5,6,7]", "[1,5,4,1]"), "6x7 stride=2x3", "fb01_io01->0fb1",
         ["dot", "reshape"]),
        (("[4,6,7,3]", "[6,7,3,5]", "[4,1,1,5]"), "6x7", "b01f_01io->b01f", ["dot", "reshape"]),
        (("[4,6,7,3]", "[6,1,3,5]", "[4,1,7,5]"), "6x1", "b01f_01io->b01f",
         ["reshape", "dot", "reshape"]),
    ],
)  # fmt: skip
def test_a_convolution_whose_window_is_all_there_is_is_a_product(shapes, window, labels, left):
    source, kernel, out = shapes
    body = f"""p = f32{source} parameter(0)
    q = f32{kernel} parameter(1)
    r = f32{out} convolution(p, q), window={{size={window}}}, dim_labels={labels}"""
    assert opcodes(made_of(body).entry) == left


@pytest.mark.parametrize(
    ("window", "out"),
    [
        ("size=6x7 rhs_reversal=1x0", "[4,1,1,5]"),
        ("size=6x7 pad=0_0x1_0", "[4,1,2,5]"),
        ("size=6x7 pad=0_0x1_0 stride=1x2", "[4,1,1,5]"),
        ("size=6x7 lhs_dilate=1x1 pad=3_0x0_0", "[4,4,1,5]"),
    ],
)
def test_other_large_windows_stay(window, out):
    body = f"""p = f32[4,6,7,3] parameter(0)
    q = f32[6,7,3,5] parameter(1)
    r = f32{out} convolution(p, q), window={{{window}}}, dim_labels=b01f_01io->b01f"""
    assert opcodes(made_of(body).entry) == ["convolution"]


IMAGES = """p = {0}[24,64,40,5] parameter(0)
q = {0}[24,96,40,5] parameter(1)
r = {1}[64,96] dot(p, q), lhs_contracting_dims={{0,2,3}}, rhs_contracting_dims={{0,2,3}}"""


@pytest.mark.parametrize(
    ("given", "result", "left"),
    [
        ("f32", "f32", ["dot", "reduce"]),
        ("bf16", "f32", ["dot", "reduce"]),
        ("bf16", "bf16", ["dot", "reduce", "convert"]),
    ],
)
def test_products_of_images_are_summed_in_a_second_step(given, result, left):
    made = made_of(IMAGES.format(given, result), split_dots).entry
    assert opcodes(made) == left
    dot = next(i for i in made.instructions if i.opcode == "dot")
    assert str(dot.shape) == "f32[24,64,96]"
    assert product_of(dot, *(made[o].shape for o in dot.operands), dot.shape) is not None


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (
            """p = f32[16,8192] parameter(0)
            q = f32[8192,24] parameter(1)
            r = f32[16,24] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
            "f32[64,16,24]",
        ),
        (
            """p = bf16[40,6000]{0,1} parameter(0)
            q = bf16[20,6000] parameter(1)
            r = f32[40,20] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}""",
            "f32[40,40,20]",
        ),
        (
            """p = s8[16,64,300] parameter(0)
            q = s8[64,300,20] parameter(1)
            r = s32[16,20] dot(p, q), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}""",
            "s32[64,16,20]",
        ),
    ],
)
def test_long_sums_of_few_results_are_summed_in_parts(body, batch):
    made = made_of(body, split_dots).entry
    dot = next(i for i in made.instructions if i.opcode == "dot")
    assert str(dot.shape) == batch
    assert all(is_view(made[o], made[made[o].operands[0]].shape) for o in dot.operands)


@pytest.mark.parametrize(
    "body",
    [
        # No number of parts divides the sum.
        """p = f32[16,8209] parameter(0)
        q = f32[8209,24] parameter(1)
        r = f32[16,24] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
        # A library multiplies it in one step.
        """p = f32[24,40,64] parameter(0)
        q = f32[24,40,96] parameter(1)
        r = f32[64,96] dot(p, q), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}""",
        # The products would take much more than the operands.
        """p = f32[24,640,20] parameter(0)
        q = f32[24,960,20] parameter(1)
        r = f32[640,960] dot(p, q), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,2}""",
        # A kernel of ours multiplies it.
        """p = f32[4,8,5] parameter(0)
        q = f32[4,9,5] parameter(1)
        r = f32[8,9] dot(p, q), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,2}""",
    ],
)
def test_other_products_take_one_step(body):
    assert opcodes(made_of(body, split_dots).entry) == ["dot"]


@pytest.mark.parametrize(
    ("window", "out", "more"),
    [
        ("size=1x1 stride=2x1", "[2,2,4,5]", ""),
        ("size=1x1 pad=1_0x0_0", "[2,4,4,5]", ""),
        ("size=1x1", "[2,3,4,6]", ", feature_group_count=6"),
    ],
)
def test_other_convolutions_stay(window, out, more):
    kernel = "[1,1,1,6]" if more else "[1,1,6,5]"
    body = f"""p = f32[2,3,4,6] parameter(0)
    q = f32{kernel} parameter(1)
    r = f32{out} convolution(p, q), window={{{window}}}, dim_labels=b01f_01io->b01f{more}"""
    assert opcodes(made_of(body).entry) == ["convolution"]


HEADS = """p = f32[8,16,16] parameter(0)
q = f32[8,16,4] parameter(1)
d = f32[8,16,4] dot(p, q), lhs_batch_dims={0}, lhs_contracting_dims={2}, """ + (
    "rhs_batch_dims={0}, rhs_contracting_dims={1}\n"
)


@pytest.mark.parametrize("layout", ["", "{2,1,0}", "{2,0,1}"])
def test_products_are_written_as_they_are_read(layout):
    made = made_of(
        HEADS
        + f"""t = f32[16,8,4]{layout} transpose(d), dimensions={{1,0,2}}
        m = f32[16,32] reshape(t)
        r = f32[16,32] negate(m)""",
        lay_out_dots,
    ).entry
    assert made["d"].shape.minor_to_major == (2, 0, 1)
    assert is_view(made["t"], made["d"].shape)
    assert is_view(made["m"], made["t"].shape)


@pytest.mark.parametrize(
    "rest",
    [
        "t = f32[16,8,4]{2,0,1} transpose(d), dimensions={1,0,2}\nr = f32[16,8,4]{2,0,1} negate(t)",
        "t = f32[16,8,4] transpose(d), dimensions={1,0,2}\nn = f32[8,16,4] negate(d)\n"
        "r = (f32[16,8,4], f32[8,16,4]) tuple(t, n)",
        "t = f32[16,4,8] transpose(d), dimensions={1,2,0}\nr = f32[16,4,8] negate(t)",
        "t = f32[16,8,4]{2,0,1} transpose(d), dimensions={1,0,2}\n"
        "b = f32[8,64]{1,0} bitcast(t)\nr = f32[8,64]{1,0} negate(b)",
        "r = f32[16,8,4]{2,0,1} transpose(d), dimensions={1,0,2}",
    ],
    ids=["a view already", "read otherwise too", "no strides of a product", "bytes", "root"],
)
def test_products_that_lie_as_they_did(rest):
    assert made_of(HEADS + rest, lay_out_dots).entry["d"].shape.layout is None


def test_products_in_loops_are_laid_out_too_and_effects_stay():
    sends = """out { a = f32[4] parameter(0)
    k = token[] after-all()
    ROOT o = token[] outfeed(a, k), outfeed_shape=f32[4] }
    """
    body = """p = f32[4,4] parameter(0)
    v = f32[4] parameter(1)
    o = token[] call(v), to_apply=out
    r = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    made = lay_out_dots(module_of(body, sends))
    assert opcodes(made.entry) == ["call", "dot"]


def test_attention_has_no_array_that_is_only_moved():
    body = """x = f32[16,32] parameter(0)
    w = f32[32,32] parameter(1)
    k = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    a = f32[16,8,4] reshape(k)
    b = f32[8,16,4]{2,0,1} transpose(a), dimensions={1,0,2}
    s = f32[8,16,16] dot(b, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, """
    body += """rhs_batch_dims={0}, rhs_contracting_dims={2}
    o = f32[8,16,4] dot(s, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, """
    body += """rhs_batch_dims={0}, rhs_contracting_dims={1}
    t = f32[16,8,4]{2,0,1} transpose(o), dimensions={1,0,2}
    m = f32[16,32] reshape(t)
    r = f32[16,32] dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    module = module_of(body, ADD)
    made = lay_out_dots(simplify(module)).entry
    moving = [i for i in made.instructions if i.opcode in ("transpose", "reshape")]
    assert all(is_view(i, made[i.operands[0]].shape) for i in moving)
    whole = whole_arguments(module)
    assert same_bits(results(lay_out_dots(simplify(module)), whole), results(module, whole))


def test_a_product_that_sums_nothing_is_a_multiplication():
    module = module_of(
        """p = f32[5,2] parameter(0)
        q = bf16[2,5,3] parameter(1)
        r = f32[2,5,3] dot(p, q), lhs_batch_dims={1,0}, rhs_batch_dims={0,1},
        """.replace(",\n        ", ", lhs_contracting_dims={}, rhs_contracting_dims={}").strip()
    )
    given = [array * array + 1 for array in whole_arguments(module)]  # 0 * -1 is -0, 0 + -0 is not
    made = rewritten(module, simplify, arguments=given)
    assert "dot" not in opcodes(made.entry)
    assert made.entry.result.opcode == "multiply"


def test_a_product_that_sums_nothing_keeps_a_type_that_it_rounds_to():
    made = made_of(
        """p = f32[5] parameter(0)
        q = f32[3] parameter(1)
        r = bf16[5,3] dot(p, q), lhs_contracting_dims={}, rhs_contracting_dims={}"""
    )
    assert "dot" in opcodes(made.entry)


@pytest.mark.parametrize("types", [("bf16", "f32"), ("f32", "f16"), ("f16", "bf16")])
def test_operands_of_two_types_become_of_one(types):
    made = made_of(
        f"""p = {types[0]}[3,4] parameter(0)
        q = {types[1]}[4,5] parameter(1)
        r = f32[3,5] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    )
    operands = [made.entry[name] for name in made.entry.result.operands]
    assert {str(o.shape.dtype) for o in operands} == {"f32"}
