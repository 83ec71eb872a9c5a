"""What a row that is read in rounds keeps in shared memory, so that later rounds find it there.

Where two or three rows fit a multiprocessor, that is what they are made of, as it was read: while
one waits for memory, another computes. Where one does, it is the one dear value that the last stage
and a result both ask for: a softmax would else compute each exponential twice. A thread comes back
to what it has kept itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.folds.fold_places import Run
from hlo2graph.backends.cuda.forms.folds.folding import FUNCTIONS, FoldWriter
from hlo2graph.backends.cuda.forms.line_order import loads_first
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.hlo import DTYPES, Computation, DType, Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_spaces import Size

SPARE_BYTES = 4 << 10  # of a block, for what its warps fold together, and for the system
THREADS = {1: 1024, 2: 512, 3: 512}  # of a block, by the blocks of a multiprocessor
MOST_KEPT = 3  # of these


@dataclass(frozen=True, slots=True)
class Kept:
    """An instruction whose values are kept, and as what.

    `blocks` of a multiprocessor keep a row each. What `is_read` is kept by the first stage, what
    is computed by the last one.
    """

    name: str
    dtype: DType
    blocks: int
    is_read: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return THREADS[self.blocks]

    def is_for_all(self, region: Rows, signature: Signature) -> bool:
        """Tell whether rows are kept as they are read, enough of them for all multiprocessors."""
        return self.is_read and region.results >= self.blocks * signature.device.multiprocessors

    def shared_bytes(self, region: Rows) -> int:
        """Return the bytes of a row."""
        return self.dtype.size * region.steps


def kept_of(
    region: Rows, computation: Computation, signature: Signature, most: int = MOST_KEPT
) -> Kept | None:
    """Return what is kept of each row, if anything that pays fits a block.

    A multiprocessor has `most` blocks at once, or fewer.
    """
    count, results = region.space.shape.elements, signature.results
    late = any(w and s.elements == count for w, s in zip(region.waits, results, strict=True))
    if region.bridges or (not late and len(region.stages) == 1):
        return None
    shared, read = signature.device.shared, _read(region, computation)
    dear = _dear(region, computation) if late else None
    for blocks in range(most, 1, -1):
        if read and read.shared_bytes(region) <= shared // blocks - SPARE_BYTES:
            return replace(read, blocks=blocks)
    return dear if dear and dear.shared_bytes(region) <= shared - SPARE_BYTES else None


def _read(region: Rows, computation: Computation) -> Kept | None:
    """Return the one parameter that rows are made of."""
    space = region.space.shape
    full = [
        p
        for p in computation.parameters
        if isinstance(p.shape, Shape) and p.shape.elements >= space.elements
    ]
    if len(full) != 1 or not isinstance(full[0].shape, Shape) or full[0].shape.dims != space.dims:
        return None
    return Kept(full[0].name, full[0].shape.dtype, 2, is_read=True)


def _dear(region: Rows, computation: Computation) -> Kept | None:
    """Return the one dear value that the last stage asks for, and a result that waits for it."""
    last = region.stages[-1]
    late = _asked(region, computation, [computation.root], set(last))
    both = _asked(region, computation, last, set()) & late
    dear = [name for name in both if computation[name].opcode in FUNCTIONS]
    if len(dear) != 1:
        return None
    shape = computation[dear[0]].shape
    is_float = isinstance(shape, Shape) and compute_type(shape.dtype) in ("float", "hlo::f32")
    return Kept(dear[0], DTYPES["f32"], 1, is_read=False) if is_float else None


def _asked(
    region: Rows, computation: Computation, names: Sequence[str], without: set[str]
) -> set[str]:
    """Return the full-size values that some come of, with no way through others."""
    waiting, found, seen = list(names), set[str](), set(without)
    while waiting:
        for name in computation[waiting.pop()].operands:
            shape = computation[name].shape
            if name in seen or not isinstance(shape, Shape):
                continue
            seen.add(name)
            if region.space.size_of(shape.dims) is Size.FULL:
                found.add(name)
            waiting.append(name)
    return found


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Writes how a block keeps its row, and comes back to it."""

    fold: FoldWriter
    what: Kept

    def declare(self) -> None:
        """Write where values lie."""
        kind = storage_type(self.what.dtype)
        self.fold.emit.line(f"{kind}* const kept = ({kind}*)hlo::dynamic_shared();")

    def keep(self, runs: Sequence[Run], firsts: Sequence[Expr]) -> None:
        """Keep what was read, or computed, of runs: each from a number of its own on."""
        emit = self.fold.emit
        for run, first in zip(runs, firsts, strict=True):
            values = [self.fold.at(self.what.name, 0, place) for place in run.places]
            held = [emit.stored(self.what.dtype, value) for value in values]
            for k, value in enumerate(held):
                emit.line(f"kept[{first} + {k}] = {value};")

    def recall(self, runs: Sequence[Run], firsts: Sequence[Expr]) -> None:
        """Make known what was kept."""
        emit, instr = self.fold.emit, self.fold.computation[self.what.name]
        assert isinstance(instr.shape, Shape)
        start = len(emit.lines)
        for run, first in zip(runs, firsts, strict=True):
            for k, place in enumerate(run.places):
                value = emit.read(self.what.dtype, f"kept[{first} + {k}]")
                emit.assume(self.what.name, place.index(instr.shape.dims), (value,))
        loads_first(emit, start)
