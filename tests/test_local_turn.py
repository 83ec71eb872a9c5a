"""Transpositions in pieces that a block holds."""

from __future__ import annotations

import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation.agreement import agree_exactly
from tests.emulation.plans import planned

FIGURES = DeviceFigures(0, 0, 0, 227 << 10)


def turned(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    source = ",".join(map(str, dims))
    result = ",".join(str(dims[d]) for d in order)
    return (
        f"HloModule m\nENTRY e {{\nx = {dtype}[{source}] parameter(0)\n"
        f"ROOT r = {dtype}[{result}] transpose(x), dimensions={{{','.join(map(str, order))}}}\n}}\n"
    )


HEADS = (0, 2, 1, 3)
LOCAL = {
    "odd batches bf16": turned("bf16", (3, 197, 211), (0, 2, 1)),
    "odd batches u8": turned("u8", (2, 151, 203), (0, 2, 1)),
    "heads of 7": turned("bf16", (3, 50, 12, 7), HEADS),
    "heads in pieces, of which the last is smaller": turned("bf16", (2, 499, 12, 7), HEADS),
    "heads of bytes in pieces": turned("u8", (2, 1501, 5, 9), HEADS),
    "rows of words": turned("u8", (2, 1280, 20, 12), HEADS),
    "rows of wide words": turned("bf16", (3, 197, 9, 20), HEADS),
    "short rows of wide elements": turned("f32", (2, 400, 6, 3), HEADS),
    "rows of complex numbers": turned("c64", (2, 400, 6, 3), HEADS),
    "short stretches, of which some are left": turned("u8", (4001, 3, 5), (0, 2, 1)),
    "two dimensions stay": turned("f16", (2, 3, 101, 33), (0, 1, 3, 2)),
    "three dimensions turned": turned("s8", (5, 11, 13, 17), (0, 3, 1, 2)),
    "four in pieces": turned("u8", (2, 700, 3, 5, 7), (0, 3, 2, 1, 4)),
    "dimensions of one": turned("bf16", (3, 1, 197, 1, 211), (0, 1, 4, 3, 2)),
    "the first dimension too": turned("bf16", (331, 45, 33), (1, 0, 2)),
    "large pieces for long runs": turned("u8", (1331, 77, 33), (1, 0, 2)),
}
OTHERS = {
    "whole words": turned("bf16", (3, 196, 212), (0, 2, 1)),
    "wide": turned("f32", (3, 197, 211), (0, 2, 1)),
    "whole accesses": turned("f32", (2, 400, 6, 4), HEADS),
    "long rows": turned("f32", (2, 400, 6, 67), HEADS),
    "more than a block holds": turned("u8", (3, 501, 503), (0, 2, 1)),
    "threads would meet in one bank": turned("bf16", (3, 197, 64), (0, 2, 1)),
    "runs would be short": turned("u8", (331, 451, 33), (1, 0, 2)),
}


@pytest.fixture(scope="module")
def plans():
    with planned(LOCAL | OTHERS, FIGURES, LOCAL) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", LOCAL)
def test_pieces_are_turned_as_on_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    (source,) = kernels_of(plan).values()
    assert "hlo::Access" in source.text
    agree_exactly(plan, kernels)


@pytest.mark.parametrize("name", OTHERS)
def test_others_take_other_forms(plans, name):
    (source,) = kernels_of(plans[0][name]).values()
    assert "hlo::Access" not in source.text
