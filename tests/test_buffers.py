"""Buffer assignment: random programs give the same bytes in any order; exact small cases."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hlo2graph.errors import InputError
from hlo2graph.program.bind import make_plan
from hlo2graph.program.buffers import assign_buffers
from hlo2graph.program.place_copies import place_copies
from hlo2graph.program.thunks import Hazard
from tests.random_programs import Memory, by_value, programs

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
POLICIES = [
    {},
    {"max_buffer_reuse": 1},
    {"max_buffer_reuse": -1},
    {"schedule": "serialize"},
]


def planned(program, **policy):
    buffers = assign_buffers(program, **policy)
    schedule = policy.get("schedule", "concurrent")
    return make_plan(program, buffers, target="host", fuse="none", schedule=schedule)


@SLOW
@given(programs(), st.sampled_from(POLICIES), st.integers(0, 2**32))
def test_any_order_gives_the_results_of_program_order(program, policy, seed):
    expected = by_value(program)
    plan = planned(place_copies(program), **policy)
    for attempt in range(3):
        assert Memory(plan, seed + attempt).results == expected
