"""Edges against the definition: the transitive reduction of every conflicting pair."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo2graph.program.edges import EdgeBuilder, build_edges, with_edges
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Edge,
    Fill,
    Hazard,
    Kernel,
    Sequence,
    Slice,
    While,
)
from hlo2graph.program.uses import reads, writes


def kernel(name, reads=(), writes=(), **more):
    return Kernel(name, "f", tuple(reads), tuple(writes), **more)


@st.composite
def slices(draw):
    start = draw(st.integers(0, 12))
    return Slice(draw(st.integers(0, 2)), start, draw(st.integers(0, 5)))


@st.composite
def programs(draw):
    thunks = []
    for i in range(draw(st.integers(0, 14))):
        few = st.lists(slices(), max_size=3)
        earlier = [t.name for t in thunks]
        after = draw(st.lists(st.sampled_from(earlier), max_size=1)) if earlier else []
        effect = draw(st.integers(0, 5)) == 0
        thunks.append(kernel(f"k{i}", draw(few), draw(few), after=tuple(after), effect=effect))
    return thunks


def touched(used):
    return {(s.allocation, b) for s in used for b in range(s.offset, s.end)}


def reasons(a, b):
    """Every hazard of `b` after `a` with its bytes, the most telling first."""
    ar, aw, br, bw = (touched(f(t)) for t in (a, b) for f in (reads, writes))
    found = {
        Hazard.RAW: aw & br,
        Hazard.CONTROL: {None} if a.name in b.after else (),
        Hazard.EFFECT: {None} if a.effect and b.effect else (),
        Hazard.WAR: ar & bw,
        Hazard.WAW: aw & bw,
    }
    return {hazard: common for hazard, common in found.items() if common}


def longest_run(common):
    best = None
    if common == {None}:
        return None
    for allocation, start in sorted(common):
        if (allocation, start - 1) in common:
            continue
        end = start
        while (allocation, end) in common:
            end += 1
        if best is None or end - start > best.size:
            best = Slice(allocation, start, end - start)
    return best


def full_graph(thunks):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(thunks)))
    for dst, b in enumerate(thunks):
        graph.add_edges_from((src, dst) for src, a in enumerate(thunks[:dst]) if reasons(a, b))
    return graph


@given(programs())
def test_edges_are_the_transitive_reduction_of_all_conflicts(thunks):
    edges = build_edges(thunks)
    assert {(e.src, e.dst) for e in edges} == set(nx.transitive_reduction(full_graph(thunks)).edges)
    assert len({(e.src, e.dst) for e in edges}) == len(edges)
    for edge in edges:
        hazard, common = next(iter(reasons(thunks[edge.src], thunks[edge.dst]).items()))
        assert (edge.hazard, edge.slice) == (hazard, longest_run(common))


@given(programs())
def test_looking_back_thunk_by_thunk_finds_the_same_edges(thunks):
    """The plain quadratic form: nearest first, skipping what is waited for already."""
    closure, expected = [], set()
    for dst, later in enumerate(thunks):
        waits = set()
        for src in range(dst - 1, -1, -1):
            if src not in waits and reasons(thunks[src], later):
                expected.add((src, dst))
                waits |= closure[src] | {src}
        closure.append(waits)
    assert {(e.src, e.dst) for e in build_edges(thunks)} == expected


@given(programs())
def test_serial_schedule_is_a_chain_that_names_real_hazards(thunks):
    edges = build_edges(thunks, schedule="serialize")
    assert [(e.src, e.dst) for e in edges] == [(i, i + 1) for i in range(len(thunks) - 1)]
    for edge in edges:
        found = reasons(thunks[edge.src], thunks[edge.dst])
        assert edge.hazard is next(iter(found), Hazard.ORDER)


A, B = Slice(0, 0, 64), Slice(0, 64, 64)
WHOLE = Slice(0, 0, 128)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (kernel("a", [], [A]), kernel("b", [WHOLE], []), Edge(0, 1, Hazard.RAW, A)),
        (kernel("a", [A], []), kernel("b", [], [WHOLE]), Edge(0, 1, Hazard.WAR, A)),
        (kernel("a", [], [A]), kernel("b", [], [WHOLE]), Edge(0, 1, Hazard.WAW, A)),
        (kernel("a", [], [A]), kernel("b", [A], [A]), Edge(0, 1, Hazard.RAW, A)),
        (kernel("a", [A], [A]), kernel("b", [], [A]), Edge(0, 1, Hazard.WAR, A)),
        (kernel("a"), kernel("b", after=("a",)), Edge(0, 1, Hazard.CONTROL)),
        (kernel("a", effect=True), Collective("b", "f", (), ()), Edge(0, 1, Hazard.EFFECT)),
        (Fill("a", b"\0", B), Copy("b", WHOLE, Slice(1, 0, 128)), Edge(0, 1, Hazard.RAW, B)),
        (kernel("a", [], [A]), kernel("b", [B], []), None),
        (kernel("a", [A], []), kernel("b", [A], []), None),
        (kernel("a", [], [A]), kernel("b", [Slice(0, 8, 0)], [Slice(0, 8, 0)]), None),
    ],
)
def test_two_thunks(first, second, expected):
    assert build_edges([first, second]) == ((expected,) if expected else ())


def test_bytes_named_are_the_longest_run():
    writer = kernel("w", [], [Slice(0, 0, 8), Slice(0, 16, 4), Slice(0, 20, 8)])
    (edge,) = build_edges([writer, kernel("r", [Slice(0, 0, 64)], [])])
    assert edge.slice == Slice(0, 16, 12)


def test_label_names_edges_that_only_sharing_made():
    thunks = [kernel("a", [A], []), kernel("b", [], [A])]
    for label in (Hazard.REUSE, Hazard.INPLACE):
        assert build_edges(thunks, labels={("b", A): label}) == (Edge(0, 1, label, A),)


def test_label_gives_way_to_a_reason_of_the_program():
    writer = kernel("a", [], [A])
    labels = {("b", A): Hazard.REUSE}
    assert build_edges([writer, kernel("b", [A], [A])], labels=labels)[0].hazard is Hazard.RAW
    after = kernel("b", [], [A], after=("a",))
    assert build_edges([writer, after], labels=labels)[0].hazard is Hazard.CONTROL


def test_appending_returns_the_edges_into_each_thunk():
    thunks = [kernel("a", [], [A]), kernel("b", [], [B]), kernel("c", [WHOLE], [])]
    builder = EdgeBuilder()
    assert [builder.append(t) for t in thunks] == [
        (),
        (),
        (Edge(1, 2, Hazard.RAW, B), Edge(0, 2, Hazard.RAW, A)),
    ]


def test_loop_is_one_node_with_the_uses_inside_it():
    scratch, outer = Slice(1, 0, 16), Slice(2, 0, 16)
    body = Sequence((kernel("x", [A, outer], [scratch]), kernel("y", [scratch], [A])), (A,), (A,))
    condition = Sequence((kernel("c", [A], [B]),), (A,), (B,))
    loop = While("loop", (A,), (A,), condition, body)
    thunks = (
        kernel("init", [], [A]),
        kernel("outer", [], [outer]),
        kernel("temp", [scratch], []),
        loop,
        kernel("use", [A], []),
        kernel("clobber", [], [outer]),
    )
    done = with_edges(Sequence(thunks))
    assert {(e.src, e.dst): e.hazard for e in done.edges} == {
        (0, 3): Hazard.RAW,
        (1, 3): Hazard.RAW,
        (2, 3): Hazard.WAR,
        (3, 4): Hazard.RAW,
        (3, 5): Hazard.WAR,
    }
    inner = done.thunks[3]
    assert isinstance(inner, While)
    assert inner.body.edges == (Edge(0, 1, Hazard.RAW, scratch),)
    assert inner.condition.edges == ()


def test_branches_have_edges_of_their_own():
    branch = Sequence((kernel("x", [], [A]), kernel("y", [A], [B])), (), (B,))
    node = Conditional("if", Slice(1, 0, 1), (branch, branch), (B,))
    (done,) = with_edges(Sequence((node,))).thunks
    assert isinstance(done, Conditional)
    assert [b.edges for b in done.branches] == [(Edge(0, 1, Hazard.RAW, A),)] * 2


def test_many_readers_then_a_writer():
    thunks = [kernel(f"r{i}", [A], []) for i in range(50_000)] + [kernel("w", [], [A])]
    edges = build_edges(thunks)
    assert len(edges) == 50_000
    assert {e.hazard for e in edges} == {Hazard.WAR}


def test_pieces_then_the_whole():
    pieces = [kernel(f"w{i}", [], [Slice(0, 4 * i, 4)]) for i in range(10_000)]
    edges = build_edges([*pieces, kernel("r", [Slice(0, 0, 40_000)], [])])
    assert len(edges) == 10_000
    assert edges[0].slice == Slice(0, 39_996, 4)
