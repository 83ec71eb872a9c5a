"""A plan made ready for a device: kernels compiled and loaded, thunks bound to functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeAlias, assert_never

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.addresses import Operand
from hlo2graph.backends.cuda.blas import BlasPlan
from hlo2graph.backends.cuda.functions import Functions
from hlo2graph.backends.cuda.kernels import KernelKey, key_of
from hlo2graph.backends.cuda.launch_order import LIGHT_BYTES
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.steps import (
    BranchStep,
    CopyStep,
    FillStep,
    KernelStep,
    LibraryStep,
    LoopStep,
    SetConditionStep,
    Step,
    StepSequence,
)
from hlo2graph.backends.cuda.unroll import known_rounds
from hlo2graph.program.thunks import (
    Collective,
    Computing,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Sequence,
    Slice,
    Thunk,
    While,
)

S32_BYTES = 4


@dataclass(slots=True)
class Stopwatch:
    """How long each stage of getting ready took, in seconds."""

    stages: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what the context does."""
        start = perf_counter()
        yield
        self.stages.append((stage, perf_counter() - start))

    def summed(self) -> list[tuple[str, float]]:
        """Return each stage once, with what it took in all."""
        found: dict[str, float] = {}
        for stage, seconds in self.stages:
            found[stage] = found.get(stage, 0.0) + seconds
        return list(found.items())


Packing: TypeAlias = Callable[
    [Computing[Slice], KernelSource], tuple[KernelSource, tuple[Operand, ...]]
]
"""Which kernel runs a thunk, and what it takes."""


def plain(
    thunk: Computing[Slice], source: KernelSource
) -> tuple[KernelSource, tuple[Operand, ...]]:
    """Run the thunk's own kernel, which takes the addresses of what it reads and writes."""
    return source, (*thunk.reads, *thunk.writes)


@dataclass(frozen=True, slots=True)
class Binder:
    """Turns thunks into steps."""

    functions: Functions
    sources: Mapping[KernelKey, KernelSource]
    products: Mapping[str, BlasPlan] = field(default_factory=dict)
    packing: Packing = plain

    def bind(self, sequence: Sequence[Slice]) -> StepSequence:
        """Return the steps of `sequence`.

        A thunk that touches no byte has none: who waits for it waits for what it waits for.
        """
        waits: list[list[int]] = [[] for _ in sequence.thunks]
        for edge in sequence.edges:
            waits[edge.dst].append(edge.src)
        steps: list[Step] = []
        predecessors: list[tuple[int, ...]] = []
        ends: list[tuple[int, ...]] = []
        for thunk, sources in zip(sequence.thunks, waits, strict=True):
            before = tuple(sorted({p for src in sources for p in ends[src]}))
            for step in self._steps(thunk):
                steps.append(step)
                predecessors.append(before)
                before = (len(steps) - 1,)
            ends.append(before)
        return StepSequence(tuple(steps), tuple(predecessors))

    def _steps(self, thunk: Thunk[Slice]) -> tuple[Step, ...]:
        place = f"{thunk.name} ({thunk.span})" if thunk.span else thunk.name
        match thunk:
            case Kernel() | Collective():
                return self._kernel(thunk, place)
            case Copy():
                return self._copy(thunk.name, place, thunk.source, thunk.target)
            case Fill():
                return self._fill(thunk, place)
            case While():
                return (self._loop(thunk, place),)
            case Conditional():
                return (self._branch(thunk, place),)
            case Library():
                return self._library(thunk, place)
            case _:
                assert_never(thunk)

    def _library(self, thunk: Library[Slice], place: str) -> tuple[Step, ...]:
        """Bind a library's call, or the kernel of ours that stands in for it."""
        if thunk.computation not in self.products:
            return self._kernel(thunk, place)
        lhs, rhs = (*thunk.reads, *thunk.reads)[:2]
        scratch = thunk.workspace[0] if thunk.workspace else None
        product, out = self.products[thunk.computation], thunk.writes[0]
        return (LibraryStep(thunk.name, place, product, lhs, rhs, out, scratch),)

    def _kernel(self, thunk: Computing[Slice], place: str) -> tuple[Step, ...]:
        if not any(w.size for w in thunk.writes):
            return ()
        source, arguments = self.packing(thunk, self.sources[key_of(thunk)])
        return (
            KernelStep(
                thunk.name,
                place,
                self.functions[source.name],
                source.grid,
                source.threads,
                source.shared_bytes,
                arguments,
                source.is_light,
                source.is_bare,
                source.is_long,
            ),
        )

    def _copy(self, name: str, place: str, source: Slice, target: Slice) -> tuple[Step, ...]:
        if not source.size or source == target:
            return ()
        return (CopyStep(name, place, source, target),)

    def _fill(self, thunk: Fill[Slice], place: str) -> tuple[Step, ...]:
        """Bind a fill to one of our kernels, which a graph starts faster than the driver's own.

        The driver's takes what is large and does not lie on whole words of 8 bytes.
        """
        target, pattern = thunk.target, shortest(thunk.pattern)
        if not target.size:
            return ()
        light = target.size <= LIGHT_BYTES
        width = max(
            w for w in builtin.FILLS if not target.size % w and not target.offset % min(w, 8)
        )
        if width < 8 and not light:
            element = int.from_bytes(pattern, "little")
            return (FillStep(thunk.name, place, target, element, len(pattern)),)
        whole = pattern * (width // len(pattern))
        words = [int.from_bytes(whole[at : at + 8], "little") for at in range(0, width, 8)]
        count, threads = target.size // width, builtin.FILL_THREADS
        grid = (-(-count // threads), 1, 1)
        arguments: tuple[Operand, ...] = (target, count, *words)
        function = self.functions[builtin.FILLS[width]]
        return (KernelStep(thunk.name, place, function, grid, threads, 0, arguments, light),)

    def _loop(self, thunk: While[Slice], place: str) -> LoopStep:
        predicate = thunk.condition.results[0]
        set_while = self.functions[builtin.SET_WHILE]
        setter = SetConditionStep(thunk.name, place, set_while, set_while, predicate, 2)
        condition, body = self.bind(thunk.condition), self.bind(thunk.body)
        rounds = known_rounds(thunk, thunk.body)
        return LoopStep(thunk.name, place, condition, body, predicate, setter, rounds)

    def _branch(self, thunk: Conditional[Slice], place: str) -> BranchStep:
        is_pred = thunk.selector.size < S32_BYTES
        names = (
            (builtin.SET_IF, builtin.SET_IF_IS)
            if is_pred
            else (builtin.SET_SWITCH, builtin.SET_SWITCH_IS)
        )
        whole, single = (self.functions[n] for n in names)
        selector, count = thunk.selector, len(thunk.branches)
        setter = SetConditionStep(thunk.name, place, whole, single, selector, count)
        branches = tuple(self._taken(b, thunk, place) for b in thunk.branches)
        return BranchStep(thunk.name, place, branches, selector, is_pred, setter)

    def _taken(
        self, branch: Sequence[Slice], thunk: Conditional[Slice], place: str
    ) -> StepSequence:
        """Bind a branch; its results are copied where they are not in place already.

        Only thunk-sequence text has such: our own branches leave them in place.
        """
        found = self.bind(branch)
        for source, target in zip(branch.results, thunk.results, strict=True):
            for step in self._copy(thunk.name, place, source, target):
                steps, before = (*found.steps, step), (*found.predecessors, found.sinks)
                found = StepSequence(steps, before)
        return found


def shortest(pattern: bytes) -> bytes:
    """Return the shortest pattern, of 1, 2, 4, 8 or 16 bytes, that repeats to the same bytes."""
    half = len(pattern) // 2
    while half and pattern[:half] == pattern[half:]:
        pattern, half = pattern[:half], half // 2
    return pattern
