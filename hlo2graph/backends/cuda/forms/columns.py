"""The columns form: threads side by side fold results side by side, each along slices of the steps.

A thread has `vector` neighbouring results, as many as one access of 16 bytes has. The threads of
other slices fold other steps of the same results; shared memory brings their parts together, in a
fixed order. One thread a result folds in the init value and does what waits for the reduces. Where
results are few, the blocks of a cluster share out the steps, and the first has the last fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from hlo2graph.backends.cuda.ctypes import compute_bytes, compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.column_plan import FEWEST_SLICES, ColumnPlan, plan_columns
from hlo2graph.backends.cuda.forms.fold_places import Place, Run, stretch_of
from hlo2graph.backends.cuda.forms.folding import FoldWriter, dtypes_of
from hlo2graph.backends.cuda.source import ACCESS_BYTES, KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, DType, Instruction
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Columns
from hlo2graph.ops.region_spaces import Size

_Do: TypeAlias = Callable[[Instruction, Sequence[Expr], Sequence[Expr]], None]


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
    writer = _Writer(fold, region, plan)
    writer.write()
    emitter.leave()
    body, is_wide = emitter.needed_lines(), plan.vector > 1
    text = signature.declare(body, plan.threads, wide=is_wide, cluster=plan.cluster)
    blocks, _, _ = blocks_for(region.results, plan.width)
    grid = (blocks * plan.cluster, 1, 1)
    return KernelSource(signature.name, text, grid, plan.threads, shared_bytes=writer.shared_bytes)


class _Writer:
    """Writes the body."""

    def __init__(self, fold: FoldWriter, region: Columns, plan: ColumnPlan) -> None:
        self.fold, self.region, self.plan = fold, region, plan
        self.emit = fold.emit
        self.reduces = fold.reduces(region.reduces)
        fold.width = plan.vector
        self.shared_bytes = 0  # that a launch asks for
        self._held: list[Run] = []
        self.have_begun = False  # the other blocks of a cluster

    def write(self) -> None:
        """Write all lines."""
        self._place_results()
        if self.region.again:
            self._write_stages()
            return
        self._fold(self.reduces, self.fold.results(Size.FULL))
        shared = self._share(self.reduces)
        self._finish(shared)

    def _write_stages(self) -> None:
        """Write folds whose totals all threads then know, and what waits for them."""
        fold, full = self.fold, self.fold.results(Size.FULL)
        late = [k for k in full if self.region.waits[k]]
        early = [k for k in full if k not in late]
        for stage in self.region.stages:
            reduces = fold.reduces(stage)
            self._fold(reduces, early)
            self._know(reduces, self._share(reduces))
            early = []
        if late:
            with self._round() as (steps, _):
                fold.store_runs(steps, late, self.inside)
        self._store_known()

    def _fold(self, reduces: Sequence[Instruction], stored: Sequence[int]) -> None:
        """Write a round over the steps that folds them, and stores what waits for no fold."""
        self.fold.begin(reduces)
        with self._round() as (steps, is_first):
            self.fold.fold_round(reduces, steps, is_first)
            self.fold.store_runs(steps, stored, self.inside)

    # ---- places ---------------------------------------------------------------------------

    def _place_results(self) -> None:
        """Find this thread's results; what is past the last ones repeats them, never stored."""
        emit, plan, count = self.emit, self.plan, self.region.results
        self.block, self.rank = emit.block_index, ""
        if plan.cluster > 1:
            emit.line("hlo::cluster_begins();")
            self.rank = emit.integer(f"{emit.block_index} % {plan.cluster}")
            self.block = emit.integer(f"{emit.block_index} / {plan.cluster}")
        emit.line(f"const int lane = threadIdx.x % {plan.lanes};")
        emit.line(f"const int slice = threadIdx.x / {plan.lanes};")
        run = emit.integer(f"{self.block} * {plan.lanes} + lane")
        runs = count // plan.vector
        self.inside = f"{run} < {runs}" if runs % plan.lanes else None
        if self.inside:
            run = emit.integer(f"{self.inside} ? {run} : {runs - 1}")
        self.first = emit.integer(f"{run} * {plan.vector}") if plan.vector > 1 else run
        self.kept = stretch_of(emit, self.region, self.region.space.kept, run, plan.vector).indices
        emit.line(f"const int own = threadIdx.x * {plan.vector};")

    @property
    def rows(self) -> list[Place]:
        """The places of this thread's results."""
        space = self.region.space
        live = [d for d in space.kept if space.shape.dims[d] != 1]
        return [Place(self.emit, space, [kept[d] for d in live], None) for kept in self.kept]

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
    def _round(self) -> Iterator[tuple[Sequence[Run], Expr | None]]:
        """Write what the context writes for the steps of a round; gives the test for the first.

        What is held is the only round, and the same one each time: what is known of it stays so.
        """
        emit, plan, steps = self.emit, self.plan, self.region.steps
        first, stride = "slice", plan.slices * plan.ahead * plan.cluster
        if self.rank:
            first = emit.integer(f"{self.rank} * {plan.slices} + slice")
        if plan.held:
            self._held = self._held or self._steps(first)
            yield self._held, None
            return
        at = emit.fresh("n")
        head = f"for ({emit.index_type} {at} = {first}; {at} < {steps}; {at} += {stride})"
        with emit.block(head):
            yield self._steps(at), f"{at} == {first}"

    def _steps(self, at: Expr) -> list[Run]:
        """Return the steps of a round from one on."""
        emit, plan, steps = self.emit, self.plan, self.region.steps
        apart = plan.slices * plan.cluster
        found = []
        for k in range(plan.ahead):
            step = emit.integer(f"{at} + {k * apart}") if k else at
            inside = f"{step} < {steps}" if k and steps % (apart * plan.ahead) else None
            if inside:
                step = emit.integer(f"{inside} ? {step} : {steps - 1}")
            found.append(self._step(step, inside))
        return found

    # ---- folding --------------------------------------------------------------------------

    def _share(self, reduces: Sequence[Instruction]) -> dict[str, list[Expr]]:
        """Bring the slices' parts to shared memory; fold them in pairs until few are left."""
        emit, plan = self.emit, self.plan
        shared: dict[str, list[Expr]] = {}
        for reduce in reduces:
            shared[reduce.name] = [emit.fresh("s") for _ in dtypes_of(reduce)]
            for dtype, name in zip(dtypes_of(reduce), shared[reduce.name], strict=True):
                self._hold(dtype, name, plan.slices * plan.width)
        self._to_memory(shared)
        half = plan.slices // 2
        if self.region.again and half >= FEWEST_SLICES:  # which has a long text as it is
            head = f"for (int half = {half}; half >= {FEWEST_SLICES}; half /= 2)"
            with emit.block(head):
                self._fold_half(reduces, shared, "half")
            half = 0
        while half >= FEWEST_SLICES:
            self._fold_half(reduces, shared, str(half))
            half //= 2
        emit.line("__syncthreads();")
        return shared

    def _fold_half(
        self, reduces: Sequence[Instruction], shared: Mapping[str, Sequence[Expr]], half: Expr
    ) -> None:
        self.emit.line("__syncthreads();")
        with self.emit.block(f"if (slice < {half})"):
            for reduce in reduces:
                self._from_memory(reduce, shared[reduce.name], half)
            self._to_memory(shared)

    def _hold(self, dtype: DType, name: str, size: int) -> None:
        """Write an array of shared memory, where others find it if there are others."""
        kind = compute_type(dtype)
        if self.plan.cluster == 1:
            self.emit.line(f"__shared__ {kind} {name}[{size}];")
            return
        place = f"hlo::dynamic_shared() + {self.shared_bytes}"
        self.emit.line(f"{kind}* const {name} = ({kind}*)({place});")
        self.shared_bytes += -(-size * compute_bytes([dtype]) // ACCESS_BYTES) * ACCESS_BYTES

    def _to_memory(self, shared: Mapping[str, Sequence[Expr]]) -> None:
        vector = self.plan.vector
        for name, arrays in shared.items():
            for number, array in enumerate(arrays):
                for k in range(vector):
                    self.emit.line(f"{array}[own + {k}] = {self.fold.partial[name][k][number]};")

    def _from_memory(self, reduce: Instruction, arrays: Sequence[Expr], half: Expr) -> None:
        for k, held in enumerate(self.fold.partial[reduce.name]):
            place = f"own + {half} * {self.plan.width} + {k}"
            if half.isdigit():
                place = f"own + {int(half) * self.plan.width + k}"
            values = [
                self.emit.bind(dtype, f"{array}[{place}]")
                for dtype, array in zip(dtypes_of(reduce), arrays, strict=True)
            ]
            self.fold.fold(reduce, held, values)

    # ---- results --------------------------------------------------------------------------

    def _finish(self, shared: Mapping[str, Sequence[Expr]]) -> None:
        """Fold what is left of the slices, a thread a result; write the row-size results."""
        emit, plan, region = self.emit, self.plan, self.region
        left = min(plan.slices, FEWEST_SLICES)
        if self.rank:
            shared, left = self._met(self.reduces, shared, left, "0"), plan.cluster
        result = emit.integer(f"{self.block} * {plan.width} + threadIdx.x")
        tests = [f"threadIdx.x < {plan.width}"]
        tests += [f"{self.rank} == 0"] if self.rank else []
        tests += [f"{result} < {region.results}"] if self.inside else []
        with emit.block(f"if ({' && '.join(tests)})"):
            (kept,) = stretch_of(emit, region, region.space.kept, result, 1).indices
            dims = region.space.shape.dims
            live = [kept[d] for d in region.space.kept if dims[d] != 1]
            number = result if region.space.shape.is_row_major else None
            row = Place(emit, region.space, live, number)
            for reduce in self.reduces:
                total = self._total(reduce, shared[reduce.name], left)
                self.fold.settle(reduce, total, row)
            self.fold.bridge(Size.ROW, row)
            leaves = self.fold.results(Size.ROW)
            found = [(k, self.fold.result(k, row)) for k in leaves]
            for k, value in found:
                self.fold.store(k, [row], [value])

    def _met(
        self,
        reduces: Sequence[Instruction],
        shared: Mapping[str, Sequence[Expr]],
        left: int,
        to: str,
    ) -> dict[str, list[Expr]]:
        """Bring the blocks' parts to the shared memory of block `to` of the cluster, or all, r."""
        emit, plan = self.emit, self.plan
        met: dict[str, list[Expr]] = {}
        for reduce in reduces:
            met[reduce.name] = [emit.fresh("s") for _ in dtypes_of(reduce)]
            for dtype, name in zip(dtypes_of(reduce), met[reduce.name], strict=True):
                self._hold(dtype, name, plan.cluster * plan.width)
        if not self.have_begun:
            emit.line("hlo::cluster_waits();")
            self.have_begun = True
        each = f"for (int r = 0; r < {plan.cluster}; ++r) " if to == "r" else ""
        with emit.block(f"if (threadIdx.x < {plan.width})"):
            for reduce in reduces:
                total = self._total(reduce, shared[reduce.name], left)
                for name, value in zip(met[reduce.name], total, strict=True):
                    place = f"{name} + {self.rank} * {plan.width} + threadIdx.x"
                    emit.line(f"{each}*hlo::of_block({place}, {to}) = {value};")
        emit.line("hlo::cluster_meets();")
        return met

    def _know(self, reduces: Sequence[Instruction], shared: Mapping[str, Sequence[Expr]]) -> None:
        """Let each thread know the totals of its results."""
        emit, plan, left = self.emit, self.plan, min(self.plan.slices, FEWEST_SLICES)
        if self.rank:
            shared, left = self._met(reduces, shared, left, "r"), plan.cluster
        for k, row in enumerate(self.rows):
            at = emit.integer(f"lane * {plan.vector} + {k}")
            for reduce in reduces:
                self.fold.settle(reduce, self._total(reduce, shared[reduce.name], left, at), row)

    def _store_known(self) -> None:
        """Write the row-size results, by the threads of the first slice of the first block."""
        tests = [self.inside] if self.inside else []
        tests += [f"{self.rank} == 0"] if self.rank else []
        leaves = self.fold.results(Size.ROW)
        with self.emit.block(f"if ({' && '.join(['slice == 0', *tests])})"):
            found = [(k, [self.fold.result(k, row) for row in self.rows]) for k in leaves]
            for k, values in found:
                self.fold.store(k, self.rows, values)

    def _total(
        self, reduce: Instruction, arrays: Sequence[Expr], left: int, at: Expr = "threadIdx.x"
    ) -> list[Expr]:
        emit, plan = self.emit, self.plan
        types = dtypes_of(reduce)
        total = [
            emit.variable(dtype, f"{array}[{at}]")
            for dtype, array in zip(types, arrays, strict=True)
        ]
        for k in range(1, left):
            values = [
                emit.bind(dtype, f"{array}[{at} + {k * plan.width}]")
                for dtype, array in zip(types, arrays, strict=True)
            ]
            self.fold.fold(reduce, total, values)
        return total
