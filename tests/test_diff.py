"""`diff` matches thunks whatever they are called, and says what became of edges and memory."""

from __future__ import annotations

import json
import random
import re

import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.inspect.diff.plans import diff_plans

PLANNED = [path for path in SAMPLES if path.suffix == ".hlo"]
CHAINS = SAMPLES[0].parent / "chains.hlo"
BEFORE = """\
HloModule m
ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] exponential(x)
  b = f32[64] sine(x)
  c = f32[64] add(a, b)
  ROOT r = f32[64] negate(c)
}
"""


def changes(before, after, **options):
    diff = diff_plans(h2g.plan(before, **options), h2g.plan(after, **options))
    return {(t.change, t.name, t.before) for t in diff.thunks}, diff


def edges(diff):
    return {(e.change, e.src, e.dst, str(e.hazard), e.ordered) for e in diff.edges}


@pytest.mark.parametrize("path", PLANNED, ids=lambda p: p.stem)
def test_a_plan_does_not_differ_from_itself_nor_from_its_text(path):
    plan = h2g.plan(path.read_text(), filename=path.name)
    assert not diff_plans(plan, plan).differ
    again = h2g.plan(str(plan))
    diff = diff_plans(plan, again)
    assert (diff.thunks, diff.edges) == ((), ())


def renamed(text):
    """Return a program with every name of an instruction of its entry changed."""
    head, entry = text[: text.index("ENTRY")], text[text.index("ENTRY") :]
    names = re.findall(r"^ *(?:ROOT )?%?([\w.\-]+) = ", entry, re.MULTILINE)
    numbers = random.Random(3).sample(range(10_000), len(names))
    for name, number in zip(names, numbers, strict=True):
        entry = re.sub(rf"(?<![\w.\-/\"]){re.escape(name)}(?![\w.\-/\"(=])", f"v_{number}", entry)
    return head + entry


@pytest.mark.parametrize("name", ["wide_branches", "chains", "attention", "mlp"])
def test_names_alone_are_no_difference(name):
    path = CHAINS.parent / f"{name}.hlo"
    text = path.read_text()
    _, diff = changes(text, renamed(text))
    assert not diff.differ
    assert {t.change for t in diff.thunks} == {"renamed"}


def test_added_and_removed_thunks_with_their_edges():
    after = BEFORE.replace("b = f32[64] sine(x)", "s = f32[64] sine(x)\n  b = f32[64] floor(s)")
    thunks, diff = changes(BEFORE, after)
    assert thunks == {("added", "b", ""), ("renamed", "s", "b")}
    assert edges(diff) == {
        ("lost", "b", "c", "raw", True),
        ("gained", "s", "b", "raw", None),
        ("gained", "b", "c", "raw", None),
    }
    thunks, diff = changes(after, BEFORE)
    assert ("removed", "b", "") in thunks
    assert diff.figures["thunks"] == (5, 4)
    assert diff.figures["critical path"] == (4, 3)


def test_a_thunk_that_computes_something_else_under_its_name_is_changed():
    thunks, diff = changes(BEFORE, BEFORE.replace("sine(x)", "cosine(x)"))
    assert thunks == {("changed", "b", "")}
    assert diff.differ
    assert not diff.edges


def test_a_changed_thunk_with_another_number_is_found_by_its_neighbours():
    before = BEFORE.replace("b = ", "fusion.1 = ").replace(", b)", ", fusion.1)")
    after = BEFORE.replace("b = f32[64] sine", "fusion.9 = f32[64] cosine").replace(
        ", b)", ", fusion.9)"
    )
    thunks, _ = changes(before, after)
    assert thunks == {("changed", "fusion.9", ""), ("renamed", "fusion.9", "fusion.1")}


def test_program_order_is_told():
    lines = BEFORE.splitlines()
    lines[3], lines[4] = lines[4], lines[3]
    thunks, diff = changes(BEFORE, "\n".join(lines) + "\n")
    assert len(thunks) == 1
    assert {t[0] for t in thunks} == {"moved"}
    assert diff.differ


def test_likeness_sees_literals_shapes_and_what_is_called():
    fused = """\
HloModule m
f {
  p = f32[64] parameter(0)
  k = f32[] constant(2)
  w = f32[64] broadcast(k), dimensions={}
  ROOT m = f32[64] multiply(p, w)
}
ENTRY main {
  x = f32[64] parameter(0)
  ROOT y = f32[64] fusion(x), kind=kLoop, calls=f
}
"""
    assert not changes(fused, fused.replace("w = ", "ww = ").replace("(p, w)", "(p, ww)"))[1].differ
    assert changes(fused, fused.replace("constant(2)", "constant(3)"))[0] == {("changed", "y", "")}
    swapped = fused.replace(
        "  p = f32[64] parameter(0)\n  k = f32[] constant(2)\n",
        "  k = f32[] constant(2)\n  p = f32[64] parameter(0)\n",
    )
    assert not changes(fused, swapped)[1].differ


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
  loop = (s32[], f32[64]) while(init), condition=condition, body=body
  ROOT y = f32[64] get-tuple-element(loop), index=1
}
"""


def test_nested_sequences_are_compared_where_they_stand():
    after = LOOP.replace("e = f32[64] exp", "f = f32[64] floor(x)\n  e = f32[64] exp").replace(
        "exponential(x)", "exponential(f)"
    )
    _, diff = changes(LOOP, after)
    assert [(t.change, t.where, t.name) for t in diff.thunks] == [("added", "loop/body", "f")]
    gained = [(e.where, e.src, e.dst) for e in diff.edges if e.change == "gained"]
    assert gained == [("loop/body", "f", "e")]


def test_what_only_one_side_has_inside_is_added_and_removed():
    flat = BEFORE.replace("HloModule m", "HloModule loop")
    _, diff = changes(flat, LOOP)
    inside = {(t.change, t.where, t.name) for t in diff.thunks if t.where}
    assert ("added", "loop/body", "e") in inside
    _, back = changes(LOOP, flat)
    assert {(t.change, t.where, t.name) for t in back.thunks if t.where} == {
        ("removed", where, name) for _, where, name in inside
    }


TEXT = """\
chains
                   before    after
  thunks               14       14
  edges                13       14       +1
  false edges           0        2       +2
  width                 3        2       -1
  critical path         6       13       +7
  arena           3.84 kB  1.79 kB  -53.3 %
  alive at once   1.79 kB  1.79 kB
  sum of buffers  10.2 kB  10.2 kB
lost     a -> ab, raw: still ordered by a longer path
gained   a -> b0, reuse: was not ordered
gained   b -> c0, reuse: was not ordered
"""


@pytest.fixture
def reused(tmp_path):
    """The plan of CHAINS with all reuse there is."""
    file = tmp_path / "reused.thunks"
    file.write_text(str(h2g.plan(CHAINS.read_text(), max_buffer_reuse=-1)))
    return file


def test_the_text_is_the_same_everywhere_and_the_exit_code_tells(cli, reused):
    code, out, _ = cli("diff", CHAINS, reused)
    assert (code, out) == (0, TEXT)
    code, out, _ = cli("diff", CHAINS, reused, "--exit-code")
    assert (code, out) == (1, TEXT)
    code, out, _ = cli("diff", CHAINS, reused, "--exit-code", "--max-buffer-reuse", "-1")
    assert code == 0
    assert out.endswith("no difference\n")


def test_a_reason_that_changes_is_told(cli, tmp_path):
    one, other = tmp_path / "one.thunks", tmp_path / "other.thunks"
    text = str(h2g.plan(CHAINS.read_text(), max_buffer_reuse=-1))
    one.write_text(text)
    other.write_text(text.replace(", reuse ", ", war ", 1))
    code, out, _ = cli("diff", one, other, "--exit-code")
    assert code == 1
    assert re.search(r"^edge     \w+ -> \w+, war, was reuse$", out, re.MULTILINE)


def test_json_says_the_same(cli, reused):
    code, out, _ = cli("diff", CHAINS, reused, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == {"name": "hlo2graph.diff", "version": 1}
    assert found["differ"] is True
    assert found["figures"]["width"] == {"before": 3, "after": 2}
    assert [(e["change"], e["hazard"], e["ordered"]) for e in found["edges"]] == [
        ("lost", "raw", True),
        ("gained", "reuse", False),
        ("gained", "reuse", False),
    ]


def test_plans_for_different_machines_are_told_apart(cli, tmp_path):
    planned = tmp_path / "a.thunks"
    planned.write_text(str(h2g.plan(BEFORE, target="sm_90")))
    model = tmp_path / "b.hlo"
    model.write_text(BEFORE)
    code, out, err = cli("diff", planned, model, "--target", "host")
    assert code == 0
    assert "A is for sm_90, fuse default; B is for host, fuse none\n" in out
    assert err == "note: --target sm_90 --fuse default plans B as the other was planned\n"
    _, out, err = cli("diff", model, planned, "--target", "host", "--json", "-")
    assert err == "note: --target sm_90 --fuse default plans A as the other was planned\n"
    assert json.loads(out)["settings"] == {
        "before": {"target": "host", "fuse": "none"},
        "after": {"target": "sm_90", "fuse": "default"},
    }
    _, out, err = cli("diff", planned, model, "--target", "sm_90", "--json", "-")
    assert (json.loads(out)["settings"], err) == (None, "")


def test_long_lists_are_cut_and_say_so(cli, tmp_path):
    before, after = tmp_path / "a.hlo", tmp_path / "b.hlo"
    lines = [f"  v{i}x = f32[{i + 2}] sine(p{i}x)" for i in range(60)]
    parameters = [f"  p{i}x = f32[{i + 2}] parameter({i})" for i in range(60)]
    shapes = ", ".join(f"f32[{i + 2}]" for i in range(60))
    names = ", ".join(f"v{i}x" for i in range(60))
    body = "\n".join([*parameters, *lines, f"  ROOT t = ({shapes}) tuple({names})"])
    before.write_text(f"HloModule m\nENTRY main {{\n{body}\n}}\n")
    after.write_text(before.read_text().replace("sine", "cosine"))
    _, out, _ = cli("diff", before, after)
    assert "  and 20 more of these: --all lists them" in out
    _, out, _ = cli("diff", before, after, "--all")
    assert out.count("changed ") == 60


def test_usage(cli, tmp_path):
    code, _, err = cli("diff", "-", "-")
    assert code == 2
    assert "only one of A and B can be stdin" in err
    several = tmp_path / "two.hlo"
    several.write_text(f"{BEFORE}\n// -----\n\n{BEFORE}")
    code, _, err = cli("diff", CHAINS, several)
    assert code == 2
    assert "holds 2 modules; compare one" in err
    planned = tmp_path / "planned.thunks"
    planned.write_text(str(h2g.plan(BEFORE)))
    code, _, err = cli("diff", planned, planned, "--target", "host")
    assert code == 2
    assert "A and B are planned already" in err
    code, _, err = cli("diff", CHAINS, tmp_path / "missing.hlo")
    assert code == 2
    assert "missing.hlo" in err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sine(x)", "cosine(x)", ("without sine f32[64]", "with cosine f32[64]")),
        ("negate(c)", "convert(c)", ("without negate f32[64]", "with convert f32[64]")),
    ],
)
def test_what_changed_inside_a_kernel(old, new, said):
    after = BEFORE.replace(old, new)
    assert after != BEFORE
    _, diff = changes(BEFORE, after, target="host")
    (thunk,) = (t for t in diff.thunks if t.change == "changed")
    assert thunk.inside == said


def test_what_changed_inside_a_fused_kernel(tmp_path, cli):
    for old, new, said in (
        ("sine(x)", "multiply(x, x)", "without sine f32[64]; with multiply f32[64]"),
        ("add(a, b)", "add(a, a)", "without sine f32[64]"),
        ("sine(x)", "sine(a)", "the same instructions of other operands"),
    ):
        for name, text in (("a", BEFORE), ("b", BEFORE.replace(old, new))):
            (tmp_path / name).write_text(text)
        code, out, _ = cli("diff", tmp_path / "a", tmp_path / "b", "--target", "sm_90")
        assert code == 0
        (line,) = (line for line in out.splitlines() if line.startswith("changed"))
        assert line.endswith(f": {said}")


def test_what_changed_of_fills_and_loops():
    fill = "HloModule m\nENTRY e {\n  c = f32[] constant(1)\n  ROOT f = f32[9] broadcast(c), "
    fill += "dimensions={}\n}\n"
    for old, new, said in (
        ("constant(1)", "constant(2)", "of 00000040, was 0000803f"),
        ("f32[9]", "f32[8]", "32 bytes, was 36"),
    ):
        _, diff = changes(fill, fill.replace(old, new), target="host")
        assert [t.inside for t in diff.thunks if t.change == "changed"] == [(said,)]


def test_new_names_are_counted_and_else_nothing_differs(cli, tmp_path):
    path = tmp_path / "renamed.hlo"
    text = CHAINS.read_text()
    path.write_text(re.sub(r"\bab\b", "other", text))
    code, out, _ = cli("diff", CHAINS, path, "--exit-code", "--target", "host")
    assert code == 0
    assert out.endswith("\n1 renamed, otherwise no difference\n")
