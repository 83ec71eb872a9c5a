"""A cut plan as steps: a GraphStep a region, and the steps of lone thunks between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from hlo2graph.backends.cuda.bind import Binder
from hlo2graph.backends.cuda.partial.cut import Alone, Cutter, Region
from hlo2graph.backends.cuda.steps import GraphStep, Step, StepSequence
from hlo2graph.backends.cuda.unroll import Unrolling, unrolled
from hlo2graph.program.thunks import Sequence, Slice


@dataclass(frozen=True, slots=True)
class Cut:
    """How a plan is cut, and which loops of its regions are written out."""

    cutter: Cutter
    unrolling: Unrolling

    def bind(self, binder: Binder) -> StepSequence:
        """Return the plan's script: each step waits for the one before.

        Nested sequences of lone loops and branches are cut too; a region is bound as `binder` has
        it for a graph.
        """
        given = binder.functions, binder.sources, binder.products, binder.packing
        return _ScriptBinder(*given, cut=self, regions=binder).bind(self.cutter.plan.body)

    def written_out(self) -> tuple[str, ...]:
        """Return which loops are written out, a phrase each."""
        regions = self.cutter.regions(self.cutter.plan.body)
        return tuple(done for region in regions for done in self._unrolled(region)[1])

    def steps(self, region: Region, binder: Binder) -> StepSequence:
        """Return the steps of the graph of `region`."""
        return binder.bind(self._unrolled(region)[0])

    def _unrolled(self, region: Region) -> tuple[Sequence[Slice], tuple[str, ...]]:
        return unrolled(region.sequence, self.unrolling, self.cutter.plan.schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScriptBinder(Binder):
    cut: Cut
    regions: Binder
    numbers: Iterator[int] = field(default_factory=count)

    def bind(self, sequence: Sequence[Slice]) -> StepSequence:
        steps: list[Step] = []
        for part in self.cut.cutter.parts(sequence):
            match part:
                case Region():
                    inside = self.cut.steps(part, self.regions)
                    if inside.steps:
                        number = next(self.numbers)
                        steps.append(GraphStep(f"graph {number}", number, inside))
                case Alone():
                    steps += self._steps(part.thunk)
        before = tuple((k - 1,) if k else () for k in range(len(steps)))
        return StepSequence(tuple(steps), before)
