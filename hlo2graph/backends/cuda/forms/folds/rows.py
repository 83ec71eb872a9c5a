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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run, patch_stretch, stretch_of
from hlo2graph.backends.cuda.forms.folds.folding import LATER, FoldWriter
from hlo2graph.backends.cuda.forms.folds.kept_row import KeptRow
from hlo2graph.backends.cuda.forms.folds.row_plan import RowPlan, plan_rows
from hlo2graph.backends.cuda.forms.folds.shifted_rows import ShiftedRow, asked_beside
from hlo2graph.backends.cuda.forms.folds.softmax_rows import SoftmaxRows, narrow_softmax
from hlo2graph.backends.cuda.forms.line_order import loads_first
from hlo2graph.backends.cuda.forms.windows import RULES
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_softmax import Softmax
from hlo2graph.ops.region_spaces import Size

_Runs: TypeAlias = tuple[Sequence[Run], Sequence[Expr], Expr | None]
_Round: TypeAlias = AbstractContextManager[_Runs]


def rows_kernel(
    region: Rows,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource:
    """Return the kernel of a region of rows."""
    softmax = narrow_softmax(region, computation, computations)
    plan = plan_rows(region, signature, computation, is_softmax=softmax is not None)
    rules = RULES if plan.patch is not None else None
    emitter = ElementEmitter(computations, signature.index_type, rules)
    emitter.enter(computation)
    _Writer(FoldWriter(emitter, region, computation), region, plan, softmax).write()
    emitter.leave()
    kept, threads = plan.kept, plan.team.threads
    lines, wide, blocks = emitter.needed_lines(), plan.vector > 1, plan.team.blocks
    text = signature.declare(lines, threads, wide=wide, resident=plan.resident, cluster=blocks)
    grid = blocks_for(region.results * blocks, plan.team.lanes)
    shared = kept.shared_bytes(region) if kept else 0
    return KernelSource(signature.name, text, grid, threads, shared)


class _Writer:
    """Writes the body."""

    def __init__(
        self,
        fold: FoldWriter,
        region: Rows,
        plan: RowPlan,
        softmax: Softmax | None,
    ) -> None:
        self.fold, self.region, self.plan = fold, region, plan
        self.emit = fold.emit
        self._held: list[Run] = []
        self._softmax = softmax
        self._beside: Sequence[Instruction] = ()
        self._shifted: ShiftedRow | None = None
        self._keeper = KeptRow(fold, plan.kept) if plan.kept else None
        self._is_copied = plan.kept is not None and plan.kept.vector > 0
        first = -1 if self._is_copied else 0
        is_read = plan.kept is not None and plan.kept.is_read
        self._keeps = first if is_read else len(region.stages) - 1  # the stage that does

    def write(self) -> None:
        """Write all lines."""
        if self._keeper:
            self._keeper.declare()
        self.plan.team.place(self.emit, 1 if self._softmax else len(self.region.stages))
        self._place_row()
        self._fetch()
        ready = {k: self._stage_before(k) for k in self.fold.results(Size.FULL)}
        start = len(self.emit.lines)
        if self.plan.held:
            self._held = self._chunks("slice")
            ready = {k: len(self.region.stages) if first else 0 for k, first in ready.items()}
        softmax = SoftmaxRows.of(self.fold, self._softmax, self.plan)
        if softmax:
            ready = {k: len(self.region.stages) if first else 0 for k, first in ready.items()}
        late = [k for k, first in ready.items() if first == len(self.region.stages)]
        self._beside = asked_beside(self.region, self.fold.computation, late, self.plan.held)
        if softmax:
            self._softmax_stage(softmax, [k for k, first in ready.items() if first == 0])
        else:
            for number, stage in enumerate(self.region.stages):
                early = [k for k, first in ready.items() if first == number]
                self._stage(number, self.fold.reduces(stage), early)
        self.fold.bridge(Size.ROW, self.row)
        if late:
            for round_ in self._rounds():
                with round_ as (runs, firsts, _):
                    self._recall(runs, firsts, len(self.region.stages))
                    self._store_late(runs, late)
        self._store_row()
        if self.plan.reads_first:
            loads_first(self.emit, start)

    def _stage_before(self, number: int) -> int:
        """Return behind how many stages a result can be written, in the round of the next one."""
        stages = self.region.stages
        if not self.region.waits[number]:
            return 0
        if self.region.bridges:  # which are crossed behind the last stage
            return len(stages)
        computation = self.fold.computation
        behind = {name: k for k, stage in enumerate(stages, 1) for name in stage}
        for instr in computation.instructions:
            if instr.name != computation.root or instr.opcode != "tuple":
                found = max((behind[o] for o in instr.operands if o in behind), default=0)
                behind[instr.name] = max(found, behind.get(instr.name, 0))
        root = computation.result
        return behind[root.operands[number] if root.opcode == "tuple" else root.name]

    def _is_awaited(self, stage: int) -> bool:
        """Tell whether anything but row-size results needs the totals of a stage."""
        later = stage + 1 < len(self.region.stages)
        return later or any(self.region.waits[k] for k in self.fold.results(Size.FULL))

    def _fetch(self) -> None:
        """Let all of the row come that is kept as it is read, and wait for it."""
        if self._keeper and self._is_copied:
            for round_ in self._rounds():
                with round_ as (runs, firsts, _):
                    self._keeper.fetch(runs, firsts)
            self.emit.line("hlo::copies_land();")

    # ---- places ---------------------------------------------------------------------------

    def _place_row(self) -> None:
        """Find this thread's row; what is past the last row repeats it, and is never stored."""
        emit, space, rows = self.emit, self.region.space, self.region.results
        self.inside = f"result < {rows}" if rows % self.plan.team.lanes else None
        last = emit.integer(f"{self.inside} ? result : {rows - 1}") if self.inside else "result"
        self.number = last if rows > 1 else "0"
        kept = stretch_of(emit, self.region, space.kept, self.number, 1)
        (self._kept,), self._begin = kept.indices, kept.offset
        live = [self._kept[d] for d in space.kept if space.shape.dims[d] != 1]
        self.row = Place(emit, space, live, self.number if space.shape.is_row_major else None)
        if self.plan.is_shifted:
            self._shifted = ShiftedRow.of(
                emit, self.region, self.plan.vector, self._kept, self.number
            )

    def _chunks(self, first: Expr) -> list[Run]:
        """Return the chunks of a round, of which `first` is the first run of columns."""
        found = []
        slices, vectors = self.plan.team.slices, self.plan.vectors
        row = self._shifted
        for k in range(self.plan.chunks):
            at = self.emit.integer(f"{first} + {k * slices}") if k else first
            is_open = (k + 1) * slices > vectors
            found.append(row.run(at, is_open=is_open) if row else self._run(at, is_open=is_open))
        return [*found, row.ends()] if row else found

    def _run(self, at: Expr, *, is_open: bool) -> Run:
        """Return run number `at` of the row's columns; where it `is_open`, there may be none."""
        inside = f"{at} < {self.plan.vectors}" if is_open else None
        if inside:
            at = self.emit.integer(f"{inside} ? {at} : {self.plan.vectors - 1}")
        return Run(tuple(self._places(at)), inside)

    def _places(self, at: Expr) -> Iterator[Place]:
        """Yield the places of run number `at` of the row's columns."""
        emit, region, vector = self.emit, self.region, self.plan.vector
        dims = region.space.reduced
        if self.plan.patch is not None:
            columns = patch_stretch(emit, region, dims, at, self.plan.patch)
        else:
            columns = stretch_of(emit, region, dims, at, vector)
        parts = [part for part in (self._begin, columns.offset) if part != "0"]
        base = emit.integer(" + ".join(parts) or "0")
        for k, index in enumerate(columns.indices):
            far = columns.distances[k] if columns.distances else k
            number = emit.integer(f"{base} + {far}") if k else base
            found = self._kept | index
            live = [found[d] for d, n in enumerate(region.space.shape.dims) if n != 1]
            yield Place(emit, region.space, live, number)

    def _rounds(self) -> Iterator[_Round]:
        """Yield all rounds: of several runs, of one run, and that of the ends, all without a test.

        Each writes what its context writes; that gets the runs, where each begins among what is
        kept of the row, and the test for the first round.
        """
        if self.plan.held:
            yield nullcontext((self._held, (), None))
            return
        at, slices, row = self.emit.fresh("n"), self.plan.team.slices, self._shifted
        count = row.runs if row else str(self.plan.vectors)
        self.emit.line(f"{self.emit.index_type} {at} = slice;")
        is_first = f"{at} == slice"
        for several in dict.fromkeys((self.plan.chunks, 1)):
            last = f"{at} + {(several - 1) * slices}" if several > 1 else at
            head = f"for (; {last} < {count}; {at} += {several * slices})"
            steps = [f"{at} + {k * slices}" if k else at for k in range(several)]
            yield self._several(head, steps, is_first)
            is_first = LATER
        if row:
            yield self._ends(row)

    @contextmanager
    def _several(self, head: str, steps: Sequence[Expr], is_first: Expr) -> Iterator[_Runs]:
        with self.emit.block(head):
            places = [self.emit.integer(step) for step in steps]
            run = self._shifted.run if self._shifted else self._run
            runs = [run(at, is_open=False) for at in places]
            yield runs, self._firsts(places), is_first

    @contextmanager
    def _ends(self, row: ShiftedRow) -> Iterator[_Runs]:
        with self.emit.block(f"if ({row.has_end})"):
            whole = f"{row.runs} * {self.plan.vector}"
            firsts = [self._keeper.end(self.region, whole)] if self._keeper else []
            yield [row.end()], firsts, LATER

    def _firsts(self, runs: Sequence[Expr]) -> list[Expr]:
        """Return where this thread keeps runs of these numbers, if it does."""
        return [self._keeper.first(at, self.plan.vector) for at in runs] if self._keeper else []

    # ---- stages ---------------------------------------------------------------------------

    def _recall(self, runs: Sequence[Run], firsts: Sequence[Expr], stage: int) -> None:
        if self._keeper and stage > self._keeps:
            self._keeper.recall(runs, firsts)

    def _stage(self, number: int, reduces: Sequence[Instruction], early: Sequence[int]) -> None:
        """Fold reduces that wait for the stages before only; store what waits for none."""
        fold = self.fold
        if not self.plan.held:
            fold.begin(reduces)
        for round_ in self._rounds():
            with round_ as (runs, firsts, is_first):
                self._recall(runs, firsts, number)
                fold.fold_round(reduces, runs, is_first)
                if self._keeper and number == self._keeps:
                    self._keeper.keep(runs, firsts)
                fold.store_runs(runs, early, self.inside)
        held = [(reduce, fold.partial[reduce.name][0]) for reduce in reduces]
        parts = [fold.part(reduce, own) for reduce, own in held]
        if number == 0:
            self.plan.team.meet(self.emit)
        awaited = self._is_awaited(number)
        self.plan.team.combine(self.emit, parts, all_threads=awaited, number=number)
        for reduce, own in held:
            fold.settle(reduce, own, self.row)

    def _softmax_stage(self, softmax: SoftmaxRows, early: Sequence[int]) -> None:
        """Fold all in one look; store what waits for nothing."""
        for round_ in self._rounds():
            with round_ as (runs, firsts, is_first):
                self._recall(runs, firsts, 0)
                softmax.add(runs, is_only=is_first is None)
                self.fold.store_runs(runs, early, self.inside)
        self.plan.team.meet(self.emit)
        self.plan.team.combine(self.emit, [softmax.part], all_threads=True)
        softmax.settle(self.row)

    # ---- results --------------------------------------------------------------------------

    def _store_late(self, runs: Sequence[Run], leaves: Sequence[int]) -> None:
        """Write the results that wait for all totals, run by run, to save registers."""
        for run in runs:
            if self._shifted and self.plan.reads_beside:
                self._shifted.read_beside(self._beside, run)
            self.fold.store_runs([run], leaves, self.inside)

    def _store_row(self) -> None:
        leaves = self.fold.results(Size.ROW)
        if not leaves:
            return
        tests = [test for test in ("slice == 0", self.inside) if test]
        with self.emit.block(f"if ({' && '.join(tests)})"):
            found = [(k, self.fold.result(k, self.row)) for k in leaves]
            for number, value in found:
                self.fold.store(number, [self.row], [value])
