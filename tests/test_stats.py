"""A plan in numbers: width, depth, hazards, and the bytes of hand-written plans."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import networkx
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import counting_loop, plan_of, plans

from hlo2graph.program.plan import Allocation, AllocationKind
from hlo2graph.program.stats import critical_path, levels, measure_arena, plan_stats
from hlo2graph.program.thunks import (
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

TEMP = (Allocation(1024, AllocationKind.TEMP), Allocation(64, AllocationKind.PARAMETER))
X = Slice(1, 0, 16)


def temp(offset, size=16):
    return Slice(0, offset, size)


def measured(*thunks):
    return measure_arena(TEMP, Sequence(thunks))


def graph(count, *edges):
    thunks = tuple(Copy(f"c{i}", X, X) for i in range(count))
    return Sequence(thunks, edges=tuple(Edge(a, b, Hazard.RAW, X) for a, b in edges))


def test_figures_of_a_plan():
    stats = plan_stats(counting_loop())
    assert (stats.nodes, stats.edges, stats.width, stats.critical_path) == (3, 2, 2, 2)
    assert stats.by_hazard == {Hazard.RAW: 2}
    assert stats.arena_bytes == 1024
    assert stats.added == 0


SAYS = "3 thunks, 2 edges; in all 7 thunks, 3 edges"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("check", "--runs", "0"), f"test   {SAYS}\n"),
        (("compile", "-o", "TO"), f"test for host; {SAYS}\n"),
        (
            ("run", "--duration", "0"),
            "3 thunks, 2 edges (2 raw), width 2, critical path 2; in all 7",
        ),
        (("dot",), "3 thunks, 2 edges (2 raw), width 2; in all 7 thunks, 3 edges"),
        (("explain", "--why-not-graph"), "test, in all 7 thunks: one graph\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_command_counts_the_outermost_sequence_and_says_what_is_in_all(
    cli, tmp_path, args, said
):
    path = tmp_path / "loop.thunks"
    path.write_text(str(counting_loop()))
    code, out, err = cli(args[0], path, *(tmp_path / "to" if a == "TO" else a for a in args[1:]))
    assert (code, err) == (0, "")
    assert said in out


def test_json_has_both_counts(cli, tmp_path):
    path = tmp_path / "loop.thunks"
    path.write_text(str(counting_loop()))
    plan = json.loads(cli("plan", path, "--json", "-")[1])["stats"]
    run = json.loads(cli("run", path, "--duration", "0", "--json", "-")[1])["plan"]
    for found in (plan, run):
        assert (found["nodes"], found["edges"]) == (3, 2)
        assert (found["nodes_in_all"], found["edges_in_all"]) == (7, 3)


def test_edges_of_loops_that_saving_memory_added_count_too():
    loop = counting_loop()
    (at,) = (k for k, t in enumerate(loop.body.thunks) if isinstance(t, While))
    body = loop.body.thunks[at].body
    edges = tuple(replace(edge, hazard=Hazard.REUSE) for edge in body.edges)
    thunk = replace(loop.body.thunks[at], body=replace(body, edges=edges))
    thunks = (*loop.body.thunks[:at], thunk, *loop.body.thunks[at + 1 :])
    stats = plan_stats(replace(loop, body=replace(loop.body, thunks=thunks)))
    assert (stats.added, Hazard.REUSE in stats.by_hazard) == (len(edges), False)
    assert edges


def test_diff_counts_both(cli, tmp_path):
    path = tmp_path / "loop.thunks"
    path.write_text(str(counting_loop()))
    out = cli("diff", path, path)[1]
    rows = dict(re.findall(r"^  (\S.*?)  +(\d+)  +\d+$", out, re.MULTILINE))
    assert (rows["thunks"], rows["edges"]) == ("3", "2")
    assert (rows["thunks in all"], rows["edges in all"], rows["false edges in all"]) == tuple("730")
    out = cli("diff", ROOT / "samples" / "mlp.hlo", ROOT / "samples" / "mlp.hlo")[1]
    assert "in all" not in out


def test_edges_that_saving_memory_added():
    hazards = (Hazard.REUSE, Hazard.RAW, Hazard.INPLACE, Hazard.REUSE)
    thunks = graph(5).thunks
    edges = tuple(Edge(i, i + 1, hazard, X) for i, hazard in enumerate(hazards))
    stats = plan_stats(plan_of(Sequence(thunks, edges=edges)))
    assert stats.added == 3
    assert list(stats.by_hazard.items()) == [
        (Hazard.RAW, 1),
        (Hazard.REUSE, 2),
        (Hazard.INPLACE, 1),
    ]


@pytest.mark.parametrize(
    ("sequence", "width", "path"),
    [
        (graph(0), 0, ()),
        (graph(3), 3, (0,)),
        (graph(4, (0, 2), (1, 2), (2, 3)), 2, (0, 2, 3)),
        (graph(4, (0, 3), (1, 2), (2, 3)), 2, (1, 2, 3)),
    ],
)
def test_width_and_critical_path(sequence, width, path):
    stats = plan_stats(plan_of(sequence))
    assert (stats.width, stats.critical_path) == (width, len(path))
    assert critical_path(sequence) == path


@settings(max_examples=100)
@given(plans())
def test_levels_are_those_of_networkx(plan):
    sequence = plan.body
    found = networkx.MultiDiGraph()
    found.add_nodes_from(range(len(sequence.thunks)))
    found.add_edges_from((edge.src, edge.dst) for edge in sequence.edges)
    layers = list(networkx.topological_generations(found))
    assert levels(sequence) == [
        next(n for n, layer in enumerate(layers, 1) if i in layer) for i in found
    ]
    path = critical_path(sequence)
    assert len(path) == len(layers)
    assert all(found.has_edge(a, b) for a, b in pairwise(path))


def test_bytes_of_a_chain():
    chain = (
        Copy("a", X, temp(0)),
        Copy("b", temp(0), temp(16)),
        Copy("c", temp(16), temp(32)),
        Copy("d", temp(32), X),
    )
    sizes = measured(*chain)
    assert (sizes.size, sizes.lower_bound, sizes.sum) == (1024, 32, 48)


def test_bytes_read_in_part_and_in_place():
    thunks = (
        Fill("z", b"\0", temp(0, 100)),
        Copy("part", temp(90, 10), temp(0, 10)),  # 10 to 90 are never read
        Kernel("inplace", "negate", (temp(0),), (temp(0),)),
    )
    sizes = measured(*thunks)
    assert (sizes.lower_bound, sizes.sum) == (100, 126)
    assert measured(*thunks[1:]).lower_bound == 26


def test_what_a_loop_reads_is_live_all_through_it():
    state, going, outer = temp(0, 4), temp(4, 1), temp(16)
    condition = Sequence((Kernel("c", "less", (state,), (going,)),), (state,), (going,))
    body = Sequence(
        (
            Copy("use", outer, X),
            Fill("spare", b"\0", temp(32, 64)),
            Copy("used", temp(32, 64), temp(128, 64)),
            Kernel("n", "next", (state,), (state,)),
        ),
        (state,),
        (state,),
    )
    loop = While("w", (state,), (state,), condition, body)
    sizes = measured(Copy("o", X, outer), Fill("i", b"\0", state), loop)
    assert sizes.lower_bound == 4 + 16 + 128
    assert sizes.sum == 16 + 4 + 1 + 64 + 64 + 4


def test_branches_each_have_their_own_bytes():
    selector, result = temp(0, 1), temp(16)
    narrow = Sequence((Copy("n", X, result),), (), (result,))
    wide = Sequence((Fill("f", b"\0", temp(64, 100)), Copy("w", temp(64), result)), (), (result,))
    chosen = Conditional("c", selector, (narrow, wide), (result,))
    sizes = measured(Fill("s", b"\1", selector), chosen, Copy("end", result, X))
    assert sizes.lower_bound == 100  # the result is written only after the last read of these
    assert sizes.sum == 1 + 16 + 100 + 16


def test_deep_nesting_is_walked_once():
    state = temp(0, 1)
    inner = Sequence((Fill("f", b"\0", temp(8, 8)),), (state,), (state,))
    for level in range(90):
        loop = While(f"w{level}", (state,), (state,), Sequence((), (state,), (state,)), inner)
        inner = Sequence((loop,), (state,), (state,))
    assert measure_arena(TEMP, inner).lower_bound == 9


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 20)), max_size=12))
def test_lower_bound_is_that_of_a_byte_by_byte_walk(moves):
    thunks = tuple(Copy(f"c{i}", temp(a, n), temp(b, n)) for i, (a, n, b) in enumerate(moves))
    live, most = set(), 0
    for a, n, b in reversed(moves):
        read, written = set(range(a, a + n)), set(range(b, b + n))
        most = max(most, len(live | read | written))
        live = (live - written) | read
    assert measured(*thunks).lower_bound == most
