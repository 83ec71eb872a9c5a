"""The scan form: a reduce-window over all that is before, or behind, each element of a dimension.

What cumsum, cumprod and cummax become. A block takes a row, a tile of it at a time. Each thread
folds a few elements that follow each other, then a warp's threads double the reach of their totals,
then each takes in the warps before its own, and the tiles before this one. Where there are many
rows, and their elements lie apart, neighbouring threads take neighbouring rows, each alone. Regions
are taken to be associative, as HLO allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Shape
from hlo2graph.ops.cumulative import is_backwards, scanned_dim
from hlo2graph.ops.device import Expr, Index

MOST_THREADS = 512
ALONE = 256  # threads of a block whose threads take a row each
TOGETHER = 4  # elements of a thread in a row of a block
AT_ONCE = 8  # elements of a thread's own row that are loaded together


def scan_kernel(form: Form) -> KernelSource:
    """Return the kernel of a cumulative operation."""
    along = scanned_dim(form.instr)
    assert along is not None
    shape = form.shape(0)
    length = shape.dims[along]
    rows = max(1, shape.elements // length)
    if _stands_alone(form, along, rows):
        alone = _Rows(form, along, AT_ONCE)
        alone.write_alone(rows)
        return form.source(alone.emit, -(-rows // ALONE), ALONE)
    each = TOGETHER if length >= WARP * TOGETHER * 2 else 1
    threads = min(MOST_THREADS, max(WARP, 1 << (-(-length // each) - 1).bit_length()))
    together = _Rows(form, along, each)
    together.write_together(threads)
    return form.source(together.emit, rows, threads, wide=True)


def _stands_alone(form: Form, along: int, rows: int) -> bool:
    shape, device = form.shape(0), form.signature.device
    minor = next(d for d in shape.minor_to_major if shape.dims[d] > 1)
    return along != minor and rows >= device.multiprocessors * ALONE


class _Rows:
    """Writes the body. A thread has `each` elements of a row at a time, in `mine`."""

    def __init__(self, form: Form, along: int, each: int) -> None:
        self.form, self.along, self.each = form, along, each
        self.emit: ElementEmitter = form.emitter()
        self.shape: Shape = form.shape(0)
        self.length = self.shape.dims[along]
        self.backwards = is_backwards(form.instr, along)
        self.leaves = tuple(form.instr.shape.leaves())
        self.row: dict[int, Expr] = {}

    # ---- a thread a row ---------------------------------------------------------------------

    def write_alone(self, rows: int) -> None:
        """Let each thread go along a row of its own."""
        emit, index = self.emit, self.emit.index_type
        emit.line(f"const {index} row = {emit.block_index} * {ALONE} + threadIdx.x;")
        with emit.block(f"if (row < {rows})"):
            self._find_row("row")
            before = self._variables()
            head = f"for ({index} start = 0; start < {self.length}; start += {self.each})"
            with emit.block(head):
                mine = self._load("start")
                with emit.block("if (start > 0)"):
                    self._fold(mine[0], before, mine[0])
                self._run(mine)
                self._assign(before, mine[-1])
                self._store(mine, "start")

    # ---- a block a row ----------------------------------------------------------------------

    def write_together(self, threads: int) -> None:
        """Let a block go along a row, a tile at a time."""
        emit, index, tile = self.emit, self.emit.index_type, threads * self.each
        emit.line(f"const int lane = threadIdx.x % {WARP};")
        emit.line(f"const int warp = threadIdx.x / {WARP};")
        shared = [emit.fresh("s") for _ in self.leaves]
        for leaf, name in zip(self.leaves, shared, strict=True):
            emit.line(f"__shared__ {compute_type(leaf.dtype)} {name}[{threads // WARP}];")
        self._find_row(emit.integer(emit.block_index))
        before = self._variables()
        with emit.block(f"for ({index} first = 0; first < {self.length}; first += {tile})"):
            emit.line(f"const {index} start = first + threadIdx.x * {self.each};")
            mine = self._load("start")
            self._run(mine)
            total = self._variables(mine[-1])
            self._reach_over_warp(total)
            earlier = self._shuffled(total, 1)
            with emit.block(f"if (lane == {WARP - 1})"):
                self._assign(shared, total, "[warp]")
            emit.line("__syncthreads();")
            self._take_in_warps(mine, before, earlier, shared, threads // WARP)
            self._store(mine, "start")
            emit.line("__syncthreads();")

    def _reach_over_warp(self, total: Sequence[Expr]) -> None:
        """Fold in what lies 1, 2, 4, ... lanes before, so that each spans all before it."""
        reach = 1
        while reach < WARP:
            other = self._shuffled(total, reach)
            with self.emit.block(f"if (lane >= {reach})"):
                self._fold(total, other, total)
            reach *= 2

    def _shuffled(self, values: Sequence[Expr], delta: int) -> list[Expr]:
        return [
            self.emit.bind(leaf.dtype, f"hlo::shuffle_up({value}, {delta})")
            for leaf, value in zip(self.leaves, values, strict=True)
        ]

    def _take_in_warps(
        self,
        mine: Sequence[Sequence[Expr]],
        before: Sequence[Expr],
        earlier: Sequence[Expr],
        shared: Sequence[str],
        warps: int,
    ) -> None:
        """Fold what is before a thread's elements into them; make `before` the next tile's."""
        emit = self.emit
        prefix = self._variables()
        with emit.block(f"for (int w = 0; w < {warps}; ++w)"):
            others = [
                emit.bind(leaf.dtype, f"{name}[w]")
                for leaf, name in zip(self.leaves, shared, strict=True)
            ]
            with emit.block("if (w == warp)"):
                self._assign(prefix, before)
            with emit.block("if (w > 0 || first > 0)"):
                self._fold(before, before, others)
            with emit.block("else"):
                self._assign(before, others)
        emit.line("const bool any = first > 0 || warp > 0;")
        with emit.block("if (lane > 0)"):
            with emit.block("if (any)"):
                self._fold(prefix, prefix, earlier)
            with emit.block("else"):
                self._assign(prefix, earlier)
        with emit.block("if (any || lane > 0)"):
            for values in mine:
                self._fold(values, prefix, values)

    # ---- elements ---------------------------------------------------------------------------

    @property
    def _in_step(self) -> bool:
        """The elements of a thread are all inside the row, or none is."""
        return self.length % self.each == 0

    def _find_row(self, number: Expr) -> None:
        """Declare the index of a row, numbered as rows lie in memory."""
        order = [d for d in reversed(self.shape.minor_to_major) if d != self.along]
        found = self.emit.split(number, [self.shape.dims[d] for d in order])
        self.row = dict(zip(order, found, strict=True))

    def _index(self, step: Expr) -> Index:
        at = self.emit.integer(f"{self.length - 1} - {step}") if self.backwards else step
        return tuple((self.row | {self.along: at})[d] for d in range(self.shape.rank))

    def _load(self, start: Expr) -> list[list[Expr]]:
        """Load a thread's elements; past the end the last ones again, which nothing is stored of.

        So nothing parts the loads.
        """
        emit, last = self.emit, self.length - self.each
        if self._in_step:
            start = emit.integer(f"{start} < {last} ? {start} : {last}")
        found = []
        for k in range(self.each):
            step = emit.integer(f"{start} + {k}") if k else start
            if not self._in_step:
                step = emit.integer(f"{step} < {self.length} ? {step} : {self.length - 1}")
            place = self._index(step)
            operands = self.form.instr.operands[: len(self.leaves)]
            found.append([emit.leaf(name, 0, place) for name in operands])
        return [self._variables(values) for values in found]

    def _run(self, mine: Sequence[Sequence[Expr]]) -> None:
        """Fold each of a thread's elements into the next."""
        for earlier, later in pairwise(mine):
            self._fold(later, earlier, later)

    def _store(self, mine: Sequence[Sequence[Expr]], start: Expr) -> None:
        emit = self.emit
        if self._in_step:
            with emit.block(f"if ({start} < {self.length})"):
                steps = [emit.integer(f"{start} + {k}") if k else start for k in range(self.each)]
                lines = [self._stores(values, s) for values, s in zip(mine, steps, strict=True)]
                for of_result in zip(*lines, strict=True):
                    for line in of_result:
                        emit.line(line)
            return
        for k, values in enumerate(mine):
            with emit.block(f"if ({start} + {k} < {self.length})"):
                for line in self._stores(values, emit.integer(f"{start} + {k}")):
                    emit.line(line)

    def _stores(self, values: Sequence[Expr], step: Expr) -> list[str]:
        """Return the stores of one element's results, which are computed here."""
        emit, index, found = self.emit, self._index(step), []
        inits = [emit.leaf(o, 0, ()) for o in self.form.instr.operands[len(self.leaves) :]]
        emit.assume(self.form.instr.name, index, tuple(self._call([*inits, *values])))
        for number, leaf in enumerate(self.form.results):
            value = emit.leaf(self.form.computation.root, number, index)
            held = emit.fresh("e")  # or its conversion would part the stores
            emit.line(f"const auto {held} = {stored(leaf.dtype, value)};")
            found.append(f"r{number}[{emit.offset(leaf, index)}] = {held};")
        return found

    # ---- folding ----------------------------------------------------------------------------

    def _variables(self, initial: Sequence[Expr] | None = None) -> list[Expr]:
        values = initial or ["{}"] * len(self.leaves)
        return [
            self.emit.variable(leaf.dtype, v) for leaf, v in zip(self.leaves, values, strict=True)
        ]

    def _fold(self, into: Sequence[Expr], earlier: Sequence[Expr], later: Sequence[Expr]) -> None:
        """Fold steps' results; the region's first arguments are those of the lower index."""
        low, high = (later, earlier) if self.backwards else (earlier, later)
        self._assign(into, self._call([*low, *high]))

    def _call(self, arguments: Sequence[Expr]) -> list[Expr]:
        return list(self.emit.call(str(self.form.instr.attrs["to_apply"]), list(arguments)))

    def _assign(self, into: Sequence[Expr], values: Sequence[Expr], at: str = "") -> None:
        """Assign all values, each taken before any changes."""
        if len(into) > 1:
            values = [
                self.emit.bind(leaf.dtype, value)
                for leaf, value in zip(self.leaves, values, strict=True)
            ]
        for name, value in zip(into, values, strict=True):
            self.emit.line(f"{name}{at} = {value};")
