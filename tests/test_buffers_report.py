"""`buffers` says what lives where and when, and who fills the arena."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.inspect.buffers.lives import lives_of
from hlo2graph.inspect.buffers.names import names_of
from hlo2graph.inspect.buffers.report import report_buffers
from hlo2graph.program.live_bytes import peak_bytes
from hlo2graph.program.plan import AllocationKind
from hlo2graph.program.uses import reads, writes

DIAMOND = """\
HloModule diamond
ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] exponential(x)
  b = f32[64] sine(a)
  c = f32[64] cosine(a)
  s = f32[64] add(b, c)
  ROOT r = f32[64] negate(s)
}
"""
TEXT = """\
diamond   target host, fuse none
  arena      768 B, alive at once 768 B, sum of buffers 1.02 kB, 1.00 times what is alive at once
  parameter  256 B in 1
  live-out   256 B in 1
  peak       768 B live while t2 c runs, held by
    256 B  a  2[0:256]    t0 to t2
    256 B  b  2[256:512]  t1 to t3
    256 B  c  2[512:768]  t2 to t3
  aliases    none asked for

allocation 0: 256 B, parameter x
  [0:256]  x  start to t0
allocation 1: 256 B, live-out r
  [0:256]  r  t4 to end
allocation 2: 768 B, temp
  [0:256]    a  t0 to t2
  [256:512]  b  t1 to t3
  [512:768]  c  t2 to t3
  [256:512]  s  t3 to t4
"""
LOOP = """\
HloModule loop
body {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  e = f32[256] exponential(x)
  r = f32[256] reverse(e), dimensions={0}
  n = f32[256] add(r, x)
  ROOT t = (s32[], f32[256]) tuple(next, n)
}
condition {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT less = pred[] compare(i, end), direction=LT
}
ENTRY main {
  x = f32[256] parameter(0)
  zero = s32[] constant(0)
  far = f32[256] sine(x)
  init = (s32[], f32[256]) tuple(zero, x)
  loop = (s32[], f32[256]) while(init), condition=condition, body=body
  y = f32[256] get-tuple-element(loop), index=1
  ROOT sum = f32[256] add(y, far)
}
"""
OPTIONS = ({}, {"target": "sm_90"}, {"max_buffer_reuse": -1}, {"schedule": "serialize"})


def test_the_text_names_who_is_alive(cli, tmp_path):
    file = tmp_path / "diamond.hlo"
    file.write_text(DIAMOND)
    code, out, _ = cli("buffers", file)
    assert code == 0
    assert out == TEXT


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_the_peak_lies_between_the_bytes_needed_and_the_bound(path, options):
    if path.suffix == ".thunks" and options:
        pytest.skip("planned already")
    plan = h2g.plan(path.read_text(), filename=path.name, **options)
    temps = {i: a.size for i, a in enumerate(plan.allocations) if a.kind is AllocationKind.TEMP}
    peak = report_buffers(plan).peak
    assert peak_bytes(plan.body, temps) <= peak.bytes
    if path.suffix == ".hlo":
        assert peak.bytes <= plan.arena.lower_bound
    assert sum(v.slice.size for v in peak.held) >= peak.bytes


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_every_value_lives_from_its_writer_to_its_last_reader(path):
    plan = h2g.plan(path.read_text(), filename=path.name)
    for lives in lives_of(plan).walk():
        thunks = dict(lives.numbered)
        for life in lives.values:
            if life.born is not None:
                assert any(
                    w.overlaps(life.slice) or w == life.slice for w in writes(thunks[life.born])
                )
            if life.last is not None:
                assert any(r.overlaps(life.slice) for r in reads(thunks[life.last]))
                assert life.born is None or life.born < life.last


def test_what_a_loop_uses_lives_through_it():
    plan = h2g.plan(LOOP)
    lives = lives_of(plan)
    (loop,) = [id for id, thunk in lives.numbered if thunk.name == "loop"]
    outer = {life.name: life for life in lives.values}
    assert outer["far"].last > loop  # so it is alive while the loop runs
    inner = next(part for part in lives.walk() if part.where == "loop/body")
    names = {life.name: life for life in inner.values}
    assert names["state 1"].last == names["n"].born
    assert names["n"].kept
    peak = report_buffers(plan).peak
    assert peak.where == "loop/body"
    assert {"far", "e"} <= {life.name for life in peak.held}


def test_bytes_that_a_loop_only_uses_inside_are_free_before_it():
    text = LOOP.replace("add(y, far)", "negate(y)").replace("tuple(zero, x)", "tuple(zero, far)")
    plan = h2g.plan(text, max_buffer_reuse=-1)
    values = {life.name: life for life in lives_of(plan).values}
    loop = next(id for id, thunk in lives_of(plan).numbered if thunk.name == "loop")
    assert values["far"].last is None or values["far"].last <= loop


def test_aliases_are_told_and_those_not_honoured_come_first(cli):
    code, out, _ = cli("buffers", SAMPLES[0].parent / "alias_accumulate.hlo")
    assert code == 0
    assert (
        "  aliases    1 asked for, 1 honoured\n  alias      result sum in parameter state, must: "
        in out
    )
    assert "[0:256]  state  start to t1\n  [0:256]  sum    t1 to end" in out


def test_long_lists_are_cut_and_say_so(cli, tmp_path):
    lines = [f"  in{i} = f32[{i + 1}] broadcast(c{i}), dimensions={{}}" for i in range(40)]
    sines = [f"  out{i} = f32[{i + 1}] sine(in{i})" for i in range(40)]
    parameters = [f"  c{i} = f32[] parameter({i})" for i in range(40)]
    results = ", ".join(f"out{i}" for i in range(40))
    shapes = ", ".join(f"f32[{i + 1}]" for i in range(40))
    body = "\n".join([*parameters, *lines, *sines, f"  ROOT t = ({shapes}) tuple({results})"])
    file = tmp_path / "many.hlo"
    file.write_text(f"HloModule many\nENTRY main {{\n{body}\n}}\n")
    _, out, _ = cli("buffers", file)
    assert "and 56 allocations more: --all lists them" in out
    assert "and 15 values more: --all lists them" in out
    _, whole, _ = cli("buffers", file, "--all")
    assert "more: --all" not in whole
    assert whole.count("allocation ") == 81


def test_json_has_every_value(cli, tmp_path):
    file = tmp_path / "loop.hlo"
    file.write_text(LOOP)
    code, out, _ = cli("buffers", file, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == {"name": "hlo2graph.buffers", "version": 1}
    assert found["peak"]["in"] == "loop/body"
    values = [v for a in found["allocations"] for v in a["values"]]
    assert {v["in"] for v in values} == {"", "loop/body", "loop/condition"}
    held = [v["name"] for v in found["peak"]["held"]]
    assert held[0] in {"far", "e"}
    assert all(a["values"] for a in found["allocations"])


def test_a_thunk_sequence_will_do(cli, tmp_path):
    file = tmp_path / "diamond.thunks"
    file.write_text(str(h2g.plan(DIAMOND)))
    _, out, _ = cli("buffers", file)
    assert out == TEXT


def test_values_of_one_kernel_have_the_names_of_the_file(cli):
    path = SAMPLES[0].parent / "copies_rotated_state.hlo"
    _, out, _ = cli("buffers", path, "--target", "sm_90")
    found = re.findall(r"(\S+) of side_by_side_fusion#(\d)", out.partition("allocation 0")[2])
    assert sorted(found, key=lambda each: each[1]) == [
        *(("start", "0"), ("again", "1"), ("a", "2"), ("b", "3"), ("c", "4"))
    ]
    assert all(re.search(rf"\b{name} =", path.read_text()) for name, _ in found)


def test_values_that_no_instruction_of_a_kernel_names_have_their_thunks():
    plan = h2g.plan((SAMPLES[0].parent / "factorizations.hlo").read_text(), target="host")
    (kernel,) = (t for t in plan.body.thunks if t.name == "svd")
    count = len(kernel.writes)
    numbered = [f"svd#{k}" for k in range(count)]
    assert names_of(kernel, count, plan.computations) == numbered
    assert names_of(kernel, 1, plan.computations) == ["svd"]
    assert names_of(replace(kernel, computation="gone"), count, plan.computations) == numbered
