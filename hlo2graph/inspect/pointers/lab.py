"""What a call costs by strategy for arrays that move, and by how they move.

Strategies take turns, some calls each, in random order, so that all meet the same machine; some
results are held against those of a graph whose arrays never move. Each has several executables, for
those of one kind differ too. `stay` brings the same arrays at each call, `rotate` one of a few
sets, `new` arrays where none has been before.

Under each pattern the first calls are for learning, as many as count at least: they go on until no
strategy built a graph for as long as it took until then, and none has kernels compiled. They count
apart: what they took beyond what as many calls take afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.pointers import STRATEGIES
from hlo2graph.inspect.pointers.ratios import Ratio, Turns, apart, over_best, turns_of
from hlo2graph.inspect.pointers.subject import TURN, Subject
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan

PATTERNS = ("stay", "rotate", "new")
AUTO = "auto"
TWINS = 3  # executables of a strategy
LONGEST = 10  # learning takes so many times the calls that count at most
TELLING = 1.1  # who may be slower than that, for all that is known, may not be called as fast


class Verdict(StrEnum):
    """How `auto` does beside the best of the others."""

    WITHIN = "as fast as the best"
    BEHIND = "behind the best"
    UNKNOWN = "too few calls to tell"


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy under one pattern, in seconds and counts a call that counts.

    `enqueue` is the host's time until a call returns, `latency` until its results are there, both
    medians, and `mean` the mean of the latter; `ratio` is the latency over that of the best
    strategy but `auto`, with its 95 % interval, and `apart` by how much the executables of this
    strategy differ; see ratios.py. `learning` are the calls before, and `learned` the seconds that
    these took of one executable beyond what as many take afterwards.
    """

    strategy: str
    pattern: str
    enqueue: float
    latency: float
    mean: float
    ratio: float
    interval: tuple[float, float]
    apart: float
    updates: float
    hits: float
    copied: float
    graphs: int
    learning: int
    learned: float
    says: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lab:
    """All rows of one program; `moves` are the calls of an executable that count in each."""

    name: str
    nodes: int
    ports: int
    held: int  # bytes of one executable's buffers
    sets: int
    moves: int
    executables: int  # of each strategy
    rows: tuple[Row, ...]

    def verdict(self, pattern: str) -> Verdict | None:
        """Say how `auto` does under `pattern`; None where it is not among the rows."""
        for row in self.rows:
            if row.pattern == pattern and row.strategy == AUTO:
                low, high = row.interval
                if low > 1.0:
                    return Verdict.BEHIND
                return Verdict.WITHIN if high <= TELLING else Verdict.UNKNOWN
        return None


def run_lab(
    plan: Plan,
    args: Sequence[Array],
    *,
    moves: int,
    sets: int,
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Lab:
    """Call `plan` under every strategy and pattern, `moves` times each; rotate among `sets`."""
    moves = -(-moves // TURN) * TURN
    # Made in turns: what lies near for having been made at once is no strategy's own doing.
    subjects = [
        Subject(name, CudaExecutable(plan, pointers=name))
        for _ in range(TWINS)
        for name in strategies
    ]
    kinds = {name: [twin for twin in subjects if twin.name == name] for name in strategies}
    first = subjects[0].executable
    rounds = _Rounds(subjects, args, first(*args))
    for subject in subjects:
        subject.prepare(args, sets, (LONGEST + 1) * moves)
    rows: list[Row] = []
    for pattern in PATTERNS:
        rounds.learn(pattern, moves)
        rounds.count(pattern, moves)
        rows += _rows(kinds, pattern)
    return Lab(
        *(plan.name, first.graph.nodes, len(first.ports), first.memory.total),
        *(sets, moves, TWINS, tuple(rows)),
    )


@dataclass(slots=True)
class _Rounds:
    """Turns of all subjects, in random order."""

    subjects: Sequence[Subject]
    args: Sequence[Array]
    want: tuple[Array, ...]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def learn(self, pattern: str, moves: int) -> None:
        """Call until nothing more is learned, or for as long as may be."""
        for subject in self.subjects:
            subject.begin()
        calls, built_at = 0, 0
        while calls < LONGEST * moves:
            before = [subject.tally.builds for subject in self.subjects]
            self._round(pattern, calls)
            calls += TURN
            if before != [subject.tally.builds for subject in self.subjects]:
                built_at = calls
            compiling = any(subject.executable.is_compiling for subject in self.subjects)
            if calls >= max(moves, 2 * built_at) and not compiling:
                return

    def count(self, pattern: str, moves: int) -> None:
        """Make the calls that count."""
        for subject in self.subjects:
            subject.end_learning()
        for start in range(0, moves, TURN):
            self._round(pattern, start)

    def _round(self, pattern: str, start: int) -> None:
        numbers = range(start, start + TURN)
        for at in self.rng.permutation(len(self.subjects)):
            self.subjects[at].take_turn(pattern, numbers, self.args, self.want)


def _rows(kinds: Mapping[str, Sequence[Subject]], pattern: str) -> list[Row]:
    turns = {
        name: turns_of([twin.latency for twin in twins], TURN) for name, twins in kinds.items()
    }
    return [_row(name, twins, pattern, turns) for name, twins in kinds.items()]


def _row(name: str, twins: Sequence[Subject], pattern: str, turns: Mapping[str, Turns]) -> Row:
    rivals = [rival for rival in turns if rival != AUTO] or [AUTO]
    ratio: Ratio = over_best(name, turns, rivals)
    first = twins[0]
    now, then = first.tally, first.before
    calls = now.launches - then.launches
    return Row(
        *(name, pattern),
        float(np.median([twin.enqueue for twin in twins])),
        float(np.median([twin.latency for twin in twins])),
        float(np.mean([twin.latency for twin in twins])),
        ratio.value,
        (ratio.low, ratio.high),
        apart(turns[name]),
        (now.updates - then.updates) / calls,
        (now.hits - then.hits) / calls,
        (now.copied - then.copied) / calls,
        1 + now.builds,
        len(first.learning),
        float(np.mean([twin.learned for twin in twins])),
        first.executable.strategies[0].says,
        tuple(dict.fromkeys(now.notes)),
    )
