"""The folds of long rows' softmax in one look at the elements, in place of one for each fold.

A thread sums exponentials beside the largest value that it has seen; whatever is larger lowers what
was summed before. So do threads when they fold what they have: one barrier, not two. Beside -inf
nothing can be summed: where no value is larger, they are looked at beside 0, and the sum is NaN in
the end, as it is of such values beside their largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run
from hlo2graph.backends.cuda.forms.folds.folding import FoldWriter
from hlo2graph.backends.cuda.forms.folds.row_plan import RowPlan
from hlo2graph.backends.cuda.forms.line_order import loads_first
from hlo2graph.backends.cuda.team import Part
from hlo2graph.hlo import Computation
from hlo2graph.ops.device import Expr
from hlo2graph.ops.expect import written
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_softmax import KEEPS_ORDER, Softmax, softmax_of

NARROW = frozenset({"bf16", "f16"})


def narrow_softmax(
    region: Rows, computation: Computation, computations: Mapping[str, Computation]
) -> Softmax | None:
    """Return the softmax that a region's folds are, if any, whose exponentials are cheap."""
    return softmax_of(computation, computations, region.stages, NARROW, KEEPS_ORDER)


@dataclass(frozen=True, slots=True)
class SoftmaxRows:
    """Writes both folds; `most` and `total` are a thread's variables."""

    fold: FoldWriter
    softmax: Softmax
    least: Expr
    most: Expr
    total: Expr

    @classmethod
    def of(
        cls,
        fold: FoldWriter,
        softmax: Softmax | None,
        plan: RowPlan,
    ) -> SoftmaxRows | None:
        """Declare the variables, if the folds are those of a softmax, and that pays.

        It does where rows are kept as they are read, or a barrier is dear.
        """
        is_read = plan.kept is not None and plan.kept.is_read
        if softmax is None or (not is_read and plan.team.blocks == 1):
            return None
        emit = fold.emit
        least = emit.leaf(softmax.largest.operands[1], 0, ())
        most = emit.variable(written(softmax.largest).dtype, least)
        return cls(fold, softmax, least, most, emit.variable(written(softmax.total).dtype, "{}"))

    def add(self, runs: Sequence[Run], *, is_only: bool) -> None:
        """Write how a round's elements are folded; `is_only` says that there is no other round."""
        emit, fold, largest = self.fold.emit, self.fold, self.softmax.largest
        start = len(emit.lines)
        values = [(fold.values(largest, p)[0], run.inside) for run in runs for p in run.places]
        loads_first(emit, start)
        held = [self._of_most(f"{test} ? {v} : {self.least}") if test else v for v, test in values]
        before = self._of_most(self.most)
        fold.fold(largest, [self.most], fold.folded(largest, [(value,) for value in held]))
        beside = self._beside(self.most)
        [more] = fold.folded(self.softmax.total, [(self._grown(v, beside),) for v in held])
        if is_only:
            emit.line(f"{self.total} = {more};")
        else:
            scaled = f"hlo::multiply({self.total}, {self._grown(before, beside)})"
            emit.line(f"{self.total} = hlo::add({scaled}, {more});")

    @property
    def part(self) -> Part:
        """What threads fold together."""

        def fold(into: Sequence[Expr], values: Sequence[Expr]) -> None:
            before = self._of_most(into[0])
            self.fold.fold(self.softmax.largest, into[:1], values[:1])
            beside = self._beside(into[0])
            mine = f"hlo::multiply({into[1]}, {self._grown(before, beside)})"
            theirs = f"hlo::multiply({values[1]}, {self._grown(values[0], beside)})"
            self.fold.emit.line(f"{into[1]} = hlo::add({mine}, {theirs});")

        dtypes = [written(reduce).dtype for reduce in (self.softmax.largest, self.softmax.total)]
        return Part(dtypes, (self.most, self.total), fold)

    def settle(self, row: Place) -> None:
        """Make known what the row's reduces are."""
        emit, (most, total) = self.fold.emit, (self.most, self.total)
        none = f"hlo::subtract({most}, {most})"
        total = emit.bind(
            written(self.softmax.total).dtype, f"{most} == {self.least} ? {none} : {total}"
        )
        for reduce, value in ((self.softmax.largest, most), (self.softmax.total, total)):
            emit.assume(reduce.name, row.index(written(reduce).dims), (value,))

    def _of_most(self, value: Expr) -> Expr:
        return self.fold.emit.bind(written(self.softmax.largest).dtype, value)

    def _beside(self, most: Expr) -> Expr:
        return self._of_most(f"{most} == {self.least} ? 0.0f : {most}")

    def _grown(self, value: Expr, beside: Expr) -> Expr:
        dtype = written(self.softmax.grown).dtype
        near = "near_" if dtype.bits <= 16 else ""
        difference = f"hlo::subtract({value}, {beside})"
        return self.fold.emit.bind(dtype, f"hlo::{near}exponential({difference})")
