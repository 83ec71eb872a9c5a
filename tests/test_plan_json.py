"""Plans as JSON: the schema, field by field."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from plans import counting_loop, plan_of, plans

from hlo2graph.hlo.printer import format_computation
from hlo2graph.program.text.plan import format_plan
from hlo2graph.program.thunks import Conditional, Edge, Hazard, Kernel, Library, Sequence, Slice


def test_a_plan_as_a_whole():
    plan = counting_loop()
    found = plan.to_json()
    thunks = found.pop("thunks")
    assert found == {
        "schema": {"name": "hlo2graph.plan", "version": 1},
        "module": "test",
        "target": "host",
        "fuse": "none",
        "allocations": [
            {"index": 0, "size": 16, "kind": "parameter"},
            {"index": 1, "size": 4, "kind": "live-out"},
            {"index": 2, "size": 16, "kind": "live-out"},
            {"index": 3, "size": 1024, "kind": "temp"},
        ],
        "edges": [
            {"src": 0, "dst": 2, "hazard": "raw", "allocation": 1, "offset": 0, "size": 4},
            {"src": 1, "dst": 2, "hazard": "raw", "allocation": 2, "offset": 0, "size": 16},
        ],
        "stats": {
            "nodes": 3,
            "edges": 2,
            "width": 2,
            "critical_path": 2,
            "arena_bytes": 1024,
            "lower_bound_bytes": 0,
            "nodes_in_all": 7,
            "edges_in_all": 3,
        },
    }
    assert thunks[0] == {
        "id": 0,
        "kind": "fill",
        "name": "zero.6",
        "reads": [],
        "writes": [{"allocation": 1, "offset": 0, "size": 4}],
        "hlo": None,
        "computations": {},
    }


def test_a_loop_uses_the_union_of_what_is_inside():
    loop = counting_loop().to_json()["thunks"][2]
    body, condition = loop["computations"]["body"], loop["computations"]["condition"]
    spare = {"allocation": 3, "offset": 256, "size": 16}
    assert (loop["kind"], loop["hlo"], len(loop["reads"]), len(loop["writes"])) == (
        "while",
        None,
        4,
        4,
    )
    assert spare in loop["reads"]
    assert spare in loop["writes"]
    assert [t["id"] for t in condition["thunks"]] == [3]
    assert [t["id"] for t in body["thunks"]] == [4, 5, 6]
    assert [(e["src"], e["dst"]) for e in body["edges"]] == [(5, 6)]
    assert body["thunks"][1]["hlo"] == format_computation(counting_loop().computations["negate"])


def test_reads_are_by_parameter_and_workspaces_are_written():
    a, b, work = Slice(0, 0, 16), Slice(0, 16, 16), Slice(0, 32, 8)
    thunks = (
        Kernel("k", "add", (a, a), (b,)),
        Library("l", "add", (a, b), (b,), (work,)),
    )
    edges = (Edge(0, 1, Hazard.EFFECT),)
    found = plan_of(Sequence(thunks, edges=edges)).to_json()
    kernel, library = found["thunks"]
    assert [r["offset"] for r in kernel["reads"]] == [0, 0]
    assert [w["offset"] for w in library["writes"]] == [16, 32]
    none = {"allocation": None, "offset": None, "size": None}
    assert found["edges"] == [{"src": 0, "dst": 1, "hazard": "effect", **none}]


def test_branches_are_numbered():
    branches = (Sequence(()), Sequence(()))
    chosen = Conditional("c", Slice(0, 0, 1), branches, ())
    (found,) = plan_of(Sequence((chosen,))).to_json()["thunks"]
    assert list(found["computations"]) == ["branch_0", "branch_1"]
    assert found["computations"]["branch_0"] == {"thunks": [], "edges": []}


def walk(sequence):
    for thunk in sequence["thunks"]:
        yield thunk
        for inner in thunk["computations"].values():
            yield from walk(inner)


@settings(max_examples=60)
@given(plans())
def test_json_and_text_agree(plan):
    found = json.loads(json.dumps(plan.to_json()))
    ids = [thunk["id"] for thunk in walk(found)]
    assert sorted(ids) == list(range(len(ids)))
    pattern = r"^ *t(\d+): (\w+) "
    lines = re.findall(pattern, format_plan(plan), re.MULTILINE)
    assert {(t["id"], t["kind"]) for t in walk(found)} == {(int(n), kind) for n, kind in lines}
    assert len(found["edges"]) == found["stats"]["edges"] == len(plan.body.edges)
