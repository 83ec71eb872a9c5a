"""Results of programs that make much of a rounding, and wrong ones, which stay wrong."""

from __future__ import annotations

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.inspect import session
from hlo2graph.inspect.reference import host_results
from hlo2graph.inspect.rounding import moved_by_rounding
from hlo2graph.inspect.session import Wishes, check_reference

# x := 4x(1 - x), sixty times: each doubles what was rounded before.
CHAOS = """
HloModule chaos

round (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  four = f32[] constant(4)
  fours = f32[4] broadcast(four), dimensions={}
  y = f32[4] multiply(fours, x)
  yx = f32[4] multiply(y, x)
  z = f32[4] subtract(y, yx)
  ROOT t = (s32[], f32[4]) tuple(next, z)
}

on (s: (s32[], f32[4])) -> pred[] {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(60)
  ROOT less = pred[] compare(i, most), direction=LT
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=on, body=round
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""

CALM = """
HloModule calm
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] sine(x)
}
"""

X = np.array([0.1, 0.3, 0.62, 0.9], np.float32)


def checked(text, results):
    module = h2g.parse(text)
    (check,) = check_reference(h2g.plan(module), [X], results, Wishes(), module)
    return check


def test_chaos_is_held_to_what_a_last_bit_does():
    (near,) = host_results(h2g.parse(CHAOS), [np.nextafter(X, np.float32(1))])
    check = checked(CHAOS, [near])
    assert check.ok
    assert "as near as the last bits of the arguments leave it" in check.against
    assert not checked(CHAOS, [near + 100]).ok


@pytest.mark.parametrize(("moved", "tells"), [(0.0, True), (0.5, True), (1.0, False)])
def test_a_check_that_cannot_fail_says_so(monkeypatch, moved, tells):
    monkeypatch.setattr(session, "moved_by_rounding", lambda *_: [[moved]])
    (want,) = host_results(h2g.parse(CHAOS), [X])
    check = checked(CHAOS, [want + np.float32(moved / 2)])
    assert check.ok
    assert bool(check.vague) != tells
    assert ("as near as" in check.against) == (tells and moved > 0)


def test_a_calm_program_gets_no_leave():
    (want,) = host_results(h2g.parse(CALM), [X])
    assert checked(CALM, [want]).ok
    assert not checked(CALM, [want + np.float32(0.01)]).ok


def test_a_whole_number_that_a_last_bit_tips_over_excuses_none():
    text = CALM.replace("ROOT y = f32[4] sine(x)", "ROOT y = s32[4] convert(x)")
    module, given = h2g.parse(text), np.array([1, 2, 3, 4], np.float32)
    assert list(moved_by_rounding(module, [given]))[-1] == [1.0]
    wrong = np.array([0, 2, 3, 4], np.int32)
    (check,) = check_reference(h2g.plan(module), [given], [wrong], Wishes(), module)
    assert not check.ok


def test_integers_alone_move_nothing():
    module = h2g.parse("HloModule m\nENTRY main {\n  ROOT x = s32[2] parameter(0)\n}\n")
    assert not list(moved_by_rounding(module, [np.zeros(2, np.int32)]))


def test_a_result_that_overflows_moves_without_bound():
    text = CALM.replace("sine(x)", "exponential(x)")
    edge = np.full(4, 88.722839, np.float32)
    found = list(moved_by_rounding(h2g.parse(text), [edge]))
    assert found[-1] == [np.inf]
