"""Loops whose threads compute several elements that lie side by side: against the host."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest
from agreement import module, scalar_region
from conftest import RUNNABLE
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kernel_programs import PROGRAMS
from needs import needs_gxx
from random_modules import random_module

import hlo2graph
from hlo2graph.backends.cuda import loop, widen
from hlo2graph.backends.cuda.compiler import compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.widen import lanes_for
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import FLAT

DTYPES = ("f32", "bf16", "f16", "f64", "s8", "u16", "s32", "s64", "pred", "f8e4m3fn", "s4", "c64")
ADD = scalar_region("add", "add", "f32")


@pytest.fixture
def always_wide(monkeypatch):
    """Let small arrays have wide loops too."""

    def lanes(signature, results):
        return lanes_for(replace(signature, device=FLAT), results)

    for user in (loop, widen):
        monkeypatch.setattr(user, "lanes_for", lanes)
    monkeypatch.setattr(widen, "holds_all", lambda count, device: False)


def planned(text: str, fuse: str = "none"):
    return hlo2graph.plan(text, target="sm_90", fuse=fuse)


def agree(plans) -> None:
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("fuse", ["none", "default"])
def test_samples_agree_with_the_host(always_wide, fuse):
    drawn = ("random",)  # whose results of `rng` have no certain bits
    paths = [p for p in RUNNABLE if p.suffix == ".hlo" and p.stem not in drawn]
    plans = [planned(p.read_text(), fuse) for p in paths]
    assert sum("first + 1" in s.text for p in plans for s in kernels_of(p).values()) > 20
    agree(plans)


@pytest.mark.slow
@needs_gxx
def test_edge_cases_agree_with_the_host(always_wide):
    agree([planned(text) for text in PROGRAMS.values()])


@pytest.mark.slow
@needs_gxx
def test_random_modules_agree_with_the_host(always_wide):
    agree([planned(random_module(Random(seed), 20), "default") for seed in range(100, 120)])


@st.composite
def shuffled(draw) -> str:
    """Return a fusion that moves elements about: what may stay merged, and what may not."""
    dtype = draw(st.sampled_from(DTYPES))
    dims = draw(st.lists(st.sampled_from((1, 2, 3, 4, 7, 8, 12, 16, 33)), min_size=1, max_size=3))
    lines = [f"x = {_shape(draw, dtype, dims)} parameter(0)", f"z = {dtype}[] parameter(1)"]
    lines.append(f"row = {dtype}[{dims[-1]}] parameter(2)")
    value = "x"
    for step in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(list(_MOVES)))
        call, dims = _MOVES[kind](draw, value, dims)
        value = f"v{step}"
        lines.append(f"{value} = {_shape(draw, dtype, dims)} {call}")
    lines[-1] = f"ROOT {lines[-1]}"
    inner = "f { " + "\n".join(lines) + " }"
    first, second, third = (line.partition(" = ")[2].split(" ")[0] for line in lines[:3])
    return module(
        f"x = {first} parameter(0) z = {second} parameter(1) row = {third} parameter(2) "
        f"ROOT r = {lines[-1].partition(' = ')[2].split(' ')[0]} fusion(x, z, row), kind=kLoop, "
        "calls=f",
        inner,
    )


def _shape(draw, dtype: str, dims: list[int]) -> str:
    order = draw(st.permutations(range(len(dims)))) if draw(st.booleans()) else None
    layout = "" if order is None else "{" + ",".join(map(str, order)) + "}"
    return f"{dtype}[{','.join(map(str, dims))}]{layout}"


def _pad(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    edges = [draw(st.sampled_from(((0, 0), (4, 0), (1, 2), (0, 16), (-1, 4)))) for _ in dims]
    text = "x".join(f"{low}_{high}" for low, high in edges)
    return f"pad({value}, z), padding={text}", [
        n + low + high for n, (low, high) in zip(dims, edges, strict=True)
    ]


def _slice(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    cuts = []
    for n in dims:
        start = draw(st.integers(0, n - 1))
        cuts.append((start, draw(st.integers(start + 1, n)), draw(st.sampled_from((1, 1, 2)))))
    text = ", ".join(f"[{start}:{end}:{step}]" for start, end, step in cuts)
    return f"slice({value}), slice={{{text}}}", [-(-(e - s) // t) for s, e, t in cuts]


def _concatenate(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    along = draw(st.integers(0, len(dims) - 1))
    count = draw(st.integers(2, 3))
    wide = [n * count if d == along else n for d, n in enumerate(dims)]
    return f"concatenate({', '.join([value] * count)}), dimensions={{{along}}}", wide


def _transpose(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    order = draw(st.permutations(range(len(dims))))
    turned = [dims[d] for d in order]
    return f"transpose({value}), dimensions={{{','.join(map(str, order))}}}", turned


def _reverse(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    turned = draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))
    return f"reverse({value}), dimensions={{{','.join(map(str, turned))}}}", dims


def _reshape(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    if len(dims) > 1 and draw(st.booleans()):
        return f"reshape({value})", [dims[0] * dims[1], *dims[2:]]
    split = [[4, n // 4] if n % 4 == 0 else [n, 1] for n in dims]
    return f"reshape({value})", [n for part in split[:1] for n in part] + dims[1:]


def _broadcast(draw, value: str, dims: list[int]) -> tuple[str, list[int]]:
    size = draw(st.sampled_from((1, 3, 4, 16)))
    at = draw(st.integers(0, len(dims)))
    kept = [d for d in range(len(dims) + 1) if d != at]
    wide = [*dims[:at], size, *dims[at:]]
    return f"broadcast({value}), dimensions={{{','.join(map(str, kept))}}}", wide


_MOVES = {
    "pad": _pad,
    "slice": _slice,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "reverse": _reverse,
    "reshape": _reshape,
    "broadcast": _broadcast,
}


@pytest.mark.slow
@needs_gxx
def test_moved_elements_agree_with_the_host(always_wide):
    @settings(max_examples=6, phases=(Phase.generate,))  # each one is compiled
    @given(st.lists(shuffled(), min_size=8, max_size=8))
    def check(texts):
        plans = [planned(text) for text in texts]
        kernels = Kernels(plans)
        for plan in plans:
            arguments = random_inputs(plan.inputs, 0)
            got = EmulatedExecutable(plan, kernels)(*arguments)
            assert same_bits(got, HostExecutable(plan)(*arguments)), str(plan)

    check()


MERGED = {  # programs of large arrays, and the accesses that their loop is to make
    "add": (
        "x = f32[4097,1025] parameter(0) y = f32[4097,1025] parameter(1) "
        "ROOT r = f32[4097,1025] add(x, y)",
        ["ld.v4.f32", "ld.v4.f32", "st.v4.f32"],
    ),
    "rows turned": (
        "x = f32[64,128,100] parameter(0) "
        "ROOT r = f32[128,64,100] transpose(x), dimensions={1,0,2}",
        ["ld.v4.f32", "st.v4.f32"],
    ),
    "narrow": (
        "x = bf16[4097,1000] parameter(0) ROOT r = bf16[4097,1000] negate(x)",
        ["ld.v4.u32", "st.v4.u32"],
    ),
    "half": (
        "x = f16[4097,1000] parameter(0) ROOT r = f16[4097,1000] negate(x)",
        ["ld.v4.u32", "st.v4.u32"],
    ),
    "quarter": (
        "x = f8e4m3fn[4097,1008] parameter(0) ROOT r = f8e4m3fn[4097,1008] negate(x)",
        ["ld.v4.u32", "st.v4.u32"],
    ),
    "bits": (
        "x = s4[4097,1008] parameter(0) ROOT r = s4[4097,1008] negate(x)",
        ["ld.v4.u32", "st.v4.u32"],
    ),
    "bytes": (
        "x = u8[4097,1008] parameter(0) ROOT r = u8[4097,1008] not(x)",
        ["ld.v4.u32", "st.v4.u32"],
    ),
    "wider": (
        "x = bf16[4097,1000] parameter(0) ROOT r = f32[4097,1000] convert(x)",
        ["ld.v4.u16", "st.v4.u32"],
    ),
    "much wider": (
        "x = u8[4097,1000] parameter(0) ROOT r = f32[4097,1000] convert(x)",
        ["ld.v4.u8", "st.v4.f32"],
    ),
    "joined at whole lanes": (
        "x = f32[4096,100] parameter(0) y = f32[4096,1000] parameter(1) "
        "ROOT r = f32[4096,1100] concatenate(x, y), dimensions={1}",
        ["ld.v4.f32", "ld.v4.f32", "st.v4.f32"],
    ),
    "gathered rows": (
        "x = f32[1000,128] parameter(0) i = s32[30000] parameter(1) "
        "ROOT r = f32[30000,128] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,128}",
        ["ld.u32", "ld.v4.f32", "st.v4.f32"],
    ),
    "small": ("x = f32[999] parameter(0) ROOT r = f32[999] negate(x)", ["ld.f32", "st.f32"]),
}


def accesses(plan) -> list[str]:
    (source,) = kernels_of(plan).values()
    pytest.importorskip("cuda.bindings.nvrtc")
    ptx = compile_ptx(unit_text([source.text]), "sm_90")
    return [f"{a}.{b}" for a, b in re.findall(r"\b(ld|st)\.global\.(\S+)", ptx)]


@pytest.mark.parametrize("name", MERGED)
def test_accesses_merge(name):
    body, wanted = MERGED[name]
    found = accesses(planned(module(body)))
    assert found[: len(wanted)] == wanted


def test_what_lies_askew_does_not_merge():
    plan = planned(module("x = f32[1000000] parameter(0) ROOT r = f32[1000000] negate(x)"))
    text = (
        str(plan)
        .replace("0[0:4000000]", "0[4:4000004]")
        .replace("allocation 0: 4000000", "allocation 0: 4000004")
    )
    moved = hlo2graph.plan(text)
    (key,) = kernels_of(moved)
    assert key.misaligned == {"p0"}
    (source,) = kernels_of(moved).values()
    assert "aligned(p0" not in source.text


def test_branches_part_only_where_lanes_do():
    def lanes(edge: int) -> list[str]:
        body = [
            "  const int i1 = first % 1100;",
            "  hlo::f32 m2 = {};",
            f"  if (i1 < {edge}) {{",
            "    const hlo::f32 v3 = hlo::load(p0[first]);",
            "    m2 = v3;",
            "  }",
            "  r0[first] = hlo::Store<hlo::f32>::of(m2);",
        ]
        return Lanes(body, "first", 4).lines

    assert sum("if (" in line for line in lanes(100)) == 1
    assert sum("if (" in line for line in lanes(101)) == 4


@pytest.mark.parametrize(
    ("count", "call", "blocks"),
    [(130_000, "negate", 508), (250_000, "negate", 245), (250_000, "reverse", 977)],
)
def test_small_arrays_have_few_blocks_where_accesses_merge(count, call, blocks):
    """A device full of threads of one element each starts slower than a part of it."""
    dims = ", dimensions={0}" if call == "reverse" else ""
    text = module(f"x = f32[{count}] parameter(0) ROOT r = f32[{count}] {call}(x){dims}")
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert source.grid == (blocks, 1, 1)
