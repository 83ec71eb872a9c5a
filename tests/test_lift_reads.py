"""Reads that guarded blocks share leave them only where that is within the array."""

from __future__ import annotations

import re

from needs import needs_gxx
from test_lanes import agree, always_wide  # noqa: F401

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.lift_reads import lifted
from hlo2graph.hlo import Module

BODY = """
const int i1 = first % 16;
const int i2 = first / 16 % 8;
const int i3 = first / 128;
{before}
hlo::f32 m4 = 0;
if ({guard}) {{
  const hlo::f32 v5 = hlo::load(p0[{place}]);
  m4 = v5;
}}
hlo::f32 m6 = 0;
if (i2 >= 1) {{
  const hlo::f32 v7 = hlo::load(p0[{place}]);
  m6 = hlo::add(v7, v7);
}}
r0[first] = hlo::add(m4, m6);
"""


def body(guard: str = "i2 < 7", place: str = "i1", before: str = "") -> list[str]:
    text = BODY.format(guard=guard, place=place, before=before).strip()
    return [f"    {line}" for line in text.splitlines() if line]


def test_one_read_stands_before_the_first_guard():
    lines = lifted(body(), "first")
    (at,) = [k for k, line in enumerate(lines) if "p0[" in line]
    assert lines[at] == "    const hlo::f32 v5 = hlo::load(p0[i1]);"
    assert lines[at + 1 : at + 3] == ["    if (i2 < 7) {", "      m4 = v5;"]
    assert "      m6 = hlo::add(v5, v5);" in lines


def test_what_a_guard_asks_for_stays_behind_it():
    for place in ("i2", "i3 * 8 + i2", "first", "i1 + i9", "i8"):
        before = "const int i8 = i2 - 1;"
        lines = body(place=place, before=before)
        assert lifted(lines, "first") == lines
    for guard in ("i1 < 4", "i8 < 4", "m9 < 4", "first < 40", "v3"):
        lines = body(guard=guard, before="const int i8 = i1 + 2;")
        assert lifted(lines, "first") == lines


def test_digits_that_overlap_are_one_coordinate():
    """What is divided by four counts every fourth of what is divided by two."""
    before = "const int i8 = first / 32;"
    lines = body(guard="i8 < 2", place="i2", before=before)
    assert lifted(lines, "first") == lines
    assert lifted(body(guard="i8 < 2", place="i1", before=before), "first") != lines


def test_a_guard_with_an_else_keeps_its_reads():
    lines = body()
    at = lines.index("    }")
    lines[at + 1 : at + 1] = ["    else {", "      m4 = 1;", "    }"]
    assert lifted(lines, "first") == lines


def windowed(channels: int = 8) -> Module:
    """Return three by three taps over borders, each scaled by its channel and kept from below."""
    shape, larger = f"f32[2,6,6,{channels}]", f"f32[2,8,8,{channels}]"
    taps = [
        f"tap{y}{x} = {shape} slice(wide), "
        f"slice={{[0:2], [{y}:{y + 6}], [{x}:{x + 6}], [0:{channels}]}}"
        for y in range(3)
        for x in range(3)
    ]
    names = [tap.partition(" ")[0] for tap in taps]
    sums = [f"sum1 = {shape} add({names[0]}, {names[1]})"]
    sums += [f"sum{k} = {shape} add(sum{k - 1}, {names[k]})" for k in range(2, 9)]
    sums[-1] = "ROOT " + sums[-1]
    lines = "\n  ".join(taps + sums)
    return hlo2graph.parse(f"""HloModule windowed
ENTRY e {{
  x = {shape} parameter(0)
  scale = f32[{channels}] parameter(1)
  spread = {shape} broadcast(scale), dimensions={{3}}
  scaled = {shape} multiply(x, spread)
  zero = f32[] constant(0)
  wide = {larger} pad(scaled, zero), padding=0_0x1_1x1_1x0_0
  {lines}
}}
""")


@needs_gxx
def test_a_window_reads_its_channels_scale_once(always_wide):  # noqa: F811
    plan = hlo2graph.plan(windowed(), target="sm_90", fuse="default")
    (kernel,) = kernels_of(plan).values()
    assert len(re.findall(r"load\(p\d\[i\d+( \+ \d)?\]\)", kernel.text)) == 4
    agree([plan])
