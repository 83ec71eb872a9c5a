"""The columns form: threads side by side fold results side by side, each along slices of the steps.

A thread has `vector` neighbouring results, as many as one access of 16 bytes has. The threads of
other slices fold other steps of the same results; shared memory brings their parts together, in a
fixed order. One thread a result folds in the init value and does what waits for the reduces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.column_plan import FEWEST_SLICES, ColumnPlan, plan_columns
from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run, stretch_of
from hlo2graph.backends.cuda.forms.folds.folding import FoldWriter, dtypes_of
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Columns
from hlo2graph.ops.region_spaces import Size


def columns_kernel(
    region: Columns,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource:
    """Return the kernel of a region of columns."""
    emitter = ElementEmitter(computations, signature.index_type)
    emitter.enter(computation)
    fold = FoldWriter(emitter, region, computation)
    types = [t for reduce in fold.reduces(region.reduces) for t in dtypes_of(reduce)]
    plan = plan_columns(region, signature, computation, types)
    _Writer(fold, region, plan).write()
    emitter.leave()
    text = signature.declare(emitter.needed_lines(), plan.threads, wide=plan.vector > 1)
    grid = blocks_for(region.results, plan.width)
    return KernelSource(signature.name, text, grid, plan.threads)


class _Writer:
    """Writes the body."""

    def __init__(self, fold: FoldWriter, region: Columns, plan: ColumnPlan) -> None:
        self.fold, self.region, self.plan = fold, region, plan
        self.emit = fold.emit
        self.reduces = fold.reduces(region.reduces)
        fold.width = plan.vector

    def write(self) -> None:
        """Write all lines."""
        self._place_results()
        self.fold.begin(self.reduces)
        with self._round() as (steps, is_first):
            self.fold.fold_round(self.reduces, steps, is_first)
            self.fold.store_runs(steps, self.fold.results(Size.FULL), self.inside)
        shared = self._share()
        self._finish(shared)

    # ---- places ---------------------------------------------------------------------------

    def _place_results(self) -> None:
        """Find this thread's results; what is past the last ones repeats them, never stored."""
        emit, plan, count = self.emit, self.plan, self.region.results
        emit.line(f"const int lane = threadIdx.x % {plan.lanes};")
        emit.line(f"const int slice = threadIdx.x / {plan.lanes};")
        run = emit.integer(f"{emit.block_index} * {plan.lanes} + lane")
        runs = count // plan.vector
        self.inside = f"{run} < {runs}" if runs % plan.lanes else None
        if self.inside:
            run = emit.integer(f"{self.inside} ? {run} : {runs - 1}")
        self.first = emit.integer(f"{run} * {plan.vector}") if plan.vector > 1 else run
        self.kept = stretch_of(emit, self.region, self.region.space.kept, run, plan.vector).indices

    def _step(self, at: Expr, inside: Expr | None) -> Run:
        emit, region = self.emit, self.region
        (along,) = stretch_of(emit, region, region.space.reduced, at, 1).indices
        base = None
        if region.is_contiguous:
            base = emit.integer(f"{at} * {region.results}{emit.places.wide} + {self.first}")
        places = []
        for k, kept in enumerate(self.kept):
            index = kept | along
            live = [index[d] for d, n in enumerate(region.space.shape.dims) if n != 1]
            number = emit.integer(f"{base} + {k}") if base and k else base
            places.append(Place(emit, region.space, live, number))
        return Run(tuple(places), inside)

    @contextmanager
    def _round(self) -> Iterator[tuple[Sequence[Run], Expr]]:
        """Write what the context writes for the steps of a round; gives the test for the first."""
        emit, plan, steps = self.emit, self.plan, self.region.steps
        at, stride = emit.fresh("n"), plan.slices * plan.ahead
        head = f"for ({emit.index_type} {at} = slice; {at} < {steps}; {at} += {stride})"
        with emit.block(head):
            found = []
            for k in range(plan.ahead):
                step = emit.integer(f"{at} + {k * plan.slices}") if k else at
                inside = f"{step} < {steps}" if k and steps % stride else None
                if inside:
                    step = emit.integer(f"{inside} ? {step} : {steps - 1}")
                found.append(self._step(step, inside))
            yield found, f"{at} == slice"

    # ---- folding --------------------------------------------------------------------------

    def _share(self) -> dict[str, list[Expr]]:
        """Bring the slices' parts to shared memory; fold them in pairs until few are left."""
        emit, plan = self.emit, self.plan
        shared: dict[str, list[Expr]] = {}
        for reduce in self.reduces:
            shared[reduce.name] = [emit.fresh("s") for _ in dtypes_of(reduce)]
            for dtype, name in zip(dtypes_of(reduce), shared[reduce.name], strict=True):
                size = plan.slices * plan.width
                emit.line(f"__shared__ {compute_type(dtype)} {name}[{size}];")
        emit.line(f"const int own = threadIdx.x * {plan.vector};")
        self._to_memory(shared)
        half = plan.slices // 2
        if half >= FEWEST_SLICES:
            head = f"int half = {half}; half >= {FEWEST_SLICES}; half /= 2"
            with emit.block(f"for ({head})"):
                emit.line("__syncthreads();")
                with emit.block("if (slice < half)"):
                    for reduce in self.reduces:
                        self._from_memory(reduce, shared[reduce.name])
                    self._to_memory(shared)
        emit.line("__syncthreads();")
        return shared

    def _to_memory(self, shared: Mapping[str, Sequence[Expr]]) -> None:
        vector = self.plan.vector
        for name, arrays in shared.items():
            for number, array in enumerate(arrays):
                for k in range(vector):
                    self.emit.line(f"{array}[own + {k}] = {self.fold.partial[name][k][number]};")

    def _from_memory(self, reduce: Instruction, arrays: Sequence[Expr]) -> None:
        plan = self.plan
        for k, held in enumerate(self.fold.partial[reduce.name]):
            values = [
                self.emit.bind(dtype, f"{array}[own + half * {plan.width} + {k}]")
                for dtype, array in zip(dtypes_of(reduce), arrays, strict=True)
            ]
            self.fold.join(reduce, held, values)

    # ---- results --------------------------------------------------------------------------

    def _finish(self, shared: Mapping[str, Sequence[Expr]]) -> None:
        """Fold what is left of the slices, a thread a result; write the row-size results."""
        emit, plan, region = self.emit, self.plan, self.region
        result = emit.integer(f"{emit.block_index} * {plan.width} + threadIdx.x")
        tests = [f"threadIdx.x < {plan.width}"]
        tests += [f"{result} < {region.results}"] if self.inside else []
        with emit.block(f"if ({' && '.join(tests)})"):
            (kept,) = stretch_of(emit, region, region.space.kept, result, 1).indices
            dims = region.space.shape.dims
            live = [kept[d] for d in region.space.kept if dims[d] != 1]
            number = result if region.space.shape.is_row_major else None
            row = Place(emit, region.space, live, number)
            for reduce in self.reduces:
                total = self._total(reduce, shared[reduce.name])
                self.fold.settle(reduce, total, row)
            self.fold.bridge(Size.ROW, row)
            leaves = self.fold.results(Size.ROW)
            found = [(k, self.fold.result(k, row)) for k in leaves]
            for k, value in found:
                self.fold.store(k, [row], [value])

    def _total(self, reduce: Instruction, arrays: Sequence[Expr]) -> list[Expr]:
        emit, plan = self.emit, self.plan
        types = dtypes_of(reduce)
        total = [
            emit.variable(dtype, f"{array}[threadIdx.x]")
            for dtype, array in zip(types, arrays, strict=True)
        ]
        left = min(plan.slices, FEWEST_SLICES)
        for k in range(1, left):
            values = [
                emit.bind(dtype, f"{array}[threadIdx.x + {k * plan.width}]")
                for dtype, array in zip(types, arrays, strict=True)
            ]
            self.fold.join(reduce, total, values)
        return total
