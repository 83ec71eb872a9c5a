"""Measuring fairly: the same buffers, interleaved rounds, paired ratios, stated doubts.

A `Runner` is what is measured: it can run one program in several modes over the same buffers. Each
round runs every mode once, in rotating order, so that a slow spell of the machine meets all of
them; modes are compared within a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Protocol

import numpy as np

from hlo2graph.inspect.figures import plural

FEWEST_ROUNDS = 6  # below this a median's 95 % interval is wider than all samples
NOISY = 0.5  # interquartile range over median from which a mode is called noisy
VAGUE = 0.2  # width of a ratio's interval over the ratio from which it is called vague
DRIFT = 0.15  # change of the median from first to second half from which it is called drifting
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one run. enqueue and device are None where the backend has no such thing."""

    latency: float
    enqueue: float | None = None
    device: float | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run; `how` says it in a few words."""

    name: str
    how: str


class Runner(Protocol):
    """Runs one program over buffers that it owns, in each of its modes."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The first is what the others are compared with."""
        ...

    def prepare(self, mode: Mode) -> None:
        """Put the buffers into the state a run starts from; not timed."""
        ...

    def launch(self, mode: Mode) -> Sample:
        """Run once to completion and time it."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure: at least one round, then until `duration` or `iterations` is reached."""

    warmup: float = 0.1  # seconds a mode
    duration: float = 1.0  # seconds for all modes together
    iterations: int | None = None  # rounds
    percentiles: tuple[float, ...] = (50.0, 90.0, 99.0)


@dataclass(frozen=True, slots=True)
class ModeTiming:
    """What was measured in one mode: seconds."""

    mode: Mode
    samples: tuple[Sample, ...]

    @property
    def latencies(self) -> np.ndarray:
        """All samples' latencies, in the order they were taken."""
        return np.array([s.latency for s in self.samples])

    @property
    def median(self) -> float:
        """Median latency."""
        return float(np.median(self.latencies))

    @property
    def enqueue(self) -> float | None:
        """Median time to enqueue."""
        return _median_of([s.enqueue for s in self.samples])

    @property
    def device(self) -> float | None:
        """Median time on the device."""
        return _median_of([s.device for s in self.samples])

    @property
    def spread(self) -> float:
        """Interquartile range over median."""
        low, high = np.percentile(self.latencies, (25, 75))
        return float(high - low) / self.median if self.median else 0.0

    def percentile(self, percent: float) -> float:
        """Latency that `percent` % of the runs stay within."""
        return float(np.percentile(self.latencies, percent))


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster than the first mode: the median over rounds, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_faster(self) -> bool:
        """The whole interval lies above 1."""
        return self.low > 1.0

    @property
    def is_slower(self) -> bool:
        """The whole interval lies below 1."""
        return self.high < 1.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Every mode's samples, how each compares with the first, and doubts about them, if any."""

    modes: tuple[ModeTiming, ...]
    ratios: tuple[Ratio, ...]
    percentiles: tuple[float, ...]
    doubts: tuple[str, ...]

    @property
    def rounds(self) -> int:
        """Samples per mode."""
        return len(self.modes[0].samples)

    @property
    def are_few(self) -> bool:
        """There are too few rounds to tell one mode from another."""
        return self.rounds < FEWEST_ROUNDS

    @property
    def is_reliable(self) -> bool:
        """Nothing speaks against the figures."""
        return not self.doubts

    def saved(self, name: str) -> float:
        """Seconds a run by which a mode is faster than the first: the median over rounds."""
        return float(np.median(self.modes[0].latencies - self[name].latencies))

    def __getitem__(self, name: str) -> ModeTiming:
        return next(m for m in self.modes if m.mode.name == name)


def measure(
    runner: Runner, budget: Budget, clock: Callable[[], float] = time.perf_counter
) -> Timings:
    """Warm every mode up, then run them in rounds until the budget is used up."""
    modes = runner.modes
    for mode in modes:
        end = clock() + budget.warmup
        _once(runner, mode)
        while clock() < end:
            _once(runner, mode)
    samples: list[list[Sample]] = [[] for _ in modes]
    end = clock() + budget.duration
    rounds = 0
    while not rounds or (
        clock() < end and (budget.iterations is None or rounds < budget.iterations)
    ):
        for at in _order(rounds, len(modes)):
            samples[at].append(_once(runner, modes[at]))
        rounds += 1
    ended = budget.iterations is not None and rounds >= budget.iterations
    more = "more --iterations" if ended else "a longer --duration"
    return summarise(modes, samples, budget.percentiles, more)


def summarise(
    modes: Sequence[Mode],
    samples: Sequence[Sequence[Sample]],
    percentiles: tuple[float, ...],
    more: str = "a longer --duration",
) -> Timings:
    """Make the figures of samples taken in rounds: samples[m][r] is mode m's in round r.

    `more` is what would give more rounds.
    """
    timings = tuple(ModeTiming(m, tuple(s)) for m, s in zip(modes, samples, strict=True))
    ratios = tuple(paired_ratio(timings[0].latencies, t.latencies) for t in timings)
    return Timings(timings, ratios, percentiles, tuple(_doubts(timings, ratios, more)))


def paired_ratio(base: np.ndarray, other: np.ndarray) -> Ratio:
    """Return the median of base/other over rounds, with an interval by order statistics."""
    ratios = np.sort(base / np.maximum(other, np.finfo(float).tiny))
    rank = median_rank(len(ratios))
    return Ratio(float(np.median(ratios)), float(ratios[rank]), float(ratios[-1 - rank]))


def median_rank(count: int) -> int:
    """Return the largest k for which [k-th lowest, k-th highest] (from 0) holds the median.

    It does so in at least 95 % of cases, whatever the distribution; of fewer than six samples not
    even the whole range does, and k is 0. See any text on distribution-free intervals.
    """
    if count > 1000:  # the normal approximation is exact to a rank or so, and needs no big numbers
        return int(count / 2 - 0.98 * count**0.5)
    tail, rank = 1.0, 0  # tail: outcomes of `count` coin tosses with at most `rank` heads
    while tail + comb(count, rank + 1) <= (1 - CONFIDENCE) / 2 * 2.0**count:
        rank += 1
        tail += comb(count, rank)
    return rank


def _order(number: int, modes: int) -> list[int]:
    """Return the order in which a round runs the modes.

    Each comes first as often as last, and behind each other one as often as before it: what ran
    before leaves caches and clocks behind, which helps or harms the next.
    """
    order = [(number // 2 + turn) % modes for turn in range(modes)]
    return order[::-1] if number % 2 else order


def _once(runner: Runner, mode: Mode) -> Sample:
    runner.prepare(mode)
    return runner.launch(mode)


def _doubts(timings: Sequence[ModeTiming], ratios: Sequence[Ratio], more: str) -> list[str]:
    rounds = len(timings[0].samples)
    if rounds < FEWEST_ROUNDS:
        few = plural(rounds, "round")
        return [f"only {few}, too few to tell one way from another; give it {more}"]
    doubts = []
    for timing, ratio in zip(timings, ratios, strict=True):
        name = timing.mode.name
        if ratio.high - ratio.low > VAGUE * ratio.value:
            doubts.append(
                f"after {rounds} rounds {name} may be {ratio.low:.2f} or {ratio.high:.2f} "
                "times as fast"
            )
        if timing.spread > NOISY:
            doubts.append(
                f"{name} is noisy: the middle half of its runs spread over {timing.spread:.0%} "
                "of the median"
            )
        if rounds >= 2 * FEWEST_ROUNDS and abs(drift := _drift(timing.latencies)) > DRIFT:
            doubts.append(
                f"{name} drifts: the second half of its runs took {abs(drift):.0%} "
                f"{'more' if drift > 0 else 'less'} than the first"
            )
    return doubts


def _drift(latencies: np.ndarray) -> float:
    half = len(latencies) // 2
    first, second = np.median(latencies[:half]), np.median(latencies[half:])
    return float(second / first - 1) if first else 0.0


def _median_of(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.median(known)) if known else None
