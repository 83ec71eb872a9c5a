"""A cut plan as steps: a GraphStep a region, and the steps of lone thunks between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from hlo2graph.backends.cuda.bind import Binder
from hlo2graph.backends.cuda.partial.cut import Alone, Cutter, Region
from hlo2graph.backends.cuda.steps import GraphStep, Step, StepSequence
from hlo2graph.program.thunks import Sequence, Slice

WriteOut: TypeAlias = Callable[[Sequence[Slice]], Sequence[Slice]]
"""What writes the short loops of a region out, round by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBinder(Binder):
    """Turns sequences into what a serial stream enqueues, cut by `cutter`.

    Nested sequences of lone loops and branches are cut too; a region is bound as a graph has it.
    """

    cutter: Cutter
    write_out: WriteOut
    numbers: count[int] = field(default_factory=count)

    def bind(self, sequence: Sequence[Slice]) -> StepSequence:
        """Return the script of `sequence`: each step waits for the one before."""
        plain = Binder(self.functions, self.sources, self.products, self.packing)
        steps: list[Step] = []
        for part in self.cutter.parts(sequence):
            match part:
                case Region():
                    inside = plain.bind(self.write_out(part.sequence))
                    if inside.steps:
                        number = next(self.numbers)
                        steps.append(GraphStep(f"graph {number}", number, inside))
                case Alone():
                    steps += self._steps(part.thunk)
        before = tuple((k - 1,) if k else () for k in range(len(steps)))
        return StepSequence(tuple(steps), before)
