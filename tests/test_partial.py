"""Plans in graphs in part: which thunks, in which order, and with the results of one graph."""

from __future__ import annotations

from random import Random

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.partial.cut import arranged
from hlo2graph.backends.cuda.pointers import STRATEGIES
from tests.fake_cuda import fake
from tests.placements import PROGRAMS, Caller

__all__ = ["fake"]  # a fixture

CAPTURES = ("temps", "loops:0", "-while,-conditional", "kernel", "-kernel", "temps,-copy")


def random_order(rng, count):
    """Return who waits for whom, which a graph may hold, and sizes."""
    waits = [
        sorted(rng.sample(range(k), min(k, rng.choice((0, 1, 1, 2))))) if k else []
        for k in range(count)
    ]
    return waits, [rng.random() < 0.6 for _ in range(count)], [rng.choice((1, 1, 3)) for _ in waits]


@pytest.mark.parametrize("seed", range(60))
def test_runs_are_a_valid_order_of_the_whole(seed):
    rng = Random(seed)
    waits, held, sizes = random_order(rng, rng.randrange(30))
    least = rng.choice((1, 2, 5))
    runs = list(arranged(waits, held, sizes, least))
    order = [k for _, run in runs for k in run]
    assert sorted(order) == list(range(len(waits)))
    place = {k: at for at, k in enumerate(order)}
    assert all(place[b] < place[k] for k, before in enumerate(waits) for b in before)
    for is_held, run in runs:
        if is_held:
            assert all(held[k] for k in run)
            assert sum(sizes[k] for k in run) >= least
    if least == 1:
        assert {k for is_held, run in runs if is_held for k in run} == {
            k for k, one in enumerate(held) if one
        }


def graphs(waits, held, least=1):
    return [run for is_held, run in arranged(waits, held, [1] * len(waits), least) if is_held]


def test_thunks_move_past_each_other_to_make_graphs_large():
    # a, lone, b, lone, c: nothing waits, so that all that graphs hold is one
    assert graphs([[], [], [], [], []], [True, False, True, False, True]) == [[0, 2, 4]]


def test_a_graph_ends_where_a_lone_thunk_must_run():
    assert graphs([[], [0], [1]], [True, False, True]) == [[0], [2]]


def test_the_first_part_is_whichever_makes_fewer_graphs():
    # 0 is lone and first; 1 needs nothing, 2 needs 0
    assert graphs([[], [], [0]], [False, True, True]) == [[1, 2]]
    # 0 is in a graph and 1 behind it alone; a lone 2 must not part 0 from 3
    assert graphs([[], [0], [], [2, 0]], [True, False, False, True]) == [[0, 3]]


def test_what_is_too_small_for_a_graph_joins_a_later_one():
    # 0 could run first, but 2 and 3 wait for the lone 1
    assert graphs([[], [], [1], [1, 0]], [True, False, True, True], least=2) == [[0, 2, 3]]
    held = [True, False, True, True, True]
    assert graphs([[], [0], [1], [1], []], held, least=3) == [[2, 3, 4]]


def test_what_is_too_small_is_enqueued_alone():
    assert graphs([[], [0], [1]], [True, False, True], least=2) == []


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls_in_part(fake, name, capture):
    """As whole graphs do, whatever deals with arrays that move."""
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    for seed, strategy in enumerate(STRATEGIES):
        options = {"library": seed % 2 == 0, "unroll_loops": ("auto", "never")[seed % 3 == 0]}
        _, exe = fake(
            PROGRAMS[name],
            seed=seed,
            pointers=strategy,
            capture=f"{capture},min:{1 + seed % 3}",
            **options,
        )
        caller = Caller(exe, reference, seed)
        for _ in range(4):
            caller.call()
