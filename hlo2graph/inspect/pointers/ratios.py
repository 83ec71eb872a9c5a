"""Strategies compared: each over the best, and how far two executables of one differ.

All take turns, some calls each, so that a turn of one and the turns of the others next to it meet
the same machine: they are compared turn by turn, by the median of each turn's calls. A strategy
that is the best of several by what was measured has been lucky too. Which one that is is therefore
said by half of the turns, and how it does by the other half, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
Turns: TypeAlias = NDArray[np.float64]
"""The logarithms of median latencies, by executable and turn."""
Interval: TypeAlias = tuple[float, float]


def turns_of(latencies: Sequence[Sequence[float]], calls: int) -> Turns:
    """Return the turns, of so many calls, of one strategy's executables."""
    whole = len(latencies[0]) // calls * calls
    found = np.array([seconds[:whole] for seconds in latencies]).reshape(len(latencies), -1, calls)
    return np.asarray(np.log(np.median(found, axis=2)))


def over_best(
    name: str, turns: Mapping[str, Turns], rivals: Sequence[str]
) -> tuple[float, Interval]:
    """Return the latency of `name` over that of the best of `rivals`, with its 95 % interval."""
    means = {n: found.mean(axis=0) for n, found in turns.items()}
    parts = []
    for chosen_by, compared in ((0, 1), (1, 0)):
        best = min(rivals, key=lambda rival: float(np.median(means[rival][chosen_by::2])))
        parts.append(means[name][compared::2] - means[best][compared::2])
    return _median(np.concatenate(parts))


def noise(turns: Turns) -> float:
    """Return by which factor two executables of one strategy may differ: 95 % of it, the upper end.

    1.0 where there is one executable alone.
    """
    if len(turns) < 2:
        return 1.0
    _, (low, high) = _median(turns[0] - turns[1])
    return max(high, 1 / low)


def _median(logarithms: Turns) -> tuple[float, Interval]:
    count = len(logarithms)
    draws = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    low, high = np.percentile(np.median(logarithms[draws], axis=1), (2.5, 97.5))
    return float(np.exp(np.median(logarithms))), (float(np.exp(low)), float(np.exp(high)))
