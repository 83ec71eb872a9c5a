"""Why two thunks are ordered: the path, its hazards and their price; names that mean thunks."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.errors import InputError
from hlo2graph.inspect.check.order import check_order
from hlo2graph.inspect.explain import (
    explain_critical_path,
    explain_false_edges,
    explain_left_out,
    explain_pair,
)
from hlo2graph.inspect.explain.edges import EdgeWords
from hlo2graph.inspect.explain.find import find
from hlo2graph.program.uses import placed, reads, writes

CHAINS = """
HloModule chains
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] exponential(a)
  c = f32[4] tanh(x)
  d = f32[4] sine(c)
  ROOT t = (f32[4], f32[4]) tuple(b, d)
}
"""
LOOP = """
HloModule loop
body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[4] negate(v)
  ROOT t = (s32[], f32[4]) tuple(next, w)
}
condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  start = s32[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] tanh(x)
  init = (s32[], f32[4]) tuple(start, y)
  loop = (s32[], f32[4]) while(init), condition=condition, body=body
  v = f32[4] get-tuple-element(loop), index=1
  ROOT z = f32[4] sine(v)
}
"""
BRANCH = """
HloModule branch
yes { x = f32[4] parameter(0)  ROOT up = f32[4] exponential(x) }
no  { x = f32[4] parameter(0)  ROOT down = f32[4] negate(x) }
ENTRY main {
  s = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT y = f32[4] conditional(s, x, x), true_computation=yes, false_computation=no
}
"""


def plan_of(text, **options):
    return h2g.plan(text, target=options.pop("target", "host"), **options)


def test_a_path_names_hazard_bytes_and_reason():
    plan = plan_of(CHAINS)
    written = plan.body.thunks[0].writes[0]
    assert str(explain_pair(plan, "b", "a")).splitlines() == [
        "a runs before b, by 1 edge:",
        f"  a -> b   raw {written}, 16 B of the arena",
        "      b reads what a writes",
        "The program itself asks for this order.",
    ]


def test_unordered_thunks_and_what_they_overlap_with():
    answer = explain_pair(plan_of(CHAINS), "a", "d")
    assert "a and d are unordered: they may run at the same time." in answer.lines
    assert answer.json["ordered"] is False
    assert answer.json["overlaps"] == {"a": ["c", "d"], "d": ["a", "b"]}


def test_an_artefact_has_a_price():
    plan = plan_of(CHAINS, max_buffer_reuse=-1)
    answer = explain_false_edges(plan)
    (edge,) = answer.json["edges"]
    assert (edge["hazard"], edge["cost_bytes"]) == ("reuse", 16)
    assert answer.lines[0].startswith("chains: 1 edge that the program does not ask for")
    pair = explain_pair(plan, edge["src"], edge["dst"])
    assert "does not ask for" in pair.lines[-1]
    assert any("needs 16 B of its own" in line for line in pair.lines)


def test_a_plan_without_artefacts_says_so():
    assert explain_false_edges(plan_of(CHAINS)).lines == (
        "chains: 0 edges that the program does not ask for",
    )


def test_thunks_inside_loops_are_ordered_as_the_loop_is():
    plan = plan_of(LOOP)
    answer = explain_pair(plan, "z", "w")
    assert answer.lines[0] == "loop/body/w runs inside loop."
    assert answer.lines[1].startswith("loop runs before z")
    assert explain_pair(plan, "loop", "w").lines == ("loop/body/w runs inside loop",)
    assert explain_pair(plan, "w", "less").lines == (
        "loop/condition/less runs before loop/body/w: the condition before each round",
    )


def test_thunks_of_two_branches_never_meet():
    (line,) = explain_pair(plan_of(BRANCH), "up", "down").lines
    assert line.endswith("are in two branches of y, of which one runs")


def test_an_instruction_in_a_fusion_means_its_kernel():
    plan = plan_of(CHAINS, target="sm_90")
    assert len(plan.body.thunks) < 4
    for name in ("a", "b", "c", "d"):
        assert find(plan, name).thunk in plan.body.thunks
    assert explain_pair(plan, "a", "b").lines[0].startswith("both are in one thunk")


@pytest.mark.parametrize("name", ["t0", "y", "loop/body/w"])
def test_ids_and_paths_are_names(name):
    assert find(plan_of(LOOP), name).thunk.name == name.split("/")[-1].replace("t0", "y")


def test_a_wrong_name_gets_a_hint():
    with pytest.raises(InputError, match="perhaps loop was meant"):
        find(plan_of(LOOP), "lop")


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.suffix == ".hlo"], ids=lambda p: p.stem)
def test_a_path_is_found_exactly_where_there_is_order(path):
    """Taking the answer's edges for true: each is one of the plan's, and joins the next."""
    plan = h2g.plan(path.read_text(), filename=path.name, target="host")
    thunks = plan.body.thunks
    edges = {(thunks[e.src].name, thunks[e.dst].name) for e in plan.body.edges}
    for one, other in list(combinations([t.name for t in thunks], 2))[:60]:
        answer = explain_pair(plan, one, other).json
        steps = [(e["src"], e["dst"]) for e in answer["path"]]
        assert set(steps) <= edges
        assert [b for _, b in steps[:-1]] == [a for a, _ in steps[1:]]
        assert answer["ordered"] == bool(steps)
        if steps:
            assert {steps[0][0], steps[-1][1]} == {one, other}


def test_the_critical_path_is_as_long_as_the_plan_says():
    plan = plan_of(CHAINS)
    answer = explain_critical_path(plan)
    assert len(answer.json["thunks"]) == plan.to_json()["stats"]["critical_path"]
    assert not list(check_order(plan.body, "", plan.schedule))


def test_what_no_graph_holds():
    text = "HloModule t\nENTRY main { ROOT t = token[] after-all() }\n"
    assert (
        explain_left_out(plan_of(text, target="sm_90"))
        .lines[0]
        .startswith("t, in all 0 thunks: one graph")
    )
    text = (
        "HloModule i\nENTRY e { t = token[] after-all()  ROOT i = ((f32[4]), token[]) infeed(t) }"
    )
    answer = explain_left_out(plan_of(text, target="sm_90"))
    assert "cannot run on cuda" in answer.lines[0]
    assert "infeed" in answer.lines[1]


def test_the_command(cli, tmp_path):
    path = tmp_path / "chains.hlo"
    path.write_text(CHAINS)
    code, out, _ = cli("explain", str(path), "a", "b", "--target", "host")
    assert (code, out.splitlines()[0]) == (0, "a runs before b, by 1 edge:")
    code, out, _ = cli("explain", str(path), "--critical-path", "--json", "-", "--target", "host")
    assert json.loads(out)["question"] == "critical-path"
    for wrong in ([], ["a"], ["a", "b", "--false-edges"], ["a", "b", "c"]):
        assert cli("explain", str(path), *wrong)[0] == 2
    code, _, err = cli("explain", str(path), "a", "zz")
    assert (code, "no thunk of this plan is called zz" in err) == (2, True)


def test_what_became_of_a_name_that_no_thunk_has():
    """Of the program's own: why it has no thunk, and what is there in its place."""
    module = h2g.parse(LOOP, "loop.hlo")
    plan = h2g.plan(module, target="host")
    with pytest.raises(InputError) as caught:
        explain_pair(plan, "v", "next", module)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("loop.hlo:6:3: error: v of body has no thunk in this plan")
    assert "note: what is taken out of a tuple stays where it is" in lines
    (uses,) = (line for line in lines if line.startswith("note: what uses it is there: "))
    for name in uses.rpartition(": ")[2].split(", "):
        assert find(plan, name)
    with pytest.raises(InputError, match="no thunk of this plan is called nxt"):
        explain_pair(plan, "nxt", "next", module)


def test_what_was_simplified_away_says_so():
    text = CHAINS.replace("negate(x)", "negate(x)\n  a2 = f32[4] negate(a)").replace(
        "exponential(a)", "exponential(a2)"
    )
    module = h2g.parse(text, "chains.hlo")
    plan = h2g.plan(module, target="sm_90")
    with pytest.raises(InputError) as caught:
        find(plan, "a2", module)
    assert "it was simplified away, is a view" in str(caught.value)
    assert "what uses it is there: b" in str(caught.value)


# ---- edges about several ranges of bytes ---------------------------------------------------------


def test_an_edge_tells_all_bytes_that_it_is_about():
    plan = h2g.plan(
        (SAMPLES[0].parent / "factorizations.hlo").read_text(),
        target="sm_90",
        fuse="none",
        max_buffer_reuse=-1,
    )
    answer = explain_false_edges(plan)
    at = next(k for k, line in enumerate(answer.lines) if "eigh -> svd" in line)
    assert "reuse 8[0:200], 200 B of the arena; and reuse 8[256:264]" in answer.lines[at]
    edge = answer.json["edges"][-1]
    assert edge["more"] == [{"hazard": "reuse", "allocation": 8, "offset": 256, "size": 8}]


def test_other_hazards_of_an_edge_are_named_and_many_ranges_counted():
    sample = SAMPLES[0].parent
    aliased = h2g.plan((sample / "copies_must_alias.hlo").read_text(), target="sm_90")
    assert "raw 3[0:1024], 1.02 kB of the arena; and war 0[0:1024]" in str(
        explain_critical_path(aliased)
    )
    rotated = h2g.plan((sample / "copies_rotated_state.hlo").read_text(), target="sm_90")
    text = str(explain_critical_path(rotated))
    assert "; and raw 3[0:32], raw 4[0:32], raw 5[0:4], 1 range more of 1 B\n" in text


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_what_an_edge_tells_is_what_both_use(sample):
    if sample.suffix != ".hlo":
        return
    plan = h2g.plan(sample.read_text(), target="sm_90", fuse="none", max_buffer_reuse=-1)
    words = EdgeWords(plan)
    for _, sequence in placed(plan.body):
        for edge in sequence.edges:
            src, dst = sequence.thunks[edge.src], sequence.thunks[edge.dst]
            more = words.more(sequence, edge)
            told = {edge.slice} | {held for _, held in more}
            assert len(told) == len(more) + 1
            common = byte_set(*writes(src)) & byte_set(*reads(dst), *writes(dst))
            common |= byte_set(*reads(src)) & byte_set(*writes(dst))
            shown = byte_set(*(held for held in told if held is not None))
            assert shown <= common
            between = sequence.thunks[edge.src + 1 : edge.dst]
            if edge.slice is not None and not between:
                assert shown == common


def byte_set(*slices):
    return {(s.allocation, byte) for s in slices for byte in range(s.offset, s.end)}


@pytest.mark.parametrize(
    ("made", "place"),
    [("multiply(p, scale)", "its operand"), ("negate(scale)", "parameter p, given up")],
)
def test_what_is_written_over_is_named(made, place):
    """An argument that is given up need not be what its new owner reads."""
    plan = h2g.plan(
        f"""HloModule step, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}
ENTRY main {{
  p = f32[2048,1024] parameter(0)
  scale = f32[2048,1024] parameter(1)
  old = f32[2048,1024] sine(p)
  new = f32[2048,1024] {made}
  ROOT t = (f32[2048,1024], f32[2048,1024]) tuple(new, old)
}}""",
        target="host",
        fuse="none",
    )
    assert f"new writes its result over {place}, which old uses" in "\n".join(
        explain_false_edges(plan).lines
    )


def test_users_that_are_not_named_are_counted(tmp_path, cli):
    lines = [f"  y{k} = f32[4] sine(x)" for k in range(6)]
    names = ", ".join(f"y{k}" for k in range(6))
    shape = ", ".join(["f32[4]"] * 6)
    path = tmp_path / "m.hlo"
    body = "\n".join(lines)
    path.write_text(
        f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n{body}\n"
        f"  ROOT t = ({shape}) tuple({names})\n}}\n"
    )
    _, _, err = cli("explain", str(path), "x", "y5")
    assert "what uses it is there: y0, y1, y2, y3, and 2 more" in err
