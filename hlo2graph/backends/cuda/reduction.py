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

from hlo2graph.backends.cuda.ctypes import compute_bytes, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.hero import hero_of
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.team import UNROLL, Team
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import integers

FEWEST = 32  # elements to fold below which one thread does it alone
FEWEST_COLUMNS = 16  # below this a column's threads read side by side all the same


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
    def bytes_each(self) -> int:
        """Bytes of a partial result in a thread."""
        return compute_bytes(leaf.dtype for leaf in self.instr.shape.leaves())

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
    emitter.enter(computation)
    in_rows = reduction.is_row or reduction.results < FEWEST_COLUMNS
    choose = Team.for_rows if in_rows else Team.for_columns
    team = choose(reduction.results, reduction.steps).holding(reduction.bytes_each)
    _Writer(emitter, reduction, team, computation.root, signature.results).write()
    emitter.leave()
    text = signature.declare(emitter.needed_lines(), team.threads)
    grid = blocks_for(reduction.results, team.lanes)
    return KernelSource(signature.name, text, grid, team.threads)


@dataclass(slots=True)
class _Writer:
    """Writes the body: each team of threads folds its result."""

    emitter: ElementEmitter
    reduction: Reduction
    team: Team
    root: str
    results: tuple[Shape, ...]

    def write(self) -> None:
        """Write all lines."""
        emit, reduction = self.emitter, self.reduction
        self.team.place(emit)
        dtypes = [leaf.dtype for leaf in reduction.instr.shape.leaves()]
        partial = [emit.variable(dtype, "{}") for dtype in dtypes]
        with emit.block(f"if (result < {reduction.results})"):
            self._accumulate(partial, self._result_index())
        self.team.combine(emit, dtypes, partial, self._fold)
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
        """Fold every so many elements, beginning with this thread's own."""
        emit, reduction = self.emitter, self.reduction
        self._assign(partial, self._inputs("slice", kept))
        step = emit.fresh("n")
        slices = self.team.slices
        head = f"{emit.index_type} {step} = slice + {slices}; {step} < {reduction.steps}"
        emit.line(f"#pragma unroll {UNROLL}")
        with emit.block(f"for ({head}; {step} += {slices})"):
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
            at = emit.offset(leaf, index)
            emit.line(f"r{number}[{at}] = {stored(leaf.dtype, value)};")
