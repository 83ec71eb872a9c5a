"""Pictures of every stage, parts of them, and the formats they are written in."""

from __future__ import annotations

import json
import re

import networkx
import pytest
from conftest import SAMPLES
from fake_cuda import fake
from plans import counting_loop, plan_of

import hlo2graph
from hlo2graph.errors import BackendError, InputError
from hlo2graph.inspect.dot import dot_text
from hlo2graph.inspect.durations import estimated, measured
from hlo2graph.inspect.graph_formats import json_text, mermaid_text
from hlo2graph.inspect.picture import (
    Node,
    picture_of_module,
    picture_of_plan,
    selected,
)
from hlo2graph.inspect.picture.fold import Repeat, repeats_of
from hlo2graph.inspect.picture.of_graph import picture_of_graph
from hlo2graph.inspect.picture.palette import fills
from hlo2graph.inspect.render import FORMATS, written
from hlo2graph.inspect.timeline import traced
from hlo2graph.program.thunks import Copy, Sequence, Slice

__all__ = ["fake"]  # a fixture
LAYERS = 6


def layered(count: int = LAYERS, width: int = 16) -> str:
    """Return HLO of `count` equal layers, with something else before and behind."""
    dims = f"f32[{width},{width}]"
    lines = [f"  x = {dims} parameter(0)", f"  h0 = {dims} sine(x)"]
    for k in range(count):
        lines += [
            f"  w{k} = {dims} parameter({k + 1})",
            f"  d{k} = {dims} dot(h{k}, w{k}), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}",
            f"  t{k} = {dims} tanh(d{k})",
            f"  h{k + 1} = {dims} add(t{k}, h{k})",
        ]
    lines.append(f"  ROOT r = {dims} cosine(h{count})")
    return "\n".join(["HloModule layers", "ENTRY main {", *lines, "}"])


def ids(picture):
    return [node.id for node in picture.nodes]


def by_name(picture):
    return {node.name: node for node in picture.nodes}


# ***** folding *****


def test_layers_are_drawn_once_with_their_count():
    plan = hlo2graph.plan(layered(), target="host")
    whole = picture_of_plan(plan)
    folded = selected(whole, fold=True)
    assert [node.name for node in folded.nodes] == ["h0", "d0", "t0", "h1", "r"]
    (group,) = folded.groups
    assert (group.count, group.label, group.owner) == (LAYERS, f"3 nodes, {LAYERS} times", "")
    assert {n.name for n in folded.nodes if n.group == group.id} == {"d0", "t0", "h1"}
    assert folded.caption[-1] == f"5 nodes stand for {len(whole.nodes)}"
    assert sum(arrow.count for arrow in folded.arrows) == len(whole.arrows)
    back = {(a.src, a.dst) for a in folded.arrows if a.is_back}
    named = by_name(folded)
    assert named["t0"].stands_for == tuple(n.id for n in whole.nodes if n.name.startswith("t"))
    assert {"t0", "t3"} <= named["t0"].names
    assert back == {(named["h1"].id, named["d0"].id)}


def test_folding_is_the_same_whatever_names_there_are():
    renamed = re.sub(r"\b([dth])(\d)", r"\1_other_\2", layered())
    texts = [
        json_text(selected(picture_of_plan(hlo2graph.plan(t, target="host")), fold=True))
        for t in (layered(), renamed)
    ]
    assert texts[0] == re.sub(r"_other_", "", texts[1])


def test_what_looks_alike_but_is_ordered_otherwise_is_no_repeat():
    nodes = [Node(f"t{i}", "n", "kernel", key=i % 2) for i in range(8)]
    chained = {dst: [(dst - 1, "raw")] for dst in (1, 3, 7)}
    assert repeats_of(nodes, chained) == [Repeat(0, 2, 2)]
    assert repeats_of(nodes, {}) == [Repeat(0, 2, 4)]


def test_equal_neighbours_become_one_node():
    same = tuple(Copy(f"c{k}", Slice(0, 0, 16), Slice(0, 16, 16)) for k in range(5))
    picture = selected(picture_of_plan(plan_of(Sequence(same))), fold=True)
    (node,) = picture.nodes
    assert node.count == 5
    assert 'label="c0 x 5' in dot_text(picture)


def test_nothing_to_fold():
    picture = picture_of_plan(counting_loop())
    assert selected(picture, fold=True) == picture


def test_loops_that_repeat_are_folded_with_what_they_hold():
    plan = counting_loop()
    loop = plan.body.thunks[2]
    picture = selected(picture_of_plan(plan_of(Sequence((loop,) * 3))), fold=True)
    assert [node.kind for node in picture.nodes if not node.group] == ["while"]
    assert len(picture.nodes) == 5
    assert len(picture.groups) == 2
    read = json.loads(json_text(picture))
    assert {n["group"] for n in read["nodes"]} <= {"", *(g["id"] for g in read["groups"])}


# ***** parts *****


def test_around_counts_hops_both_ways():
    whole = picture_of_plan(hlo2graph.plan(layered(), target="host"))
    near = selected(whole, around="t2", hops=1)
    assert {n.name for n in near.nodes} == {"d2", "t2", "h3"}
    assert near.caption[-1] == f"within 1 hop of t2, 3 of {len(whole.nodes)} nodes"
    assert len(selected(whole, around="t2", hops=0).nodes) == 1
    assert len(selected(whole, around="t2", hops=100).nodes) == len(whole.nodes)


def test_around_finds_ids_paths_and_what_is_inside_loops():
    whole = picture_of_plan(counting_loop())
    for name in ("neg.3", "loop.5/body/neg.3", "t5", "y"):
        near = selected(whole, around=name, hops=1)
        assert ids(near) == ["t2", "t5", "t6"]  # the loop around it stays
        assert [g.label for g in near.groups] == ["body"]
    assert ids(selected(whole, around="loop.5", hops=0)) == ["t2", "t3", "t4", "t5", "t6"]


def test_around_finds_what_fusion_took_in():
    plan = hlo2graph.plan(layered(2), target="sm_90")
    near = selected(picture_of_plan(plan), around="t0", hops=0)
    assert len(near.nodes) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"around": "neg.4"}, "perhaps neg.3 was meant"),
        ({"around": "qqqq"}, "no node of this picture is called qqqq"),
        ({"hops": 1}, "goes with around"),
        ({"around": "t2", "hops": -1}, "hops is 0 or more"),
        ({"edges": "some"}, "edges is one of all, data"),
        ({"limit": 0}, "limit is 1 or more"),
    ],
)
def test_parts_that_are_none(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        selected(picture_of_plan(counting_loop()), **options)


def test_a_name_that_several_have():
    same = tuple(Copy("c", Slice(0, 0, 16), Slice(0, 16, 16)) for _ in range(5))
    with pytest.raises(InputError, match=r"5 nodes are called c.*\n.*say which: t0 \(c\), t1"):
        selected(picture_of_plan(plan_of(Sequence(same))), around="c")


def test_limit_counts_in_each_sequence():
    picture = selected(picture_of_plan(counting_loop()), limit=2)
    assert ids(picture) == ["t0", "t1", "more"]  # the loop is the third
    inside = selected(picture_of_plan(counting_loop(), computation="loop.5"), limit=1)
    assert ids(inside) == ["t4", "more"]


# ***** stages *****


def test_a_module_as_it_stands():
    module = hlo2graph.parse(layered(2))
    picture = picture_of_module(module)
    assert [n.name for n in picture.nodes] == [i.name for i in module.entry.instructions]
    uses = {(i.name, o) for i in module.entry.instructions for o in i.operands}
    name = {n.id: n.name for n in picture.nodes}
    assert {(name[a.dst], name[a.src]) for a in picture.arrows} == uses
    assert "root" in by_name(picture)["r"].lines


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.stem)
def test_every_instruction_is_drawn_once(sample):
    if sample.suffix != ".hlo":
        pytest.skip("no HLO")
    module = hlo2graph.parse(sample.read_text(), sample.name)
    picture = picture_of_module(module)
    called = {module.entry_name}
    for name in reversed(module.computations):
        if name in called:
            called |= {c for i in module.computations[name].instructions for c in i.called()}
    assert len(picture.nodes) == sum(len(module.computations[n].instructions) for n in called)
    assert len(picture.groups) == len(called) - 1
    closed = picture_of_module(module, depth=0)
    assert len(closed.nodes) == len(module.entry.instructions)
    assert not closed.groups


def test_calls_in_calls_beyond_any_drawing():
    text = ["HloModule deep", "call0 {", "  ROOT p = f32[] parameter(0)", "}"]
    for k in range(1, 400):
        text += [
            f"call{k} {{",
            "  p = f32[] parameter(0)",
            f"  ROOT r = f32[] call(p), to_apply=call{k - 1}",
            "}",
        ]
    text += [
        "ENTRY e {",
        "  p = f32[] parameter(0)",
        "  ROOT r = f32[] call(p), to_apply=call399",
        "}",
    ]
    picture = picture_of_module(hlo2graph.parse("\n".join(text)))
    assert len(picture.groups) == 64
    assert "calls call335" in picture.nodes[-1].lines
    assert dot_text(picture).count("subgraph") == 128


@pytest.mark.parametrize("computation", ["nothing", "loop"])
def test_a_computation_that_is_not_there(computation):
    with pytest.raises(InputError, match=f"there is no computation {computation}"):
        picture_of_module(hlo2graph.parse(layered(1)), computation=computation)


@pytest.mark.parametrize("unroll", ["auto", "never", "3"])
@pytest.mark.parametrize(
    "name", ["loop", "switch", "branch", "wide_branches", "copies_nested_loops", "softmax", "scan"]
)
def test_graph_nodes_are_those_that_the_driver_gets(fake, name, unroll):
    sample = next(s for s in SAMPLES if s.stem == name)
    _, executable = fake(sample.read_text(), unroll_loops=unroll)
    built, picture = executable.graph, picture_of_graph(executable.plan, unroll_loops=unroll)
    assert (len(picture.nodes), len(picture.arrows)) == (built.nodes, built.edges)


def test_a_start_node_and_rounds_are_drawn():
    sample = next(s for s in SAMPLES if s.stem == "wide_branches")
    plan = hlo2graph.plan(sample.read_text(), target="sm_90", fuse="none")
    picture = picture_of_graph(plan)
    start = by_name(picture)["start"]
    assert {a.reason for a in picture.arrows if a.src == start.id} == {"launch"}
    loop = counting_loop()
    rounds = picture_of_graph(loop)
    assert "loop.5[2]/neg.3" in by_name(rounds)
    assert not rounds.groups
    assert rounds.caption[-1] == "written out: loop.5 (3 rounds)"
    kept = picture_of_graph(loop, unroll_loops="never")
    assert [g.label for g in kept.groups] == ["body"]
    assert [n.name for n in kept.nodes if n.kind == "condition"] == ["set loop.5", "set loop.5"]


# ***** formats and colours *****

PICTURES = {
    "plan": lambda: picture_of_plan(counting_loop()),
    "graph": lambda: picture_of_graph(counting_loop(), unroll_loops="never"),
    "folded": lambda: selected(
        picture_of_plan(hlo2graph.plan(layered(), target="host")), fold=True
    ),
    "module": lambda: picture_of_module(hlo2graph.parse(layered(2))),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydot's own, of pyparsing
@pytest.mark.parametrize("name", PICTURES)
def test_networkx_reads_every_stage(name):
    import pydot

    picture = PICTURES[name]()
    (graph,) = pydot.graph_from_dot_data(dot_text(picture))
    read = networkx.nx_pydot.from_pydot(graph)
    assert set(read) == set(ids(picture))
    assert sorted(read.edges()) == sorted((a.src, a.dst) for a in picture.arrows)


@pytest.mark.parametrize("name", PICTURES)
def test_json_has_everything(name):
    picture = PICTURES[name]()
    read = json.loads(json_text(picture))
    assert read["schema"] == {"name": "hlo2graph.graph", "version": 1}
    assert [n["id"] for n in read["nodes"]] == ids(picture)
    assert len(read["edges"]) == len(picture.arrows)
    known = {"", *(g["id"] for g in read["groups"])}
    assert {n["group"] for n in read["nodes"]} <= known
    assert {g["parent"] for g in read["groups"]} <= known


@pytest.mark.parametrize("name", PICTURES)
def test_mermaid_has_each_node_and_edge_once(name):
    picture = PICTURES[name]()
    text = mermaid_text(picture)
    nodes = re.findall(r'^ +(\w+)\["', text, re.MULTILINE)
    assert sorted(nodes) == sorted(ids(picture))
    edges = re.findall(r"^  (\w+) (?:-->|-\.->|==>)(?:\|[^|]*\|)? (\w+)$", text, re.MULTILINE)
    assert edges == [(a.src, a.dst) for a in picture.arrows]
    assert text.count("subgraph") == len(picture.groups)
    assert len(re.findall(r"^ +end$", text, re.MULTILINE)) == len(picture.groups)


def test_mermaid_takes_any_name():
    names = ['a"b', "<script>", "x]y|z", "a\nb", "\0", "end", "#35;", "`", "é"]
    copies = tuple(Copy(name, Slice(0, 0, 16), Slice(0, 16, 16)) for name in names)
    text = mermaid_text(picture_of_plan(plan_of(Sequence(copies))))
    labels = re.findall(r'^  t\d+\["([^"\n]*)"\]$', text, re.MULTILINE)
    assert len(labels) == len(names)
    assert not any(set(label.replace("<br>", "")) & set("<>|`\0") for label in labels)


def test_nodes_are_coloured_by_time():
    plan = hlo2graph.plan(layered(1, 4096), target="sm_90")
    picture = picture_of_plan(plan, seconds=estimated(plan).total)
    by_time, by_kind = fills(picture, "time"), fills(picture, "kind")
    longest = max(picture.nodes, key=lambda n: n.seconds)
    assert by_time[longest.id] == "#f68f63"
    assert set(by_time.values()) != set(by_kind.values())
    assert " us" in dot_text(picture, "time").split("fillcolor")[0]
    with pytest.raises(InputError, match="by kind or time"):
        fills(picture, "size")


def report(name="test", **nodes):
    rows = [{"name": n, "launches": k, "each": t / k, "total": t} for n, (k, t) in nodes.items()]
    plan = {"module": name, "machine": "M", "target": "host", "fuse": "none"}
    return json.dumps({**plan, "profile": {"nodes": rows}})


def trace(name="test", events=()):
    other = {"program": name, "target": "host", "fuse": "none", "times": "stamps"}
    return json.dumps({"otherData": other, "traceEvents": list(events)})


TWO = """
HloModule two
ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] exponential(x)
  ROOT b = f32[8] sine(a)
}
"""


def test_a_trace_says_when_too():
    rows = [("zero.6", 0, 1), ("loop.5[0]/neg.3", 2, 4), ("loop.5[1]/neg.3", 7, 2)]
    events = [{"ph": "M"}, *({"ph": "X", "name": n, "ts": t, "dur": d} for n, t, d in rows)]
    plan = counting_loop()
    found = measured(trace(events=events), "times.json", plan)
    assert found.how == "measured: stamps"
    assert found.each(plan.body.thunks[2].body.thunks[1]) == pytest.approx(3e-6)
    bars = traced(plan, found)
    assert [bar.id for bar in bars] == [0, 5, 5]
    assert bars[2].start == pytest.approx(7e-6)


def test_measured_times_of_rounds_are_one_thunks():
    plan = counting_loop()
    names = {"loop.5[0]/neg.3": (1, 2.0), "loop.5[1]/neg.3": (1, 4.0), "zero.6": (1, 1.0)}
    found = measured(report(**names), "times.json", plan)
    assert found.how == "measured on M"
    neg = plan.body.thunks[2].body.thunks[1]
    assert (found.each(neg), found.total(neg)) == (3.0, 6.0)
    assert found.each(plan.body.thunks[1]) is None


def test_an_estimate_counts_rounds():
    plan = counting_loop(1000)
    found = estimated(plan)
    neg, loop = plan.body.thunks[2].body.thunks[1], plan.body.thunks[2]
    assert found.total(neg) == pytest.approx(1000 * found.each(neg))
    assert found.each(loop) > 3000 * 1e-6


@pytest.mark.parametrize("write", [report, trace])
@pytest.mark.parametrize("planning", [{"target": "sm_90"}, {"fuse": "default"}])
def test_times_of_another_plan_of_the_module_are_refused(write, planning):
    plan = hlo2graph.plan(TWO, **planning)
    measured(write("two"), "times.json", hlo2graph.plan(TWO))
    with pytest.raises(InputError, match="draw it with --target host --fuse none"):
        measured(write("two"), "times.json", plan)


@pytest.mark.parametrize(
    "text",
    [report("two", z=(1, 2.0)), trace("two", [{"ph": "X", "name": "z", "ts": 0, "dur": 1}])],
    ids=["report", "trace"],
)
def test_times_of_another_module_of_the_same_name_are_refused(text):
    with pytest.raises(InputError, match="another module that is called two too: no thunk here"):
        measured(text, "times.json", hlo2graph.plan(TWO))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("3", "not as run writes them"),
        ("[]", "of nothing, not of test"),
        (report("other"), "of other, not of test"),
        (trace("other"), "of other, not of test"),
        ('{"module": "test", "machine": "m", "profile": null}', "no times of nodes"),
        ('{"module": "test", "machine": "m", "profile": {"nodes": [{}]}}', "not as run writes"),
        ('{"module": "test", "profile": {"nodes": 1}}', "not as run writes them"),
        ('{"traceEvents": []}', "not as run writes them"),
        (trace(events=[{"ph": "X", "name": 1, "ts": 0, "dur": 0}]), "not as run writes them"),
        (trace(events=[{"ph": "X", "name": "a", "ts": 0, "dur": "x"}]), "not as run writes them"),
        (trace(events=[{"ph": "X", "name": "a", "ts": 0, "dur": 1e999}]), "not as run writes them"),
    ],
)
def test_times_that_are_none(text, message):
    with pytest.raises(InputError, match=message):
        measured(text, "times.json", counting_loop())


def test_a_text_format_needs_no_graphviz(monkeypatch):
    monkeypatch.setenv("PATH", "")
    for format in FORMATS[:3]:
        assert written(PICTURES["plan"](), format)
    with pytest.raises(BackendError, match="need neither"):
        written(PICTURES["plan"](), "svg")


def test_the_drivers_own_drawing(fake):
    from hlo2graph.backends.cuda.driver_dot import driver_dot

    _, executable = fake(layered(2))
    text = driver_dot(executable)
    assert text.count("label=") == executable.graph.nodes
    assert text.count("->") == executable.graph.edges
