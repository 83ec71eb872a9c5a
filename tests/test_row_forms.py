"""The kernels that fold rows and columns, compiled for this machine, against the host."""

from __future__ import annotations

from math import prod
from random import Random

import numpy as np
import pytest
from fold_programs import FORMS, fold_program
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.compiler import compile_cubin, compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host

SIZES = (1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 64, 96, 100, 127, 128, 257, 520)
LONG = (1000, 1024, 4099, 8192, 9001)


def drawn(form: str, rnd: Random) -> str:
    """Return a program of `form`, of any rank, reduced dimensions and layout."""
    rank = rnd.randint(1, 4)
    dims = [rnd.choice(SIZES) for _ in range(rank)]
    reduced = sorted(rnd.sample(range(rank), rnd.randint(1, rank)))
    while prod(dims) > 20_000:  # a thread of a loop may sum up all of them
        dims[rnd.randrange(rank)] = rnd.choice((1, 2, 3))
    if rnd.random() < 0.3:
        dims[rnd.choice(reduced)] = rnd.choice(LONG)
        dims = [n if n in LONG else min(n, 2) for n in dims]
    order = rnd.sample(range(rank), rank)
    layout = f"{{{','.join(map(str, order))}}}" if rnd.random() < 0.4 else ""
    dtype = rnd.choice(("f32", "f32", "bf16", "f16", "f64"))
    return fold_program(form, dtype, dims, reduced, layout)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("form", FORMS)
def test_random_shapes_agree_with_the_host(form):
    rnd = Random(form)
    texts = [drawn(form, rnd) for _ in range(4)]
    plans = [hlo2graph.plan(text, target="sm_90", fuse="none") for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


KINDS = (
    ("s8", "maximum", "-128"),
    ("u8", "add", "3"),
    ("s32", "multiply", "1"),
    ("u64", "xor", "9"),
    ("pred", "and", "true"),
    ("s4", "minimum", "7"),
    ("f8e4m3fn", "maximum", "-1"),
    ("c64", "add", "(1, 2)"),
    ("c128", "add", "(1, 2)"),
)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("given", ["40,72/1", "72,40/0", "6,40,9/1", "40,6,36/0,2", "3,1000/0,1"])
def test_all_kinds_of_elements_are_folded(given):
    whole, _, along = given.partition("/")
    kept = [n for d, n in enumerate(whole.split(",")) if str(d) not in along.split(",")]
    texts = [
        f"""HloModule m
r {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {opcode}(a, b) }}
ENTRY e {{ x = {dtype}[{whole}] parameter(0) z = {dtype}[] constant({start})
  ROOT f = {dtype}[{",".join(kept)}] reduce(x, z), dimensions={{{along}}}, to_apply=r }}"""
        for dtype, opcode, start in KINDS
    ]
    plans = [hlo2graph.plan(text, target="sm_90", fuse="none") for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("order", ["{1,2,0}", "{2,1,0}", "{0,1,2}"])
@pytest.mark.parametrize("dim", [1, 2])
def test_layouts_may_differ_where_dimensions_do(order, dim):
    shape, left = f"f32[1,40,50]{order}", f"f32[1,{(50, 40)[dim - 1]}]"
    text = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
fused {{
  x = f32[40,50]{{1,0}} parameter(0)
  y = f32[40,50]{{0,1}} parameter(1)
  z = f32[] constant(0)
  x3 = {shape} reshape(x)
  y3 = {shape} reshape(y)
  s = {shape} add(x3, y3)
  r = {left} reduce(s, z), dimensions={{{dim}}}, to_apply=add
  flat = f32[40,50]{{1,0}} reshape(s)
  ROOT t = ({left}, f32[40,50]{{1,0}}, {shape}) tuple(r, flat, y3)
}}
ENTRY e {{
  x = f32[40,50]{{1,0}} parameter(0)
  y = f32[40,50]{{0,1}} parameter(1)
  ROOT f = ({left}, f32[40,50]{{1,0}}, {shape}) fusion(x, y), kind=kInput, calls=fused
}}"""
    plan = hlo2graph.plan(text, target="sm_90", fuse="none")
    agree_with_the_host(plan, Kernels([plan]))


WIDE = {
    "rows": ("sum", "f32", (4000, 1000), (1,), "ld.global.v4"),
    "rows that are held": ("layer_norm", "f32", (4000, 1000), (1,), "st.global.v4"),
    "rows that are read again": ("rms_norm", "f32", (400, 32000), (1,), "st.global.v4"),
    "rows of narrow floats": ("softmax", "bf16", (4000, 1000), (1,), "st.global.v4"),
    "several dimensions": ("sum", "f32", (60, 400, 200), (0, 2), "ld.global.v4"),
    "pairs": ("arg_max", "f32", (4000, 1000), (1,), "ld.global.v4"),
    "columns": ("two_sums", "f32", (4000, 1000), (0,), "st.global.v4"),
    "middle dimensions": ("sum", "bf16", (40, 400, 1000), (1,), "ld.global.v4"),
    "work with branches in front": ("looked_up", "f32", (4000, 1000), (1,), "ld.global.v4"),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", WIDE)
def test_accesses_are_of_16_bytes(name, arch):
    pytest.importorskip("cuda.bindings.nvrtc")
    form, dtype, dims, reduced, access = WIDE[name]
    plan = hlo2graph.plan(fold_program(form, dtype, dims, reduced), target=arch, fuse="none")
    (source,) = kernels_of(plan).values()
    text = unit_text([source.text])
    ptx = compile_ptx(text, arch)
    assert access in ptx
    assert "local" not in ptx, "something is spilt"
    assert compile_cubin(text, arch).cubin


@pytest.mark.parametrize("dim", [0, 1])
def test_long_computations_make_no_long_kernels(dim):
    steps = "\n".join(f"  y{k + 1} = f32[4096,1024] tanh(y{k})" for k in range(200))
    text = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
fused {{
  y0 = f32[4096,1024] parameter(0)
  z = f32[] constant(0)
{steps}
  ROOT r = f32[{(1024, 4096)[dim]}] reduce(y200, z), dimensions={{{dim}}}, to_apply=add
}}
ENTRY e {{
  x = f32[4096,1024] parameter(0)
  ROOT f = f32[{(1024, 4096)[dim]}] fusion(x), kind=kInput, calls=fused
}}"""
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90", fuse="none")).values()
    assert source.text.count("\n") < 2000


NORMED = """HloModule m
most {{ a = {0}[] parameter(0) b = {0}[] parameter(1) ROOT r = {0}[] maximum(a, b) }}
fused {{
  x = {0}[24,64] parameter(0)
  low = {0}[] constant(-inf)
  top = {0}[24] reduce(x, low), dimensions={{1}}, to_apply=most
  tops = {0}[24,64] broadcast(top), dimensions={{0}}
  ROOT r = {0}[24,64] divide(x, tops)
}}
ENTRY e {{ x = {0}[24,64] parameter(0)
  ROOT f = {0}[24,64] fusion(x), kind=kInput, calls=fused }}"""
SCALES = (1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e20, 1e30, 3e38)


@pytest.mark.parametrize(("dtype", "near"), [("f32", 0), ("bf16", 1), ("f16", 1), ("f64", 0)])
def test_exponentials_of_narrow_types_are_those_of_fewer_instructions(dtype, near):
    plan = hlo2graph.plan(fold_program("softmax", dtype, (24, 64), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    found = source.text.count("hlo::near_exponential("), source.text.count("hlo::exponential(")
    assert (found[0] > 0, found[1] > 0) == (bool(near), not near)


@needs_gxx
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_quotients_of_one_divisor_are_exact(dtype):
    """One test of several sends rare operands another way: all come out as on the host."""
    plan = hlo2graph.plan(NORMED.format(dtype), target="sm_90", fuse="none")
    (source,) = kernels_of(plan).values()
    test = "hlo::are_usual" if dtype == "f32" else "hlo::has_reciprocal"
    assert source.text.count("hlo::divide_any") > source.text.count(test) > 0
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (3, 8, 64)) * np.array(SCALES)[:, None]
    values[1] *= 10.0 ** rng.uniform(-30, 0, (8, 64))
    values[2, :, ::7] = 0
    values[2, :, 3] = (np.inf, -np.inf, np.nan, 0, -0.0, np.inf, 1, -1)
    given = values.reshape(24, 64).astype(plan.inputs[0].shape.dtype.numpy)
    (got,), (want,) = EmulatedExecutable(plan)(given), HostExecutable(plan)(given)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    known = ~np.isnan(want.astype(np.float32))
    assert (np.signbit(got)[known] == np.signbit(want)[known]).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_elements_of_16_bits_are_rounded_two_by_two(dtype):
    text = fold_program("softmax", dtype, (40, 520), (1,))
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90", fuse="none")).values()
    stores = source.text.count("r0[")
    assert source.text.count("hlo::pair<") == stores // 2 > 0


@pytest.mark.parametrize("rows", [40, 400_000])
def test_a_thread_begins_with_all_it_reads_where_nothing_else_hides_it(rows):
    text = fold_program("layer_norm", "bf16", (rows, 512), (1,))
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90", fuse="none")).values()
    first_fold = source.text.index("hlo::shuffle_down")
    reads_later = "= p" in source.text[first_fold:] or "load(p" in source.text[first_fold:]
    assert reads_later == (rows > 1000)


@pytest.mark.parametrize(("steps", "blocks"), [(2000, 16), (2_000_000, 4)])
def test_columns_of_a_cached_array_spread_over_more_blocks(steps, blocks):
    text = fold_program("sum", "f32", (steps, 128), (0,))
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90", fuse="none")).values()
    assert source.grid == (blocks, 1, 1)


@pytest.mark.parametrize(("rows", "blocks", "threads"), [(1, 1, 32), (1024, 128, 256)])
def test_few_rows_take_a_block_a_multiprocessor_at_most(rows, blocks, threads):
    text = fold_program("softmax", "f32", (rows, 128), (1,))
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90", fuse="none")).values()
    assert (source.grid, source.threads) == ((blocks, 1, 1), threads)


def test_what_waits_for_no_total_is_written_before_the_row_is_folded():
    text = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[1024,4096] parameter(0) y = f32[1024,4096] parameter(1) z = f32[] constant(0)
  q = f32[1024,4096] multiply(x, x) s = f32[1024] reduce(q, z), dimensions={1}, to_apply=add
  d = f32[1024,4096] multiply(x, y)
  ROOT t = (f32[1024], f32[1024,4096]) tuple(s, d) }"""
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert source.text.rindex(" r1[") < source.text.index("__syncthreads()")
