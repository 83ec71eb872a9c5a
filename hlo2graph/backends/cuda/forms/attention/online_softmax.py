"""The folds of a softmax in one look at its values: the sum is made anew for each larger one.

A sum of exponentials beside the largest value so far is multiplied as that grows. As long as all
values are -inf they are looked at beside 0 instead, so that later ones find a sum; where that is so
to the end, the sum is NaN, as it is of such values beside their largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.folding import FoldWriter
from hlo2graph.backends.cuda.team import Team
from hlo2graph.ops.device import Expr
from hlo2graph.ops.expect import written
from hlo2graph.ops.region_softmax import Softmax


class OnlineSoftmax:
    """Writes the folds of a softmax for each of a thread's rows."""

    def __init__(self, emit: ElementEmitter, fold: FoldWriter, softmax: Softmax) -> None:
        self.emit, self.fold = emit, fold
        self.largest, self.total = softmax.largest, softmax.total
        self.dtype = written(self.total).dtype
        self.least = emit.leaf(self.largest.operands[1], 0, ())
        self.found = [
            (emit.variable(self.dtype, self.least), emit.variable(self.dtype, "{}"))
            for _ in range(fold.width)
        ]

    def add(
        self,
        row: int,
        values: Sequence[Expr],
        tests: Sequence[Expr | None],
        team: Team | None = None,
    ) -> tuple[Expr, list[Expr]]:
        """Write how more values of a row are folded: those whose test, if they have one, holds.

        Return what was multiplied by, and the exponentials. With a team, its threads look at all
        values beside the same.
        """
        emit, (most, total) = self.emit, self.found[row]
        kept = [
            emit.bind(self.dtype, f"{test} ? {value} : {self.least}") if test else value
            for value, test in zip(values, tests, strict=True)
        ]
        before = emit.bind(self.dtype, most)
        self.fold.fold(self.largest, [most], self.fold.folded(self.largest, [(v,) for v in kept]))
        if team:
            team.combine(emit, [self.fold.part(self.largest, [most])], all_threads=True)
        beside = self.beside(most)
        grown = [self.exponential(value, beside) for value in kept]
        [more] = self.fold.folded(self.total, [(g,) for g in grown])
        scale = self.exponential(before, beside)
        emit.line(f"{total} = hlo::add(hlo::multiply({total}, {scale}), {more});")
        return scale, grown

    def end(self, team: Team) -> None:
        """Write how threads fold what each has; all then have each row's largest value and sum."""
        emit, fold = self.emit, self.fold
        own = [emit.bind(self.dtype, most) for most, _ in self.found]
        parts = [fold.part(self.largest, [most]) for most, _ in self.found]
        team.combine(emit, parts, all_threads=True)
        for before, (most, total) in zip(own, self.found, strict=True):
            scale = self.exponential(before, self.beside(most))
            emit.line(f"{total} = hlo::multiply({total}, {scale});")
        parts = [fold.part(self.total, [total]) for _, total in self.found]
        team.combine(emit, parts, all_threads=True)

    def totals(self) -> list[Expr]:
        """Write each row's sum: NaN where all values are -inf."""
        return [self.total_of(most, total) for most, total in self.found]

    def total_of(self, most: Expr, total: Expr) -> Expr:
        """Return the sum, given the largest value and the sum beside it."""
        none = f"hlo::subtract({most}, {most})"
        return self.emit.bind(self.dtype, f"{most} == {self.least} ? {none} : {total}")

    def beside(self, most: Expr) -> Expr:
        """Return what exponentials are beside, given the largest value so far."""
        return self.emit.bind(self.dtype, f"{most} == {self.least} ? 0.0f : {most}")

    def exponential(self, value: Expr, beside: Expr) -> Expr:
        """Return a value's exponential beside another one."""
        return self.emit.bind(
            self.dtype, f"hlo::near_exponential(hlo::subtract({value}, {beside}))"
        )
