"""Loops of narrow elements whose rows begin anywhere: lanes in one row read whole words."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from tests.emulation import EmulatedExecutable
from tests.emulation.plans import planned


def module(*lines: str) -> str:
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def gathered(dtype: str, rows: int, columns: int) -> str:
    return module(
        f"x = {dtype}[{rows},{columns}] parameter(0)",
        f"i = s32[{rows}] parameter(1)",
        f"ROOT r = {dtype}[{rows},{columns}] gather(x, i), offset_dims={{1}}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        f"slice_sizes={{1,{columns}}}",
    )


def sliced(dtype: str, rows: int, columns: int, begin: int, end: int) -> str:
    return module(
        f"x = {dtype}[{rows},{columns}] parameter(0)",
        f"ROOT r = {dtype}[{rows},{end - begin}] slice(x), slice={{[0:{rows}], [{begin}:{end}]}}",
    )


def padded(dtype: str, rows: int, columns: int, low: int, high: int) -> str:
    return module(
        f"x = {dtype}[{rows},{columns}] parameter(0)",
        f"z = {dtype}[] constant(3)",
        f"ROOT r = {dtype}[{rows + 3},{columns + low + high}] pad(x, z), padding=1_2x{low}_{high}",
    )


def joined(dtype: str, rows: int, *columns: int) -> str:
    given = [f"x{k} = {dtype}[{rows},{n}] parameter({k})" for k, n in enumerate(columns)]
    names = ", ".join(f"x{k}" for k in range(len(columns)))
    return module(
        *given,
        f"ROOT r = {dtype}[{rows},{sum(columns)}] concatenate({names}), dimensions={{1}}",
    )


def added(dtype: str, rows: int, columns: int) -> str:
    """Return sums of elements that lie side by side, and in three dimensions."""
    left, right = f"{dtype}[3,{rows},{columns}]", f"{dtype}[3,{rows},{columns - 1}]"
    return module(
        f"x = {left} parameter(0)",
        f"a = {right} slice(x), slice={{[0:3], [0:{rows}], [0:{columns - 1}]}}",
        f"b = {right} slice(x), slice={{[0:3], [0:{rows}], [1:{columns}]}}",
        f"ROOT r = {right} add(a, b)",
    )


def sliced_twice(dtype: str, rows: int, columns: int) -> str:
    """Return two results of different dimensions, each a pass of its own over fewer elements."""
    left, right = f"{dtype}[{rows},{columns - 1}]", f"{dtype}[3,{columns - 4}]"
    whole = f"{dtype}[{rows},{columns}]"
    return (
        f"HloModule m\nf {{\nx = {whole} parameter(0)\n"
        f"a = {left} slice(x), slice={{[0:{rows}], [1:{columns}]}}\n"
        f"b = {right} slice(x), slice={{[2:5], [4:{columns}]}}\n"
        f"ROOT r = ({left}, {right}) tuple(a, b)\n}}\n"
        f"ENTRY e {{\nx = {whole} parameter(0)\n"
        f"ROOT r = ({left}, {right}) fusion(x), kind=kLoop, calls=f\n}}\n"
    )


PROGRAMS = {
    "gather bf16": gathered("bf16", 40, 301),
    "gather short rows bf16": gathered("bf16", 140, 99),
    "gather short rows u8": gathered("u8", 140, 301),
    "gather u8": gathered("u8", 30, 1023),
    "gather bf16 of 3 behind": gathered("bf16", 9, 307),
    "slice u8": sliced("u8", 20, 1537, 1, 1537),
    "slice f16": sliced("f16", 31, 333, 5, 332),
    "slice s8 of whole words": sliced("s8", 5, 6001, 3, 6003 - 3),
    "slice pred": sliced("pred", 7, 1041, 2, 1040),
    "pad u8": padded("u8", 15, 2055, 2, 3),
    "pad bf16": padded("bf16", 15, 501, 2, 11),
    "pad f16 cut": padded("f16", 21, 601, -3, 4),
    "concatenate bf16": joined("bf16", 12, 333, 129, 401),
    "concatenate f8": joined("f8e4m3fn", 9, 999, 2002),
    "neighbours bf16": added("bf16", 11, 302),
    "neighbours u8": added("u8", 11, 602),
    "two slices bf16": sliced_twice("bf16", 40, 403),
}


@pytest.fixture(scope="module")
def plans():
    with planned(PROGRAMS) as found:
        yield found


def drawn(dtype: np.dtype, dims: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == np.int32:  # rows, some of which are out of bounds
        return rng.integers(-2, dims[0] + 2, dims).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else 100, dims).astype(dtype)


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_askew_lanes_agree_with_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    texts = [s.text for s in kernels_of(plan).values()]
    assert any("hlo::run_at<" in text for text in texts), texts
    given = [drawn(b.shape.dtype.numpy, b.shape.dims, k) for k, b in enumerate(plan.inputs)]
    got, want = EmulatedExecutable(plan, kernels)(*given), HostExecutable(plan)(*given)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "text",
    [
        gathered("f32", 40, 301),  # an element fills what a thread can read askew
        gathered("bf16", 40, 31),  # too many words lie on edges
        sliced("bf16", 40, 304, 0, 296),  # whole words as it is
    ],
)
def test_others_are_read_as_they_were(plans, text):
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert "hlo::run_at<" not in source.text
