"""The lab's statistics, on latencies whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hlo2graph.inspect.pointers.lab import Lab, Row, Verdict
from hlo2graph.inspect.pointers.ratios import apart, over_best, student, turns_of

NAMES = [str(k) for k in range(6)]


def drawn(rng, *, slower=0.0, turns=30, executables=3, own=0.01, noise=0.05, drift=0.3):
    """Return the turns of six strategies, the first of them slower, on a machine that drifts."""
    machine = rng.normal(0, drift, turns)
    shape = (executables, turns)
    return {
        name: slower * (name == "0")
        + 0.1 * (k > 3)
        + rng.normal(0, own, (executables, 1))
        + rng.normal(0, noise, shape)
        + machine
        for k, name in enumerate(NAMES)
    }


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"own": 0.03},
        {"own": 0.0},
        {"turns": 8},
        {"executables": 2},
    ],
)
def test_who_is_as_fast_is_seldom_said_to_be_behind(kind):
    rng = np.random.default_rng(1)
    found = [over_best("0", drawn(rng, **kind), NAMES[1:]) for _ in range(100)]
    assert sum(ratio.low > 1 for ratio in found) <= 6
    assert sum(ratio.high < 1 for ratio in found) <= 6


def test_who_is_slower_is_found_out():
    rng = np.random.default_rng(2)
    found = [over_best("0", drawn(rng, slower=0.1), NAMES[1:]) for _ in range(50)]
    assert sum(ratio.low > 1 for ratio in found) >= 48
    assert np.median([ratio.value for ratio in found]) == pytest.approx(np.exp(0.1), rel=0.02)


def test_what_the_machine_does_meanwhile_makes_no_difference():
    calm, stormy = (
        over_best("0", drawn(np.random.default_rng(3), drift=drift), NAMES[1:])
        for drift in (0.0, 5.0)
    )
    assert np.allclose(stormy, calm, rtol=1e-9)


def test_more_turns_and_more_executables_tell_more():
    def width(**kind):
        rng = np.random.default_rng(4)
        found = [over_best("0", drawn(rng, **kind), NAMES[1:]) for _ in range(20)]
        return np.median([ratio.high / ratio.low for ratio in found])

    assert width(turns=160, own=0.0) < width(turns=20, own=0.0)
    assert width(executables=8, own=0.03) < width(executables=2, own=0.03)
    assert width(own=0.03) > width(own=0.0)


def test_the_best_of_several_is_not_the_one_that_was_lucky():
    """Of many that are equally fast the luckiest seems faster, unless other turns compare it."""
    rng, lucky, ratios = np.random.default_rng(0), [], []
    names = [str(k) for k in range(10)]
    for _ in range(30):
        turns = {name: rng.normal(0, 0.05, (2, 40)) for name in names}
        lucky.append(min(np.median(rival.mean(axis=0)) for rival in turns.values()))
        ratios.append(np.log(over_best("0", turns, names[1:]).value))
    assert np.mean(lucky) < -0.01
    assert abs(np.mean(ratios)) < 0.004


def test_the_best_is_itself():
    turns = drawn(np.random.default_rng(5), slower=-0.5)
    assert over_best("0", turns, NAMES) == (1, 1, 1)
    ratio, low, high = over_best("1", turns, NAMES)
    assert low < np.exp(0.5) < high
    assert low < ratio < high


def test_a_turn_counts_by_its_median():
    """A call in each turn that was held up changes nothing."""
    calm = [np.full(20, 2.0), np.full(20, 4.0)]
    held = [calls.copy() for calls in calm]
    for calls in held:
        calls[[3, 14]] = 1000.0
    assert np.array_equal(turns_of(held, 10), turns_of(calm, 10))
    assert apart(turns_of(calm, 10)) == pytest.approx(2)
    assert apart(turns_of(calm[:1], 10)) == 1


@pytest.mark.parametrize(("degrees", "within"), [(3, 3.182), (4, 2.776), (10, 2.228), (1e9, 1.96)])
def test_students_t(degrees, within):
    assert student(degrees) == pytest.approx(within, rel=0.01)


ROW = Row("auto", "new", 1.0, 1.0, 1.0, 1.0, (1.0, 1.0), 1.0, 0, 0, 0, 1, 20, 0.0, "", ())


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.98, 1.03), Verdict.WITHIN),
        ((0.9, 0.95), Verdict.WITHIN),
        ((1.001, 1.01), Verdict.BEHIND),
        ((0.99, 1.2), Verdict.UNKNOWN),
        ((1.1, 1.2), Verdict.BEHIND),
    ],
)
def test_what_is_said_of_auto(interval, verdict):
    lab = Lab("p", 1, 1, 1, 4, 40, 3, (replace(ROW, interval=interval),))
    assert lab.verdict("new") is verdict
    assert lab.verdict("stay") is None
