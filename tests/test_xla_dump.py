"""XLA's dumps give XLA's graphs: edges, priorities, order, and why each edge is there."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from xla_dumps import BRANCHES, CHAINS, CHAINS_LOG, LOOP, SORT

import hlo2graph
from hlo2graph.frontend.xla_dump import (
    XlaAllocation,
    XlaBuffers,
    XlaKind,
    XlaThunk,
    build_thunks,
    find_dumps,
    parse_assignment,
    parse_printed,
    parse_sequence,
)
from hlo2graph.inspect.xla_graph import Mode, build_graphs, build_xla_edges, fits
from hlo2graph.inspect.xla_graph_findings import find_unordered
from hlo2graph.inspect.xla_graph_report import report_on
from hlo2graph.program.thunks import Hazard, Slice

ALL = pytest.mark.parametrize("dump", [CHAINS, LOOP, SORT, BRANCHES])


def graphs_of(dump, mode=Mode.CONCURRENT, cut=True):
    thunks, buffers = thunks_of(dump)
    printed = parse_sequence(dump.sequence) if cut else None
    return build_graphs(thunks, printed, buffers, mode)


def thunks_of(dump):
    module = hlo2graph.parse(dump.optimized)
    buffers = parse_assignment(dump.assignment)
    return build_thunks(module, buffers), buffers


def edges(graph):
    return [(e.src, e.dst, str(e.hazard)) for e in graph.edges]


@ALL
def test_the_rules_give_the_thunks_that_xla_prints(dump):
    thunks, _ = thunks_of(dump)
    printed = parse_sequence(dump.sequence)
    assert fits(thunks, printed)
    assert not fits(thunks[:-1], printed)


def test_an_edge_that_only_shared_bytes_cause_is_reuse():
    (graph,) = graphs_of(CHAINS)
    assert edges(graph) == [(0, 1, "raw"), (1, 2, "reuse"), (2, 3, "raw")]
    assert graph.edges[1].slice == Slice(4, 0, 256)
    assert graph.priorities == (3, 2, 1, 0)


def test_lhs_makes_a_chain():
    apart = CHAINS.assignment.replace("size 256, preallocated", "size 512, preallocated").replace(
        "<3 c @0> (size=256,offset=0)", "<3 c @0> (size=256,offset=256)"
    )
    module, buffers = hlo2graph.parse(CHAINS.optimized), parse_assignment(apart)
    thunks = build_thunks(module, buffers)
    (free,) = build_graphs(thunks, None, buffers, Mode.CONCURRENT)
    assert edges(free) == [(0, 1, "raw"), (2, 3, "raw")]
    (chain,) = build_graphs(thunks, None, buffers, Mode.LHS)
    assert edges(chain) == [(0, 1, "raw"), (1, 2, "order"), (2, 3, "raw")]
    assert buffers.temp_bytes == 512


@pytest.mark.parametrize("cut", [True, False], ids=["as printed", "by rule"])
def test_a_loop_with_a_slice_stays_outside_and_its_body_is_a_graph(cut):
    graphs = graphs_of(LOOP, cut=cut)
    assert [g.where for g in graphs] == ["loop/body/take", "loop/body", ""]
    slice_, body, entry = graphs
    assert [n.name for n in slice_.nodes] == ["row_copy"]
    assert [(n.name, n.kind) for n in body.nodes] == [
        ("take", XlaKind.SLICE),
        ("next", XlaKind.KERNEL),
    ]
    assert body.edges == ()
    assert [n.name for n in entry.nodes] == ["i0", "row0"]


def test_what_xla_leaves_unordered_is_found():
    found = find_unordered(graphs_of(LOOP)[1])
    assert [(f.kind, f.src, f.dst) for f in found] == [
        ("index", "take", "next"),
        ("control", "take", "next"),
    ]
    assert found[0].slice == Slice(5, 128, 4)
    assert "5[128:132], which next overwrites" in found[0].text
    assert find_unordered(graphs_of(LOOP, Mode.LHS)[1]) == ()


def test_a_loop_uses_what_is_inside_and_replaces_its_state():
    thunks, _ = thunks_of(LOOP)
    loop = thunks[-1]
    assert loop.kind is XlaKind.WHILE
    assert set(loop.writes) == {Slice(5, 0, 1), Slice(1, 0, 16), Slice(5, 128, 4)}
    assert Slice(0, 0, 128) in loop.reads
    assert loop.state == {("i0", ()), ("row0", ())}
    assert ("x", ()) in loop.takes
    assert dict(loop.inside)["body"][1].state == {("s", (0,))}


def test_a_sort_is_a_copy_for_what_lies_elsewhere_and_a_kernel_in_place():
    thunks, _ = thunks_of(SORT)
    assert [(t.name, t.kind) for t in thunks] == [
        ("n", XlaKind.KERNEL),
        ("s.copy0", XlaKind.COPY),
        ("s", XlaKind.KERNEL),
    ]
    assert graphs_of(SORT) == ()  # nothing is in a command buffer
    (graph,) = graphs_of(SORT, cut=False)
    assert edges(graph) == [(0, 1, "raw"), (1, 2, "raw")]


def test_branches_print_first_and_async_work_stands_where_it_starts():
    graphs = graphs_of(BRANCHES)
    assert [g.where for g in graphs] == ["choice/branch_0", "choice/branch_1", ""]
    assert [n.name for n in graphs[-1].nodes] == ["far", "choice", "sum"]
    assert edges(graphs[-1]) == [(1, 2, "raw"), (0, 2, "raw")]
    assert edges(graphs[0]) == [(0, 1, "raw")]


def test_an_older_xla_says_with_calls_what_is_one_graph():
    text = CHAINS.optimized.replace(
        "ENTRY %main",
        """%command_buffer (q: f32[64]) -> f32[64] {
  %q = f32[64]{0} parameter(0)
  %c = f32[64]{0} sine(%q)
  ROOT %d = f32[64]{0} cosine(%c)
}

ENTRY %main""",
    )
    text = text.replace("  %c = f32[64]{0} sine(%x)\n  %d = f32[64]{0} cosine(%c)\n", "", 1)
    text = text.replace(
        "  ROOT %t =", "  %call = f32[64]{0} call(%x), to_apply=%command_buffer\n  ROOT %t ="
    ).replace("tuple(%b, %d)", "tuple(%b, %call)")
    buffers = parse_assignment(CHAINS.assignment)
    thunks = build_thunks(hlo2graph.parse(text), buffers)
    assert [t.name for t in thunks] == ["a", "b", "c", "d"]
    (graph,) = build_graphs(thunks, None, buffers, Mode.CONCURRENT)
    assert [node.name for node in graph.nodes] == ["c", "d"]


def test_the_older_spellings_are_read():
    buffers = parse_assignment(SORT.assignment)
    assert buffers.allocations[3] == XlaAllocation(3, 64, "preallocated-temp")
    assert len(buffers.slices) == 4
    assert [line.kind for line in parse_sequence(SORT.sequence)] == ["kKernel", "kCopy", "kKernel"]


def thunk(name, reads=(), writes=()):
    return XlaThunk(name, XlaKind.KERNEL, tuple(reads), tuple(writes))


def test_slices_of_no_bytes_conflict_where_they_are_the_same():
    none, other = Slice(0, 64, 0), Slice(0, 128, 0)
    nodes = [thunk("a", writes=[none]), thunk("b", reads=[none]), thunk("c", writes=[other])]
    found = build_xla_edges(nodes, XlaBuffers((), {}), Mode.CONCURRENT)
    assert [(e.src, e.dst) for e in found] == [(0, 1)]


def test_edges_are_the_reduction_of_all_conflicts():
    random.seed(7)
    for _ in range(60):
        nodes = [thunk(f"n{i}", some_slices(), some_slices()) for i in range(14)]
        found = build_xla_edges(nodes, XlaBuffers((), {}), Mode.CONCURRENT)
        assert {(e.src, e.dst) for e in found} == reduced(nodes)


def some_slices():
    starts = random.sample(range(8), random.choice((0, 1, 1, 2)))
    return [Slice(random.randrange(2), s, random.randrange(1, 4)) for s in starts]


def reduced(nodes):
    """Return the fewest pairs that order all that conflict, the slow way."""
    pairs, before = set(), []
    for dst, node in enumerate(nodes):
        waits = set()
        for src in reversed(range(dst)):
            if src not in waits and conflict(nodes[src], node):
                pairs.add((src, dst))
                waits |= {src} | before[src]
        before.append(waits)
    return pairs


def conflict(one, other):
    written = [(a, b) for a in one.writes for b in (*other.reads, *other.writes)]
    return any(
        a.overlaps(b) for a, b in [*written, *((a, b) for a in one.reads for b in other.writes)]
    )


def test_the_reason_of_an_edge_that_writes_over_an_operand_or_a_parameter():
    x, y, p = ("x", ()), ("y", ()), ("p", ())
    place, given = Slice(1, 0, 8), Slice(0, 0, 8)
    buffers = XlaBuffers(
        (XlaAllocation(0, 8, "parameter"), XlaAllocation(1, 8, "preallocated-temp")),
        {x: place, y: place, p: given},
    )
    reader = XlaThunk("r", XlaKind.KERNEL, (place,), takes=frozenset({x}))
    over = XlaThunk("w", XlaKind.KERNEL, (place,), (place,), takes=frozenset({x}))
    (edge,) = build_xla_edges([reader, over], buffers, Mode.CONCURRENT)
    assert edge.hazard is Hazard.INPLACE
    gives = XlaThunk("g", XlaKind.KERNEL, (), (given,), makes=frozenset({y}))
    uses = XlaThunk("u", XlaKind.KERNEL, (given,), takes=frozenset({p}))
    (edge,) = build_xla_edges([uses, gives], buffers, Mode.CONCURRENT)
    assert edge.hazard is Hazard.INPLACE


OTHER_LOG = """\
Execution graph: ExecutionGraph: 1 nodes, #source_nodes=1 #sink_nodes=1, is_sequential=true
node 0 (priority=0): in=[] out=[]
"""
CHAINS_TEXT = """\
jit_f   1 graph of XLA's, mode lhs
                             thunks  graphs  edges  raw  reuse  false  width  path   temp
  XLA, lhs                        4       1      3    2      1      1      1     4  256 B
  XLA, by its buffers alone       4       1      3    2      1      1      1     4  256 B
  ours, of XLA's kernels          4       1      2    2      0      0      2     2  512 B
  ours                            1       1      0    0      0      0      1     1    0 B

graph: 4 nodes, 3 edges, 1 false
  n0: kernel a, priority=3, reads={0[0:256]}, writes={4[0:256]}
  n1: kernel b, priority=2, reads={4[0:256]}, writes={1[0:256]}
  n2: kernel c, priority=1, reads={0[0:256]}, writes={4[0:256]}
  n3: kernel d, priority=0, reads={4[0:256]}, writes={2[0:256]}
  edge n0 -> n1, raw 4[0:256]
  edge n1 -> n2, reuse 4[0:256]; unordered in ours
  edge n2 -> n3, raw 4[0:256]
"""


def test_the_command_sets_xla_beside_ours(cli, tmp_path):
    code, out, _ = cli("xla", CHAINS.into(tmp_path))
    assert code == 0
    assert out == CHAINS_TEXT


def test_the_command_holds_xlas_own_print_against_it(cli, tmp_path):
    CHAINS.into(tmp_path)
    log = tmp_path / "xla.log"
    log.write_text(CHAINS_LOG)
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 0
    assert "same: XLA itself prints the same 1 graph" in out
    log.write_text(f"{OTHER_LOG}{CHAINS_LOG}{OTHER_LOG}")
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 0  # the graphs of other modules are passed over
    log.write_text(CHAINS_LOG.replace("in=[NodeEdge {kind: execution, id: 1}]", "in=[]"))
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 1
    assert "graph 0: XLA has no edge 1 -> 2" in out
    log.write_text(CHAINS_LOG.replace("priority=2", "priority=9"))
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 1
    assert "the edges are XLA's, the priorities are not" in out


def test_json_has_the_same_and_says_its_schema(cli, tmp_path):
    code, out, _ = cli("xla", LOOP.into(tmp_path), "--mode", "concurrent", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == {"name": "hlo2graph.xla", "version": 1}
    assert found["mode"] == "concurrent"
    assert [side["label"] for side in found["sides"]] == [
        "XLA, concurrent",
        "ours, of XLA's kernels",
    ]
    assert [u["kind"] for u in found["unordered"]] == ["index", "control"]
    assert found["graphs"][1]["nodes"][0]["kind"] == "dynamic-slice"
    assert found["same"] is None
    assert [e["ours"] for g in found["graphs"] for e in g["edges"]] == []
    _, out, _ = cli("xla", BRANCHES.into(tmp_path / "sub"), "--json", "-")
    edges = [e for g in json.loads(out)["graphs"] for e in g["edges"]]
    assert (edges[0]["hazard"], edges[0]["ours"]) == ("raw", True)


def test_several_modules_in_one_folder_are_told_apart(cli, tmp_path):
    CHAINS.into(tmp_path)
    LOOP.into(tmp_path, "module_0002.jit_loop.sm_8.0_gpu_")
    assert [d.target for d in find_dumps([tmp_path])] == ["sm_90", "sm_80"]
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "jit_f " in out
    assert "jit_loop " in out
    assert "edge n0" not in out  # of several only the tables
    code, out, _ = cli("xla", tmp_path, "--module", "jit_loop")
    assert "jit_f " not in out
    code, _, err = cli("xla", tmp_path, "--module", "jit_g")
    assert code == 2
    assert "no module jit_g here; there are module_0001.jit_f.sm_9.0a_gpu_, module_0002" in err


def test_the_dumped_options_say_the_mode(cli, tmp_path):
    CHAINS.into(tmp_path)
    options = tmp_path / "module_0001.jit_f.debug_options"
    options.write_text("xla_gpu_command_buffer_scheduling_mode: CONCURRENT\n")
    _, out, _ = cli("xla", tmp_path, "--summary")
    assert "mode concurrent" in out


def test_another_sequence_than_the_rules_give_is_said(cli, tmp_path):
    CHAINS.into(tmp_path)
    sequence = tmp_path / "module_0001.jit_f.thunk_sequence_after_thunk_passes.txt"
    sequence.write_text("001: kMemset [source | sink]\n")
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "note: XLA's thunk sequence is not the one that the rules here give" in out
    assert "graph: 4 nodes" in out


BROKEN = [
    ("allocation 0: size 256", "allocation 0: 256", "expected `allocation N: size BYTES, KIND`"),
    ("<1 a @0>", "a", "expected `value: <N NAME @COLOR>"),
    (
        "(size=256,offset=0): f32[64]{0}\nallocation 1",
        "(size=256,offset=9): f\nallocation 1",
        "past",
    ),
    (" value: <1 a @0> (size=256,offset=0): f32[64]{0}\n", "", "no value for a: is it of the same"),
    ("allocation", "location", "a value before any allocation"),
]


@pytest.mark.parametrize(("old", "new", "said"), BROKEN)
def test_a_broken_assignment_is_an_error_with_its_place(cli, tmp_path, old, new, said):
    CHAINS.into(tmp_path)
    file = tmp_path / "module_0001.jit_f.sm_9.0a_gpu_after_optimizations-buffer-assignment.txt"
    assert old in CHAINS.assignment
    file.write_text(CHAINS.assignment.replace(old, new))
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert said in err


def test_other_broken_files_are_errors(cli, tmp_path):
    with pytest.raises(hlo2graph.HloError, match="this is no buffer assignment"):
        parse_assignment("hello\n")
    with pytest.raises(hlo2graph.HloError, match="expected a thunk"):
        parse_sequence("nonsense\n")
    with pytest.raises(hlo2graph.HloError, match="belongs to no loop"):
        parse_sequence("001: kCopy x\n  body:\n")
    with pytest.raises(hlo2graph.HloError, match="4 nodes should follow, 3 do"):
        parse_printed(CHAINS_LOG.rpartition("node 3")[0])
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert "no dump of XLA's here" in err
    (tmp_path / "after_optimizations.txt").write_text(CHAINS.optimized)
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert "no file that ends with buffer-assignment.txt" in err


def test_a_computation_that_runs_in_two_places_is_refused():
    twice = BRANCHES.optimized.replace("{%first, %second}", "{%first, %first}")
    buffers = parse_assignment(BRANCHES.assignment)
    with pytest.raises(hlo2graph.HloError, match="choice and choice run the same computation"):
        build_thunks(hlo2graph.parse(twice), buffers)


def broken(text, random_):
    """Return `text` with a few characters, words or lines lost, doubled or exchanged."""
    parts = re.findall(r"\n|[\w.%]+|[^\w.%\n]", text)
    for _ in range(random_.randrange(1, 4)):
        at, other = random_.randrange(len(parts)), random_.randrange(len(parts))
        match random_.randrange(4):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[other])
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case _:
                parts[at] = random_.choice(["0", "7", "{", "}", "99999999999999999999", "%x", ","])
    return "".join(parts)


@ALL
def test_no_broken_dump_gives_anything_but_an_error_with_words(dump):
    random_ = random.Random(11)
    for _ in range(150):
        texts = [dump.optimized, dump.assignment, dump.sequence]
        which = random_.randrange(3)
        texts[which] = broken(texts[which], random_)
        with suppress(hlo2graph.HloError):
            module = hlo2graph.parse(texts[0])
            buffers = parse_assignment(texts[1])
            thunks = build_thunks(module, buffers)
            report_on(module.name, thunks, parse_sequence(texts[2]), buffers, Mode.CONCURRENT)


def test_ours_that_cannot_be_planned_is_said(cli, tmp_path):
    CHAINS.into(tmp_path)
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule broken\n")
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "note: ours: not planned" in out


PROGRAM = """
import jax, jax.numpy as jnp
def f(x):
    y = jax.lax.fori_loop(0, 3, lambda i, s: jnp.tanh(s @ s) + i, x)
    return jax.lax.cond(y.sum() > 0, jnp.sin, jnp.cos, y), jnp.sort(x, axis=0)
jax.jit(f).lower(jnp.ones((8, 8))).compile()
"""


def test_a_dump_of_the_xla_that_is_installed(cli, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, capture_output=True)
    code, out, err = cli("xla", tmp_path, "--module", "jit_f", "--json", "-")
    assert code == 0, err
    found = json.loads(out)
    assert found["mode"] == "concurrent"
    assert not found["notes"]
    assert found["sides"][0]["edges"] > 3
    assert any("/body" in graph["in"] for graph in found["graphs"])
