"""The scan form: a reduce-window over all that is before, or behind, each element of a dimension.

What cumsum, cumprod and cummax become. A block takes a row, a tile of it at a time: partial results
double their reach until they span the tile, then the earlier tiles' result comes in. Regions are
taken to be associative, as HLO allows.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import compute_bytes, compute_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import SHARED_BYTES, KernelSource
from hlo2graph.hlo import Instruction, WindowDim
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_folds import window_dims

FEWEST = 64  # elements of a row below which each thread folds its own
MOST_THREADS = 512


def scanned_dim(instr: Instruction) -> int | None:
    """Return the dimension that a reduce-window accumulates along, if that is all it does."""
    dims = next(instr.shape.leaves()).dims
    window = window_dims(instr)
    wide = [d for d, w in enumerate(window) if w != WindowDim(1)]
    if len(wide) != 1:
        return None
    (along,) = wide
    length, found = dims[along], window[along]
    forwards = WindowDim(length, pad_low=length - 1)
    backwards = WindowDim(length, pad_high=length - 1)
    return along if length >= FEWEST and found in (forwards, backwards) else None


def scan_kernel(form: Form) -> KernelSource:
    """Return the kernel of a cumulative operation."""
    along = scanned_dim(form.instr)
    assert along is not None
    shape = form.shape(0)
    length = shape.dims[along]
    threads = min(MOST_THREADS, 1 << (length - 1).bit_length())
    bytes_each = compute_bytes(leaf.dtype for leaf in form.instr.shape.leaves())
    while threads > 1 and threads * bytes_each > SHARED_BYTES:
        threads //= 2
    writer = _Writer(form, form.emitter(), along, threads)
    writer.write()
    return form.source(writer.emit, max(1, shape.elements // length), threads)


class _Writer:
    def __init__(self, form: Form, emit: ElementEmitter, along: int, threads: int) -> None:
        self.form, self.emit, self.along, self.threads = form, emit, along, threads
        self.shape = form.shape(0)
        self.backwards = window_dims(form.instr)[along].pad_high > 0
        self.leaves = tuple(form.instr.shape.leaves())
        self.shared = [emit.fresh("s") for _ in self.leaves]

    def write(self) -> None:
        emit, length, threads = self.emit, self.shape.dims[self.along], self.threads
        for leaf, name in zip(self.leaves, self.shared, strict=True):
            emit.line(f"__shared__ {compute_type(leaf.dtype)} {name}[{threads}];")
        kept = [d for d in range(self.shape.rank) if d != self.along]
        row = emit.split(emit.integer(emit.block_index), [self.shape.dims[d] for d in kept])
        place = dict(zip(kept, row, strict=True))
        mine = [emit.variable(leaf.dtype, "{}") for leaf in self.leaves]
        before = [emit.variable(leaf.dtype, "{}") for leaf in self.leaves]
        index = emit.index_type
        with emit.block(f"for ({index} first = 0; first < {length}; first += {threads})"):
            emit.line(f"const {index} step = first + threadIdx.x;")
            at = emit.integer(f"{length - 1} - step" if self.backwards else "step")
            where = tuple((place | {self.along: at})[d] for d in range(self.shape.rank))
            with emit.block(f"if (step < {length})"):
                self._assign(mine, [emit.leaf(o, 0, where) for o in self._inputs()])
            self._scan(mine)
            with emit.block("if (first > 0)"):
                self._fold(mine, before, mine)
            with emit.block(f"if (step < {length})"):
                self._store(mine, where)
            self._publish(mine)
            last = [f"{name}[{threads - 1}]" for name in self.shared]
            self._assign(before, last)
            emit.line("__syncthreads();")

    def _inputs(self) -> tuple[str, ...]:
        return self.form.instr.operands[: len(self.leaves)]

    def _publish(self, mine: list[Expr]) -> None:
        for name, value in zip(self.shared, mine, strict=True):
            self.emit.line(f"{name}[threadIdx.x] = {value};")
        self.emit.line("__syncthreads();")

    def _scan(self, mine: list[Expr]) -> None:
        """Fold in what lies 1, 2, 4, ... steps before, so that each spans all before it."""
        emit = self.emit
        with emit.block(f"for (int reach = 1; reach < {self.threads}; reach *= 2)"):
            self._publish(mine)
            with emit.block("if (threadIdx.x >= reach)"):
                other = [
                    emit.bind(leaf.dtype, f"{name}[threadIdx.x - reach]")
                    for leaf, name in zip(self.leaves, self.shared, strict=True)
                ]
                self._fold(mine, other, mine)
            emit.line("__syncthreads();")

    def _fold(self, into: list[Expr], earlier: list[Expr], later: list[Expr]) -> None:
        """Fold steps' results; the region's first arguments are those of the lower index."""
        low, high = (later, earlier) if self.backwards else (earlier, later)
        self._assign(into, self._call([*low, *high]))

    def _call(self, arguments: list[Expr]) -> list[Expr]:
        return list(self.emit.call(str(self.form.instr.attrs["to_apply"]), arguments))

    def _assign(self, into: list[Expr], values: list[Expr]) -> None:
        held = [
            self.emit.bind(leaf.dtype, value)
            for leaf, value in zip(self.leaves, values, strict=True)
        ]
        for name, value in zip(into, held, strict=True):
            self.emit.line(f"{name} = {value};")

    def _store(self, mine: list[Expr], index: Index) -> None:
        emit = self.emit
        inits = [emit.leaf(o, 0, ()) for o in self.form.instr.operands[len(self.leaves) :]]
        found = self._call([*inits, *mine])
        emit.assume(self.form.instr.name, index, tuple(found))
        for number, leaf in enumerate(self.form.results):
            value = emit.leaf(self.form.computation.root, number, index)
            emit.line(f"r{number}[{emit.offset(leaf, index)}] = {stored(leaf.dtype, value)};")
