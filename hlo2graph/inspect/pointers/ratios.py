"""Strategies compared: each over the best, with an interval for all that is random in that.

All take turns, some calls each, so that a turn of one and the turns of the others next to it meet
the same machine: they are compared turn by turn, by the median of each turn's calls.

Executables of the same strategy differ for all of their turns: by where their memory and their
graphs came to lie. Each strategy has some, two at least, and the interval counts that in: what is
within it may be an accident of either kind. A strategy that is the best of several by what was
measured has been lucky too. Which one that is is therefore said by all executables but one, and how
it does by that one, each in its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
NORMAL = 1.959964  # what 95 % of a normal distribution are within
Turns: TypeAlias = NDArray[np.float64]
"""The logarithms of median latencies, by executable and turn."""


class Ratio(NamedTuple):
    """A latency over another one, and its 95 % interval."""

    value: float
    low: float
    high: float


def turns_of(latencies: Sequence[Sequence[float]], calls: int) -> Turns:
    """Return the turns, of so many calls, of one strategy's executables."""
    whole = len(latencies[0]) // calls * calls
    found = np.array([seconds[:whole] for seconds in latencies]).reshape(len(latencies), -1, calls)
    return np.asarray(np.log(np.median(found, axis=2)))


def over_best(name: str, turns: Mapping[str, Turns], rivals: Sequence[str]) -> Ratio:
    """Return the latency of `name` over that of the best of `rivals`."""
    machine = np.mean([turns[rival].mean(axis=0) for rival in rivals], axis=0)
    own = {n: found - machine for n, found in turns.items()}
    best = [_best(own, rivals, but=k) for k in range(len(own[name]))]
    taken = sorted({name, *best})
    if taken == [name]:
        return Ratio(1.0, 1.0, 1.0)
    theirs = np.mean([own[rival][k] for k, rival in enumerate(best)], axis=0)
    differences = own[name].mean(axis=0) - theirs
    middle = float(np.median(differences))
    half = _half_width(differences, [own[n] for n in taken])
    return Ratio(exp(middle), exp(middle - half), exp(middle + half))


def _best(own: Mapping[str, Turns], rivals: Sequence[str], *, but: int) -> str:
    """Return the fastest of `rivals`, by their executables but that one."""
    means = {rival: np.delete(own[rival], but, axis=0).mean(axis=0) for rival in rivals}
    return min(rivals, key=lambda rival: float(np.median(means[rival])))


def apart(turns: Turns) -> float:
    """Return by which factor the executables of one strategy differ, the most."""
    middles = np.median(turns, axis=1)
    return exp(float(middles.max() - middles.min()))


def _half_width(differences: NDArray[np.float64], kinds: Sequence[Turns]) -> float:
    """Return how far the median difference between `kinds` may be off, with 95 % certainty.

    Its variance is that of the turns and that of the executables, each known as well as there were
    many of them (Welch and Satterthwaite).
    """
    count = len(differences)
    draws = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    by_turns = float(np.median(differences[draws], axis=1).var())
    executables = len(kinds[0])
    own = float(np.mean([np.median(turns, axis=1).var(ddof=1) for turns in kinds]))
    by_executables, free = 2 * own / executables, len(kinds) * (executables - 1)
    total = by_turns + by_executables
    if not total:
        return 0.0
    degrees = total**2 / (by_turns**2 / (count - 1) + by_executables**2 / free)
    return student(degrees) * sqrt(total)


def student(degrees: float) -> float:
    """Return what 95 % of Student's t are within, from three degrees of freedom to within 1 %."""
    z = NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))
