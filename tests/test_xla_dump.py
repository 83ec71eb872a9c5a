"""XLA's dumps give XLA's graphs: edges, priorities, order, and why each edge is there."""

from __future__ import annotations

import random

import pytest
from xla_dumps import BRANCHES, CHAINS, LOOP, SORT

import hlo2graph
from hlo2graph.frontend.xla_dump import (
    XlaAllocation,
    XlaBuffers,
    XlaKind,
    XlaThunk,
    build_thunks,
    parse_assignment,
    parse_sequence,
)
from hlo2graph.inspect.xla_graph.findings import find_unordered
from hlo2graph.inspect.xla_graph.graph import Mode, build_graphs, build_xla_edges, fits
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


def test_memory_of_a_parameter_that_a_node_used_for_something_else_is_reused():
    p, t, y, place = ("p", ()), ("t", ()), ("y", ()), Slice(0, 0, 8)
    buffers = XlaBuffers((XlaAllocation(0, 8, "parameter"),), {p: place, t: place, y: place})
    makes = XlaThunk("m", XlaKind.KERNEL, (), (place,), takes=frozenset(), makes=frozenset({t}))
    uses = XlaThunk("u", XlaKind.KERNEL, (place,), takes=frozenset({t}))
    gives = XlaThunk("g", XlaKind.KERNEL, (), (place,), makes=frozenset({y}))
    edges = build_xla_edges([makes, uses, gives], buffers, Mode.CONCURRENT)
    assert [edge.hazard for edge in edges] == [Hazard.RAW, Hazard.REUSE]
