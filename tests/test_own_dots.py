"""Dots on tensor cores: every way the operands may lie, emulated, against the host."""

from __future__ import annotations

from random import Random

import pytest
from agreement import module
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda import products
from hlo2graph.backends.cuda.compiler import compile_ptx, unit_text
from hlo2graph.backends.cuda.forms.products import dot_tile
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.products import dot_text
from tests.ptxas import spilt

pytestmark = [pytest.mark.slow, needs_gxx]

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCH = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"


def dot(dtype: str, lhs: str, rhs: str, result: str, attrs: str) -> str:
    to = result if "[" in result.partition("{")[0][:5] else f"{dtype}[{result}"
    return module(
        f"a = {dtype}[{lhs} parameter(0) b = {dtype}[{rhs} parameter(1) "
        f"ROOT r = {to} dot(a, b), {attrs}"
    )


PROGRAMS = {
    "square": dot("f32", "64,64]", "64,64]", "64,64]", PLAIN),
    "nothing-divides": dot("f32", "67,93]", "93,51]", "67,51]", PLAIN),
    "few-rows": dot("f32", "5,400]", "400,70]", "5,70]", PLAIN),
    "columns-first": dot("f32", "65,80]{0,1}", "80,40]{0,1}", "65,40]{0,1}", PLAIN),
    "long-sum": dot("f32", "16,1500]", "1500,8]", "16,8]", PLAIN),
    "short-sum": dot("f32", "128,9]", "9,128]", "128,128]", PLAIN),
    "batched": dot("f32", "3,34,50]", "3,50,33]", "3,34,33]", BATCH),
    "whole-tiles": dot("f32", "20,64,36]", "20,36,64]", "20,64,64]", BATCH),
    "bytes": module(
        "a = s8[40,96] parameter(0) b = s8[96,56] parameter(1) "
        "ROOT r = s32[40,56] dot(a, b), " + PLAIN
    ),
    "bytes-nothing-divides": module(
        "a = u8[33,75]{0,1} parameter(0) b = u8[75,21] parameter(1) "
        "ROOT r = u32[33,21] dot(a, b), " + PLAIN
    ),
    "bytes-to-bytes": module(
        "a = s8[3,20,64] parameter(0) b = s8[3,64,24]{1,2,0} parameter(1) "
        "ROOT r = s8[3,20,24] dot(a, b), " + BATCH
    ),
    "short": module(
        "a = f8e4m3fn[40,96] parameter(0) b = f8e4m3fn[96,56] parameter(1) "
        "ROOT r = f32[40,56] dot(a, b), " + PLAIN
    ),
    "two-short-ones": module(
        "a = f8e5m2[33,75]{0,1} parameter(0) b = f8e4m3fn[75,21] parameter(1) "
        "ROOT r = bf16[33,21] dot(a, b), " + PLAIN
    ),
    "short-results": dot("f8e4m3b11fnuz", "20,64]", "64,24]", "20,24]", PLAIN),
    "padded-f16": module(
        "a = f16[30,61] parameter(0) b = f16[64,40] parameter(1) "
        "ROOT r = f16[33,40] fusion(a, b), kind=kOutput, calls=fused",
        "fused { a = f16[30,61] parameter(0) b = f16[64,40] parameter(1) z = f16[] constant(2) "
        "n = f16[33,64] pad(a, z), padding=1_2x3_0 ROOT d = f16[33,40] dot(n, b), " + PLAIN + " }",
    ),
    "whole-tiles-f16": dot("f16", "30,33,64]", "30,64,40]{1,2,0}", "30,33,40]", BATCH),
    "heads": module(
        "q = f32[2,48,3,16] parameter(0) k = f32[2,40,3,16] parameter(1) "
        "ROOT r = f32[2,3,48,40] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, "
        "lhs_contracting_dims={3}, rhs_contracting_dims={3}"
    ),
    "two-sums": module(
        "a = f32[64,4,9] parameter(0) b = f32[9,4,8,12] parameter(1) "
        "ROOT r = f32[64,8,12] dot(a, b), lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"
    ),
    "points": module(
        "x = f32[4,16,8,12] parameter(0) k = f32[40,16] parameter(1) "
        "ROOT r = f32[4,8,12,40]{2,1,3,0} dot(x, k), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    ),
    "bf16": dot("bf16", "40,90]", "90,17]{0,1}", "40,17]", PLAIN),
    "f16-to-f32": module(
        "a = f16[40,64] parameter(0) b = f16[64,32] parameter(1) "
        "ROOT r = f32[40,32] dot(a, b), " + PLAIN
    ),
    "both-sides": module(
        "a = f32[65,80] parameter(0) b = f32[40,80] parameter(1) c = f32[40] parameter(2) "
        "ROOT r = (f32[65,40], bf16[65,40]) fusion(a, b, c), kind=kOutput, calls=fused",
        "fused { a = f32[65,80] parameter(0) b = f32[40,80] parameter(1) c = f32[40] parameter(2) "
        "n = f32[65,80] tanh(a) t = f32[80,40] transpose(b), dimensions={1,0} "
        "d = f32[65,40] dot(n, t), " + PLAIN + " w = f32[65,40] broadcast(c), dimensions={1} "
        "s = f32[65,40] add(d, w) h = bf16[65,40] convert(s) "
        "ROOT o = (f32[65,40], bf16[65,40]) tuple(s, h) }",
    ),
}
FEW = {
    "row": dot("f32", "1,200]", "200,70]", "1,70]", PLAIN),
    "column": dot("bf16", "70,200]", "200,1]", "70,1]", PLAIN),
    "vector": dot(
        "f32", "33,64]", "64]", "33]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "three-columns": dot("f64", "40,90]{0,1}", "90,3]", "40,3]", PLAIN),
    "complex": dot("c64", "2,33]", "33,24]", "2,24]", PLAIN),
    "integers": dot("s8", "4,64]", "64,32]", "4,32]", PLAIN),
    "batched": dot("f16", "3,70,40]", "3,40,2]", "3,70,2]", BATCH),
}


def convolution(dtype: str, lhs: str, rhs: str, result: str, attrs: str) -> str:
    return module(
        f"a = {dtype}[{lhs}] parameter(0) b = {dtype}[{rhs}] parameter(1) "
        f"ROOT r = {dtype}[{result}] convolution(a, b), {attrs}"
    )


LAST = "dim_labels=b01f_01io->b01f"
CONVOLUTIONS = {
    "padded": convolution(
        "f32", "2,9,9,16", "3,3,16,8", "2,9,9,8", f"window={{size=3x3 pad=1_1x1_1}}, {LAST}"
    ),
    "strided": convolution(
        "f32",
        "4,23,19,3",
        "3,3,3,32",
        "4,12,10,32",
        f"window={{size=3x3 stride=2x2 pad=1_1x1_1}}, {LAST}",
    ),
    "features-first": convolution(
        "f32",
        "4,5,8,8",
        "40,5,3,3",
        "4,40,6,6",
        "window={size=3x3}, dim_labels=bf01_oi01->bf01",
    ),
    "turned": convolution(
        "f32",
        "2,5,5,8",
        "3,3,8,16",
        "2,11,11,16",
        f"window={{size=3x3 pad=2_2x2_2 lhs_dilate=2x2 rhs_reversal=1x1}}, {LAST}",
    ),
    "wide-apart": convolution(
        "bf16",
        "1,40,16",
        "3,16,16",
        "1,36,16",
        "window={size=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
    ),
    "of-gradients": convolution(
        "f32",
        "6,8,8,12",
        "6,8,8,10",
        "3,3,12,10",
        "window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ),
    "of-few-weights": convolution(
        "f32",
        "30,18,18,3",
        "30,18,18,8",
        "1,1,3,8",
        "window={size=18x18}, dim_labels=f01b_i01o->01bf",
    ),
    "both-sides": module(
        "x = f32[3,6,6,16] parameter(0) w = f32[3,3,16,16] parameter(1) c = f32[16] parameter(2) "
        "ROOT r = f32[3,6,6,16] fusion(x, w, c), kind=kOutput, calls=fused",
        "fused { x = f32[3,6,6,16] parameter(0) w = f32[3,3,16,16] parameter(1) "
        "c = f32[16] parameter(2) t = f32[3,6,6,16] exponential(x) "
        "d = f32[3,6,6,16] convolution(t, w), window={size=3x3 pad=1_1x1_1}, " + LAST + " "
        "k = f32[3,6,6,16] broadcast(c), dimensions={3} ROOT s = f32[3,6,6,16] add(d, k) }",
    ),
}


def planned(programs: dict[str, str]):
    plans = {name: h2g.plan(text, target="sm_90", fuse="none") for name, text in programs.items()}
    return plans, Kernels(list(plans.values()), precise=False)


@pytest.fixture(scope="module")
def emulated():
    return planned(PROGRAMS | CONVOLUTIONS)


@pytest.fixture(scope="module")
def emulated_few():
    return planned(FEW)


@pytest.mark.parametrize("name", FEW)
def test_few_vectors_agree_with_the_host(emulated_few, name):
    plans, kernels = emulated_few
    (source,) = kernels_of(plans[name]).values()
    assert "hlo::mma" not in source.text
    assert "member" in source.text
    agree_with_the_host(plans[name], kernels, tf32=False)


@pytest.mark.parametrize("name", [*PROGRAMS, *CONVOLUTIONS])
def test_tensor_cores_agree_with_the_host(emulated, name):
    plans, kernels = emulated
    plan = plans[name]
    assert all("hlo::mma" in source.text for source in kernels_of(plan).values())
    agree_with_the_host(plan, kernels, tf32=True)


def test_a_block_has_a_tile_for_each_of_several_teams(monkeypatch):
    monkeypatch.setattr(dot_tile, "MANY", 0)
    few_warps = ("points", "square", "short-sum", "whole-tiles", "bf16")
    plans, kernels = planned({name: PROGRAMS[name] for name in few_warps})
    for plan in plans.values():
        agree_with_the_host(plan, kernels, tf32=True)
    texts = [source.text for plan in plans.values() for source in kernels_of(plan).values()]
    assert sum("const int team = " in text for text in texts) >= 3


def test_places_side_by_side_are_read_and_written_at_once():
    plan = h2g.plan(PROGRAMS["points"], target="sm_90", fuse="none")
    ptx = compile_ptx(unit_text([s.text for s in kernels_of(plan).values()]), "sm_90")
    assert ptx.count("ld.global.v") == ptx.count("ld.global") > 0
    assert "st.global.v4" in ptx


def drawn_dot(rng: Random) -> str:
    """Return a dot of random sizes, with dimensions in random orders, lying in random ways."""
    names = rng.choice([("mk", "kn", "mn"), ("bmk", "bkn", "bmn")])
    lhs, rhs = ("".join(rng.sample(side, len(side))) for side in names[:2])
    layouts = tuple("".join(rng.sample(side, len(side))) for side in (lhs, rhs, names[2]))
    sizes = {
        "b": rng.choice([1, 2, 3]),
        "m": rng.choice([1, 2, 5, 8, 16, 17, 33, 64, 70]),
        "n": rng.choice([1, 3, 4, 6, 8, 16, 24, 31, 96]),
        "k": rng.choice([8, 9, 16, 31, 40, 64, 100, 300]),
    }
    dtype = rng.choice(["bf16", "f16", "f32", "f32", "f64", "s8"])
    return dot_text(lhs, rhs, layouts, dtype, **sizes)


def test_dots_drawn_at_random_agree_with_the_host():
    rng = Random(0)
    plans, kernels = planned({str(k): drawn_dot(rng) for k in range(40)})
    for plan in plans.values():
        agree_with_the_host(plan, kernels, tf32=True)


def test_small_products_of_f32_keep_their_bits():
    """Rounding them would save nothing."""
    small = h2g.plan(dot("f32", "32,32]", "32,32]", "32,32]", PLAIN), target="sm_90")
    (source,) = kernels_of(small).values()
    assert not source.tf32
    assert "hlo::mma" not in source.text


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_elements_that_come_as_they_lie_are_not_converted(dtype):
    def text_of(fused: str) -> str:
        shapes = f"a = {dtype}[64,64] parameter(0) b = {dtype}[64,64] parameter(1) "
        program = module(
            f"{shapes} ROOT r = {dtype}[64,64] fusion(a, b), kind=kOutput, calls=fused",
            f"fused {{ {shapes} {fused} ROOT d = {dtype}[64,64] dot(n, b), {PLAIN} }}",
        )
        (source,) = kernels_of(h2g.plan(program, target="sm_90", fuse="none")).values()
        return source.text

    moved = text_of(f"n = {dtype}[64,64] transpose(a), dimensions={{1,0}}")
    assert "joined_bits" in moved
    assert "pair_bits" not in moved
    computed = text_of(f"n = {dtype}[64,64] tanh(a)")
    assert "joined_bits" in computed
    assert "pair_bits" in computed


def test_the_compiler_hears_how_many_blocks_a_multiprocessor_gets():
    """A matrix and a vector: it would else leave most registers to blocks that never come.

    One is its own, one that of the kernel in front, beside which it reads its weights.
    """
    plan = h2g.plan(dot("f32", "1,512]", "512,1024]", "1,1024]", PLAIN), target="sm_90")
    (source,) = kernels_of(plan).values()
    assert f"__launch_bounds__({source.threads}, 2)" in source.text


@pytest.mark.parametrize(
    "text",
    [
        dot("f32", "1,4096]", "4096,4096]", "1,4096]", PLAIN),
        dot("f32", "4,4096]", "4096,4096]", "4,4096]", PLAIN),
        dot("f32", "16,512,512]", "16,512,64]", "16,512,64]", BATCH),
    ],
    ids=["row", "four-rows", "many-blocks"],
)
def test_no_product_spills_registers(text, monkeypatch):
    plan = h2g.plan(text, target="sm_90", fuse="none")
    monkeypatch.setattr(products, "library", lambda *_, **__: None)
    (source,) = kernels_of(plan).values()
    assert spilt(source.text, "sm_90") == 0


def test_whoever_asks_for_all_bits_gets_no_tensor_cores():
    plain = h2g.plan(PROGRAMS["square"], target="sm_90", fuse="none")
    highest = PROGRAMS["square"].replace(PLAIN, PLAIN + ", operand_precision={highest,highest}")
    asked = h2g.plan(highest, target="sm_90", fuse="none")
    for found, tensor in (
        (kernels_of(plain), True),
        (kernels_of(plain, precise=True), False),
        (kernels_of(asked), False),
    ):
        (source,) = found.values()
        assert ("hlo::mma" in source.text) == source.tf32 == tensor


def test_no_few_blocks_begin_when_all_others_are_done():
    """Of 96 images: three tiles each are more blocks of 16 warps than a device has at once."""
    images = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    text = dot(
        "f32", "96,96,4096]", "96,16,4096]", "96,96,16]", images + "rhs_contracting_dims={2}"
    )
    (source,) = kernels_of(h2g.plan(text, target="sm_90", fuse="none")).values()
    assert (source.grid[0], source.threads) == (288, 256)
