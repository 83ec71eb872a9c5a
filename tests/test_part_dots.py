"""Products that are cut into parts which meet again: one kernel of all parts, by every form."""

from __future__ import annotations

import re

import pytest
from agreement import module
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.ops.region import Own, region_of
from hlo2graph.passes.part_dots import part_dots
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def lstm(rows: int, width: int, depth: int, dtype: str = "f32") -> str:
    """Return a cell of an LSTM: two products, a bias, four gates."""
    gates = f"{dtype}[{rows},{4 * width}]"
    part = f"{dtype}[{rows},{width}]"
    cuts = "\n".join(
        f"cut{k} = {part} slice(z), slice={{[0:{rows}], [{k * width}:{(k + 1) * width}]}}"
        for k in range(4)
    )
    return module(f"""
        x = {dtype}[{rows},{depth}] parameter(0)
        h = {part} parameter(1)
        c = {part} parameter(2)
        k = {dtype}[{depth},{4 * width}] parameter(3)
        r = {dtype}[{width},{4 * width}] parameter(4)
        bias = {dtype}[{4 * width}] parameter(5)
        xk = {gates} dot(x, k), {PLAIN}
        hr = {gates} dot(h, r), {PLAIN}
        both = {gates} add(xk, hr)
        b = {gates} broadcast(bias), dimensions={{1}}
        z = {gates} add(both, b)
        {cuts}
        i = {part} logistic(cut0)
        f = {part} logistic(cut1)
        g = {part} tanh(cut2)
        o = {part} logistic(cut3)
        fc = {part} multiply(f, c)
        ig = {part} multiply(i, g)
        next = {part} add(fc, ig)
        t = {part} tanh(next)
        out = {part} multiply(o, t)
        ROOT both_out = ({part}, {part}) tuple(next, out)""")


def gated(rows: int, width: int, depth: int, dtype: str) -> str:
    """Return two products of one array, one of which gates the other."""
    part = f"{dtype}[{rows},{width}]"
    return module(f"""
        x = {dtype}[{rows},{depth}] parameter(0)
        up = {dtype}[{depth},{width}] parameter(1)
        gate = {dtype}[{depth},{width}] parameter(2)
        u = {part} dot(x, up), {PLAIN}
        g = {part} dot(x, gate), {PLAIN}
        s = {part} logistic(g)
        ROOT r = {part} multiply(u, s)""")


GRU = module(f"""
    x = f32[24,40] parameter(0) h = f32[24,32] parameter(1)
    k = f32[40,96] parameter(2) r = f32[32,96] parameter(3)
    xk = f32[24,96] dot(x, k), {PLAIN}
    hr = f32[24,96] dot(h, r), {PLAIN}
    xr = f32[24,32] slice(xk), slice={{[0:24], [0:32]}}
    xz = f32[24,32] slice(xk), slice={{[0:24], [32:64]}}
    xn = f32[24,32] slice(xk), slice={{[0:24], [64:96]}}
    nr = f32[24,32] slice(hr), slice={{[0:24], [0:32]}}
    nz = f32[24,32] slice(hr), slice={{[0:24], [32:64]}}
    nn = f32[24,32] slice(hr), slice={{[0:24], [64:96]}}
    ra = f32[24,32] add(xr, nr) reset = f32[24,32] logistic(ra)
    za = f32[24,32] add(xz, nz) update = f32[24,32] logistic(za)
    gated = f32[24,32] multiply(reset, nn)
    na = f32[24,32] add(xn, gated) new = f32[24,32] tanh(na)
    less = f32[24,32] subtract(h, new) kept = f32[24,32] multiply(update, less)
    ROOT out = f32[24,32] add(new, kept)""")

ROWS = module(f"""
    a = f32[96,64] parameter(0) b = f32[64,40] parameter(1)
    d = f32[96,40] dot(a, b), {PLAIN}
    top = f32[48,40] slice(d), slice={{[0:48], [0:40]}}
    low = f32[48,40] slice(d), slice={{[48:96], [0:40]}}
    ROOT r = f32[48,40] multiply(top, low)""")

TURNED = module("""
    x = bf16[3,6,72] parameter(0) w = bf16[3,80,72]{1,2,0} parameter(1)
    d = bf16[3,6,80] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
      lhs_contracting_dims={2}, rhs_contracting_dims={2}
    left = bf16[3,6,40] slice(d), slice={[0:3], [0:6], [0:40]}
    right = bf16[3,6,40] slice(d), slice={[0:3], [0:6], [40:80]}
    gate = bf16[3,6,40] logistic(left)
    ROOT r = bf16[3,6,40] multiply(gate, right)""")


EXACTLY = ("lstm-that-fills-no-tile", "gathered", "gathered-of-many", "gathered-of-many-in-place")


def gathered(rows: int, width: int, depth: int, dtype: str = "f32", alias: str = "") -> str:
    """Return a round of a loop that keeps what each round makes, and counts."""
    text = module(f"""
        x = {dtype}[{rows},{depth}] parameter(0)
        w = {dtype}[{depth},{width}] parameter(1)
        kept = {dtype}[7,{rows},{width}] parameter(2)
        at = s32[] parameter(3)
        zero = s32[] constant(0)
        one = s32[] constant(1)
        d = {dtype}[{rows},{width}] dot(x, w), {PLAIN}
        e = {dtype}[{rows},{width}] tanh(d)
        row = {dtype}[1,{rows},{width}] reshape(e)
        all = {dtype}[7,{rows},{width}] dynamic-update-slice(kept, row, at, zero, zero)
        next = s32[] add(at, one)
        ROOT r = ({dtype}[{rows},{width}], {dtype}[7,{rows},{width}], s32[]) tuple(e, all, next)""")
    return text.replace("HloModule m", f"HloModule m{alias}")


def as_written(text: str) -> str:
    """Return a module that is written as one fusion, and donates nothing."""
    head, _, body = text.partition("ENTRY e {")
    given = re.findall(r"(\w+) = (\S+) parameter\((\d)\)", body)
    result = re.search(r"ROOT r = (\(.*?\)) tuple", body)[1]
    names = ", ".join(name for name, _, _ in given)
    lines = "\n".join(f"{name} = {shape} parameter({k})" for name, shape, k in given)
    call = f"ROOT fused = {result} fusion({names}), kind=kOutput, calls=inner"
    return f"{head}inner {{{body}\nENTRY e {{\n{lines}\n{call}\n}}"


ALIAS = ", input_output_alias={ {1}: (2, {}, must-alias) }"
GATHERED = {
    "gathered": as_written(gathered(8, 40, 70)),
    "gathered-in-place": gathered(8, 40, 70, alias=ALIAS),
    "gathered-of-few-rows": as_written(gathered(2, 72, 96)),
    "gathered-of-few-rows-in-place": gathered(2, 72, 96, "bf16", ALIAS),
    "gathered-of-many": as_written(gathered(36, 40, 40)),
    "gathered-of-many-in-place": gathered(36, 40, 40, alias=ALIAS),
}
PROGRAMS = {
    "lstm": lstm(8, 64, 96),
    "lstm-that-fills-no-tile": lstm(5, 40, 37),
    "lstm-of-one-row": lstm(1, 64, 64),
    "lstm-bf16": lstm(8, 64, 64, "bf16"),
    "gru": GRU,
    "gated-of-few-rows": gated(2, 256, 64, "f32"),
    "gated": gated(24, 48, 300, "bf16"),
    "parts-of-rows": ROWS,
    "turned": TURNED,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_parts_are_made_by_one_kernel(name):
    plan = h2g.plan(PROGRAMS[name], target="sm_90")
    [thunk] = plan.body.thunks
    found = region_of(plan.computations[thunk.computation])
    assert isinstance(found, Own)
    assert found.others


@pytest.mark.parametrize("name", GATHERED)
def test_a_product_takes_in_what_a_loop_keeps_of_it(name):
    plan = h2g.plan(GATHERED[name], target="sm_90")
    [thunk] = plan.body.thunks
    found = region_of(plan.computations[thunk.computation])
    assert isinstance(found, Own)
    assert len(found.updates) == 1


def test_a_product_copies_no_argument():
    plan = h2g.plan(gathered(8, 40, 70), target="sm_90")
    regions = [region_of(plan.computations[thunk.computation]) for thunk in plan.body.thunks]
    assert [isinstance(found, Own) for found in regions] == [True, False]


def test_an_update_at_a_place_that_the_product_gives_is_another_kernels():
    text = gathered(8, 40, 70, alias=ALIAS).replace("(kept, row, at,", "(kept, row, place,")
    place = """corner = f32[1,1] slice(e), slice={[0:1], [0:1]}
        point = f32[] reshape(corner)
        place = s32[] convert(point)
        row ="""
    plan = h2g.plan(text.replace("row =", place), target="sm_90")
    regions = [region_of(plan.computations[thunk.computation]) for thunk in plan.body.thunks]
    assert not any(isinstance(found, Own) and found.updates for found in regions)


@pytest.mark.parametrize(
    ("name", "products"),
    [("lstm", 2), ("lstm-bf16", 2), ("gru", 2), ("parts-of-rows", 1)],
)
def test_gates_of_few_rows_share_tiles(name, products):
    plan = h2g.plan(PROGRAMS[name], target="sm_90")
    [source] = kernels_of(plan).values()
    assert source.text.count("hlo::mma") == products  # not one for each gate
    assert source.grid[0] >= 20


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("precise", [False, True])
def test_parts_agree_with_the_host(precise):
    texts = PROGRAMS | GATHERED
    if precise:
        texts = {name: texts[name] for name in EXACTLY}
    plans = {name: h2g.plan(text, target="sm_90") for name, text in texts.items()}
    kernels = Kernels(list(plans.values()), precise=precise)
    for name, plan in plans.items():
        host = h2g.plan(texts[name], target="host")
        agree_with_the_host(plan, kernels, host, tf32=not precise)


def part(body: str) -> bool:
    before = h2g.parse(module(body))
    return part_dots(before) is not before


CUT = f"""a = f32[8,64] parameter(0) b = f32[64,64] parameter(1)
    d = f32[8,64] dot(a, b), {PLAIN}
    p = f32[8,32] slice(d), slice={{[0:8], [0:32]}}
    q = f32[8,32] slice(d), slice={{[0:8], [32:64]}}
"""


def test_parts_that_never_meet_are_one_product():
    assert part(CUT + "ROOT r = f32[8,32] multiply(p, q)")
    assert not part(CUT + "ROOT r = (f32[8,32], f32[8,32]) tuple(p, q)")
    turned = "t = f32[32,8] transpose(q), dimensions={1,0} "
    assert not part(CUT + turned + f"ROOT r = f32[8,8] dot(p, t), {PLAIN}")


def test_what_is_also_looked_at_as_a_whole_is_not_parted():
    assert not part(
        CUT + "m = f32[8,32] multiply(p, q) ROOT r = (f32[8,32], f32[8,64]) tuple(m, d)"
    )


def test_parts_that_overlap_are_not_computed_twice():
    assert not part(CUT.replace("[32:64]", "[31:63]") + "ROOT r = f32[8,32] multiply(p, q)")


def test_products_of_a_library_are_not_parted():
    large = CUT.replace("64", "4096").replace("[0:32]", "[0:2048]").replace("[32:", "[2048:")
    large = (
        large.replace("f32[8,32]", "f32[8,2048]").replace("8,", "512,").replace("0:8]", "0:512]")
    )
    assert not part(large + "ROOT r = f32[512,2048] multiply(p, q)")


def test_a_long_chain_before_the_cut_is_no_trouble():
    before = ["d", *(f"n{k}" for k in range(4000))]
    chain = "\n".join(f"n{k} = f32[8,64] negate({before[k]})" for k in range(4000))
    body = CUT.replace("p = ", chain + "\np = ").replace("slice(d)", "slice(n3999)")
    assert not part(body + "ROOT r = f32[8,32] multiply(p, q)")


def test_what_is_looked_at_twice_is_parted_once():
    squares = "\n".join(f"n{k + 1} = f32[8,64] multiply(n{k}, n{k})" for k in range(30))
    body = CUT.replace("d = ", "n0 = ").replace("p = ", squares + "\np = ")
    text = module(body.replace("slice(d)", "slice(n30)") + "ROOT r = f32[8,32] multiply(p, q)")
    made = part_dots(h2g.parse(text))
    assert sum(i.opcode == "dot" for i in made.entry.instructions) == 2
