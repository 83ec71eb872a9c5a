"""What a run on the host still has to do, and about how long that takes, for who waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hlo2graph.inspect.figures import plural, time_text
from hlo2graph.inspect.timing import Budget

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

    modes: how many ways are measured, each at least twice. profiled: runs with stamps.
    """

    checks: int
    budget: Budget | None
    modes: int
    profiled: int = 0

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
            parts.append((f"{plural(self.checks, 'run')} to check", self.checks * each))
        if self.budget:
            asked = 0.0 if self.budget.iterations else self.budget.duration
            measured = self.modes * max(self.budget.warmup, each)
            measured += self._rounds(self.budget, self.modes * each)
            parts.append((f"measuring {self.modes} ways", measured))
        if self.profiled:
            parts.append((f"{plural(self.profiled, 'run')} with stamps", self.profiled * each))
        if sum(seconds for _, seconds in parts) - asked < PATIENCE:
            return None
        listed = ", ".join(f"{what} about {time_text(seconds)}" for what, seconds in parts)
        return f"a run takes {time_text(each)}; now {listed}{self._less()}"

    def first(self) -> str:
        """Say what follows while not even the first run is over."""
        if not self.is_some:
            return "the run takes long"
        return f"the first of at least {plural(self.fewest, 'run')} takes long{self._less()}"

    @staticmethod
    def _rounds(budget: Budget, each: float) -> float:
        lasts = max(budget.duration, each)
        return lasts if budget.iterations is None else min(lasts, budget.iterations * each)

    def _less(self) -> str:
        flags = ["--reference none"] * bool(self.checks) + ["--duration 0"] * bool(self.budget)
        leave = "leave" if len(flags) > 1 else "leaves"
        return f" ({' and '.join(flags)} {leave} that out)" if flags else ""
