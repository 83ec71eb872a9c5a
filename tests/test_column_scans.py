"""The scan form: what accumulates, along rows and across them, in emulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.passes.large.split_scans import split_scans
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host

LOGS = """big = f32[] maximum(a, b)
away = f32[] subtract(a, b)
size = f32[] abs(away)
less = f32[] negate(size)
part = f32[] exponential(less)
more = f32[] log-plus-one(part)
ROOT r = f32[] add(big, more)"""


def scan(
    dtype: str, dims: tuple[int, ...], along: int, opcode: str, *, backwards: bool = False
) -> str:
    """Return what accumulates along one dimension."""
    far = dims[along] - 1
    size = "x".join(str(n if d == along else 1) for d, n in enumerate(dims))
    pad = "x".join(
        ("0_0" if d != along else f"0_{far}" if backwards else f"{far}_0") for d in range(len(dims))
    )
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    body = LOGS if opcode == "logs" else f"ROOT r = {dtype}[] {opcode}(a, b)"
    init = {"multiply": "1", "maximum": "-inf" if dtype[0] in "bf" else "-9", "logs": "-inf"}
    return f"""HloModule m
region {{
a = {dtype}[] parameter(0)
b = {dtype}[] parameter(1)
{body}
}}
ENTRY e {{
x = {shape} parameter(0)
z = {dtype}[] constant({init.get(opcode, "(0, 0)" if dtype[0] == "c" else "0")})
ROOT r = {shape} reduce-window(x, z), window={{size={size} pad={pad}}}, to_apply=region
}}
"""


PROGRAMS = {
    "down odd columns": scan("f32", (300, 37), 0, "add"),
    "down many tiles": scan("f32", (2100, 9), 0, "add"),
    "up": scan("f32", (1100, 41), 0, "add", backwards=True),
    "down few": scan("f32", (700, 3), 0, "maximum"),
    "down short": scan("f32", (70, 100), 0, "multiply"),
    "down wide": scan("f32", (130, 9000), 0, "add"),
    "middle": scan("f32", (5, 200, 33), 1, "add"),
    "middle, few near": scan("s32", (40, 130, 3), 1, "add", backwards=True),
    "bf16 down": scan("bf16", (300, 70), 0, "maximum"),
    "bf16 sums down": scan("bf16", (90, 70), 0, "add"),
    "s32 down": scan("s32", (1000, 66), 0, "add"),
    "u8 down": scan("u8", (500, 45), 0, "add"),
    "f64 down": scan("f64", (500, 21), 0, "add"),
    "logs down": scan("f32", (400, 19), 0, "logs"),
    "rows": scan("f32", (7, 5000), 1, "add"),
    "odd rows": scan("f32", (7, 777), 1, "add", backwards=True),
}


@pytest.fixture(scope="module")
def plans():
    found = {name: h2g.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return found, Kernels(list(found.values()))


@pytest.mark.parametrize("name", PROGRAMS)
@needs_gxx
def test_it_agrees_with_the_host(plans, name):
    found, kernels = plans
    agree_with_the_host(found[name], kernels)


IN_PARTS = {
    "few columns": scan("f32", (20000, 6), 0, "add"),
    "few columns up": scan("f32", (20000, 5), 0, "maximum", backwards=True),
    "prime": scan("f32", (16411, 3), 0, "add"),
    "one row": scan("f32", (40000,), 0, "add"),
    "one row back": scan("s32", (3, 32500), 1, "add", backwards=True),
    "bf16": scan("bf16", (2, 20480), 1, "maximum", backwards=True),
    "bf16 sums": scan("bf16", (20480, 5), 0, "add"),
    "f8 up": scan("f8e4m3fn", (16411, 3), 0, "maximum", backwards=True).replace("-inf", "-448"),
}


@pytest.mark.parametrize("name", IN_PARTS)
@needs_gxx
def test_parts_agree(name):
    plan = h2g.plan(IN_PARTS[name], target="sm_90")
    assert len(kernels_of(plan)) > 1
    agree_with_the_host(plan, Kernels([plan]), h2g.plan(IN_PARTS[name], target="host"))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("backwards", [False, True])
@needs_gxx
def test_sums_in_parts_are_rounded_once(dtype, backwards):
    plan = h2g.plan(scan(dtype, (30000,), 0, "add", backwards=backwards), target="sm_90")
    assert len(kernels_of(plan)) > 1
    kind = np.dtype(plan.inputs[0].shape.dtype.numpy)
    given = np.random.default_rng(0).uniform(0.5, 1.5, 30000).astype(kind)
    (got,) = EmulatedExecutable(plan, Kernels([plan]))(given)
    turned = slice(None, None, -1 if backwards else 1)
    exact = np.cumsum(given[turned].astype(np.float64))[turned]
    rounding = float(ml_dtypes.finfo(kind).eps) / 2 + 1e-5  # and those of some float32 sums
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=rounding)


def reads(made: str) -> str:
    """Return running sums along rows of c, which is made of x."""
    text = scan("f32", (70, 300), 1, "add").replace("reduce-window(x", "reduce-window(c")
    return text.replace("x = f32[70,300] parameter(0)", made)


@needs_gxx
def test_what_accumulates_is_made_where_it_is_read():
    made = "x = bf16[70,300] parameter(0)\nc = f32[70,300] convert(x)"
    plan = h2g.plan(reads(made), target="sm_90")
    assert len(kernels_of(plan)) == 1
    agree_with_the_host(plan, Kernels([plan]))


def test_what_lies_across_is_turned_before_it_accumulates():
    made = "x = f32[300,70] parameter(0)\nc = f32[70,300] transpose(x), dimensions={1,0}"
    assert len(kernels_of(h2g.plan(reads(made), target="sm_90"))) == 2


MEASURED = [  # which way took less time, or as much, on an H200
    ("f32", (69861, 1501), 0, False),
    ("f32", (13968, 1201), 0, False),
    ("f32", (49152, 1024), 0, False),
    ("bf16", (11178, 3001), 0, False),
    ("bf16", (11178, 3000), 0, False),
    ("f64", (11178, 751), 0, False),
    ("f32", (8192, 512), 0, False),
    ("f32", (65536, 256), 0, True),
    ("f32", (8192, 32), 0, True),
    ("f32", (64, 262144), 1, True),
    ("f32", (100, 163840), 1, True),
    ("f32", (400, 40960), 1, False),
    ("f32", (1 << 24,), 0, True),
    ("f32", (65536,), 0, True),
    ("f32", (16384,), 0, True),
]


@pytest.mark.parametrize("case", MEASURED, ids=str)
def test_parts_are_taken_where_they_are_faster(case):
    dtype, dims, along, in_parts = case
    module = h2g.parse(scan(dtype, dims, along, "add"))
    assert (split_scans(module) is not module) == in_parts


BLOCKS = [  # rows, of which blocks take so many side by side
    ("f32", (2000, 1001), 0, 16),  # two sectors, as lines begin anywhere
    ("f32", (2000, 1000), 0, 8),  # one sector
    ("bf16", (2000, 1501), 0, 32),
    ("f64", (2000, 500), 0, 4),
    ("f32", (2000, 2048), 0, 16),  # so that each has a multiprocessor alone
    ("f32", (2000, 40000), 0, 32),  # more than a warp there are not
    ("f32", (3000, 3), 0, 4),
    ("f32", (1000, 2000), 1, 1),  # of elements that follow each other
]


@pytest.mark.parametrize("case", BLOCKS, ids=str)
def test_a_block_takes_rows_side_by_side(case):
    dtype, dims, along, together = case
    [kernel] = kernels_of(h2g.plan(scan(dtype, dims, along, "add"), target="sm_90")).values()
    rows = dims[1 - along]
    assert kernel.grid[0] == -(-rows // together)
    reads_ahead = "hlo::load(p0" in kernel.text.split("for (")[0]
    assert reads_ahead == (together > 1 and kernel.grid[0] <= 132)  # multiprocessors
