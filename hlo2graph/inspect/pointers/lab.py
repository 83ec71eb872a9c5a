"""What a call costs by strategy for arrays that move, and by how they move.

Strategies take turns, some calls each, in random order, so that all meet the same machine; some
results are held against those of a graph whose arrays never move. Each has two executables, for
two of the same kind differ too. `stay` brings the same arrays at each call, `rotate` one of a few
sets, `new` arrays where none has been before. Half of the calls go by before any counts, so that
what pays off later has paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.pointers import STRATEGIES
from hlo2graph.inspect.pointers.ratios import Turns, noise, over_best, turns_of
from hlo2graph.inspect.pointers.subject import TURN, Subject
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan

PATTERNS = ("stay", "rotate", "new")
AUTO = "auto"
TWINS = 2  # executables of a strategy
WARM = 2  # the first calls of each pattern, one in so many, are not counted


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy under one pattern, in seconds and counts a call.

    `enqueue` is the host's time until a call returns, `latency` until its results are there;
    `ratio` is the latency over that of the best strategy but `auto`, with its 95 % interval, and
    `noise` by how much two executables of this strategy may differ; see ratios.py.
    """

    strategy: str
    pattern: str
    enqueue: float
    latency: float
    ratio: float
    interval: tuple[float, float]
    noise: float
    updates: float
    hits: float
    copied: float
    graphs: int
    says: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lab:
    """All rows of one program."""

    name: str
    nodes: int
    ports: int
    held: int  # bytes of one executable's buffers
    sets: int
    moves: int
    rows: tuple[Row, ...]

    def within_noise(self, pattern: str) -> bool | None:
        """Tell whether `auto` is as fast as the best, as far as can be told; None: it is not here.

        It is where the interval of its ratio begins no higher than two executables of the best
        strategy differ.
        """
        rows = {row.strategy: row for row in self.rows if row.pattern == pattern}
        found = rows.pop(AUTO, None)
        if found is None:
            return None
        best = min(rows.values(), key=lambda row: row.latency, default=found)
        return found.interval[0] <= best.noise


def run_lab(
    plan: Plan,
    args: Sequence[Array],
    *,
    moves: int,
    sets: int,
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Lab:
    """Call `plan` under every strategy and pattern, `moves` times each; rotate among `sets`."""
    kinds = {
        name: [Subject(name, CudaExecutable(plan, pointers=name)) for _ in range(TWINS)]
        for name in strategies
    }
    subjects = [subject for twins in kinds.values() for subject in twins]
    first = subjects[0].executable
    want = first(*args)
    for subject in subjects:
        subject.prepare(args, sets, moves)
    rows, rng = [], np.random.default_rng(0)
    for pattern in PATTERNS:
        for subject in subjects:
            subject.begin()
        for start in range(0, moves, TURN):
            numbers = range(start, min(start + TURN, moves))
            for at in rng.permutation(len(subjects)):
                subjects[at].take_turn(pattern, numbers, args, want)
        rows += _rows(kinds, pattern)
    return Lab(
        plan.name, first.graph.nodes, len(first.ports), first.memory.total, sets, moves, tuple(rows)
    )


def _rows(kinds: Mapping[str, Sequence[Subject]], pattern: str) -> list[Row]:
    turns = {
        name: turns_of([_counted(twin.latency) for twin in twins], TURN)
        for name, twins in kinds.items()
    }
    return [_row(name, twins, pattern, turns) for name, twins in kinds.items()]


def _row(name: str, twins: Sequence[Subject], pattern: str, turns: Mapping[str, Turns]) -> Row:
    rivals = [rival for rival in turns if rival != AUTO] or [AUTO]
    ratio, interval = over_best(name, turns, rivals)
    first = twins[0]
    now, then = first.tally, first.before
    calls = now.launches - then.launches
    return Row(
        *(name, pattern),
        float(np.median([_counted(twin.enqueue) for twin in twins])),
        float(np.median([_counted(twin.latency) for twin in twins])),
        ratio,
        interval,
        noise(turns[name]),
        (now.updates - then.updates) / calls,
        (now.hits - then.hits) / calls,
        (now.copied - then.copied) / calls,
        1 + now.builds,
        first.executable.strategies[0].says,
        tuple(dict.fromkeys(now.notes)),
    )


def _counted(seconds: Sequence[float]) -> Sequence[float]:
    """Return those of whole turns behind the first part."""
    turns = len(seconds) // TURN
    return seconds[turns // WARM * TURN :]
