"""What a call costs by strategy for arrays that move, and by how they move.

Strategies take turns, some calls each, in random order, so that all meet the same machine; some
results are held against those of a graph whose arrays never move. `stay` brings the same arrays at
each call, `rotate` one of a few sets, `new` arrays where none has been before. Half of the calls go
by before any counts, so that what pays off later has paid.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.backends.cuda.pointers import STRATEGIES, Tally
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.figures import bytes_text, columns, plural, time_text
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan

SCHEMA = {"name": "hlo2graph.pointers", "version": 1}
PATTERNS = ("stay", "rotate", "new")
STEP = 256  # bytes by which an array that is new lies behind the one before
TURN = 10  # calls of one strategy before another's turn; the results of the last are checked
DRAWS = 1000
WARM = 2  # the first calls of each pattern, one in so many, are not counted


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy under one pattern, in seconds and counts a call.

    `enqueue` is the host's time until a call returns, `latency` until its results are there;
    `ratio` is the latency over that of the best strategy, paired, with its 95 % interval.
    """

    strategy: str
    pattern: str
    enqueue: float
    latency: float
    ratio: float
    interval: tuple[float, float]
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


def run_lab(
    plan: Plan,
    args: Sequence[Array],
    *,
    moves: int,
    sets: int,
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Lab:
    """Call `plan` under every strategy and pattern, `moves` times each; rotate among `sets`."""
    subjects = [_Subject(name, CudaExecutable(plan, pointers=name)) for name in strategies]
    want = subjects[0].executable(*args)
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
        best = min(subjects, key=lambda s: float(np.median(s.latency[len(s.latency) // WARM :])))
        rows += [_row(subject, pattern, best) for subject in subjects]
    first = subjects[0].executable
    return Lab(
        plan.name, first.graph.nodes, len(first.ports), first.memory.total, sets, moves, tuple(rows)
    )


@dataclass(slots=True)
class _Subject:
    """A strategy's executable and its arrays: sets that stay, and slabs for those that are new."""

    name: str
    executable: CudaExecutable
    sets: list[list[DeviceArray]] = field(default_factory=list)
    slabs: list[DeviceMemory] = field(default_factory=list)
    areas: list[int] = field(default_factory=list)
    enqueue: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    before: Tally = field(default_factory=Tally)

    def prepare(self, args: Sequence[Array], sets: int, moves: int) -> None:
        sizes = [-(-b.slice.size // STEP) * STEP for b in self.executable.plan.inputs]
        for _ in range(sets):
            blocks = [DeviceMemory(size, "allocating arrays to move") for size in sizes]
            self.sets.append(self._arrays(blocks, [0] * len(blocks)))
            self._fill(self.sets[-1], args)
        turns = -(-moves // TURN)
        self.areas = [size + STEP * turns for size in sizes]  # of each call of a turn
        self.slabs = [DeviceMemory(area * TURN, "allocating arrays to move") for area in self.areas]
        self.executable.write_inputs(args)

    def begin(self) -> None:
        self.enqueue, self.latency = [], []
        self.before = replace(self.tally)

    @property
    def tally(self) -> Tally:
        return self.executable.strategies[0].tally

    def take_turn(
        self, pattern: str, numbers: range, args: Sequence[Array], want: tuple[Array, ...]
    ) -> None:
        """Make these calls one after another, and check the results of the last."""
        brought = [self._brought(pattern, number, args) for number in numbers]
        self.executable.synchronize()
        results: tuple[Any, ...] = ()
        for arrays in brought:
            start = time.perf_counter()
            results = self.executable(*arrays)
            enqueued = time.perf_counter()
            self.executable.synchronize()
            self.latency.append(time.perf_counter() - start)
            self.enqueue.append(enqueued - start)
        found = tuple(np.asarray(result) for result in results)
        assert same_bits(found, want), f"{self.name}: other results where arrays {pattern}"

    def _brought(self, pattern: str, number: int, args: Sequence[Array]) -> list[DeviceArray]:
        """Return the arguments of one call, which hold what they should."""
        if pattern == "stay":
            return self.sets[0]
        if pattern == "rotate":
            return self.sets[number % len(self.sets)]
        turn, place = divmod(number, TURN)
        arrays = self._arrays(self.slabs, [place * area + turn * STEP for area in self.areas])
        self._fill(arrays, args)
        return arrays

    @staticmethod
    def _fill(arrays: Sequence[DeviceArray], args: Sequence[Array]) -> None:
        for array, value in zip(arrays, args, strict=True):
            array.fill(value)

    def _arrays(self, blocks: Sequence[DeviceMemory], offsets: Sequence[int]) -> list[DeviceArray]:
        exe = self.executable
        return [
            DeviceArray(block.address + offset, bound.shape, exe.device, exe.stream, block)
            for block, offset, bound in zip(blocks, offsets, exe.plan.inputs, strict=True)
        ]


def _row(subject: _Subject, pattern: str, best: _Subject) -> Row:
    warm = len(subject.latency) // WARM
    latency, enqueue = np.array(subject.latency[warm:]), np.array(subject.enqueue[warm:])
    ratios = latency / np.array(best.latency[warm:])
    draws = np.random.default_rng(0).integers(0, len(ratios), (DRAWS, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), (2.5, 97.5))
    now, then = subject.tally, subject.before
    calls = now.launches - then.launches
    return Row(
        subject.name,
        pattern,
        float(np.median(enqueue)),
        float(np.median(latency)),
        float(np.median(ratios)),
        (float(low), float(high)),
        (now.updates - then.updates) / calls,
        (now.hits - then.hits) / calls,
        (now.copied - then.copied) / calls,
        1 + now.builds,
        subject.executable.strategies[0].says,
        tuple(dict.fromkeys(now.notes)),
    )


def lab_text(lab: Lab) -> str:
    """Return the tables, one a pattern."""
    lines = [
        f"{lab.name}: {plural(lab.nodes, 'node')}, {plural(lab.ports, 'array')} that may move, "
        f"{bytes_text(lab.held)} of buffers; {lab.moves} calls a row, {lab.sets} sets"
    ]
    heads = ["", "enqueue", "latency", "over best", "updates", "ready", "copied", "graphs"]
    for pattern in PATTERNS:
        table = [[pattern, *heads[1:]]]
        table += [
            [
                f"  {row.strategy}",
                time_text(row.enqueue),
                time_text(row.latency),
                f"{row.ratio:.2f} ({row.interval[0]:.2f} to {row.interval[1]:.2f})",
                f"{row.updates:.1f}",
                f"{row.hits:.0%}",
                bytes_text(round(row.copied)),
                str(row.graphs),
            ]
            for row in lab.rows
            if row.pattern == pattern
        ]
        lines += ["", *columns(table, left=1)]
    said = [row for row in lab.rows if row.strategy == "auto" and row.pattern == PATTERNS[-1]]
    lines += ["", *(f"auto, all in all: {row.says}" for row in said)]
    notes = {note: row.strategy for row in lab.rows for note in row.notes}
    lines += [f"{strategy}: {note}" for note, strategy in notes.items()]
    return "\n".join(lines).rstrip()


def lab_json(lab: Lab) -> dict[str, Any]:
    """Return the tables as JSON, in seconds and bytes: schema `hlo2graph.pointers`, version 1."""
    rows = [{f.name: getattr(row, f.name) for f in fields(row)} for row in lab.rows]
    head = {f.name: getattr(lab, f.name) for f in fields(lab) if f.name != "rows"}
    return {"schema": SCHEMA, **head, "rows": rows}
