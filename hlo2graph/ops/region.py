"""Which kernel form a computation can take: the contract between fusion and the emitter.

Fusion may make a computation only where `region_of` gives a region; the emitter chooses its form by
the same function. None says that no single kernel computes it well: where a program was written
so, the loop form computes it, each thread folding alone.

- `Loop`: every result element by itself. Folds of fewer than FEWEST steps may be inside.
- `Rows`, `Columns`: one or more reduces of the same dimensions of equally large values.
- `Own`: one instruction, the hero, has a form; work element by element may follow it. Or several
  dots have one, whose results are looked at together.
- `Attention`: a dot of what reduces along rows make of another dot's results.
- `SideBySide`: independent fusions, results of a tuple, each in its own form.
- `Sweeps`: calls of one computation, one behind the other: rounds of a stencil.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from typing import TypeAlias

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import EMITTED, NoDevice, OwnKernel, device_of
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integers
from hlo2graph.ops.own_dot import go_together
from hlo2graph.ops.region_attention import Weighing, weighing_of
from hlo2graph.ops.region_ending import updates_behind
from hlo2graph.ops.region_spaces import Space, Waiting
from hlo2graph.ops.spec import Lowering
from hlo2graph.ops.sweeps import Sweeps, sweeps_of

FEWEST = 32  # steps of a fold below which one thread does it alone
MOST_COLUMNS = 1 << 16  # of a row of which something full-size waits for a fold
LONGEST_COLUMNS = 3 << 16  # the same of one array of HELD_BYTES an element at most
HELD_BYTES = 4  # that the blocks of a cluster hold of each element

_FOLDS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot", "fft"})
_WINDOWS = frozenset({"reduce-window", "select-and-scatter"})


@dataclass(frozen=True, slots=True)
class Loop:
    """One thread an element of the results, or a few."""


@dataclass(frozen=True, slots=True)
class Folding:
    """Reduces of equally large values along the same dimensions: `space` has both.

    stages: the reduces' names; those of one stage wait for those of the stages before it only.
    bridges: the reshapes of what waits for them behind which an index has other parts than before.
    waits: whether each result leaf waits for a reduce.
    """

    space: Space
    stages: tuple[tuple[str, ...], ...]
    bridges: tuple[str, ...]
    waits: tuple[bool, ...]

    @property
    def reduces(self) -> tuple[str, ...]:
        """The names of all reduces, each after those it waits for."""
        return tuple(name for stage in self.stages for name in stage)

    @property
    def results(self) -> int:
        """Elements of a reduce's result."""
        return prod(self.space.shape.dims[d] for d in self.space.kept)

    @property
    def steps(self) -> int:
        """Elements folded into each."""
        return prod(self.space.shape.dims[d] for d in self.space.reduced)

    @property
    def minor(self) -> int:
        """Elements that lie side by side along dimensions that are all reduced, or all kept."""
        dims, space = self.space.shape.dims, self.space
        inner = self.side_by_side(space.kept) or self.side_by_side(space.reduced)
        return prod(dims[d] for d in inner)

    def side_by_side(self, dims: Sequence[int]) -> list[int]:
        """Return those of `dims` that lie inside all others, the most minor first."""
        shape = self.space.shape
        live = [d for d in shape.minor_to_major if shape.dims[d] > 1]
        return list(takewhile(lambda d: d in dims, live))

    @property
    def is_contiguous(self) -> bool:
        """The reduced dimensions are the most minor ones, or the most major ones."""
        shape = self.space.shape
        marks = [d in self.space.kept for d in shape.minor_to_major if shape.dims[d] > 1]
        return marks in (sorted(marks), sorted(marks, reverse=True))


@dataclass(frozen=True, slots=True)
class Rows(Folding):
    """The most minor dimension is reduced: threads that fold one result read side by side.

    Others may be too, next to it or not: {1}, {1,2} and {0,2} of row-major values make rows.
    Results are full-size (as what is folded) or row-size (as what is left of it).
    """


@dataclass(frozen=True, slots=True)
class Columns(Folding):
    """The most minor dimension is kept: threads side by side fold results side by side.

    {0}, and {1} of three dimensions, make columns of row-major values. There is one stage. What
    depends on it has its size; results may be full-size otherwise.
    """


@dataclass(frozen=True, slots=True)
class Own:
    """The instruction `hero` decides for the form.

    A dot has company only where `own_dot.runs_as_own_kernel` holds; else it is a library's alone.
    others: more dots, for which `own_dot.go_together` holds, and whose elements make one result
    together with the hero's at the same index.
    updates: the results that are dynamic-update-slices of parameters by what is so made. Beside
    them a dot's kernel may make scalars that need none of its results.
    """

    hero: str
    others: tuple[str, ...] = ()
    updates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Attention:
    """Two dots, between which `rows` are folded: `weighing` tells which dots. Work may follow."""

    weighing: Weighing
    rows: Folding


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The fusions that are the operands of the root."""

    parts: tuple[str, ...]


Region: TypeAlias = Loop | Rows | Columns | Own | Attention | SideBySide | Sweeps


def region_of(computation: Computation) -> Region | None:
    """Return the region that `computation` is; None where no one kernel does it well."""
    if (own := own_root(computation)) is not None:
        dear = any(i is not own and _is_dear(computation, i) for i in computation.instructions)
        return None if dear else Own(own.name)
    folds = [i for i in computation.instructions if _is_dear(computation, i)]
    if not folds:
        return sweeps_of(computation) or _side_by_side(computation) or Loop()
    if all(fold.opcode == "reduce" for fold in folds):
        return _folding(computation, folds)
    if (weighing := weighing_of(computation, folds)) is not None:
        return _attention(computation, folds, weighing)
    if any(map(needs_own_kernel, folds)) or (
        len(folds) > 1 and not _go_together(computation, folds)
    ):
        return None
    updates = updates_behind(computation, folds)
    others = tuple(fold.name for fold in folds[1:])
    return None if updates is None else Own(folds[0].name, others, updates)


def own_root(computation: Computation) -> Instruction | None:
    """Return the instruction that needs its own kernel and gives all of the result, if one does.

    It is the root, or the root is the tuple of just its leaves, in order.
    """
    root = computation.result
    if root.opcode == "tuple" and root.operands:
        parts = [computation[name] for name in root.operands]
        whole = computation[parts[0].operands[0]] if parts[0].operands else root
        taken = [
            p.attrs.get("index")
            for p in parts
            if p.opcode == "get-tuple-element" and p.operands == (whole.name,)
        ]
        if taken != list(range(len(tuple(whole.shape.leaves())))) or len(taken) != len(parts):
            return None
        root = whole
    return root if needs_own_kernel(root) else None


def needs_own_kernel(instr: Instruction) -> bool:
    """Tell whether no loop over elements computes `instr`."""
    spec = OPS.get(instr.opcode)
    return spec is not None and isinstance(device_of(spec.device, instr), OwnKernel)


def stands_alone(instr: Instruction) -> bool:
    """Tell whether `instr` cannot be in the middle of a kernel, or has none."""
    spec = OPS.get(instr.opcode)
    if spec is None or instr.opcode in EMITTED:
        return False
    if spec.lowering is Lowering.STRUCTURE:
        return True
    return isinstance(device_of(spec.device, instr), OwnKernel | NoDevice)


def _is_dear(computation: Computation, instr: Instruction) -> bool:
    """Tell whether more than one thread, or more than a moment, goes into one element."""
    if needs_own_kernel(instr) or instr.opcode in _FOLDS:
        return True
    if instr.opcode == "reduce":
        shape = computation[instr.operands[0]].shape
        assert isinstance(shape, Shape)
        steps = prod(shape.dims[d] for d in integers(instr, "dimensions"))
        return steps >= FEWEST and shape.elements > 0
    return instr.opcode in _WINDOWS and prod(w.size for w in window_dims(instr)) >= FEWEST


def _side_by_side(computation: Computation) -> SideBySide | None:
    root = computation.result
    parts = root.operands
    if root.opcode != "tuple" or len(parts) < 2 or len(set(parts)) < len(parts):
        return None
    for part in parts:
        instr = computation[part]
        given = (computation[name].opcode for name in instr.operands)
        if instr.opcode != "fusion" or any(opcode != "parameter" for opcode in given):
            return None
    return SideBySide(parts)


def _folding(computation: Computation, reduces: list[Instruction]) -> Rows | Columns | None:
    """Return the region of reduces that all fold the same dimensions of equally large values."""
    waiting = Waiting.of(computation, reduces)
    if waiting is None:
        return None
    space, stages = waiting.space, tuple(tuple(stage) for stage in waiting.stages)
    waits = waiting.waiting_results()
    assert waits is not None
    minor = next((d for d in space.shape.minor_to_major if space.shape.dims[d] > 1), None)
    again = len(stages) > 1 or waiting.full_waits  # what was folded is looked at again
    if minor not in space.reduced:
        return None if again else Columns(space, stages, tuple(waiting.bridges), waits)
    rows = Rows(space, stages, tuple(waiting.bridges), waits)
    return None if again and rows.steps > _most_columns(computation, space) else rows


def _most_columns(computation: Computation, space: Space) -> int:
    """Return how long rows may be that are looked at again."""
    shapes = (p.shape for p in computation.parameters if isinstance(p.shape, Shape))
    large = [shape for shape in shapes if 2 * shape.elements >= space.shape.elements]
    is_held = len(large) == 1 and large[0].dtype.size <= HELD_BYTES
    return LONGEST_COLUMNS if is_held else MOST_COLUMNS


def _attention(
    computation: Computation, folds: list[Instruction], weighing: Weighing
) -> Attention | None:
    """Return the region of attention, if its rows have a common index and its end is plain."""
    inside = tuple(computation[name] for name in weighing.within)
    weights = computation[weighing.product].operands[weighing.weights]
    waiting = Waiting.of(
        replace(computation, instructions=inside, root=weights),
        [fold for fold in folds if fold.opcode == "reduce"],
    )
    if waiting is None or waiting.bridges:
        return None
    space, stages, waits = waiting.space, waiting.stages, waiting.waiting_results()
    assert waits is not None
    rows = Folding(space, tuple(map(tuple, stages)), (), waits)
    reduced = [weighing.folded[d] for d in space.reduced]
    if [place for place in reduced if place is not None] != [weighing.key]:
        return None
    ends = updates_behind(computation, [computation[weighing.product]])
    return Attention(weighing, rows) if ends == () else None


def _go_together(computation: Computation, folds: list[Instruction]) -> bool:
    """Tell whether one kernel may compute several folds: they are dots that go together."""
    dots = []
    for fold in folds:
        shapes = [computation[name].shape for name in fold.operands]
        arrays = [shape for shape in shapes if isinstance(shape, Shape)]
        if fold.opcode != "dot" or len(arrays) != 2:
            return False
        dots.append((fold, arrays[0], arrays[1]))
    return go_together(dots)
