"""What a row that is read in rounds keeps in shared memory: dear values that its results ask for.

A softmax of a long row would else compute each exponential for its sum, and again to divide it. A
thread keeps what it has computed, and alone comes back to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.forms.fold_places import Run
from hlo2graph.backends.cuda.forms.folding import FUNCTIONS, FoldWriter
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.cuda.team import Team
from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows
from hlo2graph.ops.region_spaces import Size

SPARE_BYTES = 4 << 10  # of a block, for what its warps fold together, and for the system


def kept_value(
    region: Rows, computation: Computation, signature: Signature, team: Team
) -> str | None:
    """Return the one dear value that the last stage asks for, and a result that waits for it.

    If a block has one row, and keeps it.
    """
    room = signature.device.shared - SPARE_BYTES
    if region.bridges or team.lanes > 1 or kept_bytes(region) > room:
        return None
    last = region.stages[-1]
    late = _asked(region, computation, [computation.root], set(last))
    both = _asked(region, computation, last, set()) & late
    dear = [name for name in both if computation[name].opcode in FUNCTIONS]
    if len(dear) != 1 or not any(region.waits):
        return None
    shape = computation[dear[0]].shape
    is_float = isinstance(shape, Shape) and compute_type(shape.dtype) in ("float", "hlo::f32")
    return dear[0] if is_float else None


def _asked(
    region: Rows, computation: Computation, names: Sequence[str], without: set[str]
) -> set[str]:
    """Return the full-size values that some come of, with no way through others."""
    waiting, found = list(names), set[str]()
    while waiting:
        for name in computation[waiting.pop()].operands:
            shape = computation[name].shape
            if name in found or name in without or not isinstance(shape, Shape):
                continue
            if region.space.size_of(shape.dims) is Size.FULL:
                found.add(name)
            waiting.append(name)
    return found


def kept_bytes(region: Rows) -> int:
    """Return the bytes that keep one value of each step."""
    return 4 * region.steps


@dataclass(frozen=True, slots=True)
class KeptRow:
    """The values of the instruction `name` of all of a block's row."""

    fold: FoldWriter
    name: str

    def declare(self) -> None:
        """Write where they lie."""
        self.fold.emit.line("float* const kept = (float*)hlo::dynamic_shared();")

    def keep(self, runs: Sequence[Run], firsts: Sequence[Expr]) -> None:
        """Keep what was computed of runs, each from a number of its own on."""
        for run, first in zip(runs, firsts, strict=True):
            values = [self.fold.at(self.name, 0, place) for place in run.places]
            for k, value in enumerate(values):
                self.fold.emit.line(f"kept[{first} + {k}] = {value};")

    def recall(self, runs: Sequence[Run], firsts: Sequence[Expr]) -> None:
        """Make known what was kept."""
        emit, instr = self.fold.emit, self.fold.computation[self.name]
        assert isinstance(instr.shape, Shape)
        for run, first in zip(runs, firsts, strict=True):
            for k, place in enumerate(run.places):
                value = emit.bind(instr.shape.dtype, f"kept[{first} + {k}]")
                emit.assume(self.name, place.index(instr.shape.dims), (value,))
