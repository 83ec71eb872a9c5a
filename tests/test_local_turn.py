"""Transpositions within stretches that a block holds."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation import EmulatedExecutable
from tests.emulation.plans import planned

FIGURES = DeviceFigures(0, 0, 0, 227 << 10)


def turned(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    source = ",".join(map(str, dims))
    result = ",".join(str(dims[d]) for d in order)
    return (
        f"HloModule m\nENTRY e {{\nx = {dtype}[{source}] parameter(0)\n"
        f"ROOT r = {dtype}[{result}] transpose(x), dimensions={{{','.join(map(str, order))}}}\n}}\n"
    )


LOCAL = {
    "odd batches bf16": turned("bf16", (3, 197, 211), (0, 2, 1)),
    "odd batches u8": turned("u8", (2, 151, 203), (0, 2, 1)),
    "heads of 7": turned("bf16", (3, 50, 12, 7), (0, 2, 1, 3)),
    "short stretches, of which some are left": turned("u8", (4001, 3, 5), (0, 2, 1)),
    "two dimensions stay": turned("f16", (2, 3, 101, 33), (0, 1, 3, 2)),
    "three dimensions turned": turned("s8", (5, 11, 13, 17), (0, 3, 1, 2)),
    "dimensions of one": turned("bf16", (3, 1, 197, 1, 211), (0, 1, 4, 3, 2)),
}
OTHERS = {
    "whole words": turned("bf16", (3, 196, 212), (0, 2, 1)),
    "wide": turned("f32", (3, 197, 211), (0, 2, 1)),
    "more than a block holds": turned("u8", (3, 501, 503), (0, 2, 1)),
    "threads would meet in one bank": turned("bf16", (3, 197, 64), (0, 2, 1)),
    "the first dimension too": turned("bf16", (31, 197, 11), (1, 0, 2)),
}


@pytest.fixture(scope="module")
def plans():
    with planned(LOCAL | OTHERS, FIGURES, LOCAL) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", LOCAL)
def test_stretches_are_turned_as_on_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    (source,) = kernels_of(plan).values()
    assert source.shared_bytes > 0
    shape = plan.inputs[0].shape
    values = np.arange(shape.elements) % 251 % (100 if shape.dtype.name == "s8" else 251)
    given = values.astype(shape.dtype.numpy).reshape(shape.dims)
    (got,), (want,) = EmulatedExecutable(plan, kernels)(given), HostExecutable(plan)(given)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", OTHERS)
def test_others_go_through_tiles(plans, name):
    (source,) = kernels_of(plans[0][name]).values()
    assert source.shared_bytes == 0
