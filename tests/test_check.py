"""The proof of a plan: it accepts every sample, and finds whatever is done to one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.inspect.check import Kind, prove
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Conditional, Edge, Hazard, Kernel, Sequence, Slice, While

OPTIONS = (
    {},
    {"target": "sm_90"},
    {"max_buffer_reuse": -1},
    {"schedule": "serialize"},
)
CASES = [
    pytest.param(path, options, id=f"{path.stem}-{number}")
    for path in SAMPLES
    for number, options in enumerate(OPTIONS)
    if path.suffix == ".hlo" or not options
]

Change = Callable[[Sequence[Slice]], list[Sequence[Slice]]]


def plan_of(path, options):
    return h2g.plan(path.read_text(), filename=path.name, **options)


def changed(sequence: Sequence[Slice], change: Change) -> list[Sequence[Slice]]:
    """Return `sequence` changed in each way that `change` knows, in it or in one nested in it."""
    found = list(change(sequence))
    for at, thunk in enumerate(sequence.thunks):
        match thunk:
            case While():
                inner = [replace(thunk, body=b) for b in changed(thunk.body, change)]
                inner += [replace(thunk, condition=c) for c in changed(thunk.condition, change)]
            case Conditional():
                inner = [
                    replace(thunk, branches=(*thunk.branches[:k], b, *thunk.branches[k + 1 :]))
                    for k, branch in enumerate(thunk.branches)
                    for b in changed(branch, change)
                ]
            case _:
                inner = []
        for new in inner:
            thunks = (*sequence.thunks[:at], new, *sequence.thunks[at + 1 :])
            found.append(replace(sequence, thunks=thunks))
    return found


def without_an_edge(sequence):
    return [
        replace(sequence, edges=sequence.edges[:k] + sequence.edges[k + 1 :])
        for k in range(len(sequence.edges))
    ]


def with_an_edge(sequence):
    """Add each edge that is not there."""
    there = {(e.src, e.dst) for e in sequence.edges}
    return [
        replace(sequence, edges=(*sequence.edges, Edge(a, b, Hazard.RAW)))
        for b in range(len(sequence.thunks))
        for a in range(b)
        if (a, b) not in there
    ]


@pytest.mark.parametrize(("path", "options"), CASES)
def test_every_plan_is_proved(path, options):
    plan = plan_of(path, options)
    proof = prove(plan)
    assert proof.findings == ()
    assert proof.thunks >= len(plan.body.thunks)


@pytest.mark.parametrize(("path", "options"), CASES)
def test_every_edge_taken_away_is_missed(path, options):
    plan = plan_of(path, options)
    for body in changed(plan.body, without_an_edge):
        proof = prove(replace(plan, body=body))
        assert any(f.kind is Kind.UNORDERED for f in proof.findings)


@pytest.mark.parametrize(("path", "options"), CASES)
def test_every_edge_too_many_is_found(path, options):
    plan = plan_of(path, options)
    for body in changed(plan.body, with_an_edge)[:400]:
        kinds = {f.kind for f in prove(replace(plan, body=body)).findings}
        assert kinds & {Kind.REDUNDANT, Kind.BASELESS}


CHAIN = """
HloModule chain
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] exponential(a)
  ROOT c = f32[4] add(a, b)
}
"""


def altered(plan: Plan, at: int, **fields) -> Plan:
    thunks = list(plan.body.thunks)
    thunks[at] = replace(thunks[at], **fields)
    return replace(plan, body=replace(plan.body, thunks=tuple(thunks)))


def test_the_unordered_pair_and_its_bytes_are_named():
    plan = h2g.plan(CHAIN, target="host")
    bare = replace(plan, body=replace(plan.body, edges=plan.body.edges[1:]))
    first = prove(bare).findings[0]
    source = plan.body.thunks[0]
    assert isinstance(source, Kernel)
    assert str(first) == f"unordered: no path from a to b: raw {source.writes[0]}"


def test_a_write_to_a_parameter_is_found():
    plan = h2g.plan(CHAIN, target="host")
    wrong = altered(plan, 0, writes=plan.body.thunks[0].reads)
    kinds = [f.kind for f in prove(wrong).findings]
    assert Kind.PROTECTED in kinds
    assert Kind.UNWRITTEN in kinds  # of what it should have written


def test_bytes_that_nothing_wrote_are_found():
    plan = h2g.plan(CHAIN, target="host")
    wrong = altered(plan, 0, writes=(replace(plan.body.thunks[0].writes[0], size=12),))
    assert Kind.UNWRITTEN in {f.kind for f in prove(wrong).findings}


def test_a_slice_past_its_allocation_is_found():
    plan = h2g.plan(CHAIN, target="host")
    far = replace(plan.body.thunks[2].writes[0], offset=8)
    assert Kind.BOUNDS in {f.kind for f in prove(altered(plan, 2, writes=(far,))).findings}


def test_slices_askew_are_found():
    plan = h2g.plan(CHAIN, target="host")
    read = plan.body.thunks[1].reads[0]
    askew = (replace(read, offset=read.offset + 4),)
    assert Kind.OVERLAP in {f.kind for f in prove(altered(plan, 1, writes=askew)).findings}


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
  init = (s32[], f32[4]) tuple(start, x)
  ROOT out = (s32[], f32[4]) while(init), condition=condition, body=body
}
"""


def test_state_that_moves_is_found():
    plan = h2g.plan(LOOP, target="host")
    at = next(k for k, t in enumerate(plan.body.thunks) if isinstance(t, While))
    loop = plan.body.thunks[at]
    moved = altered(plan, at, results=tuple(reversed(loop.results)))
    assert Kind.STATE in {f.kind for f in prove(moved).findings}


def test_the_command_proves_and_runs(cli, tmp_path):
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    code, out, _ = cli("check", str(path), "--runs", "3")
    assert code == 0
    assert "ordered  every pair" in out
    assert "3 random orders, memory poisoned before each: same bits as program order" in out


def test_the_command_names_a_missing_edge(cli, tmp_path):
    lines = str(h2g.plan(CHAIN, target="host")).splitlines()
    edges = [line for line in lines if line.startswith("edge")]
    path = tmp_path / "chain.thunks"
    path.write_text("\n".join(line for line in lines if line != edges[0]) + "\n")
    code, out, _ = cli("check", str(path))
    assert code == 1
    assert "ordered  NO: 2 faults" in out  # c came behind a only through b
    assert "no path from a to b: raw" in out
    assert "not run: the proof failed" in out
    code, out, _ = cli("check", str(path), "--json", "-")
    assert code == 1
    found = json.loads(out)
    assert (found["ok"], [f["kind"] for f in found["findings"]]) == (False, ["unordered"] * 2)


def test_the_command_says_why_it_did_not_run(cli, tmp_path):
    path = tmp_path / "elided.hlo"
    path.write_text("HloModule e\nENTRY main { ROOT c = f32[64] constant({...}) }\n")
    code, out, _ = cli("check", str(path))
    assert (code, "not run: " in out) == (0, True)
    code, out, _ = cli("check", str(path), "--elided", "zeros", "--runs", "2")
    assert (code, "2 random orders" in out) == (0, True)
