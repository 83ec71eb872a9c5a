"""One executable under one strategy, the arrays that it is called with, and what calls took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.backends.cuda.pointers import Tally
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.spec import Array

STEP = 256  # bytes by which an array that is new lies behind the one before
TURN = 10  # calls of one executable before another's turn; the results of the last are checked


@dataclass(slots=True)
class Subject:
    """An executable and its arrays: sets that stay, and slabs for those that are new."""

    name: str
    executable: CudaExecutable
    sets: list[list[DeviceArray]] = field(default_factory=list)
    slabs: list[DeviceMemory] = field(default_factory=list)
    areas: list[int] = field(default_factory=list)
    enqueue: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    learning: list[float] = field(default_factory=list)  # latencies of calls that do not count
    made: int = 0  # calls with arrays that were new
    before: Tally = field(default_factory=Tally)

    def prepare(self, args: Sequence[Array], sets: int, moves: int) -> None:
        """Allocate arrays for `sets` sets, and for so many `moves` with new ones each time."""
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
        """Begin another pattern, by learning."""
        self.enqueue, self.latency = [], []

    def end_learning(self) -> None:
        """Let calls count from now on."""
        self.learning, self.enqueue, self.latency = self.latency, [], []
        self.before = replace(self.tally)

    @property
    def learned(self) -> float:
        """The seconds that learning took beyond what as many calls take that count."""
        usual = statistics.mean(self.latency) * len(self.learning)
        return max(0.0, sum(self.learning) - usual)

    @property
    def tally(self) -> Tally:
        """What its strategy did so far."""
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
        turn, place = divmod(self.made, TURN)
        self.made += 1
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
