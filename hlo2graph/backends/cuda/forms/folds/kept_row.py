"""What a row that is read in rounds keeps in shared memory, so that later rounds find it there.

Where two or three rows fit a multiprocessor, that is what they are made of, as it was read, which
asynchronous copies bring: while one waits for memory, another computes. Longer rows of narrow
elements that are folded in one look are kept by small blocks of a cluster, so that parts of
several are on each multiprocessor: registers would hold half as many of them. Where one row fits,
what is kept is the one dear value that the last stage and a result both ask for: a softmax would
else compute each exponential twice. A thread comes back to what it has kept itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.folds.fold_places import Run
from hlo2graph.backends.cuda.forms.folds.folding import (
    FUNCTIONS,
    FoldWriter,
    fewer_for_lines,
    lines_each,
)
from hlo2graph.backends.cuda.forms.folds.shifted_rows import (
    may_shift,
    side_by_side,
    whole_runs,
)
from hlo2graph.backends.cuda.forms.line_order import loads_first
from hlo2graph.backends.cuda.source import ACCESS_BYTES, Signature
from hlo2graph.backends.cuda.team import Team
from hlo2graph.hlo import DTYPES, Computation, DType, Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_spaces import Size
from hlo2graph.program.device_figures import DeviceFigures

SPARE_BYTES = 4 << 10  # of a block, for what its warps fold together, and for the system
THREADS = {1: 1024, 2: 512, 3: 512}  # of a block, by the blocks of a multiprocessor
MOST_KEPT = 3  # of these
PART_THREADS = 256  # of a block that keeps a part of a row
PARTS = (5, 4)  # such blocks of a multiprocessor: registers are for no more
CLUSTERS = (2, 4, 8)  # of such blocks
REGISTER = 4  # bytes
COPIED = 4  # bytes that a copy brings, at least


@dataclass(frozen=True, slots=True)
class Kept:
    """An instruction whose values are kept, and as what.

    `blocks` of a multiprocessor keep a row each, or a part of it where they are clusters. What
    `is_read` is copied before the first stage, `vector` elements at once, or kept by it; what is
    computed is kept by the last one.
    """

    name: str
    dtype: DType
    blocks: int
    is_read: bool
    vector: int = 0  # none where nothing is copied
    cluster: int = 1

    @property
    def team(self) -> Team:
        """The threads of a row."""
        threads = THREADS[self.blocks] if self.cluster == 1 else PART_THREADS
        return Team(1, threads * self.cluster, self.cluster)

    def is_for_all(self, region: Rows, signature: Signature) -> bool:
        """Tell whether rows are kept as they are read, enough of them for all multiprocessors."""
        blocks = self.blocks * signature.device.multiprocessors
        return self.is_read and region.results * self.cluster >= blocks

    def whole(self, region: Rows) -> int:
        """Return for how many elements, in whole words, a block that copies them has room."""
        team, words = self.team, region.steps // self.vector
        if team.blocks > 1:
            words = -(-words // team.slices) * team.threads
        return words * self.vector

    def shared_bytes(self, region: Rows) -> int:
        """Return the bytes of a block."""
        if not self.vector:
            return self.dtype.size * region.steps
        ends = 2 * self.vector if region.steps % self.vector else 0
        return self.dtype.size * (self.whole(region) + ends)

    def fits(self, region: Rows, device: DeviceFigures) -> bool:
        """Tell whether a multiprocessor has room, and each thread a word."""
        room = device.shared // self.blocks - SPARE_BYTES
        enough = whole_runs(region.steps, max(1, self.vector)) >= self.team.slices
        return enough and self.shared_bytes(region) <= room


def kept_of(
    region: Rows,
    computation: Computation,
    signature: Signature,
    most: int = MOST_KEPT,
    *,
    in_parts: bool,
) -> Kept | None:
    """Return what is kept of each row, if anything that pays fits a block.

    A multiprocessor has `most` whole rows at once, or fewer; some rows may be kept `in_parts`.
    """
    count, results = region.space.shape.elements, signature.results
    late = any(w and s.elements == count for w, s in zip(region.waits, results, strict=True))
    if region.bridges or (not late and len(region.stages) == 1):
        return None
    read = _read(region, computation, signature)
    clusters = signature.device.cluster if in_parts else 1
    found = _ways(read, most, clusters) if read else []
    if late and (dear := _dear(region, computation)):
        found.append(dear)
    return next((kept for kept in found if kept.fits(region, signature.device)), None)


def _ways(read: Kept, most: int, blocks: int) -> list[Kept]:
    """Return how rows may be kept as read, best first, by clusters of so many blocks at most."""
    *best, last = (replace(read, blocks=n) for n in range(most, 1, -1))
    narrow = read.dtype.size < REGISTER
    clusters = [cluster for cluster in CLUSTERS if narrow and cluster <= blocks]
    parts = [replace(read, blocks=n, cluster=cluster) for cluster in clusters for n in PARTS]
    return [*best, *parts, last]


def _read(region: Rows, computation: Computation, signature: Signature) -> Kept | None:
    """Return the one parameter that rows are made of, if it lies as they do, on whole words."""
    space = region.space.shape
    full = [
        p
        for p in computation.parameters
        if isinstance(p.shape, Shape) and p.shape.elements >= space.elements
    ]
    if len(full) != 1 or f"p{full[0].payload}" in signature.misaligned:
        return None
    (shape,) = full[0].shape.leaves()
    if (shape.dims, shape.minor_to_major) != (space.dims, space.minor_to_major):
        return None
    size = shape.dtype.size
    vector = ACCESS_BYTES // size if may_shift(region) else side_by_side(region, size)
    vector = fewer_for_lines(vector, lines_each(computation))
    return Kept(full[0].name, shape.dtype, 2, is_read=True, vector=vector)


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

    def first(self, at: Expr, vector: int) -> Expr:
        """Return where this thread keeps run number `at` of the row's, of `vector` elements."""
        team = self.what.team
        if team.blocks > 1:
            own = f"{at} / {team.slices} * {team.threads} + (int)threadIdx.x"
            at = self.fold.emit.integer(own)
        return f"{at} * {vector}"

    def end(self, region: Rows, whole: Expr) -> Expr:
        """Return where a thread keeps its element at the ends of a row with so many between."""
        return f"{self.what.whole(region) if self.what.vector else whole} + slice"

    def fetch(self, runs: Sequence[Run], firsts: Sequence[Expr]) -> None:
        """Let what is read of runs come, each to a number of its own on."""
        emit, instr = self.fold.emit, self.fold.computation[self.what.name]
        assert isinstance(instr.shape, Shape)
        assert isinstance(instr.payload, int)
        for run, first in zip(runs, firsts, strict=True):
            found = [
                emit.place_of(instr.payload, instr.shape, place.index(instr.shape.dims))
                for place in run.places
            ]
            size = self.what.dtype.size * len(found)
            if size % COPIED == 0:
                emit.line(f"hlo::copy_ahead<{size}>(&kept[{first}], &{found[0]});")
                continue
            for k, place in enumerate(found):
                emit.line(f"kept[{first} + {k}] = {place};")

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
