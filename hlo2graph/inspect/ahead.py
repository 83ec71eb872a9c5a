"""What a run on the host still has to do, and about how long that takes, for who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo2graph.inspect.figures import plural, time_text
from hlo2graph.inspect.timing import Budget

POOL = 2.0
PATIENCE = 5.0  # seconds that nothing is said of


class Waiting(Protocol):
    """Whoever waits for a run."""

    def say(self, what: str, if_long: str = "") -> None:
        """Hear what is done now; `if_long` once it has taken some seconds."""
        ...

    def note(self, text: str) -> None:
        """Hear what is good to know before it is done."""
        ...

    def hold(self) -> None:
        """Hear nothing more: from here on time is measured."""
        ...


class _Nobody:
    """Nobody waits."""

    def say(self, what: str, if_long: str = "") -> None:
        """Pass it over."""

    def note(self, text: str) -> None:
        """Pass it over."""

    def hold(self) -> None:
        """Pass it over."""


NOBODY: Waiting = _Nobody()


@dataclass(frozen=True, slots=True)
class Ahead:
    """Runs that follow the first: `checks` of them, then those that `budget` has measured.

    modes: how many ways are measured, each at least twice, the last of them on a pool. profiled:
    runs with stamps, on a pool as well. pooled: of the checks, those on a pool.
    A run on a pool may take up to POOL times as long as the first one.
    """

    checks: int
    budget: Budget | None
    modes: int
    profiled: int = 0
    pooled: int = 0

    @property
    def is_some(self) -> bool:
        """More than one run is asked for."""
        return bool(self.checks or self.budget or self.profiled)

    @property
    def fewest(self) -> int:
        """How many runs there are at least, the first one too."""
        measured = 2 * self.modes if self.budget else 0
        return 1 + self.checks + measured + self.profiled

    def told(self, each: float) -> str | None:
        """Say what follows if a run takes `each` seconds.

        None where that is soon over, but for the time that the budget itself asks for.
        """
        parts = []
        asked = 0.0
        if self.checks:
            least = self.checks * each
            most = least + self.pooled * (POOL - 1) * each
            parts.append((f"checking, {plural(self.checks, 'run')}", least, most))
        if self.budget:
            asked = 0.0 if self.budget.iterations else self.budget.duration
            slow = [each] * (self.modes - 1) + [POOL * each]
            least = self._measured(self.budget, [each] * self.modes)
            most = self._measured(self.budget, slow)
            parts.append((f"measuring {self.modes} ways", least, most))
        if self.profiled:
            least = self.profiled * each
            parts.append((f"{plural(self.profiled, 'run')} with stamps", least, POOL * least))
        if sum(least for _, least, _ in parts) - asked < PATIENCE:
            return None
        listed = ", then ".join(f"{what}, about {_between(*times)}" for what, *times in parts)
        return f"a run takes {time_text(each)}; now {listed}{self._less()}"

    def first(self) -> str:
        """Say what follows while not even the first run is over."""
        if not self.is_some:
            return "the run takes long"
        return f"the first of at least {plural(self.fewest, 'run')} takes long{self._less()}"

    @staticmethod
    def _measured(budget: Budget, runs: Sequence[float]) -> float:
        """Return the seconds of warming up and of rounds if the ways take so long a run."""
        each = sum(runs)
        lasts = max(budget.duration, each)
        rounds = lasts if budget.iterations is None else min(lasts, budget.iterations * each)
        return sum(max(budget.warmup, run) for run in runs) + rounds

    def _less(self) -> str:
        flags = ["--reference none"] * bool(self.checks) + ["--duration 0"] * bool(self.budget)
        leave = "leave" if len(flags) > 1 else "leaves"
        return f" ({' and '.join(flags)} {leave} that out)" if flags else ""


def _between(least: float, most: float) -> str:
    """Return `18.0 s`, or `18.0 s to 26.0 s`."""
    low, high = time_text(least), time_text(most)
    return low if low == high else f"{low} to {high}"
