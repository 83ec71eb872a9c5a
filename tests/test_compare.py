"""Comparisons: what counts as equal, and what a difference is said to be."""

import ml_dtypes
import numpy as np
import pytest

from hlo2graph.hlo import DTYPES
from hlo2graph.inspect.compare import (
    EXACT,
    TF32,
    TOLERANCES,
    Tolerance,
    compare,
    same_bits,
    tolerance_for,
)

NAN, INF = np.nan, np.inf


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        (1.0, 1.0, True),
        (1.009, 1.0, True),
        (1.02, 1.0, False),
        (-1.0, 1.0, False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, INF, True),
        (INF, -INF, False),
        (1e30, INF, False),
        (INF, 1e30, False),
        (0.0, -0.0, True),
    ],
)
def test_one_float(got, want, ok):
    assert compare(f32(got), f32(want), Tolerance(0.01, 0.0)).ok is ok


def test_a_small_element_among_large_ones_may_differ_by_what_cancelling_costs():
    want = f32(1e6, -1e6, 3e6, 1.0, INF)
    assert compare(want + f32(0, 0, 0, 50, 0), want, Tolerance(1e-4, 0)).ok
    assert compare(want + f32(0, 0, 0, 500, 0), want, Tolerance(1e-4, 0)).at == (3,)
    alone = f32(1.0, 1.0, 1e6)
    assert not compare(alone + f32(50, 0, 0), alone, Tolerance(1e-4, 0)).ok


def test_the_first_wrong_element_is_named():
    got, want = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    got[1, 2], got[2, 0] = 5, 7
    found = compare(got, want, Tolerance(0, 0.1), "out0")
    assert (found.at, found.wrong, found.elements, found.worst) == ((1, 2), 2, 12, 7.0)
    assert str(found).startswith("out0: 2 of 12 elements differ, first at [1,2]: 5.0, expected 0.0")


def test_lines_for_what_is_right():
    assert str(compare(f32(1), f32(1), EXACT, "a")) == "a: equal"
    line = str(compare(f32(1.001), f32(1), Tolerance(0.01, 0), "a"))
    assert line == "a: equal within 0.01 relative + 0 absolute (largest difference 0.001)"


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_, np.int64])
def test_integers_are_exact(dtype):
    top = np.array([np.iinfo(dtype).max if dtype is not np.bool_ else True], dtype)
    less = top - 1 if dtype is not np.bool_ else ~top
    assert compare(top, top, EXACT).ok
    found = compare(less, top, EXACT)
    assert (found.ok, found.worst) == (False, 1.0)


def test_narrow_types():
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        ones, zeros = np.ones(3, dtype), np.zeros(3, dtype)
        assert compare(ones, ones, EXACT).ok
        assert compare(ones, zeros, EXACT).wrong == 3


def test_complex_numbers():
    got = np.array([1 + 1j, complex(NAN, 0)], np.complex64)
    assert compare(got, got, EXACT).ok
    assert compare(got + np.complex64(1j), got, Tolerance(0.1, 0.1)).at == (0,)


def test_another_shape_or_dtype_is_a_difference():
    assert not compare(f32(1), f32(1, 1), EXACT).ok
    assert "float64[1]" in str(compare(np.ones(1), f32(1), EXACT))


def test_empty_and_scalar_results():
    assert compare(f32(), f32(), EXACT).ok
    assert compare(np.float32(2)[...], np.float32(3)[...], EXACT).at == ()


def test_same_bits_sees_zeros_and_nans():
    assert same_bits([f32(NAN)], [f32(NAN)])
    assert not same_bits([f32(0.0)], [f32(-0.0)])
    assert not same_bits([f32(1)], [f32(1), f32(1)])
    assert not same_bits([f32(1)], [f32(1).astype(np.float64)])


def test_every_float_has_a_tolerance_and_nothing_else():
    floats = {name for name, d in DTYPES.items() if d.is_float or d.is_complex}
    assert set(TOLERANCES) == floats


def test_tolerances_admit_one_rounding_step():
    for name, tolerance in TOLERANCES.items():
        dtype = DTYPES[name].numpy
        one = np.ones(1, dtype)
        step = float(ml_dtypes.finfo(dtype).eps)
        assert compare((one * (1 + step)).astype(dtype), one, tolerance).ok, name


def test_what_a_user_gives_replaces_the_table_for_floats_only():
    assert tolerance_for(DTYPES["f32"], relative=0.5).relative == 0.5
    assert tolerance_for(DTYPES["f32"], absolute=0.5).relative == TOLERANCES["f32"].relative
    assert tolerance_for(DTYPES["s32"], relative=0.5) == EXACT
    assert tolerance_for(DTYPES["f32"], tf32=True) == TF32
    assert tolerance_for(DTYPES["f64"], tf32=True) == TOLERANCES["f64"]
