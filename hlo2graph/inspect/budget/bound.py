"""The least time that a plan's graph can take: the longest way through it, each node at its best.

A node takes the larger of two times: what it moves at the speed of a large copy, or computes at the
best that its unit was measured at (its roofline); and what the smallest kernel of its form takes
from one node to the next. That kernel has as many steps that wait for each other as a product of
that depth has, or as the best known way to sort, to factor, to transform as much (chains.py), or as
there are rounds of a stencil in it. A loop is its rounds one after the other, a conditional the
branches that were taken; neither takes time of its own, though a device gives it some. What runs
side by side is taken to have room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from hlo2graph.hlo import Computation, Shape
from hlo2graph.inspect.budget.chains import chain_seconds
from hlo2graph.inspect.budget.cost import Costs, first_product
from hlo2graph.inspect.budget.traffic import traffic_of
from hlo2graph.ops.region import Attention, Columns, Folding, Own, SideBySide, region_of
from hlo2graph.ops.sweeps import Sweeps
from hlo2graph.program.device_figures import Device, Measured
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import (
    Collective,
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

Runs = Mapping[int, float]
"""How often each thunk ran, by its `id`."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds, launching included, and the outermost thunks on the longest way with theirs."""

    seconds: float
    path: tuple[tuple[str, float], ...]


def bound(
    plan: Plan,
    device: Device,
    measured: Measured,
    runs: Runs | None = None,
    *,
    flat: bool = False,
) -> Bound:
    """Return the bound of one run of the plan.

    flat: takes what sorts, factors or transforms for as quick as a fold, however much that is.
    runs: how often its thunks ran, for loops whose number of rounds is known only then, and for
        conditionals; without it such a loop is taken to run once, and the longest branch.
    """
    found = _Bounds(plan, device, measured, runs or Counter(), flat=flat).of(plan.body)
    return replace(found, seconds=measured.launch + found.seconds)


class _Bounds:
    def __init__(
        self, plan: Plan, device: Device, measured: Measured, runs: Runs, *, flat: bool = False
    ) -> None:
        self._computations, self._measured, self._runs = plan.computations, measured, runs
        self._flat = flat
        self._costs = Costs(plan, device)
        self._latencies: dict[str, float] = {}

    def of(self, sequence: Sequence[Slice]) -> Bound:
        """Return the longest way through a sequence."""
        before: list[list[int]] = [[] for _ in sequence.thunks]
        for edge in sequence.edges:
            before[edge.dst].append(edge.src)
        took = [self._seconds(thunk) for thunk in sequence.thunks]
        ends: list[float] = []
        last: list[int | None] = []
        for at, waits in enumerate(before):
            latest = max(waits, key=ends.__getitem__, default=None)
            last.append(latest)
            ends.append(took[at] + (0.0 if latest is None else ends[latest]))
        path = []
        at_end = max(range(len(ends)), key=ends.__getitem__, default=None)
        while at_end is not None:
            path.append((sequence.thunks[at_end].name, took[at_end]))
            at_end = last[at_end]
        return Bound(max(ends, default=0.0), tuple(reversed(path)))

    def _seconds(self, thunk: Thunk[Slice]) -> float:
        match thunk:
            case While():
                rounds = self._rounds(thunk)
                tests = self.of(thunk.condition).seconds * (rounds + 1)
                return tests + self.of(thunk.body).seconds * rounds
            case Conditional():
                return self._branches(thunk)
            case Copy():
                return self._moving(thunk.source.size + thunk.target.size)
            case Fill():
                return self._moving(thunk.target.size)
            case Kernel() | Library() | Collective():
                return self._computing(thunk)
            case _:
                assert_never(thunk)

    def _rounds(self, loop: While[Slice]) -> float:
        if loop.trip_count is not None:
            return loop.trip_count
        return self._times(loop.body, loop, 1.0)

    def _branches(self, thunk: Conditional[Slice]) -> float:
        each = [self.of(branch).seconds for branch in thunk.branches]
        if not self._runs.get(id(thunk)):
            return max(each)
        shares = [self._times(branch, thunk, 0.0) for branch in thunk.branches]
        return sum(s * share for s, share in zip(each, shares, strict=True))

    def _times(self, inner: Sequence[Slice], outer: Thunk[Slice], otherwise: float) -> float:
        """Return how often `inner` ran each time that `outer` did."""
        ran = self._runs.get(id(outer))
        if not ran or not inner.thunks:
            return otherwise
        return self._runs.get(id(inner.thunks[0]), 0.0) / ran

    def _moving(self, size: int) -> float:
        return max(self._measured.elementwise, size / self._measured.bytes_per_second)

    def _computing(self, thunk: Kernel[Slice] | Library[Slice] | Collective[Slice]) -> float:
        computation = self._computations[thunk.computation]
        traffic = traffic_of(computation, self._computations)
        moved = sum(traffic.read)
        for number, size in enumerate(traffic.written):
            parameter = traffic.updated.get(number)
            in_place = parameter is None or thunk.writes[number] == thunk.reads[parameter]
            moved += size if in_place else 2 * thunk.writes[number].size
        rates = self._measured
        computed = self._costs.operations(thunk.computation)
        seconds = computed.plain / rates.vector_flops
        for width, count in computed.products.items():
            nearest = min(rates.product_flops, key=lambda known: abs(known - width))
            seconds += count / (rates.product_flops[nearest] * nearest / width)
        latency = self._latency(thunk.computation)
        return max(latency, seconds, moved / rates.bytes_per_second)

    def _latency(self, name: str) -> float:
        if name not in self._latencies:
            self._latencies[name] = self._smallest(self._computations[name])
        return self._latencies[name]

    def _smallest(self, computation: Computation) -> float:
        """Return what the smallest kernel of a computation's form takes."""
        measured = self._measured
        match region_of(computation):
            case SideBySide(parts):
                called = (next(computation[part].called()) for part in parts)
                return max(self._latency(name) for name in called)
            case Columns():
                return measured.columns
            case Folding():
                return measured.fold
            case Own() | Attention() as region:
                return self._heroic(computation, region)
            case Sweeps(rounds=rounds):
                exchanges = 0 if self._flat else rounds
                return measured.elementwise + exchanges * _between_rounds(computation, measured)
            case _:
                return measured.elementwise

    def _heroic(self, computation: Computation, region: Own | Attention) -> float:
        """Return what the smallest kernel takes that has a product, or what needs its own form."""
        measured = self._measured
        if product := first_product(computation):
            return measured.of_product(*product)
        if self._flat or isinstance(region, Attention):
            return measured.fold
        steps = chain_seconds(computation[region.hero], computation, measured)
        return max(measured.fold, measured.elementwise + steps)


def _between_rounds(computation: Computation, measured: Measured) -> float:
    """Return what handing a stencil's results to the next round takes: in a warp, or in a block."""
    shape = computation.parameters[0].shape
    in_warp = isinstance(shape, Shape) and shape.rank == 1
    return measured.steps.fold if in_warp else measured.steps.barrier
