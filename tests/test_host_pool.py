"""Walks over blocks of plain functions: what runs when, on which thread, and what stops it."""

import gc
import threading
from random import Random
from threading import Barrier, BrokenBarrierError, Event

import pytest

from hlo2graph.backends.host.block import Block, draw_order, in_program_order, shuffled
from hlo2graph.backends.host.pool import Pool

SECONDS = 20  # longest that a test may wait for another thread; far above what it takes


def block(steps, edges=()):
    later = [[] for _ in steps]
    waits = [0] * len(steps)
    for src, dst in edges:
        later[src].append(dst)
        waits[dst] += 1
    return Block(tuple(steps), tuple(map(tuple, later)), tuple(waits))


def recording(count, log):
    return [lambda _walk, i=i: log.append(i) for i in range(count)]


def random_edges(rng, count, density):
    return [(i, j) for j in range(count) for i in range(j) if rng.random() < density]


@pytest.fixture
def pool():
    made = Pool(4)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(20))
def test_every_walk_respects_the_edges(pool, seed):
    rng = Random(seed)
    count = rng.randrange(1, 30)
    edges = random_edges(rng, count, rng.choice((0.02, 0.1, 0.5)))
    for walk in (in_program_order, shuffled(rng), pool.run):
        log = []
        made = block(recording(count, log), edges)
        walk(made)
        assert made.admits(log)
        assert sorted(log) == list(range(count))


def test_orders_that_are_not_admitted():
    made = block([None] * 3, [(0, 1), (1, 2)])
    assert made.admits([0, 1, 2])
    for order in ([1, 0, 2], [0, 1], [0, 0, 1], [0, 1, 3], [0, 1, 2, 2]):
        assert not made.admits(order)


def test_random_orders_vary_and_reach_the_latest_first_one():
    made = block([None] * 6, [(0, 5)])
    drawn = {tuple(draw_order(made, Random(seed))) for seed in range(50)}
    assert len(drawn) > 20
    assert (4, 3, 2, 1, 0, 5) in drawn


def test_a_chain_stays_on_the_calling_thread(pool):
    seen = []
    steps = [lambda _walk: seen.append(threading.get_ident())] * 5
    pool.run(block(steps, [(i, i + 1) for i in range(4)]))
    assert set(seen) == {threading.get_ident()}


def test_independent_steps_run_at_the_same_time(pool):
    together = Barrier(4, timeout=SECONDS)
    pool.run(block([lambda _walk: together.wait()] * 4))


def test_a_pool_of_one_thread_runs_everything(pool):
    log = []
    Pool(1).run(block(recording(5, log), [(3, 4)]))
    assert sorted(log) == list(range(5))


def test_steps_of_nested_blocks_overlap_with_steps_outside(pool):
    together = Barrier(3, timeout=SECONDS)
    inner = block([lambda _walk: together.wait()] * 2)
    pool.run(block([lambda walk: walk(inner), lambda _walk: together.wait()]))


def test_many_nested_blocks_need_no_more_threads_than_there_are():
    log = []
    outer = block([lambda walk: walk(block(recording(3, log))) for _ in range(200)])
    Pool(2).run(outer)
    assert len(log) == 600


def test_deep_nesting_on_one_pool(pool):
    made = block([lambda _walk: None] * 2)
    for _ in range(50):
        made = block([lambda walk, inner=made: walk(inner), lambda _walk: None])
    pool.run(made)


def test_an_exception_stops_the_block_and_reaches_the_caller(pool):
    log = []

    def fail(_walk):
        raise ValueError("broken step")

    steps = [fail, *recording(3, log)]
    with pytest.raises(ValueError, match="broken step"):
        pool.run(block(steps, [(0, 1), (1, 2), (1, 3)]))
    assert log == []
    pool.run(block(recording(3, log)))  # and the pool is as good as new
    assert sorted(log) == [0, 1, 2]


def test_an_exception_in_a_nested_block_reaches_the_caller(pool):
    def fail(_walk):
        raise KeyError("inner")

    inner = block([fail, lambda _walk: None])
    with pytest.raises(KeyError, match="inner"):
        pool.run(block([lambda walk: walk(inner), lambda _walk: None]))


def test_steps_under_way_end_before_the_exception_is_raised(pool):
    started, ended = Event(), Event()

    def slow(_walk):
        started.set()
        assert not ended.wait(0.05)
        ended.set()

    def fail(_walk):
        assert started.wait(SECONDS)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # any: it is the one raised above
        pool.run(block([slow, fail]))
    assert ended.is_set()


def test_an_interrupt_of_the_caller_waits_for_the_others(pool):
    caller, ended = threading.get_ident(), Event()
    together = Barrier(2, timeout=SECONDS)

    def step(_walk):
        together.wait()
        if threading.get_ident() == caller:
            raise KeyboardInterrupt
        assert not ended.wait(0.05)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        pool.run(block([step, step]))
    assert ended.is_set()


def test_an_interrupted_close_wakes_all_threads_and_raises_once(monkeypatch):
    before = set(threading.enumerate())
    made = Pool(3)
    idle, left = made._board._idle, [KeyboardInterrupt, KeyboardInterrupt]
    wake = idle.notify_all

    def interrupted():
        if left:
            raise left.pop()
        wake()

    monkeypatch.setattr(idle, "notify_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_threads_end_with_their_pool():
    before = set(threading.enumerate())
    made = Pool(3)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del made
    gc.collect()
    for thread in mine:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_barriers_here_can_fail():
    with pytest.raises(BrokenBarrierError):
        Pool(1).run(block([lambda _walk: Barrier(2).wait(0.01)] * 2))
