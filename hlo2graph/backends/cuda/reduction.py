"""The reduction form: the threads of a block, or of a warp, fold one result element together.

Chosen where a computation's root is a reduce (alone, or with elementwise work behind it) of enough
elements. Regions are taken to be associative, as HLO allows; each thread folds the elements at its
stride, then the partial results are folded in pairs, and the init value comes in once, at the end.
The order is fixed, so that equal inputs give equal bits.

Lanes walk along what lies side by side in memory: along the reduced dimensions where the most
minor one is among them (rows), else along the result (columns).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.hero import hero_of
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import integers

FEWEST = 32  # elements to fold below which one thread does it alone
WARP = 32
ROW_THREADS = 256
LONG_ROW_THREADS = 512
LONG_ROW = 4096
COLUMN_LANES = 32  # results side by side in a block of columns
COLUMN_SLICES = 8


@dataclass(frozen=True, slots=True)
class Reduction:
    """What a reduction form needs to know of its reduce."""

    instr: Instruction
    inputs: tuple[Shape, ...]
    reduced: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Elements folded into each result."""
        return prod(self.inputs[0].dims[d] for d in self.reduced)

    @property
    def results(self) -> int:
        """Result elements of each leaf."""
        return prod(self.inputs[0].dims[d] for d in self.kept)

    @property
    def is_row(self) -> bool:
        """The reduced dimensions hold the most minor one that counts."""
        shape = self.inputs[0]
        minor = next((d for d in shape.minor_to_major if shape.dims[d] > 1), None)
        return minor is None or minor in self.reduced


def reduction_of(computation: Computation) -> Reduction | None:
    """Return the reduction that `computation` is, if the form fits it."""
    root = hero_of(computation, "reduce")
    if root is None:
        return None
    inputs = []
    for operand in root.operands[: len(root.operands) // 2]:
        shape = computation[operand].shape
        assert isinstance(shape, Shape)
        inputs.append(shape)
    reduced = tuple(sorted(integers(root, "dimensions")))
    kept = tuple(d for d in range(inputs[0].rank) if d not in reduced)
    found = Reduction(root, tuple(inputs), reduced, kept)
    return found if found.steps >= FEWEST and found.results else None


def reduction_kernel(
    reduction: Reduction,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource:
    """Return the kernel of a reduction: rows or columns."""
    emitter = ElementEmitter(computations, signature.index_type)
    emitter.enter(computation, None)
    if not reduction.is_row and reduction.results >= COLUMN_LANES // 2:
        lanes, slices, per_block = COLUMN_LANES, COLUMN_SLICES, COLUMN_LANES
    else:
        slices = _row_threads(reduction.steps)
        per_block = max(1, ROW_THREADS // slices)
        lanes = per_block
    writer = _Writer(emitter, reduction, lanes, slices, computation.root, signature.results)
    writer.write(rows=reduction.is_row or reduction.results < COLUMN_LANES // 2)
    emitter.leave()
    threads = lanes * slices
    text = signature.declare(emitter.needed_lines(), threads)
    return KernelSource(signature.name, text, blocks_for(reduction.results, per_block), threads)


def _row_threads(steps: int) -> int:
    """Return how many threads fold a row: a power of two, at most one a step."""
    most = LONG_ROW_THREADS if steps >= LONG_ROW else ROW_THREADS if steps >= 1024 else WARP
    return min(most, 1 << (steps.bit_length() - 1))


@dataclass(slots=True)
class _Writer:
    """Writes the body: `lanes` results a block, `slices` threads for each."""

    emitter: ElementEmitter
    reduction: Reduction
    lanes: int
    slices: int
    root: str
    results: tuple[Shape, ...]

    def write(self, *, rows: bool) -> None:
        """Write all lines."""
        emit, reduction = self.emitter, self.reduction
        across, along = ("/", "%") if rows else ("%", "/")
        per = self.slices if rows else self.lanes
        emit.line(f"const int lane = threadIdx.x {across} {per};")
        emit.line(f"const int slice = threadIdx.x {along} {per};")
        wide = "" if emit.index_type == "int" else f"({emit.index_type})"
        emit.line(f"const {emit.index_type} result = {wide}blockIdx.x * {self.lanes} + lane;")
        partial = [emit.variable(leaf.dtype, "{}") for leaf in self.reduction.instr.shape.leaves()]
        with emit.block(f"if (result < {reduction.results})"):
            self._accumulate(partial, self._result_index())
        self._combine(partial, rows=rows)
        with emit.block(f"if (slice == 0 && result < {reduction.results})"):
            self._store(partial)

    def _result_index(self) -> Index:
        """Return the index of this lane's result, in the order in which the input lies."""
        first = self.reduction.inputs[0]
        order = [d for d in reversed(first.minor_to_major) if d in self.reduction.kept]
        found = self.emitter.split("result", [first.dims[d] for d in order])
        place = dict(zip(order, found, strict=True))
        return tuple(place[d] for d in self.reduction.kept)

    def _accumulate(self, partial: list[Expr], kept: Index) -> None:
        """Fold every `slices`-th element, beginning with this thread's own."""
        emit, reduction = self.emitter, self.reduction
        self._assign(partial, self._inputs("slice", kept))
        step = emit.fresh("n")
        head = f"{emit.index_type} {step} = slice + {self.slices}; {step} < {reduction.steps}"
        with emit.block(f"for ({head}; {step} += {self.slices})"):
            self._fold(partial, self._inputs(step, kept))

    def _inputs(self, step: Expr, kept: Index) -> list[Expr]:
        """Return the elements of all inputs at one step."""
        emit, reduction, first = self.emitter, self.reduction, self.reduction.inputs[0]
        order = [d for d in reversed(first.minor_to_major) if d in reduction.reduced]
        along = emit.split(step, [first.dims[d] for d in order])
        place = dict(zip(order, along, strict=True)) | dict(zip(reduction.kept, kept, strict=True))
        index = tuple(place[d] for d in range(first.rank))
        count = len(reduction.inputs)
        return [emit.leaves(o, index)[0] for o in reduction.instr.operands[:count]]

    def _fold(self, into: list[Expr], values: list[Expr]) -> None:
        region = str(self.reduction.instr.attrs["to_apply"])
        self._assign(into, list(self.emitter.call(region, (*into, *values))))

    def _assign(self, into: list[Expr], values: list[Expr]) -> None:
        leaves = tuple(self.reduction.instr.shape.leaves())
        if len(into) > 1:  # all results before any of them changes
            values = [self.emitter.bind(s.dtype, v) for s, v in zip(leaves, values, strict=True)]
        for name, value in zip(into, values, strict=True):
            self.emitter.line(f"{name} = {value};")

    def _combine(self, partial: list[Expr], *, rows: bool) -> None:
        """Fold the slices' partial results in pairs: through shared memory, then by shuffles."""
        if self.slices == 1:
            return
        lowest = WARP if rows else 1
        if self.slices > lowest:
            self._combine_shared(partial, lowest, rows=rows)
        if rows:
            delta = min(self.slices, WARP) // 2
            while delta:
                leaves = tuple(self.reduction.instr.shape.leaves())
                values = [
                    self.emitter.bind(s.dtype, f"hlo::shuffle_down({name}, {delta})")
                    for s, name in zip(leaves, partial, strict=True)
                ]
                self._fold(partial, values)
                delta //= 2

    def _combine_shared(self, partial: list[Expr], lowest: int, *, rows: bool) -> None:
        emit = self.emitter
        leaves = tuple(self.reduction.instr.shape.leaves())
        shared = [emit.fresh("s") for _ in leaves]
        threads = self.lanes * self.slices
        step = 1 if rows else self.lanes
        for leaf, name in zip(leaves, shared, strict=True):
            emit.line(f"__shared__ {compute_type(leaf.dtype)} {name}[{threads}];")
        for name, value in zip(shared, partial, strict=True):
            emit.line(f"{name}[threadIdx.x] = {value};")
        half = self.slices // 2
        while half >= lowest:
            emit.line("__syncthreads();")
            with emit.block(f"if (slice < {half})"):
                others = [
                    emit.bind(leaf.dtype, f"{name}[threadIdx.x + {half * step}]")
                    for leaf, name in zip(leaves, shared, strict=True)
                ]
                self._fold(partial, others)
                if half > lowest:
                    for name, value in zip(shared, partial, strict=True):
                        emit.line(f"{name}[threadIdx.x] = {value};")
            half //= 2

    def _store(self, partial: list[Expr]) -> None:
        """Fold in the init values, do the elementwise work behind the reduction, and store."""
        emit, reduction = self.emitter, self.reduction
        count, index = len(reduction.inputs), self._result_index()
        inits = [emit.leaves(o, ())[0] for o in reduction.instr.operands[count:]]
        region = str(reduction.instr.attrs["to_apply"])
        totals = emit.call(region, (*inits, *partial))
        emit.assume(reduction.instr.name, index, totals)
        for number, leaf in enumerate(self.results):
            value = emit.leaf(self.root, number, index)
            stored = f"hlo::Store<{storage_type(leaf.dtype)}>::of({value})"
            emit.line(f"r{number}[{emit.offset(leaf, index)}] = {stored};")
