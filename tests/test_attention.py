"""Attention as one kernel: what becomes it, and that it computes what three kernels do."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.compiler import compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.hlo.printer import format_module
from hlo2graph.ops.region import Attention, region_of
from hlo2graph.passes.attend import attend
from hlo2graph.passes.fusion.why import ATTENDED, ATTENTION, MADE, RESULT, SCORES, WEIGHTS
from hlo2graph.pipeline import why
from hlo2graph.program.device_figures import FIGURES
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.ptxas import spilt

REGIONS = """
largest { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
"""
BY_KEYS = "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, "
BY_KEYS += "rhs_contracting_dims={3}"
PLAIN = "lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, "
PLAIN += "rhs_contracting_dims={1}"
TURNED = "lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, "
TURNED += "rhs_contracting_dims={3}"


def softmax(scores: str, dims: str, kept: str) -> str:
    """Return lines that make weights `p` of `scores`, along the last dimension."""
    last = kept.count(",") + 1
    rows = ",".join(map(str, range(last)))
    return f"""
  least = f32[] constant(-inf)
  most = f32[{kept}] reduce({scores}, least), dimensions={{{last}}}, to_apply=largest
  mb = f32[{dims}] broadcast(most), dimensions={{{rows}}}
  u = f32[{dims}] subtract({scores}, mb)
  w = f32[{dims}] exponential(u)
  zero = f32[] constant(0)
  total = f32[{kept}] reduce(w, zero), dimensions={{{last}}}, to_apply=sum
  tb = f32[{dims}] broadcast(total), dimensions={{{rows}}}
  p = f32[{dims}] divide(w, tb)"""


def attention(
    dtype: str,
    sizes: tuple[int, int, int, int, int, int],
    *,
    scores: str = "f32",
    turned: bool = False,
    attrs: str = "",
    root: str = "",
) -> str:
    """Return causal attention of (batch, heads, queries, keys, width of keys, of values)."""
    b, h, q, k, d, e = sizes
    dims, kept = f"{b},{h},{q},{k}", f"{b},{h},{q}"
    narrow = f"weights = {dtype}[{dims}] {'abs' if dtype == 'f32' else 'convert'}(p)"
    out = f"o = {dtype}[{b},{h},{q},{e}] dot(weights, v), {PLAIN}"
    if turned:
        out = f"o = {dtype}[{b},{h},{e},{q}]{{2,1,3,0}} dot(v, weights), {TURNED}"
    lines = f"""
  q = {dtype}[{b},{q},{h},{d}] parameter(0)
  k = {dtype}[{b},{k},{h},{d}] parameter(1)
  v = {dtype}[{b},{k},{h},{e}] parameter(2)
  s = {scores}[{dims}] dot(q, k), {BY_KEYS}{attrs}
  f = f32[{dims}] {"negate" if scores == "f32" else "convert"}(s)
  i = s32[{q},{k}] iota(), iota_dimension=0
  j = s32[{q},{k}] iota(), iota_dimension=1
  g = pred[{q},{k}] compare(i, j), direction=GE
  seen = pred[{dims}] broadcast(g), dimensions={{2,3}}
  low = f32[] constant(-1e9)
  lb = f32[{dims}] broadcast(low), dimensions={{}}
  t = f32[{dims}] select(seen, f, lb)
{softmax("t", dims, kept)}
  {narrow}
  {out}"""
    body = f"{lines}\n  ROOT {root}" if root else lines.replace("\n  o = ", "\n  ROOT o = ")
    return f"HloModule m\n{REGIONS}\nENTRY e {{{body}\n}}\n"


GROUPED = f"""HloModule m
{REGIONS}
ENTRY e {{
  q = f32[1,20,2,3,16] parameter(0)
  k = f32[1,40,2,16] parameter(1)
  v = f32[1,40,2,16] parameter(2)
  s = f32[1,2,40,20,3] dot(k, q), {BY_KEYS.replace("rhs_contracting_dims={3}", "")}\
rhs_contracting_dims={{4}}
  t = f32[1,2,3,20,40] transpose(s), dimensions={{0,1,4,3,2}}
  b = f32[2,1,3,20,40] reshape(t)
{softmax("b", "2,1,3,20,40", "2,1,3,20")}
  ROOT o = f32[2,1,16,1,3,20] dot(v, p), lhs_batch_dims={{2}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{1}}, rhs_contracting_dims={{4}}
}}
"""
FUSED = {
    "queries-that-share-keys": GROUPED,
    "f32": attention("f32", (1, 2, 32, 64, 32, 32)),
    "nothing-divides": attention("f32", (2, 1, 37, 75, 20, 70), turned=True),
    "bf16": attention("bf16", (1, 2, 20, 100, 40, 40)),
    "one-query": attention("bf16", (2, 3, 1, 100, 64, 64)),
    "few-queries": attention("f32", (1, 2, 3, 48, 20, 70), turned=True),
    "nearly-few": attention("f32", (1, 2, 9, 40, 16, 16)),
    "f16-scores": attention("f16", (2, 1, 16, 33, 64, 64), scores="f16", turned=True),
}


@pytest.mark.parametrize("name", FUSED)
def test_it_becomes_one_kernel(name: str) -> None:
    plan = h2g.plan(FUSED[name], target="sm_90")
    [thunk] = plan.body.thunks
    assert isinstance(region_of(plan.computations[thunk.computation]), Attention)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("precise", [False, True])
def test_it_computes_what_the_host_does(precise: bool) -> None:
    texts = [text for text in FUSED.values() if not precise or "f16[" not in text]
    plans = [h2g.plan(text, target="sm_90") for text in texts]
    kernels = Kernels(plans, precise=precise)
    for plan in plans:
        agree_with_the_host(plan, kernels, tf32=not precise)


SIZES = (1, 2, 32, 64, 32, 32)
LEFT = {
    "scores that are a result": attention(
        "f32",
        SIZES,
        root="r = (f32[1,2,32,32], f32[1,2,32,64]) tuple(o, s)",
    ),
    "weights that are a result": attention(
        "f32",
        SIZES,
        root="r = (f32[1,2,32,32], f32[1,2,32,64]) tuple(o, p)",
    ),
    "more precision asked for": attention(
        "f32", SIZES, attrs=", operand_precision={highest,highest}"
    ),
    "many keys": attention("f32", (1, 2, 32, 4096, 32, 32)),
    "many keys for few queries": attention("f32", (1, 2, 1, 4096, 32, 32)),
    "f64": attention("f32", SIZES).replace("f32", "f64"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_as_it_is(name: str) -> None:
    module = h2g.parse(LEFT[name])
    assert attend(module) is module


@pytest.mark.parametrize(
    ("dtype", "sizes", "is_one"),
    [
        ("bf16", (16, 8, 1, 512, 64, 64), True),
        ("bf16", (4, 16, 1, 1024, 64, 64), False),  # too few blocks for so much
        ("bf16", (8, 8, 4, 2048, 128, 128), True),  # rows are shared, on tensor cores
        ("bf16", (1, 8, 4, 2048, 128, 128), True),  # so they are by blocks of a cluster
        ("bf16", (1, 8, 4, 32768, 128, 128), False),
        ("f32", (1, 8, 1, 256, 32, 32), True),
        ("f32", (2, 8, 1, 512, 64, 64), False),
    ],
)
def test_few_queries_are_for_one_kernel_where_blocks_are_many_or_read_little(
    dtype: str, sizes: tuple[int, int, int, int, int, int], is_one: bool
) -> None:
    module = h2g.parse(attention(dtype, sizes))
    assert (attend(module) is not module) == is_one


WIDE_FEW = attention("bf16", (1, 16, 8, 8192, 256, 256))
NO_SHARES = attention("bf16", (1, 4, 8, 8192, 64, 64)).replace(
    "  tb = f32[1,4,8,8192] broadcast(total)",
    "  more = f32[1,4,8] add(total, most)\n  tb = f32[1,4,8,8192] broadcast(more)",
)


@pytest.mark.parametrize("text", [WIDE_FEW, NO_SHARES])
def test_scores_that_have_to_be_held_fit_a_block(text: str) -> None:
    for target, figures in FIGURES.items():
        sources = kernels_of(h2g.plan(text, target=target)).values()
        assert all(source.shared_bytes <= figures.shared for source in sources)


def test_what_only_moves_queries_comes_in_and_other_work_stays() -> None:
    text = FUSED["bf16"].replace(
        "q = bf16[1,20,2,40] parameter(0)",
        "q0 = bf16[1,20,2,80] parameter(0) q1 = bf16[1,20,2,80] tanh(q0) "
        "q = bf16[1,20,2,40] slice(q1), slice={[0:1], [0:20], [0:2], [40:80]}",
    )
    module = attend(h2g.parse(text))
    opcodes = [i.opcode for i in module.entry.instructions]
    assert "tanh" in opcodes
    assert "fusion" in opcodes
    fused = next(c for c in module.computations.values() if c.name.startswith("fused_"))
    assert "slice" in {i.opcode for i in fused.instructions}
    assert h2g.parse(format_module(module))


def test_neighbours_are_read_at_once_whichever_part_of_an_array_they_are() -> None:
    text = attention("bf16", (1, 2, 32, 64, 64, 64))
    for number, name in enumerate("qkv"):
        length = 32 if name == "q" else 64
        part = f"slice(x), slice={{[0:1], [0:{length}], [{number}:{number + 1}], [0:2], [0:64]}}"
        text = text.replace(
            f"{name} = bf16[1,{length},2,64] parameter({number})",
            f"{name}p = bf16[1,{length},1,2,64] {part} "
            f"{name} = bf16[1,{length},2,64] reshape({name}p)",
        )
    text = text.replace("ENTRY e {", "ENTRY e { x = bf16[1,64,3,2,64] parameter(0)")
    [source] = kernels_of(h2g.plan(text, target="sm_90")).values()
    ptx = compile_ptx(unit_text([source.text]), "sm_90")
    assert ptx.count("ld.global.v4.u32") >= 16  # a chunk's keys and values


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("bf16", (4, 8, 128, 128, 64, 64)),
        ("bf16", (2, 8, 1024, 1024, 128, 128)),
        ("f32", (2, 8, 1024, 1024, 64, 64)),
    ],
)
def test_no_registers_are_spilt(dtype: str, sizes: tuple[int, int, int, int, int, int]) -> None:
    plan = h2g.plan(attention(dtype, sizes), target="sm_90")
    [source] = kernels_of(plan).values()
    assert spilt(source.text, "sm_90") == 0


def test_why_tells_what_attention_is_made_of() -> None:
    text = attention("bf16", (1, 2, 20, 100, 40, 40), root="n = bf16[1,2,20,40] sine(o)")
    [made] = why(text, target="sm_90").decisions
    [kernel] = (k for k in made.together if k.form == ATTENTION)
    members = {m.name: m.why for m in kernel.members}
    assert members["s"] == SCORES
    assert members["most"] == members["p"] == WEIGHTS
    assert members["g"] == MADE
    assert members["o"] == RESULT
    assert ATTENDED in {pair.why for pair in made.apart}
