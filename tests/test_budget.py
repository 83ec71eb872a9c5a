"""`budget`: each plan is right, the figures are the model's, and the curve has its ends."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from conftest import ROOT, SAMPLES

import hlo2graph as h2g
from hlo2graph.inspect.budget.cost import BYTES_A_THREAD, Costs
from hlo2graph.inspect.budget.time import estimated_seconds
from hlo2graph.inspect.check import prove
from hlo2graph.pipeline import sweep
from hlo2graph.program.device_figures import (
    BRANCH_SECONDS,
    DEVICES,
    ISSUE_SECONDS,
    NODE_SECONDS,
    ROUND_SECONDS,
)
from hlo2graph.program.stats import plan_stats

H200 = DEVICES["h200"]
FULL = H200.figures.multiprocessors * H200.figures.threads * BYTES_A_THREAD
SPEED = H200.figures.bytes_per_second
POINTS = ["serial", "packed", "reuse any", "reuse 1", "half", "default", "apart"]
CHOSEN = [
    SAMPLES[0].parent / f"{name}.hlo" for name in ("wide_branches", "chains", "copies_nested_loops")
]


def module(*lines, entry="x = f32[64] parameter(0)"):
    body = "\n".join(f"  {line}" for line in (entry, *lines))
    return f"HloModule m\nENTRY main {{\n{body}\n}}\n"


TWO_CHAINS = module(
    "a = f32[64] exponential(x)",
    "b = f32[64] negate(a)",
    "c = f32[64] sine(x)",
    "d = f32[64] cosine(c)",
    "ROOT t = (f32[64], f32[64]) tuple(b, d)",
)


def each(size):
    """Return the seconds of a kernel that reads and writes arrays of `size` bytes."""
    share = min(1.0, size / FULL)
    return 2 * size / SPEED / share


@pytest.mark.parametrize("path", CHOSEN, ids=lambda p: p.stem)
@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_every_point_is_a_right_plan(path, target):
    plans = dict(sweep(path.read_text(), filename=path.name, target=target))
    assert list(plans) == POINTS
    for plan in plans.values():
        assert prove(plan).ok
        assert plan.arena.size >= plan.arena.lower_bound
    assert str(plans["default"]) == str(h2g.plan(path.read_text(), target=target))
    serial = h2g.plan(path.read_text(), target=target, schedule="serialize")
    assert str(plans["serial"]) == str(serial)


@pytest.mark.parametrize("path", CHOSEN, ids=lambda p: p.stem)
def test_sharing_nothing_gives_the_default_order_and_takes_the_most(path):
    plans = dict(sweep(path.read_text(), filename=path.name))
    apart, default = plan_stats(plans["apart"]), plan_stats(plans["default"])
    assert (apart.width, apart.critical_path) == (default.width, default.critical_path)
    assert apart.arena_bytes >= max(plan.arena.size for plan in plans.values())
    ends = [plan_stats(plans[name]) for name in ("serial", "default")]
    assert ends[0].arena_bytes <= ends[1].arena_bytes
    assert ends[0].critical_path >= ends[1].critical_path


def test_a_kernel_costs_its_bytes_at_the_share_of_the_device_that_it_fills():
    plan = h2g.plan(module("ROOT y = f32[64] exponential(x)"))
    (thunk,) = plan.body.thunks
    small = Costs(plan, H200).of(thunk)
    assert small.share == 256 / FULL
    assert small.seconds == pytest.approx(each(256))
    large = h2g.plan(
        module("ROOT y = f32[8388608] exponential(x)", entry="x = f32[8388608] parameter(0)")
    )
    work = Costs(large, H200).of(large.body.thunks[0])
    assert work.share == 1.0
    assert work.seconds == pytest.approx(2 * 8388608 * 4 / SPEED)


@pytest.mark.parametrize(
    ("dtype", "rate"), [("f32", 494e12), ("bf16", 988e12), ("f64", 67e12 / 2)], ids=str
)
def test_a_large_product_costs_its_operations(dtype, rate):
    shape = f"{dtype}[4096,4096]"
    line = f"ROOT y = {shape} dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    plan = h2g.plan(module(line, entry=f"x = {shape} parameter(0)"))
    work = Costs(plan, H200).of(plan.body.thunks[0])
    assert work.seconds == pytest.approx(2 * 4096**3 / rate)


def test_a_convolution_counts_its_window():
    line = (
        "ROOT y = f32[64,64,64,128] convolution(x, w), window={size=3x3 pad=1_1x1_1}, "
        "dim_labels=b01f_01io->b01f"
    )
    text = module(
        "w = f32[3,3,256,128] parameter(1)", line, entry="x = f32[64,64,64,256] parameter(0)"
    )
    plan = h2g.plan(text)
    work = Costs(plan, H200).of(plan.body.thunks[0])
    assert work.seconds == pytest.approx(2 * 64 * 64 * 64 * 128 * 9 * 256 / 494e12)


def test_chains_side_by_side_cost_one_and_a_chain_costs_all():
    graph = h2g.plan(TWO_CHAINS)
    assert estimated_seconds(graph, H200) == pytest.approx(
        2 * (NODE_SECONDS + each(256)) + ISSUE_SECONDS
    )
    chain = h2g.plan(TWO_CHAINS, schedule="serialize")
    assert estimated_seconds(chain, H200) == pytest.approx(4 * (NODE_SECONDS + each(256)))


def test_what_fills_the_device_runs_one_after_the_other():
    size = 8388608
    text = TWO_CHAINS.replace("[64]", f"[{size}]")
    plan = h2g.plan(text)
    work = 4 * 2 * size * 4 / SPEED
    found = estimated_seconds(plan, H200)
    assert work < found < work + 4 * NODE_SECONDS


LOOP = """\
HloModule loop
body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  e = f32[64] exponential(x)
  ROOT t = (s32[], f32[64]) tuple(next, e)
}
condition {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(7)
  ROOT less = pred[] compare(i, end), direction=LT
}
ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[64]) tuple(zero, x)
  loop = (s32[], f32[64]) while(init), condition=condition, body=body, \
backend_config={"known_trip_count":{"n":"7"}}
  ROOT y = f32[64] get-tuple-element(loop), index=1
}
"""


def test_a_loop_is_its_rounds():
    seven = estimated_seconds(h2g.plan(LOOP), H200)
    once = estimated_seconds(
        h2g.plan(LOOP.replace("constant(7)", "constant(1)").replace('"7"', '"1"')), H200
    )
    round_ = (seven - once) / 6
    assert ROUND_SECONDS + 2 * NODE_SECONDS < round_ < ROUND_SECONDS + 5 * NODE_SECONDS


def test_a_conditional_is_the_longest_of_its_branches():
    branches = """\
HloModule c
short { p = f32[64] parameter(0)  ROOT n = f32[64] negate(p) }
long {
  p = f32[64] parameter(0)
  a = f32[64] sine(p)
  b = f32[64] cosine(a)
  ROOT n = f32[64] negate(b)
}
ENTRY main {
  x = f32[64] parameter(0)
  k = s32[] parameter(1)
  ROOT c = f32[64] conditional(k, x, x), branch_computations={short, long}
}
"""
    found = estimated_seconds(h2g.plan(branches), H200)
    assert found == pytest.approx(BRANCH_SECONDS + NODE_SECONDS + 3 * (NODE_SECONDS + each(256)))


def test_nothing_takes_no_time():
    plan = h2g.plan("HloModule m\nENTRY main {\n  ROOT t = () tuple()\n}\n")
    assert estimated_seconds(plan, H200) == 0.0


TEXT = """\
m   target host, fuse none, time estimated for h200, there being no figures of the host
  4.80 TB/s, 67 TFLOP/s, 494 in TF32 products, 830 ns a node
  alive at once in program order: 256 B
"""


def test_the_text_has_a_line_for_points_of_the_same_figures_and_marks_xlas(cli, tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TWO_CHAINS)
    code, out, _ = cli("budget", file, "--target", "host")
    assert code == 0
    assert out.startswith(TEXT)
    lines = [(re.split("  +", line.strip())[0], line) for line in out.splitlines()[4:]]
    rows = {name: line for names, line in lines for name in names.split(", ")}
    assert set(rows) == set(POINTS)
    assert len({line.partition(names)[2].strip() for names, line in lines}) == len(lines) < 7
    assert rows["serial"].endswith("as XLA's LHS")
    assert rows["default"].endswith("as XLA's CONCURRENT")
    assert "512 B" in rows["default"]
    assert "256 B" in rows["serial"]


def test_edges_of_loops_count_too(cli):
    sample = ROOT / "samples" / "copies_nested_loops.hlo"
    _, out, _ = cli("budget", sample, "--target", "host")
    assert re.search(r"of alive  edges in all  false in all  width", out)
    assert "width and path: a loop or conditional is one thunk" in out
    found = json.loads(cli("budget", sample, "--target", "host", "--json", "-")[1])
    serial = found["points"][0]
    assert serial["name"] == "serial"
    assert serial["edges_in_all"] > serial["edges"]
    assert serial["false_in_all"] >= serial["false"]
    assert str(serial["edges_in_all"]) in out.splitlines()[4].split()


@pytest.mark.parametrize("command", ["budget", "buffers", "run"])
def test_what_a_chain_goes_below_is_called_no_bound(cli, command):
    sample = ROOT / "samples" / "copies_late_reader.hlo"
    chain = dict(sweep(sample.read_text(), target="sm_90"))["serial"]
    held = h2g.plan(sample.read_text(), target="sm_90")
    assert chain.arena.size < held.arena.lower_bound  # the chain writes in place what others copy
    more = ["--duration", "0", "--backend", "host"] if command == "run" else []
    out = cli(command, sample, *more, "--target", "sm_90")[1]
    assert "bound" not in out
    assert "alive at once" in out


def test_json_has_the_points_from_little_to_much(cli, tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TWO_CHAINS)
    code, out, _ = cli("budget", file, "--device", "a100", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == {"name": "hlo2graph.budget", "version": 1}
    assert found["target"] == "sm_80"
    assert found["device"]["name"] == "a100"
    sizes = [point["arena_bytes"] for point in found["points"]]
    assert sizes == sorted(sizes)
    assert sorted(point["name"] for point in found["points"]) == sorted(POINTS)
    assert {point["like"] for point in found["points"]} == {None, "XLA's LHS", "XLA's CONCURRENT"}


def test_the_drawing_is_xml_with_a_mark_a_point_and_panel(cli, tmp_path):
    file, drawn = tmp_path / "m.hlo", tmp_path / "curve.svg"
    file.write_text(TWO_CHAINS.replace("HloModule m", "HloModule m_lt_3"))
    code, out, _ = cli("budget", file, "--target", "host", "-o", drawn)
    assert code == 0
    assert out == ""
    tree = ET.parse(drawn)
    names = [element.tag.rpartition("}")[2] for element in tree.iter()]
    assert names.count("circle") == 3 * len(POINTS)
    words = [element.text for element in tree.iter() if element.text]
    assert "serial, as XLA's LHS" in words
    assert "alive at once" in words
    for circle in tree.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(circle.get("cx")) <= 980
        assert 0 <= float(circle.get("cy")) <= 700


@pytest.mark.parametrize("name", ["chains", "attention", "wide_branches", "switch"])
@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_no_words_of_the_drawing_stand_on_others(cli, tmp_path, name, target):
    drawn = tmp_path / "curve.svg"
    code, _, _ = cli("budget", ROOT / "samples" / f"{name}.hlo", "--target", target, "-o", drawn)
    assert code == 0
    boxes = [_box(element) for element in ET.parse(drawn).iter() if element.tag.endswith("}text")]
    assert len(boxes) > 3 * len(POINTS)
    for (words, left, low, right), (other, its_left, its_low, its_right) in combinations(boxes, 2):
        apart = right <= its_left or its_right <= left or abs(low - its_low) >= 12
        assert apart, f"{words} on {other}"


def _box(element):
    """Return a text and where it is, letters taken for as wide as they are on the average."""
    wide, x = len(element.text) * 6.2, float(element.get("x"))
    left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
    return element.text, left, float(element.get("y")), left + wide


def test_axes_count_in_whole_steps(cli, tmp_path):
    drawn = tmp_path / "curve.svg"
    cli("budget", ROOT / "samples" / "wide_branches.hlo", "--target", "sm_90", "-o", drawn)
    ends = [e.text for e in ET.parse(drawn).iter() if e.get("text-anchor") == "end"]
    counts = [int(text) for text in ends if text.isdecimal()]
    assert len(counts) > 3
    assert all(len(set(axis)) == len(axis) for axis in _axes(counts))


def _axes(ticks):
    """Split ticks where they begin at nothing again."""
    starts = [at for at, tick in enumerate(ticks) if tick == 0] + [len(ticks)]
    return [ticks[a:b] for a, b in pairwise(starts)]


@pytest.mark.parametrize(
    ("flags", "target", "device"),
    [
        ((), "host", "h200"),
        (("--target", "sm_80"), "sm_80", "a100"),
        (("--device", "a100"), "sm_80", "a100"),
        (("--device", "h100"), "sm_90", "h100"),
        (("--device", "h100", "--target", "auto"), "host", "h100"),
    ],
)
def test_plans_are_for_what_plan_takes_or_the_device_that_is_named(
    cli, tmp_path, monkeypatch, flags, target, device
):
    monkeypatch.setattr("hlo2graph.pipeline.machine_for", lambda _: "host")
    file = tmp_path / "m.hlo"
    file.write_text(TWO_CHAINS)
    found = json.loads(cli("budget", file, *flags, "--json", "-")[1])
    assert (found["target"], found["device"]["name"]) == (target, device)


def test_a_compiled_file_is_planned_as_it_was(cli, tmp_path):
    file, compiled = tmp_path / "m.hlo", tmp_path / "m.h2g"
    file.write_text(TWO_CHAINS)
    cli("compile", file, "--target", "sm_80", "--fuse", "none", "-o", compiled)
    for flags, target, fuse in (
        ((), "sm_80", "none"),
        (("--fuse", "default"), "sm_80", "default"),
        (("--target", "sm_90"), "sm_90", "default"),
        (("--device", "h100"), "sm_90", "default"),
    ):
        found = json.loads(cli("budget", compiled, *flags, "--json", "-")[1])
        assert (found["target"], found["fuse"]) == (target, fuse)


def test_what_cannot_be_swept_is_an_error(cli, tmp_path):
    planned, several = tmp_path / "m.thunks", tmp_path / "two.hlo"
    planned.write_text(str(h2g.plan(TWO_CHAINS)))
    code, _, err = cli("budget", planned)
    assert code == 2
    assert "a thunk sequence is planned already" in err
    several.write_text(f"{TWO_CHAINS}\n// -----\n\n{TWO_CHAINS}")
    code, out, _ = cli("budget", several)
    assert code == 0
    assert out.count("alive at once") == 2
    code, _, err = cli("budget", several, "-o", tmp_path / "x.svg")
    assert code == 2
    assert f"{several} holds 2 modules; draw one: keep the text of one, between two" in err
    code, _, err = cli("budget", several, "-o", tmp_path / "x.png")
    assert code == 2
    assert "the curve is drawn as SVG" in err
