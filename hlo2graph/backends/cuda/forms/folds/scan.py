"""The scan form: a reduce-window over all that is before, or behind, each element of a dimension.

What cumsum, cumprod and cummax become. A block takes a row, a tile of it at a time. Each thread
folds a few elements that follow each other, then a warp's threads double the reach of their totals,
then each takes in the warps before its own, and the tiles before this one. Where rows' elements lie
apart, a block takes several rows side by side, as neighbouring threads, so that what is read
together lies together. Regions are taken to be associative, as HLO allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Shape
from hlo2graph.ops.cumulative import (
    fewest_together,
    is_backwards,
    rows_side_by_side,
    scanned_dim,
)
from hlo2graph.ops.device import Expr, Index

MOST_THREADS = 512
FEWEST_THREADS = 128  # before a thread has more elements
TOGETHER = 4  # elements of a thread in a row of a block
APART = 64  # bytes of a thread's elements where rows lie side by side, as loads are single then
REGISTER = 4  # bytes, which smaller elements take as well


def scan_kernel(form: Form) -> KernelSource:
    """Return the kernel of a cumulative operation."""
    along = scanned_dim(form.instr)
    assert along is not None
    shares = _shares(form, along)
    writer = _Rows(form, along, shares)
    writer.write()
    resident = 1 if writer.reads_ahead else 0
    return form.source(writer.emit, shares.blocks, shares.threads, wide=True, resident=resident)


@dataclass(frozen=True, slots=True)
class _Shares:
    """How rows are shared: `lanes` of them a block, `each` elements a thread at a time."""

    rows: int
    lanes: int
    each: int
    threads: int

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.lanes)

    @property
    def tile(self) -> int:
        """Elements of a row that a block takes at a time."""
        return self.threads // self.lanes * self.each


def _shares(form: Form, along: int) -> _Shares:
    shape = form.shape(0)
    length = shape.dims[along]
    rows = max(1, shape.elements // length)
    lanes = _lanes(form, along, rows)
    if lanes == 1:
        each = TOGETHER if length >= WARP * TOGETHER * 2 else 1
    else:
        held = sum(max(REGISTER, leaf.dtype.size) for leaf in form.instr.shape.leaves())
        many = max(1, min(APART // held, length * lanes // FEWEST_THREADS))
        each = 1 << (many.bit_length() - 1)
    lines = 1 << (-(-length // each) - 1).bit_length()
    return _Shares(rows, lanes, each, min(MOST_THREADS, max(WARP, lines * lanes)))


def _lanes(form: Form, along: int, rows: int) -> int:
    """Return how many rows a block takes: what memory asks for, or more, up to a warp.

    More while there are more blocks than multiprocessors: one block each, which reads ahead.
    """
    least = min(fewest_together(form.shape(k), along) for k in range(form.instr.shape.leaf_count))
    most = min(WARP, 1 << (rows_side_by_side(form.shape(0), along) - 1).bit_length())
    lanes = min(least, most)
    while lanes < most and rows > lanes * form.signature.device.multiprocessors:
        lanes *= 2
    return lanes


class _Rows:
    """Writes the body. A thread has some elements of a row at a time, in `mine`."""

    def __init__(self, form: Form, along: int, shares: _Shares) -> None:
        self.form, self.along, self.shares = form, along, shares
        self.each, self.lanes = shares.each, shares.lanes
        self.emit: ElementEmitter = form.emitter()
        self.shape: Shape = form.shape(0)
        self.length = self.shape.dims[along]
        self.backwards = is_backwards(form.instr, along)
        self.leaves = tuple(form.instr.shape.leaves())
        self.row: dict[int, Expr] = {}
        self.inside = ""  # the test whether a thread's row is one

    # ---- a block's rows ---------------------------------------------------------------------

    def write(self) -> None:
        """Let a block go along its rows, a tile at a time."""
        emit, index, lanes, tile = self.emit, self.emit.index_type, self.lanes, self.shares.tile
        warps = self.shares.threads // WARP
        emit.line(f"const int lane = threadIdx.x % {WARP};")
        emit.line(f"const int warp = threadIdx.x / {WARP};")
        shared = [emit.fresh("s") for _ in self.leaves]
        for leaf, name in zip(self.leaves, shared, strict=True):
            emit.line(f"__shared__ {compute_type(leaf.dtype)} {name}[{warps * lanes}];")
        self._find_row()
        before = self._variables()
        line = f"threadIdx.x / {lanes}" if lanes > 1 else "threadIdx.x"
        own = emit.integer(f"{line} * {self.each}")
        ahead = self._load(own) if self.reads_ahead else []
        with emit.block(f"for ({index} first = 0; first < {self.length}; first += {tile})"):
            emit.line(f"const {index} start = first + {own};")
            mine = self._taken(ahead) if ahead else self._load("start")
            self._run(mine)
            total = self._variables(mine[-1])
            self._reach_over_warp(total)
            earlier = self._shuffled(total, lanes) if lanes < WARP else []
            with emit.block(f"if (lane >= {WARP - lanes})"):
                self._assign(shared, total, self._slot("warp"))
            emit.line("__syncthreads();")
            self._take_in_warps(mine, before, earlier, shared, warps)
            self._store(mine, "start")
            emit.line("__syncthreads();")

    @property
    def reads_ahead(self) -> bool:
        """A block alone on its multiprocessor loads a tile while it folds the one before.

        Elsewhere other blocks fold meanwhile, and registers are for them.
        """
        most = self.form.signature.device.multiprocessors
        return self.lanes > 1 and self.shares.blocks <= most and self.length > self.shares.tile

    def _taken(self, ahead: Sequence[Sequence[Expr]]) -> list[list[Expr]]:
        """Return what was loaded ahead, where the next tile's elements are from here on."""
        mine = [self._variables(values) for values in ahead]
        later = self._load(self.emit.integer(f"start + {self.shares.tile}"))
        for values, found in zip(ahead, later, strict=True):
            self._assign(values, found)
        return mine

    def _slot(self, warp: Expr) -> str:
        """Return where in shared memory the total of a warp's part of this thread's row is."""
        return f"[{warp} * {self.lanes} + lane % {self.lanes}]" if self.lanes > 1 else f"[{warp}]"

    def _reach_over_warp(self, total: Sequence[Expr]) -> None:
        """Fold in what lies 1, 2, 4, ... lanes before, so that each spans all before it."""
        reach = self.lanes
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
        emit, lanes, at = self.emit, self.lanes, self._slot("w")
        prefix = self._variables()
        with emit.block(f"for (int w = 0; w < {warps}; ++w)"):
            others = [
                emit.bind(leaf.dtype, f"{name}{at}")
                for leaf, name in zip(self.leaves, shared, strict=True)
            ]
            with emit.block("if (w == warp)"):
                self._assign(prefix, before)
            with emit.block("if (w > 0 || first > 0)"):
                self._fold(before, before, others)
            with emit.block("else"):
                self._assign(before, others)
        emit.line("const bool any = first > 0 || warp > 0;")
        if earlier:
            with emit.block(f"if (lane >= {lanes})"):
                with emit.block("if (any)"):
                    self._fold(prefix, prefix, earlier)
                with emit.block("else"):
                    self._assign(prefix, earlier)
        with emit.block(f"if (any || lane >= {lanes})" if earlier else "if (any)"):
            for values in mine:
                self._fold(values, prefix, values)

    # ---- elements ---------------------------------------------------------------------------

    @property
    def _in_step(self) -> bool:
        """The elements of a thread are all inside the row, or none is."""
        return self.length % self.each == 0

    def _find_row(self) -> None:
        """Declare the index of a thread's row, numbered as rows lie in memory.

        Past the last one it is that again, which nothing is stored of.
        """
        emit, lanes, rows = self.emit, self.lanes, self.shares.rows
        number = emit.block_index
        if lanes > 1:
            number = f"{number} * {lanes} + threadIdx.x % {lanes}"
        number = emit.integer(number)
        if rows % lanes:
            self.inside = f"{number} < {rows}"
            number = emit.integer(f"{self.inside} ? {number} : {rows - 1}")
        order = [d for d in reversed(self.shape.minor_to_major) if d != self.along]
        found = emit.split(number, [self.shape.dims[d] for d in order])
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
            with emit.block(f"if ({self._is_inside(start)})"):
                steps = [emit.integer(f"{start} + {k}") if k else start for k in range(self.each)]
                lines = [self._stores(values, s) for values, s in zip(mine, steps, strict=True)]
                for of_result in zip(*lines, strict=True):
                    for line in of_result:
                        emit.line(line)
            return
        for k, values in enumerate(mine):
            with emit.block(f"if ({self._is_inside(f'{start} + {k}')})"):
                for line in self._stores(values, emit.integer(f"{start} + {k}")):
                    emit.line(line)

    def _is_inside(self, step: Expr) -> str:
        inside = f"{step} < {self.length}"
        return f"{self.inside} && {inside}" if self.inside else inside

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
