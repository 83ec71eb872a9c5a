"""Running folds over rows of all lengths, forwards and backwards, few and many side by side."""

from __future__ import annotations

import pytest
from agreement import module, scalar_region
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import FLAT, choose_for

LENGTHS = (64, 65, 256, 2048, 2053, 4100)
# Composes a * x + b: associative, but not commutative.
AFFINE = """fold {
  a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ac = s32[] multiply(a, c) bc = s32[] multiply(b, c) e = s32[] add(bc, d)
  ROOT r = (s32[], s32[]) tuple(ac, e)
}
"""


def pads(dims: tuple[int, ...], along: int, backwards: bool) -> str:
    """Return the window of a running fold."""
    sizes = "x".join(str(n if d == along else 1) for d, n in enumerate(dims))
    edge = f"0_{dims[along] - 1}" if backwards else f"{dims[along] - 1}_0"
    edges = "x".join(edge if d == along else "0_0" for d in range(len(dims)))
    return f"window={{size={sizes} pad={edges}}}, to_apply=fold"


def running(dtype: str, dims: tuple[int, ...], along: int, backwards: bool, order: str = "") -> str:
    shape = f"{dtype}[{','.join(map(str, dims))}]{order}"
    return module(
        f"x = {shape} parameter(0) z = {dtype}[] constant(0) n = {shape} negate(x) "
        f"s = {shape} reduce-window(n, z), {pads(dims, along, backwards)} "
        f"ROOT r = {shape} add(s, x)",
        scalar_region("fold", "add", dtype),
    )


def composed(dims: tuple[int, ...], along: int, backwards: bool) -> str:
    shape = f"s32[{','.join(map(str, dims))}]"
    return module(
        f"x = {shape} parameter(0) y = {shape} parameter(1) one = s32[] constant(1) "
        f"z = s32[] constant(0) ROOT r = ({shape}, {shape}) reduce-window(x, y, one, z), "
        f"{pads(dims, along, backwards)}",
        AFFINE,
    )


def programs():
    for backwards in (False, True):
        for length in LENGTHS:
            yield running("f32", (3, length), 1, backwards)
            yield composed((2, length), 1, backwards)
        yield running("f32", (70, 130), 0, backwards)
        yield running("bf16", (70, 9, 30), 0, backwards)
        yield running("f64", (5, 300, 7), 1, backwards)
        yield running("f32", (300, 70), 0, backwards, "{0,1}")
        yield composed((99, 40), 0, backwards)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("many", [False, True])
def test_running_folds_agree_with_the_host(monkeypatch, many):
    if many:
        choose_for(FLAT, monkeypatch)
    fuse = "none" if many else "default"
    plans = [hlo2graph.plan(text, target="sm_90", fuse=fuse) for text in programs()]
    kernels = Kernels(plans)
    texts = [s.text for plan in plans for s in kernels_of(plan).values()]
    assert any("lane % 16]" in text for text in texts) != many  # where blocks are few, or 32
    for plan in plans:
        agree_with_the_host(plan, kernels)
