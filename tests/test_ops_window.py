"""reduce-window, select-and-scatter and convolution's windows against XLA."""

import numpy as np
import pytest
from agreement import ARGMAX, agree, module, refused, scalar_region

from hlo2graph.hlo import WindowDim
from hlo2graph.ops.window import windowed_dim

WINDOWS = [  # over s32[6,7]
    ("size=3x2 stride=2x1", "2,6"),
    ("size=3x2 stride=1x2 pad=1_1x0_1", "6,4"),
    ("size=2x2 rhs_dilate=2x1", "4,6"),
    ("size=3x3 pad=2_2x2_2 lhs_dilate=2x3", "13,21"),
    ("size=1x1", "6,7"),
    ("size=3x1 pad=-1_0x0_-2", "3,5"),
    ("size=2x3 stride=3x2 pad=3_4x1_1 lhs_dilate=3x1 rhs_dilate=1x2", "8,3"),
    ("size=3x2 pad=-6_-6x0_0", "0,6"),
]


def reduce_window(dtype: str, opcode: str, window: str, dims: str) -> str:
    entry = (
        f"x = {dtype}[6,7] parameter(0) i = {dtype}[] parameter(1) "
        f"ROOT r = {dtype}[{dims}] reduce-window(x, i), window={{{window}}}, to_apply=region"
    )
    return module(entry, scalar_region("region", opcode, dtype))


@pytest.mark.parametrize(("window", "dims"), WINDOWS)
@pytest.mark.parametrize(
    ("dtype", "opcode"),
    [("f32", "add"), ("f32", "maximum"), ("s32", "minimum"), ("bf16", "add"), ("f32", "subtract")],
)
def test_reduce_window(window, dims, dtype, opcode):
    """The init value is no identity here: it counts once, and padding not at all."""
    agree(reduce_window(dtype, opcode, window, dims), tolerance=3e-2 if dtype == "bf16" else 1e-5)


@pytest.mark.parametrize(("window", "dims"), WINDOWS)
def test_pairs(window, dims):
    entry = (
        "x = f32[6,7] parameter(0) j = s32[6,7] iota(), iota_dimension=1 "
        "i = f32[] constant(-inf) k = s32[] constant(-1) "
        f"ROOT r = (f32[{dims}], s32[{dims}]) reduce-window(x, j, i, k), "
        f"window={{{window}}}, to_apply=largest"
    )
    agree(module(entry, ARGMAX), tolerance=0)


def test_cumulative_sum():
    text = reduce_window("f32", "add", "size=6x1 pad=5_0x0_0", "6,7")
    x = np.arange(42, dtype=np.float32).reshape(6, 7)
    (got,) = agree(text, [x, np.float32(0)])
    assert got.tolist() == x.cumsum(0).tolist()


@pytest.mark.parametrize(
    ("window", "dims"),
    [
        ("size=2x3 stride=2x3 pad=0_0x0_2", "3,3"),
        ("size=3x3", "4,5"),
        ("size=3x3 stride=2x2 pad=1_1x1_1", "3,4"),
        ("size=2x2 stride=3x1", "2,6"),
    ],
)
@pytest.mark.parametrize("direction", ["GE", "LT"])
def test_select_and_scatter(window, dims, direction):
    keep = (
        "keep { a = f32[] parameter(0) b = f32[] parameter(1) "
        f"ROOT r = pred[] compare(a, b), direction={direction} }}"
    )
    entry = (
        f"x = f32[6,7] parameter(0) s = f32[{dims}] parameter(1) i = f32[] parameter(2) "
        "ROOT r = f32[6,7] select-and-scatter(x, s, i), "
        f"window={{{window}}}, select=keep, scatter=sum"
    )
    agree(module(entry, keep, scalar_region("sum", "add", "f32")))


def test_window_longer_than_the_dimension_has_no_place():
    assert windowed_dim(4, WindowDim(5)) == 0
    assert windowed_dim(0, WindowDim(1, pad_low=1)) == 1


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("size=2", "window has 1 dimensions for 2 dimensions of the operand"),
        ("size=0x1", "window size must be positive, got 0 at 0"),
        ("size=1x1 stride=1x0", "window stride must be positive, got 0 at 1"),
    ],
)
def test_refusals(window, message):
    refused(reduce_window("f32", "add", window, "6,7"), message)


def test_source_must_have_the_windows_shape():
    keep = (
        "keep { a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=GE }"
    )
    entry = (
        "x = f32[6,7] parameter(0) s = f32[3,3] parameter(1) i = f32[] parameter(2) "
        "ROOT r = f32[6,7] select-and-scatter(x, s, i), window={size=2x2}, select=keep, scatter=sum"
    )
    refused(module(entry, keep, scalar_region("sum", "add", "f32")), r"source must be f32\[5,6\]")


LONG = [  # over [2,300]
    ("size=1x300 pad=0_0x299_0", 300),
    ("size=1x300 pad=0_0x0_299", 300),
    ("size=1x97 pad=0_0x48_48", 300),
    ("size=1x150 pad=0_0x7_9 stride=1x3", 56),
]


@pytest.mark.parametrize(("window", "count"), LONG)
@pytest.mark.parametrize(("dtype", "opcode"), [("s32", "add"), ("f32", "maximum"), ("u8", "xor")])
def test_long_windows_that_overlap(window, count, dtype, opcode):
    entry = (
        f"x = {dtype}[2,300] parameter(0) z = {dtype}[] constant(0) "
        f"ROOT r = {dtype}[2,{count}] reduce-window(x, z), window={{{window}}}, to_apply=region"
    )
    agree(module(entry, scalar_region("region", opcode, dtype)), tolerance=0)
