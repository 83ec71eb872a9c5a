"""Traces: their JSON is what viewers take, and says what ran when, in which order and why."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from conftest import REFUSED, ROOT, SAMPLES
from fake_cuda import fake
from plans import counting_loop, plan_of

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.backends.node_times import NodeTimes
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.profile import Profile, host_profile, profile, profile_text
from hlo2graph.inspect.trace import LIVE, trace_json
from hlo2graph.program.thunks import Copy, Edge, Hazard, Sequence, Slice

__all__ = ["fake"]  # a fixture
NAMES = {"process_name", "thread_name", "thread_sort_index"}
NEAR = 1e-6  # of a microsecond, what rounding may do


def checked(document):
    """Return the events by phase, after holding the document to the trace event format.

    - The document is an object whose traceEvents are a list; displayTimeUnit is ms or ns.
    - Every event has a phase and a process; times are microseconds from 0 on.
    - M gives a name to the process or to a lane; every lane in use has one.
    - X has a name, a category, a lane and a duration; in one lane two either are apart or one holds
      the other.
    - An arrow has one s and one f with the same number, category and name; s is not later than f.
      Each lies within an X of its lane, and f says with bp=e that it belongs to the one around it.
    - C has numbers in args, never below 0, at times that ascend.
    """
    document = json.loads(json.dumps(document, allow_nan=False))
    assert document["displayTimeUnit"] in ("ms", "ns")
    by_phase = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in "XMCsf"
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        by_phase[event["ph"]].append(event)
    assert {e["name"] for e in by_phase["M"]} <= NAMES
    named = {e["tid"] for e in by_phase["M"] if e["name"] == "thread_name"}
    assert all(isinstance(e["args"], dict) for e in document["traceEvents"])
    lanes = defaultdict(list)
    for event in by_phase["X"]:
        assert event["tid"] in named
        assert event["dur"] >= 0
        assert event["cat"]
        lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        check_nesting(sorted(spans, key=lambda s: (s[0], -s[1])))
    check_arrows(by_phase, lanes)
    counters = by_phase["C"]
    assert all(value >= 0 for e in counters for value in e["args"].values())
    assert all(a["ts"] < b["ts"] for a, b in pairwise(counters))
    return by_phase


def check_nesting(spans):
    around = []
    for begin, end in spans:
        while around and around[-1] <= begin + NEAR:
            around.pop()
        assert not around or end <= around[-1] + NEAR
        around.append(end)


def check_arrows(by_phase, lanes):
    ends = {e["id"]: e for e in by_phase["f"]}
    assert len(ends) == len(by_phase["f"]) == len(by_phase["s"])
    for start in by_phase["s"]:
        assert isinstance(start["id"], int)
        end = ends[start["id"]]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert start["ts"] <= end["ts"] + NEAR
        assert end["bp"] == "e"
        for event in (start, end):
            spans = lanes[event["tid"]]
            assert any(a - NEAR <= event["ts"] <= b + NEAR for a, b in spans)


def on_host(plan, threads=2):
    executable = HostExecutable(plan)
    args = random_inputs(plan.inputs, 0)
    return host_profile(executable, args, threads)


def profile_of(rows, body, holders=()):
    nodes = {n: NodeTimes(n, len(r), np.array(r)) for n, r in rows.items()}
    held = tuple(nodes[n] for n in holders)
    return Profile(tuple(n for n in nodes.values() if n not in held), 20e-9, "by hand", body, held)


def copies(names, edges=()):
    thunks = tuple(Copy(n, Slice(0, 0, 16), Slice(0, 16 * k + 16, 16)) for k, n in enumerate(names))
    return Sequence(thunks, edges=tuple(Edge(a, b, Hazard.RAW, Slice(0, 16, 16)) for a, b in edges))


# ***** made by hand *****


def test_overlapping_launches_are_on_lanes_of_their_own():
    rows = {"a": [(0, 10)], "b": [(5, 15)], "c": [(10, 20)], "d": [(11, 12)]}
    plan = plan_of(copies("abcd"))
    taken = profile_of(rows, plan.body)
    assert taken.overlap == pytest.approx(31 / 20)
    document = trace_json(taken, plan)
    events = checked(document)
    other = {"program": plan.name, "target": plan.target, "fuse": plan.fuse, "times": taken.how}
    assert document["otherData"] == other
    lanes = {e["name"]: e["tid"] for e in events["X"]}
    assert lanes == {"a": 1, "b": 2, "c": 1, "d": 3}
    assert [e["args"]["name"] for e in events["M"] if e["name"] == "thread_name"] == [
        "lane 1",
        "lane 2",
        "lane 3",
    ]


def test_an_arrow_for_each_edge_with_its_hazard_and_bytes():
    plan = plan_of(copies("abc", [(0, 1), (1, 2)]))
    rows = {"a": [(0, 10)], "b": [(12, 15)], "c": [(15, 20)]}
    events = checked(trace_json(profile_of(rows, plan.body), plan))
    found = [(s["ts"], f["ts"]) for s, f in zip(events["s"], events["f"], strict=True)]
    assert found == [(0.009, 0.012), (0.014, 0.015)]
    assert events["s"][0]["name"] == "raw"
    assert events["s"][0]["args"] == {"src": "t0", "dst": "t1", "bytes": "0[16:32]"}


def test_what_has_no_stamps_has_no_arrow():
    plan = plan_of(copies("abc", [(0, 1), (1, 2)]))
    events = checked(trace_json(profile_of({"a": [(0, 10)], "c": [(15, 20)]}, plan.body), plan))
    assert [e["name"] for e in events["X"]] == ["a", "c"]
    assert not events["s"]


def test_a_loop_holds_its_rounds_in_its_lane_and_its_arrows_are_by_round():
    plan = counting_loop(2)
    rows = {
        "zero.6": [(0, 2)],
        "copy.7": [(1, 3)],
        "loop.5": [(5, 40)],
        "lt.1": [(6, 7), (20, 21), (35, 36)],
        "add.2": [(8, 9), (22, 23)],
        "neg.3": [(9, 12), (23, 25)],
        "copy.4": [(13, 15), (26, 28)],
    }
    events = checked(trace_json(profile_of(rows, plan.body, ["loop.5"]), plan))
    lanes = defaultdict(set)
    for event in events["X"]:
        lanes[event["name"]].add(event["tid"])
    assert lanes["loop.5"] == lanes["neg.3"] == lanes["lt.1"] == {1}
    assert lanes["copy.7"] == {2}
    rounds = [s["ts"] for s in events["s"] if s["args"]["src"] == "t5"]
    assert rounds == [0.011, 0.024]
    assert len(events["s"]) == 4


def test_bytes_alive_rise_and_fall():
    arena = [Slice(0, 16 * k, 16) for k in range(4)]
    body = Sequence(
        (
            Copy("a", arena[0], arena[1]),
            Copy("b", arena[1], arena[2]),
            Copy("c", arena[2], arena[3]),
        )
    )
    plan = plan_of(body)
    rows = {"a": [(0, 10)], "b": [(12, 15)], "c": [(16, 20)]}
    events = checked(trace_json(profile_of(rows, body), plan))
    assert {e["name"] for e in events["C"]} == {LIVE}
    steps = [(e["ts"], e["args"]["bytes"]) for e in events["C"]]
    assert steps == [(0, 16), (0.012, 32), (0.015, 16), (0.016, 32), (0.02, 0)]


def test_nothing_ran():
    plan = plan_of(Sequence(()))
    assert not checked(trace_json(profile_of({}, plan.body), plan))["X"]


# ***** on the host *****


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.stem)
def test_every_sample_on_the_host(sample):
    if sample.stem in REFUSED:
        pytest.skip("the host refuses it")
    plan = hlo2graph.plan(sample.read_text(), filename=sample.name)
    found = on_host(plan)
    events = checked(trace_json(found, plan))
    top = [e for e in events["X"] if int(e["args"]["thunk"][1:]) < len(plan.body.thunks)]
    assert sorted(e["name"] for e in top) == sorted(t.name for t in plan.body.thunks)
    drawn = Counter((s["args"]["src"], s["args"]["dst"]) for s in events["s"])
    for edge in plan.body.edges:
        assert drawn[f"t{edge.src}", f"t{edge.dst}"] == 1


def test_a_loop_on_the_host_has_every_round():
    sample = next(s for s in SAMPLES if s.stem == "loop")
    plan = hlo2graph.plan(sample.read_text(), target="host")
    found = on_host(plan)
    launches = {n.name: n.launches for n in found.nodes}
    assert launches["again"] == 11
    assert launches["next"] == launches["while/sum"] == 10
    assert [n.name for n in found.holders] == ["while"]
    assert "while" not in {n.name for n in found.totals}
    events = checked(trace_json(found, plan))
    outer = next(e for e in events["X"] if e["name"] == "while")
    inside = [e for e in events["X"] if e["name"] == "next"]
    assert len(inside) == 10
    assert all(outer["ts"] <= e["ts"] <= outer["ts"] + outer["dur"] for e in inside)
    alive = {e["ts"]: e["args"]["bytes"] for e in events["C"]}
    end = round(outer["ts"] + outer["dur"], 3)  # in whole nanoseconds, as all times are
    assert min(b for t, b in alive.items() if outer["ts"] <= t < end) >= 4


def test_the_table_is_there_on_the_host_too():
    plan = hlo2graph.plan((ROOT / "samples" / "softmax.hlo").read_text(), target="host")
    text = profile_text(on_host(plan, 3))
    assert f"profile  {len(plan.body.thunks)} nodes in" in text
    assert "time stamps around each thunk, 3 threads" in text


def test_stamps_change_no_result():
    plan = hlo2graph.plan((ROOT / "samples" / "attention.hlo").read_text(), target="host")
    executable = HostExecutable(plan)
    args = random_inputs(plan.inputs, 0)
    want = executable(*args)
    executable.write_inputs(args)
    stamps = executable.execute_stamped(2)
    assert [np.array_equal(a, b) for a, b in zip(executable.read_outputs(), want, strict=True)]
    assert len(stamps) == len(plan.body.thunks)
    assert all(s.begin <= s.end for s in stamps)


def test_run_writes_a_trace_and_times_that_dot_takes(cli, tmp_path):
    trace, times = tmp_path / "trace.json", tmp_path / "run.json"
    sample = ROOT / "samples" / "mlp.hlo"
    flags = ("--backend", "host", "--duration", "0", "--trace", trace, "--json", times)
    assert cli("run", sample, *flags)[0] == 0
    events = checked(json.loads(trace.read_text()))
    assert "dot1" in {e["name"] for e in events["X"]}
    for taken in (times, trace):
        code, out, _ = cli("dot", sample, "--target", "host", "--times", taken)
        assert code == 0
        assert " us" in next(line for line in out.splitlines() if 'tooltip="dot1"' in line)
    page = tmp_path / "page.html"
    assert cli("dot", sample, "--target", "host", "--times", trace, "-o", page)[0] == 0
    assert '"how":"measured: time stamps around each thunk' in page.read_text()


# ***** on a device, stood for by a fake *****

LOOP = (ROOT / "samples" / "loop.hlo").read_text()


@pytest.mark.parametrize("unroll", ["never", "auto"])
def test_loops_on_a_device(fake, unroll):
    found, executable = fake(LOOP, unroll_loops=unroll)
    found.stamped = True
    args = random_inputs(executable.plan.inputs, 0)
    taken = profile(executable, args)
    events = checked(trace_json(taken, executable.plan))
    sums = [e for e in events["X"] if e["name"].endswith("sum")]
    assert len(sums) == 10
    assert len({e["args"]["thunk"] for e in sums}) == (1 if unroll == "never" else 10)
    assert all(e["dur"] == pytest.approx(0.5) for e in events["X"])
    assert {e["tid"] for e in events["X"]} == {1}


def test_rounds_that_follow_each_other_have_arrows(fake):
    found, executable = fake(LOOP)
    found.stamped = True
    taken = profile(executable, random_inputs(executable.plan.inputs, 0))
    events = checked(trace_json(taken, executable.plan))
    assert len(events["s"]) >= 9
