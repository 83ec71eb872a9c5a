"""The rows form: the threads of a team fold a row together, and go on to what waits for its totals.

Regions are taken to be associative, as HLO allows: each thread folds its own elements, then the
team folds the threads' parts in pairs, and the init value comes in once, at the end. The order is
fixed, so that equal inputs give equal bits. Then all threads of the row know the totals, and fold
the next stage, or write results.

Where a row's elements fit into its threads' registers, all stages stand in one scope: what one has
computed of an element (x - mean, an exponential) serves the next ones too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folding import (
    FoldWriter,
    Place,
    Values,
    dtypes_of,
    indices,
)
from hlo2graph.backends.cuda.forms.line_order import divide_together, loads_first
from hlo2graph.backends.cuda.forms.row_plan import RowPlan, plan_rows
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_spaces import Size


def rows_kernel(
    region: Rows,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource:
    """Return the kernel of a region of rows."""
    plan = plan_rows(region, signature, computation)
    emitter = ElementEmitter(computations, signature.index_type)
    emitter.enter(computation)
    _Writer(FoldWriter(emitter, region, computation), region, plan).write()
    emitter.leave()
    text = signature.declare(emitter.needed_lines(), plan.team.threads, wide=plan.vector > 1)
    grid = blocks_for(region.results, plan.team.lanes)
    return KernelSource(signature.name, text, grid, plan.team.threads)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Elements side by side; `inside` is the test that they lie in the row, if they may not."""

    places: tuple[Place, ...]
    inside: Expr | None


class _Writer:
    """Writes the body."""

    def __init__(self, fold: FoldWriter, region: Rows, plan: RowPlan) -> None:
        self.fold, self.region, self.plan = fold, region, plan
        self.emit = fold.emit
        self._held: list[_Chunk] = []

    def write(self) -> None:
        """Write all lines."""
        self.plan.team.place(self.emit)
        self._place_row()
        free = [k for k in self.fold.results(Size.FULL) if not self.region.waits[k]]
        waiting = [k for k in self.fold.results(Size.FULL) if self.region.waits[k]]
        if self.plan.held:
            self._held = self._chunks("slice")
        for number, stage in enumerate(self.region.stages):
            early = free if number == 0 and not self.plan.held else []
            self._stage(self.fold.reduces(stage), early, self._is_awaited(number))
        self.fold.bridge(Size.ROW, self.row)
        late = [*free, *waiting] if self.plan.held else waiting
        if late:
            with self._round() as (chunks, _):
                self._store(chunks, late)
        self._store_row()

    def _is_awaited(self, stage: int) -> bool:
        """Tell whether anything but row-size results needs the totals of a stage."""
        later = stage + 1 < len(self.region.stages)
        return later or any(self.region.waits[k] for k in self.fold.results(Size.FULL))

    # ---- places ---------------------------------------------------------------------------

    def _place_row(self) -> None:
        """Find this thread's row; what is past the last row repeats it, and is never stored."""
        emit, space, rows = self.emit, self.region.space, self.region.results
        self.inside = f"result < {rows}" if rows % self.plan.team.lanes else None
        last = emit.integer(f"{self.inside} ? result : {rows - 1}") if self.inside else "result"
        self.number = last if rows > 1 else "0"
        (self._kept,) = indices(emit, self.region, space.kept, self.number, 1)
        live = [self._kept[d] for d in space.kept if space.shape.dims[d] != 1]
        self.row = Place(emit, space, live, self.number if space.shape.is_row_major else None)

    def _chunks(self, first: Expr) -> list[_Chunk]:
        """Return the chunks of a round, of which `first` is the first run of columns."""
        found = []
        slices, vectors = self.plan.team.slices, self.plan.vectors
        for k in range(self.plan.chunks):
            at = self.emit.integer(f"{first} + {k * slices}") if k else first
            open_end = not self.plan.is_whole and k > 0
            if self.plan.is_once:
                open_end = (k + 1) * slices > vectors
            inside = f"{at} < {vectors}" if open_end else None
            if inside:
                at = self.emit.integer(f"{inside} ? {at} : {vectors - 1}")
            found.append(_Chunk(tuple(self._run(at)), inside))
        return found

    def _run(self, at: Expr) -> Iterator[Place]:
        """Yield the places of run number `at` of the row's columns."""
        emit, region, vector = self.emit, self.region, self.plan.vector
        start = emit.integer(f"{at} * {vector}") if vector > 1 else at
        base = start
        if region.is_contiguous and region.results > 1:
            base = emit.integer(f"{self.number} * {region.steps}{emit.places.wide} + {start}")
        for k, index in enumerate(indices(emit, region, region.space.reduced, at, vector)):
            number = emit.integer(f"{base} + {k}") if k else base
            found = self._kept | index
            live = [found[d] for d, n in enumerate(region.space.shape.dims) if n != 1]
            yield Place(emit, region.space, live, number if region.is_contiguous else None)

    @contextmanager
    def _round(self) -> Iterator[tuple[Sequence[_Chunk], Expr | None]]:
        """Write what the context writes for all chunks; gives the test for the first round."""
        if self.plan.held:
            yield self._held, None
            return
        at, step = self.emit.fresh("n"), self.plan.team.slices * self.plan.chunks
        kind = self.emit.index_type
        head = f"for ({kind} {at} = slice; {at} < {self.plan.vectors}; {at} += {step})"
        with self.emit.block(head):
            yield self._chunks(at), f"{at} == slice"

    # ---- stages ---------------------------------------------------------------------------

    def _stage(self, reduces: Sequence[Instruction], early: Sequence[int], awaited: bool) -> None:
        """Fold reduces that wait for the stages before only; store what waits for none."""
        emit = self.emit
        partial: dict[str, list[Expr]] = {}
        if not self.plan.held:
            for reduce in reduces:
                partial[reduce.name] = [emit.variable(t, "{}") for t in dtypes_of(reduce)]
        with self._round() as (chunks, is_first):
            start = len(emit.lines)
            values = [self._values(reduce, chunks) for reduce in reduces]
            loads_first(emit, start)
            for reduce, found in zip(reduces, values, strict=True):
                self._fold(reduce, chunks, found, partial, is_first)
            if early:
                self._store(chunks, early)
        parts = [self.fold.part(reduce, partial[reduce.name]) for reduce in reduces]
        self.plan.team.combine(emit, parts, all_threads=awaited)
        for reduce in reduces:
            self.fold.settle(reduce, partial[reduce.name], self.row)

    def _values(self, reduce: Instruction, chunks: Sequence[_Chunk]) -> list[list[Values]]:
        return [[self.fold.values(reduce, place) for place in chunk.places] for chunk in chunks]

    def _fold(
        self,
        reduce: Instruction,
        chunks: Sequence[_Chunk],
        values: Sequence[list[Values]],
        partial: dict[str, list[Expr]],
        is_first: Expr | None,
    ) -> None:
        """Fold a round's elements: those that all threads have at once, then the others."""
        fold, emit = self.fold, self.emit
        whole = [
            v for chunk, each in zip(chunks, values, strict=True) if not chunk.inside for v in each
        ]
        total = fold.folded(reduce, whole)
        if is_first is None:
            types = dtypes_of(reduce)
            partial[reduce.name] = [emit.variable(t, v) for t, v in zip(types, total, strict=True)]
        else:
            with emit.block(f"if ({is_first})"):
                fold.assign(reduce, partial[reduce.name], total)
            with emit.block("else"):
                fold.fold(reduce, partial[reduce.name], total)
        for chunk, each in zip(chunks, values, strict=True):
            if chunk.inside:
                rest = fold.folded(reduce, each)
                with emit.block(f"if ({chunk.inside})"):
                    fold.fold(reduce, partial[reduce.name], rest)

    # ---- results --------------------------------------------------------------------------

    def _store(self, chunks: Sequence[_Chunk], leaves: Sequence[int]) -> None:
        """Write full-size results: all values of a chunk, then all its stores."""
        for chunk in chunks:
            start = len(self.emit.lines)
            found: dict[int, list[Expr]] = {number: [] for number in leaves}
            for place in chunk.places:
                if any(self.region.waits[k] for k in leaves):
                    self.fold.bridge(Size.FULL, place)
                for number in leaves:
                    found[number].append(self.fold.result(number, place))
            loads_first(self.emit, start)
            divide_together(self.emit, start)
            test = " && ".join(test for test in (self.inside, chunk.inside) if test)
            for number, values in found.items():
                self.fold.store(number, chunk.places, values, test)

    def _store_row(self) -> None:
        leaves = self.fold.results(Size.ROW)
        if not leaves:
            return
        tests = [test for test in ("slice == 0", self.inside) if test]
        with self.emit.block(f"if ({' && '.join(tests)})"):
            found = [(k, self.fold.result(k, self.row)) for k in leaves]
            for number, value in found:
                self.fold.store(number, [self.row], [value])
