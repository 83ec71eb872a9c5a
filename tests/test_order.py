"""The order by data flow: what precedes what, and adding to it."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.program.order import DataOrder, PartialOrder
from hlo2graph.program.thunks import Collective, Copy, Kernel, Sequence, Value, While


def value(number):
    return Value(number, Shape(DTYPES["f32"], (4,)), f"v{number}")


def kernel(name, reads=(), writes=(), **more):
    return Kernel(name, "f", tuple(map(value, reads)), tuple(map(value, writes)), **more)


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 25))
    return [
        draw(st.sets(st.integers(0, at - 1), max_size=4)) if at else set() for at in range(size)
    ]


def graph_of(predecessors):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(predecessors)))
    graph.add_edges_from((p, at) for at, row in enumerate(predecessors) for p in row)
    return graph


@given(graphs())
def test_joining_reduces_and_closes(predecessors):
    order = PartialOrder()
    kept = [order.join(row) for row in predecessors]
    graph = graph_of(predecessors)
    assert set(graph_of(kept).edges) == set(nx.transitive_reduction(graph).edges)
    for at in graph:
        before = nx.ancestors(graph, at)
        assert {p for p in graph if order.precedes(p, at)} == before
        assert order.ancestors(at) == sum(1 << p for p in before)
        deepest = nx.dag_longest_path_length(graph.subgraph({*before, at}))
        assert order.depth[at] == deepest + 1


@given(graphs(), st.data())
def test_edge_added_at_once_is_as_good_as_one_joined(predecessors, data):
    late, joined = PartialOrder(), PartialOrder()
    for row in predecessors:
        split = data.draw(st.sets(st.sampled_from(sorted(row)))) if row else set()
        at = len(late)
        late.join(row - split)
        for src in split:
            late.add_edge(src, at)
        joined.join(row)
    assert [*map(late.ancestors, range(len(late)))] == [*map(joined.ancestors, range(len(joined)))]
    assert late.depth == joined.depth


def test_edges_enter_only_the_newest_node():
    order = PartialOrder()
    for _ in range(3):
        order.join(())
    with pytest.raises(AssertionError):
        order.add_edge(0, 1)


def test_data_flow_orders_a_reader_after_the_writer():
    order = DataOrder([kernel("a", [], [1]), kernel("b", [], [2]), kernel("c", [1], [3])])
    assert order.predecessors == [(), (), (0,)]
    assert order.precedes(0, 2)
    assert not order.precedes(1, 2)


def test_values_that_are_one_buffer_order_readers_before_the_next_writer():
    thunks = [kernel("a", [], [1]), kernel("b", [1], [2]), kernel("c", [], [3])]
    assert DataOrder(thunks).predecessors[2] == ()
    one = DataOrder(thunks, key=lambda v: 1 if v == 3 else v)
    assert one.predecessors[2] == (1,)


def test_control_and_effects_order_too():
    thunks = [
        kernel("a", effect=True),
        kernel("b"),
        Collective("c", "f", (), ()),
        kernel("d", after=("b",)),
    ]
    assert DataOrder(thunks).predecessors == [(), (), (0,), (1,)]


def test_loop_takes_part_with_all_that_is_inside():
    body = Sequence((kernel("x", [1, 11], [12], effect=True),), (value(11),), (value(12),))
    condition = Sequence((kernel("y", [13], [14]),), (value(13),), (value(14),))
    loop = While("loop", (value(2),), (value(3),), condition, body)
    thunks = [
        kernel("a", [], [1]),
        kernel("b", [], [2]),
        kernel("c", [], [4]),
        loop,
        Copy("d", value(3), value(5)),
        kernel("e", effect=True),
    ]
    assert DataOrder(thunks).predecessors == [(), (), (), (1, 0), (3,), (3,)]
