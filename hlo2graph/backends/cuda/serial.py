"""The serial stream: a plan's steps enqueued one after another, loops driven from the host.

It is what the graph is compared with, so Python must not slow it down: arguments are converted
once, and a run makes one foreign call a step; how often a loop runs is asked only where it is not
known. Behind a gate a run is enqueued first and executed then, back to back, which shows the
device's own time. Where a plan is in graphs in part, the same stream launches these between the
steps that are in none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, assert_never

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.driver import Bound, bound, cuda
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import PinnedWord, Stream
from hlo2graph.backends.cuda.steps import (
    BranchStep,
    CopyStep,
    FillStep,
    GraphStep,
    KernelStep,
    LibraryStep,
    LoopStep,
    PackedArguments,
    Step,
    StepSequence,
    Straight,
)
from hlo2graph.program.thunks import Slice

QUEUE = 500  # launches that a stream holds for certain before a launch waits for room

Do: TypeAlias = Callable[[], None]


class Gate:
    """Holds a stream back until it is opened."""

    def __init__(self, stream: Any) -> None:
        self._word = PinnedWord()
        self._wait = bound(
            "cuStreamWaitValue32_v2",
            c_void_p(int(stream)),
            c_uint64(self._word.address),
            c_uint(1),
            c_uint(int(cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)),
            place="holding the stream back",
        )

    def close(self) -> None:
        """Let nothing that is enqueued from now on start."""
        self._word.cell.value = 0
        self._wait()

    def open(self) -> None:
        """Let it start."""
        self._word.cell.value = 1


@dataclass(slots=True)
class _Readback:
    """Brings a predicate or selector to the host; waits for all that was enqueued."""

    word: PinnedWord
    copy: Bound
    wait: Bound
    opens: Do

    def __call__(self) -> int:
        self.opens()
        self.word.cell.value = 0
        self.copy()
        self.wait()
        return self.word.cell.value


class SerialStream:
    """A plan's steps, ready to be enqueued in program order.

    `graphs` are what GraphSteps launch, by number. The addresses in `at` may change for the
    allocations in `movable`; `move` is told when they did.
    """

    def __init__(
        self,
        sequence: StepSequence,
        stream: Stream,
        at: Addresses,
        graphs: Mapping[int, Launchable] | None = None,
        movable: Collection[int] = (),
    ) -> None:
        self._stream, self._at = stream, at
        self._graphs, self._movable = graphs or {}, frozenset(movable)
        self._holding: dict[int, list[Do]] = {}  # by allocation: what moves a step that touches it
        self._word = PinnedWord()
        self._gate: Gate | None = None
        self.is_steered = False  # the host reads a condition or a selector to go on
        self._wait = bound("cuStreamSynchronize", c_void_p(int(stream)), place="waiting")
        self._calls = self._sequence(sequence)
        self._launches = [_launches(step) for step in sequence.steps]

    def enqueue(self, gate: Gate | None = None) -> None:
        """Enqueue one run; where the host steers a loop or branch, most of it is run by then.

        A closed `gate` is opened as soon as the host must wait, or the stream's queue is full.
        """
        self._gate = gate
        if gate is not None:
            self._enqueue_behind(gate)
            return
        for call in self._calls:
            call()

    def to_move(self, allocations: Collection[int]) -> list[Do]:
        """Return what to call when these allocations have moved, a call a step."""
        found = {id(do): do for a in allocations for do in self._holding.get(a, ())}
        return list(found.values())

    def _enqueue_behind(self, gate: Gate) -> None:
        waiting = 0
        for call, launches in zip(self._calls, self._launches, strict=True):
            waiting += launches
            if waiting > QUEUE:
                gate.open()
            call()

    def _open(self) -> None:
        if self._gate is not None:
            self._gate.open()

    def _sequence(self, sequence: StepSequence) -> list[Do]:
        calls: list[Do] = []
        for step in sequence.steps:
            match step:
                case KernelStep() | CopyStep() | FillStep() | LibraryStep():
                    self._straight(step, calls)
                case LoopStep():
                    calls.append(self._loop(step))
                case BranchStep():
                    calls.append(self._branch(step))
                case GraphStep():
                    calls.append(partial(self._graphs[step.number].launch_on, self._stream))
                case _:
                    assert_never(step)
        return calls

    def _straight(self, step: Straight, calls: list[Do]) -> None:
        call, at = step.launcher(self._stream, self._at), len(calls)
        calls.append(call)

        def again() -> None:
            calls[at] = step.launcher(self._stream, self._at)

        packed = call.keep if isinstance(call, Bound) else None
        in_place = partial(packed.move, self._at) if isinstance(packed, PackedArguments) else None
        self._hold(step.slices, in_place or again)

    def _hold(self, slices: Iterable[Slice], move: Do) -> None:
        for allocation in self._movable.intersection(part.allocation for part in slices):
            self._holding.setdefault(allocation, []).append(move)

    def _loop(self, step: LoopStep) -> Do:
        body = self._sequence(step.body)
        if step.rounds is not None:
            rounds = range(step.rounds)

            def count() -> None:
                for _ in rounds:
                    _all(body)

            return count
        condition = self._sequence(step.condition)
        again = self._readback(step.predicate, 1, step.place)

        def run() -> None:
            _all(condition)
            while again():
                _all(body)
                _all(condition)

        return run

    def _branch(self, step: BranchStep) -> Do:
        branches = tuple(self._sequence(b) for b in step.branches)
        selected = self._readback(step.selector, 1 if step.is_pred else 4, step.place)
        last = len(branches) - 1

        def choose() -> None:
            _all(branches[0 if selected() else 1])

        def switch() -> None:
            _all(branches[min(selected(), last)])  # unsigned: what is negative is large

        return choose if step.is_pred else switch

    def _readback(self, part: Slice, size: int, place: str) -> _Readback:
        def copy() -> Bound:
            return bound(
                "cuMemcpyDtoHAsync_v2",
                c_void_p(self._word.host),
                c_uint64(self._at.of(part)),
                c_size_t(size),
                c_void_p(int(self._stream)),
                place=f"reading the condition of {place}",
            )

        self.is_steered = True
        found = _Readback(self._word, copy(), self._wait, self._open)

        def again() -> None:
            found.copy = copy()

        self._hold((part,), again)
        return found


def _launches(step: Step) -> int:
    """Return what a step puts into the stream's queue, if the host does not steer it."""
    match step:
        case LoopStep() if step.rounds is not None:
            return step.rounds * sum(_launches(inner) for inner in step.body.steps)
        case LoopStep() | BranchStep():
            return 0
        case _:
            return 1


def _all(calls: list[Do]) -> None:
    for call in calls:
        call()
