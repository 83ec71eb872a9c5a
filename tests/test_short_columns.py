"""Columns of few steps: more results side by side in a block, and fewer slices of each."""

from __future__ import annotations

import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.device_figures import FIGURES
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import planned


def summed(dtype: str, dims: tuple[int, ...], along: tuple[int, ...]) -> str:
    kept = ",".join(str(n) for d, n in enumerate(dims) if d not in along)
    whole, reduced = (",".join(map(str, part)) for part in (dims, along))
    return (
        f"HloModule m\nadd {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1)\n"
        f"ROOT r = {dtype}[] add(a, b) }}\n"
        f"ENTRY e {{ x = {dtype}[{whole}] parameter(0) z = {dtype}[] constant(3)\n"
        f"ROOT r = {dtype}[{kept}] reduce(x, z), dimensions={{{reduced}}}, to_apply=add }}\n"
    )


SHORT = {  # and the slices of a block
    "single results": (summed("bf16", (40, 1235), (0,)), 2),
    "middle dimensions": (summed("f32", (31, 7, 11, 13), (1, 2)), 4),
    "pairs of results": (summed("u8", (40, 1234), (0,)), 2),
    "four results": (summed("u8", (33, 2, 402), (0,)), 4),
    "more steps": (summed("f32", (301, 333), (0,)), 8),
}


@pytest.fixture(scope="module")
def plans():
    with planned({name: text for name, (text, _) in SHORT.items()}) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", SHORT)
def test_short_columns_agree_with_the_host(plans, name):
    found, kernels = plans
    (source,) = kernels_of(found[name]).values()
    lanes = source.threads // SHORT[name][1]
    assert f"slice = threadIdx.x / {lanes};" in source.text
    agree_with_the_host(found[name], kernels)


@needs_gxx
@pytest.mark.parametrize(("wide", "zero"), [("f64", "0"), ("c64", "(0, 0)")])
def test_neighbours_of_narrow_and_wide_elements_have_a_thread(wide, zero):
    text = f"""HloModule m
add {{ a = {wide}[] parameter(0) b = {wide}[] parameter(1) ROOT r = {wide}[] add(a, b) }}
ENTRY e {{ x = {wide}[64,96] parameter(0) y = f16[64,96] parameter(1) z = {wide}[] constant({zero})
  c = {wide}[64,96] convert(y) m = {wide}[64,96] multiply(x, c)
  ROOT r = {wide}[96] reduce(m, z), dimensions={{0}}, to_apply=add }}
"""
    with planned({"mixed": text}, FIGURES["sm_90"]) as (found, kernels):
        agree_with_the_host(found["mixed"], kernels)
