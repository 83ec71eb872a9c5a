"""Which kernel form a computation can take."""

from __future__ import annotations

import pytest

import hlo2graph as h2g
from hlo2graph.ops.region import Columns, Loop, Own, Rows, SideBySide, region_of

REGIONS = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
best { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  m = f32[] select(g, a, b) n = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(m, n) }
pair { x = (f32[64], s32[64]) parameter(0) ROOT r = f32[64] get-tuple-element(x), index=0 }
one { x = f32[8] parameter(0) ROOT r = f32[8] negate(x) }
two { x = f32[9] parameter(0) ROOT r = f32[9] negate(x) }
"""


def region(body: str):
    module = h2g.parse(f"{REGIONS}ENTRY e {{\n{body}\n}}")
    return region_of(module.entry)


SOFTMAX = """
  x = f32[64,100] parameter(0)
  low = f32[] constant(-inf) zero = f32[] constant(0)
  top = f32[64] reduce(x, low), dimensions={1}, to_apply=max
  tops = f32[64,100] broadcast(top), dimensions={0}
  less = f32[64,100] subtract(x, tops)
  grown = f32[64,100] exponential(less)
  sum = f32[64] reduce(grown, zero), dimensions={1}, to_apply=add
  sums = f32[64,100] broadcast(sum), dimensions={0}
"""


def test_what_folds_nothing_is_a_loop():
    found = region("x = f32[8,4] parameter(0) ROOT r = f32[4,8] transpose(x), dimensions={1,0}")
    assert found == Loop()


def test_a_short_fold_is_one_threads():
    assert (
        region(
            """x = f32[999,31] parameter(0) zero = f32[] constant(0)
        ROOT r = f32[999] reduce(x, zero), dimensions={1}, to_apply=add"""
        )
        == Loop()
    )


def test_softmax_is_rows_of_two_stages():
    found = region(SOFTMAX + "ROOT r = f32[64,100] divide(grown, sums)")
    assert isinstance(found, Rows)
    assert found.stages == (("top",), ("sum",))
    assert (found.results, found.steps) == (64, 100)


def test_dimensions_of_size_one_do_not_matter():
    found = region(
        """x = f32[64,1,100] parameter(0) zero = f32[] constant(0)
        sum = f32[64,1] reduce(x, zero), dimensions={2}, to_apply=add
        kept = f32[64,1,1] reshape(sum)
        mean = f32[64,1,1] negate(kept)
        flat = f32[1,64] reshape(mean)
        sums = f32[64,1,100] broadcast(flat), dimensions={1,0}
        out = f32[64,1,100] subtract(x, sums)
        ROOT t = (f32[64,1,1], f32[64,1,100]) tuple(mean, out)"""
    )
    assert isinstance(found, Rows)


def test_rows_may_be_reshaped_behind_their_reduces():
    found = region(SOFTMAX + "y = f32[64,100] divide(grown, sums) ROOT r = f32[8,8,100] reshape(y)")
    assert isinstance(found, Rows)


@pytest.mark.parametrize(
    "tail",
    [
        "ROOT r = f32[100,64] transpose(sums), dimensions={1,0}",
        "ROOT r = f32[64,64] broadcast(sum), dimensions={1}",
        "ROOT r = f32[32] slice(sum), slice={[0:32]}",
        "ROOT r = f32[] reduce(sum, zero), dimensions={0}, to_apply=add",
        "ROOT r = (f32[64,100], f32[7]) tuple(sums, p) p = f32[7] parameter(1)",
    ],
)
def test_what_loses_the_row_is_no_region(tail):
    head, _, last = tail.partition(" p = ")
    assert region(f"{SOFTMAX}{'p = ' + last if last else ''}\n{head}") is None


def test_siblings_of_different_dimensions_are_no_region():
    assert (
        region(
            """x = f32[64,64] parameter(0) zero = f32[] constant(0)
        a = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
        b = f32[64] reduce(x, zero), dimensions={0}, to_apply=add
        ROOT r = f32[64] add(a, b)"""
        )
        is None
    )


def test_long_rows_are_read_once_only():
    once = """x = f32[4,199999] parameter(0) zero = f32[] constant(0)
        s = f32[4] reduce(x, zero), dimensions={1}, to_apply=add
        n = f32[4] negate(s) """
    assert isinstance(region(once + "ROOT t = (f32[4], f32[4]) tuple(s, n)"), Rows)
    again = "b = f32[4,199999] broadcast(n), dimensions={0} ROOT r = f32[4,199999] add(x, b)"
    assert region(once + again) is None


COLUMNS = """x = f32[64,100] parameter(0) zero = f32[] constant(0)
  y = f32[64,100] negate(x)
  square = f32[64,100] multiply(x, x)
  a = f32[100] reduce(x, zero), dimensions={0}, to_apply=add
  b = f32[100] reduce(square, zero), dimensions={0}, to_apply=add
  c = f32[100] subtract(a, b) """


def test_sibling_columns_are_one_region():
    found = region(COLUMNS + "ROOT t = (f32[100], f32[100], f32[64,100]) tuple(c, b, y)")
    assert isinstance(found, Columns)
    assert found.reduces == ("a", "b")


def test_columns_are_read_once_only():
    assert (
        region(
            COLUMNS + "d = f32[64,100] broadcast(c), dimensions={1} ROOT r = f32[64,100] add(x, d)"
        )
        is None
    )


def test_the_layout_decides_between_rows_and_columns():
    text = """x = f32[64,100]{0,1} parameter(0) zero = f32[] constant(0)
        ROOT r = f32[%d] reduce(x, zero), dimensions={%d}, to_apply=add"""
    assert isinstance(region(text % (100, 0)), Rows)
    assert isinstance(region(text % (64, 1)), Columns)


def test_a_reduce_of_pairs_is_rows():
    found = region(
        """x = f32[64,100] parameter(0) low = f32[] constant(-inf) zero = s32[] constant(0)
        i = s32[64,100] iota(), iota_dimension=1
        m = (f32[64], s32[64]) reduce(x, i, low, zero), dimensions={1}, to_apply=best
        ROOT r = s32[64] get-tuple-element(m), index=1"""
    )
    assert isinstance(found, Rows)


DOT = """x = f32[8,64] parameter(0) y = f32[64,8] parameter(1)
  d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} """


def test_a_dot_takes_what_follows_element_by_element():
    assert region(DOT + "ROOT r = f32[8,8] tanh(d)") == Own("d")
    assert region(DOT + "ROOT r = f32[8,8] transpose(d), dimensions={1,0}") is None
    assert region(DOT + "e = f32[8,8] exponential(d) ROOT r = f32[8,8] add(d, e)") == Own("d")


def test_two_dots_are_no_region():
    assert (
        region(
            DOT
            + """e = f32[8,8] dot(d, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT r = f32[8,8] add(d, e)"""
        )
        is None
    )


def test_a_sort_is_its_own_and_nothing_else():
    sort = "x = f32[8] parameter(0) n = f32[8] negate(x) "
    sort += "s = f32[8] sort(n), dimensions={0}, to_apply=less "
    assert region(sort.replace(" s =", " ROOT s =")) == Own("s")
    assert region(sort + "ROOT r = f32[8] negate(s)") is None


def test_fusions_of_parameters_stand_side_by_side():
    parts = """x = f32[8] parameter(0) y = f32[9] parameter(1)
      a = f32[8] fusion(x), kind=kLoop, calls=one
      b = f32[9] fusion(y), kind=kLoop, calls=two
      ROOT t = (f32[8], f32[9]) tuple(a, b)"""
    assert region(parts) == SideBySide(("a", "b"))


def test_what_calls_with_a_tuple_of_totals_is_no_region():
    assert (
        region(
            """x = f32[64,100] parameter(0) low = f32[] constant(-inf) zero = s32[] constant(0)
        i = s32[64,100] iota(), iota_dimension=1
        m = (f32[64], s32[64]) reduce(x, i, low, zero), dimensions={1}, to_apply=best
        ROOT r = f32[64] fusion(m), kind=kLoop, calls=pair"""
        )
        is None
    )
