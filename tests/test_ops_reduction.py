"""reduce and map against XLA; regions of every form; what shape inference refuses."""

import numpy as np
import pytest
from agreement import ARGMAX, agree, module, refused, run_host, scalar_region

TOLERANCE = {"bf16": 3e-2, "f16": 5e-3, "f8e4m3fn": 0.6}
ARITHMETIC = ("add", "multiply", "maximum", "minimum")
LOGIC = ("and", "or", "xor")


def reduction(dtype: str, opcode: str, dims: str = "0,2", result: str = "7") -> str:
    entry = (
        f"x = {dtype}[5,7,3] parameter(0) i = {dtype}[] parameter(1) "
        f"ROOT r = {dtype}[{result}] reduce(x, i), dimensions={{{dims}}}, to_apply=region"
    )
    return module(entry, scalar_region("region", opcode, dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "f8e4m3fn", "s32", "u8", "s8"])
@pytest.mark.parametrize("opcode", ARITHMETIC)
def test_simple_region(dtype, opcode):
    agree(reduction(dtype, opcode), tolerance=TOLERANCE.get(dtype, 1e-5))


@pytest.mark.parametrize("dtype", ["s32", "u8", "pred"])
@pytest.mark.parametrize("opcode", LOGIC)
def test_logic(dtype, opcode):
    agree(reduction(dtype, opcode), tolerance=0)


@pytest.mark.parametrize("opcode", ["add", "multiply"])
def test_complex(opcode):
    agree(reduction("c64", opcode), tolerance=1e-4)


def test_all_dimensions_in_any_order():
    agree(reduction("f32", "add", "2,0,1", ""))


def test_region_that_is_no_monoid_folds_in_row_major_order():
    agree(reduction("f32", "subtract"))


def test_nothing_to_reduce_gives_the_init_value():
    entry = (
        "x = f32[0,3] parameter(0) i = f32[] parameter(1) "
        "ROOT r = f32[3] reduce(x, i), dimensions={0}, to_apply=region"
    )
    text = module(entry, scalar_region("region", "maximum", "f32"))
    (got,) = agree(text, [np.zeros((0, 3), np.float32), np.float32(7)])
    assert got.tolist() == [7, 7, 7]


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_nan_wins(opcode):
    x = np.zeros((5, 7, 3), np.float32)
    x[2, 4, 1] = np.nan
    (got,) = agree(reduction("f32", opcode), [x, np.float32(0)])
    assert np.isnan(got).tolist() == [False] * 4 + [True] + [False] * 2


@pytest.mark.parametrize("length", [6, 1000])
def test_argmax_takes_the_first_of_equals(length):
    entry = (
        f"x = f32[4,{length}] parameter(0) j = s32[4,{length}] iota(), iota_dimension=1 "
        "i = f32[] constant(-inf) k = s32[] constant(-1) "
        "ROOT r = (f32[4], s32[4]) reduce(x, j, i, k), dimensions={1}, to_apply=largest"
    )
    x = np.random.default_rng(1).integers(0, 5, (4, length)).astype(np.float32)
    value, at = agree(module(entry, ARGMAX), [x], tolerance=0)
    assert value.tolist() == x.max(1).tolist()
    assert at.tolist() == x.argmax(1).tolist()


LOOPING = """
more { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2) ROOT l = pred[] compare(i, n), direction=LT }
halve { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1) j = s32[] add(i, one) v = f32[] get-tuple-element(p), index=1
  half = f32[] constant(0.5) w = f32[] multiply(v, half) ROOT t = (s32[], f32[]) tuple(j, w) }
region { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b) z = s32[] constant(0)
  t = (s32[], f32[]) tuple(z, s) w = (s32[], f32[]) while(t), condition=more, body=halve
  ROOT r = f32[] get-tuple-element(w), index=1 }
"""


def test_region_with_a_loop_runs_element_by_element():
    entry = (
        "x = f32[5,3] parameter(0) i = f32[] constant(1) "
        "ROOT r = f32[5] reduce(x, i), dimensions={1}, to_apply=region"
    )
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    (got,) = run_host(module(entry, LOOPING), [x])
    want = [(((1 + a) / 4 + b) / 4 + c) / 4 for a, b, c in x.tolist()]
    np.testing.assert_allclose(got, want)


def test_map():
    region = (
        "f { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] sine(a) "
        "d = f32[] convert(b) ROOT r = f32[] multiply(c, d) }"
    )
    entry = (
        "x = f32[5,3] parameter(0) y = s32[5,3] parameter(1) "
        "ROOT r = f32[5,3] map(x, y), dimensions={0,1}, to_apply=f"
    )
    agree(module(entry, region))


def test_map_of_a_constant_fills_the_result():
    region = "f { a = f32[] parameter(0) ROOT r = s32[] constant(7) }"
    entry = "x = f32[2,2] parameter(0) ROOT r = s32[2,2] map(x), dimensions={0,1}, to_apply=f"
    (got,) = agree(module(entry, region), tolerance=0)
    assert got.tolist() == [[7, 7], [7, 7]]


def test_map_with_a_loop_runs_element_by_element():
    entry = (
        "x = f32[2,3] parameter(0) ROOT r = f32[2,3] map(x, x), dimensions={0,1}, to_apply=region"
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = run_host(module(entry, LOOPING), [x])
    assert got.tolist() == (x / 2).tolist()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("dimensions={3}, to_apply=region", "dimensions has 3, out of range for rank 3"),
        ("dimensions={0,0}, to_apply=region", "names a dimension twice"),
        ("dimensions={0}", "needs the attribute to_apply"),
        ("to_apply=region", "needs the attribute dimensions"),
        ("dimensions={0}, to_apply=integers", r"must return \(f32\[\]\)"),
        ("dimensions={0}, to_apply=one", r"must take \(f32\[\], f32\[\]\)"),
    ],
)
def test_refusals(attributes, message):
    regions = (
        scalar_region("region", "add", "f32"),
        scalar_region("integers", "add", "s32"),
        "one { a = f32[] parameter(0) ROOT r = f32[] negate(a) }",
    )
    entry = (
        "x = f32[2,3,4] parameter(0) i = f32[] parameter(1) "
        f"ROOT r = f32[3,4] reduce(x, i), {attributes}"
    )
    refused(module(entry, *regions), message)


def test_init_value_must_fit():
    entry = (
        "x = f32[2] parameter(0) i = s32[] parameter(1) "
        "ROOT r = f32[] reduce(x, i), dimensions={0}, to_apply=region"
    )
    refused(module(entry, scalar_region("region", "add", "f32")), r"init value 0 must be f32\[\]")
