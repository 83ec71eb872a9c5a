"""Loops that read around an element, in blocks that are patches of rows: against the host."""

from __future__ import annotations

import pytest
from agreement import module
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from tests.emulation import EmulatedExecutable, Kernels

MOST = "most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }"


def stencil(rows: int, row: int) -> str:
    """Return the sum of the neighbours above, below and beside, with the edges as they were."""
    inner = f"f32[{rows - 2},{row - 2}]"
    parts = {"up": (0, 1), "down": (2, 1), "left": (1, 0), "right": (1, 2)}
    lines = [
        f"{name} = {inner} slice(x), slice={{[{y}:{y + rows - 2}], [{x}:{x + row - 2}]}}"
        for name, (y, x) in parts.items()
    ]
    return module(
        "\n".join(
            [
                f"x = f32[{rows},{row}] parameter(0)",
                *lines,
                f"above = {inner} add(up, down)",
                f"beside = {inner} add(left, right)",
                f"around = {inner} add(above, beside)",
                "z = f32[] constant(1)",
                f"ROOT r = f32[{rows},{row}] pad(around, z), padding=1_1x1_1",
            ]
        )
    )


def windows(rows: int, row: int) -> str:
    """Return the largest of 3 by 3 elements, with several dimensions for rows."""
    shape = f"f32[3,{rows},{row}]"
    call = "reduce-window(x, z), window={size=1x3x3 pad=0_0x1_1x1_1}, to_apply=most"
    return module(f"x = {shape} parameter(0) z = f32[] constant(-9) ROOT r = {shape} {call}", MOST)


def shifted(rows: int, row: int) -> str:
    """Return what reads one element for each."""
    shape = f"f32[{rows},{row}]"
    return module(
        f"x = {shape} parameter(0) a = f32[1,{row}] slice(x), slice={{[0:1], [0:{row}]}} "
        f"b = f32[{rows - 1},{row}] slice(x), slice={{[1:{rows}], [0:{row}]}} "
        f"ROOT r = {shape} concatenate(b, a), dimensions={{0}}"
    )


PROGRAMS = {
    "a stencil": (stencil(220, 192), True),
    "a stencil of odd sides": (stencil(263, 133), True),
    "windows": (windows(100, 131), True),
    "a shift": (shifted(220, 192), False),
    "few elements": (stencil(60, 192), False),
    "short rows": (stencil(2000, 20), False),
}


@needs_gxx
def test_results_agree_with_the_host():
    plans = {n: hlo2graph.plan(t, target="sm_90") for n, (t, _) in PROGRAMS.items()}
    kernels = Kernels(list(plans.values()))
    for name, plan in plans.items():
        arguments = random_inputs(plan.inputs, 0)
        got = EmulatedExecutable(plan, kernels)(*arguments)
        assert same_bits(got, HostExecutable(plan)(*arguments)), name


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_loops_take_patches(name):
    text, patched = PROGRAMS[name]
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert ("const int y" in source.text) == patched
    assert (source.threads > 256) == patched
