"""Measurement against runners whose times are known, on a clock of the test's own."""

import itertools
from collections import Counter

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.inspect.timing import (
    Budget,
    Mode,
    Sample,
    measure,
    median_rank,
    paired_ratio,
    summarise,
)
from hlo2graph.inspect.verdict import host_verdict
from hlo2graph.program.stats import plan_stats

STATS = plan_stats(h2g.plan("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }", target="host"))

SERIAL, GRAPH = Mode("serial", "one thread"), Mode("graph", "a pool")


class FakeRunner:
    """Each run takes the next of its mode's durations, on a clock that only runs advance."""

    def __init__(self, **durations):
        self.modes = (SERIAL, GRAPH)
        self.now = 0.0
        self.log = []
        self._next = {name: itertools.cycle(values) for name, values in durations.items()}

    def clock(self):
        return self.now

    def prepare(self, mode):
        self.log.append(f"prepare {mode.name}")

    def launch(self, mode):
        self.log.append(mode.name)
        seconds = next(self._next[mode.name])
        self.now += seconds
        return Sample(seconds)


def timed(runner, **budget):
    return measure(runner, Budget(**budget), clock=runner.clock)


def test_rounds_interleave_the_modes_in_orders_that_favour_none():
    runner = FakeRunner(serial=[0.25], chain=[0.25], graph=[0.25])
    runner.modes = (SERIAL, Mode("chain", ""), GRAPH)
    timed(runner, warmup=0, duration=100, iterations=12)
    runs = [entry for entry in runner.log if not entry.startswith("prepare")][3:]
    rounds = [runs[at : at + 3] for at in range(0, 36, 3)]
    assert all(sorted(found) == ["chain", "graph", "serial"] for found in rounds)
    for place in range(3):
        assert Counter(found[place] for found in rounds) == dict.fromkeys(rounds[0], 4)
    followed = Counter(pair for found in rounds for pair in itertools.pairwise(found))
    assert followed == dict.fromkeys(itertools.permutations(rounds[0], 2), 4)


def test_every_run_is_prepared():
    runner = FakeRunner(serial=[1], graph=[1])
    timed(runner, warmup=2, duration=4)
    prepares, runs = runner.log[::2], runner.log[1::2]
    assert prepares == [f"prepare {mode}" for mode in runs]


def test_warm_up_lasts_as_long_as_asked_in_each_mode():
    runner = FakeRunner(serial=[0.25], graph=[0.5])
    timed(runner, warmup=1.0, duration=0)
    runs = runner.log[1::2]
    assert runs[:6] == ["serial"] * 4 + ["graph"] * 2


@pytest.mark.parametrize(
    ("duration", "iterations", "rounds"), [(0, None, 1), (6, None, 3), (100, 5, 5), (4, 5, 2)]
)
def test_duration_and_iterations_both_end_it(duration, iterations, rounds):
    runner = FakeRunner(serial=[1], graph=[1])
    found = timed(runner, warmup=0, duration=duration, iterations=iterations)
    assert found.rounds == rounds


def test_median_percentiles_and_ratio():
    base, other = np.arange(1, 102, dtype=float), np.arange(1, 102, dtype=float) / 2
    found = summarise(
        (SERIAL, GRAPH), [[Sample(t) for t in base], [Sample(t) for t in other]], (50, 90)
    )
    assert found["serial"].median == 51
    assert found["serial"].percentile(90) == 91
    assert [r.value for r in found.ratios] == [1.0, 2.0]
    assert found.ratios[1].is_faster
    assert not found.ratios[1].is_slower
    assert found["serial"].enqueue is None


def test_enqueue_and_device_times_are_medians_of_what_is_known():
    samples = [Sample(1.0, enqueue=e, device=2 * e) for e in (0.1, 0.3, 0.2)]
    timing = summarise((SERIAL,), [samples], (50,))["serial"]
    assert (timing.enqueue, timing.device) == (0.2, 0.4)


@pytest.mark.parametrize(
    ("count", "rank"), [(1, 0), (5, 0), (6, 0), (9, 1), (10, 1), (20, 5), (50, 17), (100, 39)]
)
def test_order_statistics_of_the_median(count, rank):
    assert median_rank(count) == rank


def test_the_interval_s_rank_has_no_step_where_the_approximation_begins():
    assert 0 <= median_rank(1001) - median_rank(1000) <= 1


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    ratios = [paired_ratio(rng.lognormal(0, 1, 40), np.ones(40)) for _ in range(500)]
    covered = sum(r.low <= 1.0 <= r.high for r in ratios)
    assert covered >= 460  # 95 % of 500 is 475; 3 standard deviations are 15


def test_pairing_cancels_a_slow_spell():
    """Both modes slow down tenfold together: the ratio of medians would not know, pairs do."""
    slow = np.concatenate([np.ones(50), np.full(50, 10.0)])
    ratio = paired_ratio(2 * slow, slow)
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def steady(value, count=20):
    return [Sample(value)] * count


@pytest.mark.parametrize(
    ("serial", "doubt"),
    [
        (steady(1.0), None),
        (steady(1.0, 3), "only 3 rounds, too few to tell one way from another; give it a longer"),
        (
            [Sample(t) for t in [1.0, 1.3] * 10],
            "rounds graph may be 1.00 or 1.30 times as fast",
        ),
        (
            steady(1.0, 10) + steady(1.2, 10),
            "serial drifts: the second half of its runs took 20% more than the first",
        ),
    ],
)
def test_doubts(serial, doubt):
    found = summarise((SERIAL, GRAPH), [serial, steady(1.0, len(serial))], (50,))
    assert found.is_reliable is (doubt is None)
    assert doubt is None or doubt in found.doubts[0]


@pytest.mark.parametrize(
    ("duration", "iterations", "flag"),
    [(100, 3, "more --iterations"), (0, None, "a longer --duration"), (0, 3, "a longer --dur")],
)
def test_too_few_rounds_name_the_flag_that_gives_more(duration, iterations, flag):
    runner = FakeRunner(serial=[1.0], graph=[3.0])
    found = timed(runner, warmup=0, duration=duration, iterations=iterations)
    assert found.are_few
    assert flag in found.doubts[0]
    assert host_verdict(found, STATS) == (f"Unreliable: {found.doubts[0]}.",)


def test_noise_that_both_modes_share_leaves_the_ratio_sharp():
    noisy = [Sample(t) for t in [1.0, 2.0, 2.1] * 10]
    found = summarise((SERIAL, GRAPH), [noisy, noisy], (50,))
    assert found.doubts == (
        "serial is noisy: the middle half of its runs spread over 55% of the median",
        "graph is noisy: the middle half of its runs spread over 55% of the median",
    )
    assert (found.ratios[1].low, found.ratios[1].high) == (1.0, 1.0)


def test_a_run_too_short_for_the_clock_divides_nothing_by_zero():
    assert np.isfinite(paired_ratio(np.zeros(8), np.zeros(8)).value)
