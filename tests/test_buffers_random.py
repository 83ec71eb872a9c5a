"""Buffer assignment on random programs: any order that the edges allow gives the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo2graph.errors import InputError
from hlo2graph.program.buffers import assign_buffers, overwrite
from hlo2graph.program.copies import place_copies
from hlo2graph.program.order import DataOrder, PartialOrder
from hlo2graph.program.thunks import Hazard
from tests.random_programs import Memory, by_value, planned, programs

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))
POLICIES = [
    {},
    {"max_buffer_reuse": 1},
    {"max_buffer_reuse": -1},
    {"schedule": "serialize"},
]


def reachable(pairs, names):
    order = PartialOrder()
    for at in range(len(names)):
        order.join(src for src, dst in pairs if dst == at)
    count = range(len(names))
    return {(names[a], names[b]) for b in count for a in count if order.precedes(a, b)}


@settings(SLOW, max_examples=300)
@given(programs(), st.sampled_from(POLICIES), st.integers(0, 2**32))
def test_any_order_gives_the_results_of_program_order(program, policy, seed):
    expected = by_value(program)
    plan = planned(place_copies(program), **policy)
    for attempt in range(3):
        assert Memory(plan, seed + attempt).results == expected


@SLOW
@given(programs(), st.integers(0, 2**32))
def test_cheap_orders_for_writing_in_place_keep_the_results(program, seed):
    expected = by_value(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overwrite, "INPLACE_THRESHOLD", 0)
        plan = planned(place_copies(program))
    assert Memory(plan, seed).results == expected


@SLOW
@given(programs(depth=0, aliased=False))
def test_default_adds_no_order_to_data_flow(program):
    placed = place_copies(program)
    plan = planned(placed)
    names = [t.name for t in plan.body.thunks]
    made = reachable([(e.src, e.dst) for e in plan.body.edges], names)
    order = DataOrder(placed.body.thunks)
    flow = [(p, at) for at, row in enumerate(order.predecessors) for p in row]
    wanted = reachable(flow, [t.name for t in placed.body.thunks])
    assert made == {(a, b) for a, b in wanted if a in names and b in names}


@SLOW
@given(programs(depth=1), st.sampled_from(POLICIES))
def test_labels_and_sizes(program, policy):
    placed = place_copies(program)
    buffers = assign_buffers(placed, **policy)
    assert buffers.arena.lower_bound <= buffers.arena.size <= buffers.arena.sum
    assert set(buffers.labels.values()) <= {Hazard.REUSE}
    if "max_buffer_reuse" not in policy:
        assert not buffers.labels
    for held in buffers.slices.values():
        assert held.end <= buffers.allocations[held.allocation].size
        assert held.offset % 256 == 0


@SLOW
@given(programs(depth=1), st.integers(0, 12), st.integers(0, 2**32))
def test_budget_is_kept_or_refused(program, blocks, seed):
    expected, placed = by_value(program), place_copies(program)
    try:
        plan = planned(placed, memory_budget=256 * blocks)
    except InputError:
        assert assign_buffers(placed, max_buffer_reuse=-1).arena.size > 256 * blocks
    else:
        assert plan.arena.size <= 256 * blocks
        assert Memory(plan, seed).results == expected
