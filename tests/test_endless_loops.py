"""Loops that never end are refused on the host, others run however long they change little."""

from __future__ import annotations

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError

STATE = "(s32[], s32[], f32[4])"
LOOP = f"""HloModule m
condition {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1)
  less = pred[] compare(i, n), direction=LT
  ROOT c = pred[] CONDITION
}}
body {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  j = s32[] get-tuple-element(s), index=1
  x = f32[4] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  many = s32[] constant(200)
  k = s32[] add(j, one)
  is_over = pred[] compare(k, many), direction=GE
  later = s32[] select(is_over, one, zero)
  same = s32[] add(i, zero)
  y = f32[4] negate(x)
  ROOT t = {STATE} tuple(NEXT, k, y)
}}
ENTRY e {{
  i = s32[] parameter(0)
  x = f32[4] parameter(1)
  s = {STATE} tuple(i, i, x)
  w = {STATE} while(s), condition=condition, body=body
  j = s32[] get-tuple-element(w), index=1
  y = f32[4] get-tuple-element(w), index=2
  ROOT r = (s32[], f32[4]) tuple(j, y)
}}
"""
X = np.arange(4, dtype=np.float32)


def loop(condition: str, following: str) -> HostExecutable:
    text = LOOP.replace("CONDITION", condition).replace("NEXT", following)
    return HostExecutable(h2g.plan(text, target="host"))


@pytest.mark.parametrize(
    ("condition", "following"),
    [("constant(true)", "later"), ("copy(less)", "i"), ("copy(less)", "same")],
)
def test_a_loop_whose_condition_nothing_changes_never_ends(condition: str, following: str) -> None:
    with pytest.raises(UnsupportedError, match="w never ends: turn 64 left all"):
        loop(condition, following)(np.int32(0), X)


def test_a_loop_that_never_begins_is_none_that_never_ends() -> None:
    assert loop("copy(less)", "same")(np.int32(1), X)[0] == 1


def test_what_decides_later_is_looked_at_too() -> None:
    """All that the condition reads stays as it is for 199 turns, but what makes it changes."""
    count, found = loop("copy(less)", "later")(np.int32(0), X)
    assert count == 200
    np.testing.assert_array_equal(found, X)
