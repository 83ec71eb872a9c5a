"""Tolerances of results that were rounded to a narrower float on their way."""

from __future__ import annotations

import pytest

from hlo2graph.frontend import parse
from hlo2graph.inspect.compare import EXACT, TOLERANCES
from hlo2graph.inspect.narrowed import narrowed_tolerances

F16, F32 = TOLERANCES["f16"], TOLERANCES["f32"]
CALLED = """
rounds (p: f32[4]) -> f32[4] {
  p = f32[4] parameter(0)
  h = f16[4] convert(p)
  ROOT r = f32[4] convert(h)
}
"""
CASES = {
    "a sum in f16": ("h = f16[4] add(y, y)\n ROOT r = f32[4] convert(h)", F16),
    "a sine rounded": (
        "s = f32[4] sine(x)\n h = f16[4] convert(s)\n ROOT r = f32[4] convert(h)", F16
    ),
    "an argument rounded": ("h = f16[4] convert(x)\n ROOT r = f32[4] convert(h)", F32),
    "an argument in f16": ("h = f32[4] convert(y)\n ROOT r = f32[4] add(h, h)", F32),
    "a slice in f16": ("h = f16[2] slice(y), slice={[0:2]}\n ROOT r = f32[2] convert(h)", F32),
    "a barrier in f16": ("h = f16[4] opt-barrier(y)\n ROOT r = f32[4] convert(h)", F32),
    "in a call": ("s = f32[4] sine(x)\n ROOT r = f32[4] call(s), to_apply=rounds", F16),
    "no rounding": ("ROOT r = f32[4] sine(x)", F32),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_as_near_as_what_it_was_rounded_to(name):
    lines, wanted = CASES[name]
    module = parse(f"""
HloModule m
{CALLED}
ENTRY e {{
  x = f32[4] parameter(0)
  y = f16[4] parameter(1)
  {lines}
}}
""")
    assert narrowed_tolerances(module, [F32]) == [wanted]


def test_each_leaf_has_its_own_and_whole_numbers_none():
    module = parse("""
HloModule m
ENTRY e {
  y = f16[4] parameter(0)
  h = f16[4] sine(y)
  w = f32[4] convert(h)
  v = f32[4] convert(y)
  n = s32[4] convert(h)
  ROOT t = (f32[4], f32[4], s32[4]) tuple(w, v, n)
}
""")
    assert narrowed_tolerances(module, [F32, F32, EXACT]) == [F16, F32, EXACT]
