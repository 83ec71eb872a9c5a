"""What TF32 may move, and what it may not: wrong results stay wrong."""

from __future__ import annotations

import numpy as np

import hlo2graph as h2g
from hlo2graph.inspect.reference import host_results
from hlo2graph.inspect.session import Wishes, check_reference
from hlo2graph.inspect.tf32 import ROUNDING, to_tf32

LARGE_SINES = """
HloModule sines
ENTRY main {
  x = f32[16,64] parameter(0)
  w = f32[64,16] parameter(1)
  d = f32[16,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[16,16] sine(d)
}
"""


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return [
        100 * rng.standard_normal((16, 64), np.float32),
        rng.standard_normal((64, 16), np.float32),
    ]


def checked(results, args, *, tf32):
    plan, module = h2g.plan(LARGE_SINES, target="host"), h2g.parse(LARGE_SINES)
    (check,) = check_reference(plan, args, results, Wishes(), module, tf32=tf32)
    return check


def test_rounding_keeps_ten_bits():
    one, step = np.float32(1), np.float32(2**-10)
    given = np.array([1, 1 + 2**-11, 1 + 3 * 2**-11, -3.0000002, 0, np.inf], np.float32)
    want = np.array([one, one, one + 2 * step, -3, 0, np.inf], np.float32)
    assert np.array_equal(to_tf32(given), want)
    assert np.isnan(to_tf32(np.array([np.nan], np.float32))).all()


def test_what_rounding_moves_is_allowed_where_products_were_rounded():
    args = drawn()
    rounded = host_results(h2g.parse(LARGE_SINES), args, ROUNDING)
    assert checked(rounded, args, tf32=True).ok
    assert "as far as TF32 leaves it" in checked(rounded, args, tf32=True).against
    assert not checked(rounded, args, tf32=False).ok


def test_a_wrong_result_is_wrong_with_tf32_too():
    args = [x / np.float32(100) for x in drawn()]
    (exact,) = host_results(h2g.parse(LARGE_SINES), args)
    assert checked([exact], args, tf32=True).ok
    assert not checked([np.roll(exact, 1, axis=1)], args, tf32=True).ok


def test_what_asks_for_precision_is_not_rounded():
    text = LARGE_SINES.replace("={0}\n", "={0}, operand_precision={highest,highest}\n", 1)
    args = drawn()
    exact, rounded = (host_results(h2g.parse(text), args, rules) for rules in ({}, ROUNDING))
    assert np.array_equal(exact[0], rounded[0])
