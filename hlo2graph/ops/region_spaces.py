"""What waits for the reduces of a computation, and whether one index a value is enough for all.

A full-size value has the dimensions of what the reduces fold, a row-size one those of their
results, whatever dimensions of size 1 stand between them. Full- and row-size values may be reshaped
to other dimensions of as many elements where the number of an element tells its row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from math import prod

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integers


class Size(Enum):
    """How many elements a value has."""

    FULL = auto()
    ROW = auto()


class _MixedError(Exception):
    """The reduces, and what waits for them, have no common index."""


@dataclass(frozen=True, slots=True)
class Space:
    """The dimensions `reduced` of `shape` are folded; the others are kept."""

    shape: Shape
    reduced: tuple[int, ...]

    def __str__(self) -> str:
        dims = ",".join(map(str, self.reduced))
        return f"{{{dims}}} of {self.shape.without_layout_text()}"

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that stay."""
        return tuple(d for d in range(self.shape.rank) if d not in self.reduced)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far the elements along each dimension of the input lie apart, in elements."""
        strides, step = [0] * self.shape.rank, 1
        for dim in self.shape.minor_to_major:
            strides[dim] = step
            step *= self.shape.dims[dim]
        return tuple(strides)

    def size_of(self, dims: tuple[int, ...]) -> Size | None:
        """Return the size of a value of `dims`, if its index follows from row and column."""
        if self.is_plain(dims):
            return Size.FULL if _live(dims) == _live(self.shape.dims) else Size.ROW
        if not self.shape.is_row_major:
            return None
        if prod(dims) == self.shape.elements and self._ends_reduced:
            return Size.FULL
        return Size.ROW if prod(dims) == prod(self._kept_dims) else None

    def is_plain(self, dims: tuple[int, ...]) -> bool:
        """Tell whether `dims` are those of the input or of the results, but for sizes of 1."""
        return _live(dims) in (_live(self.shape.dims), _live(self._kept_dims))

    def same(self, other: Space) -> bool:
        """Tell whether both fold the same, but for dimensions of size 1."""
        return self._marked == other._marked

    @property
    def _kept_dims(self) -> tuple[int, ...]:
        return tuple(self.shape.dims[d] for d in self.kept)

    @property
    def _marked(self) -> tuple[tuple[int, bool], ...]:
        dims = self.shape.dims
        return tuple((n, d in self.reduced) for d, n in enumerate(dims) if n != 1)

    @property
    def _ends_reduced(self) -> bool:
        """The reduced dimensions are the last ones."""
        marks = [reduced for _, reduced in self._marked]
        return marks == sorted(marks)

    def widens(self, instr: Instruction, given: tuple[int, ...]) -> bool:
        """Tell whether a broadcast of a value of `given` dimensions keeps each row's index."""
        assert isinstance(instr.shape, Shape)
        target, to = instr.shape.dims, integers(instr, "dimensions", ())
        places = [d for d, n in zip(to, given, strict=True) if n != 1]
        if any(a >= b for a, b in pairwise(places)) or not self.is_plain(given):
            return False
        if _live(target) == _live(given):
            return True
        kept = [k for k, (_, reduced) in enumerate(self._marked) if not reduced]
        live = [d for d, n in enumerate(target) if n != 1]
        full = _live(target) == _live(self.shape.dims)
        return full and places == [live[k] for k in kept]


@dataclass(slots=True)
class Waiting:
    """The reduces by stage, and what else waits for one.

    `bridges` are the reshapes among it behind which an index has other parts than before.
    """

    computation: Computation
    space: Space
    stages: list[list[str]] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    full_waits: bool = False
    _depth: dict[str, int] = field(default_factory=dict)  # stages that a value waits for

    @staticmethod
    def of(computation: Computation, reduces: Sequence[Instruction]) -> Waiting | None:
        """Return what waits for `reduces`; None where they, or it, have no common index."""
        found = Waiting(computation, _space_of(computation, reduces[0]))
        names = {instr.name for instr in reduces}
        try:
            for instr in computation.instructions:
                found._add(instr, instr.name in names)
        except _MixedError:
            return None
        sizes = [found.space.size_of(s.dims) for s in computation.result.shape.leaves()]
        return found if sizes and all(sizes) and found.waiting_results() is not None else None

    def waiting_results(self) -> tuple[bool, ...] | None:
        """Tell of each result leaf whether it waits for a reduce; None where tuples are nested."""
        root = self.computation.result
        if root.opcode != "tuple":
            return (root.name in self._depth,) * root.shape.leaf_count
        if any(not isinstance(self.computation[o].shape, Shape) for o in root.operands):
            return None
        return tuple(o in self._depth for o in root.operands)

    def _add(self, instr: Instruction, is_reduce: bool) -> None:
        depths = [self._depth[o] for o in instr.operands if o in self._depth]
        if is_reduce:
            self._add_reduce(instr)
        elif depths and not (instr.opcode == "tuple" and instr.name == self.computation.root):
            self._check(instr)
            self._depth[instr.name] = max(depths)

    def _add_reduce(self, instr: Instruction) -> None:
        count = len(instr.operands) // 2
        _require(_space_of(self.computation, instr).same(self.space))
        _require(not any(o in self._depth for o in instr.operands[count:]))
        stage = max((self._depth.get(o, 0) for o in instr.operands[:count]), default=0)
        self.stages += [[] for _ in range(stage + 1 - len(self.stages))]
        self.stages[stage].append(instr.name)
        self._depth[instr.name] = stage + 1

    def _check(self, instr: Instruction) -> None:
        """Raise unless the index of `instr` is that of the waiting operands it looks at."""
        if instr.opcode == "get-tuple-element" and isinstance(instr.shape, Shape):
            return
        _require(isinstance(instr.shape, Shape))
        assert isinstance(instr.shape, Shape)
        size = self.space.size_of(instr.shape.dims)
        waiting = self._waiting(instr)
        match instr.opcode:
            case "broadcast":
                _require(self.space.widens(instr, waiting[0].dims))
            case "reshape" | "bitcast":
                _require(size is self.space.size_of(waiting[0].dims))
                _require(instr.opcode != "bitcast" or _keeps_order(instr.shape, waiting[0]))
                if not all(self.space.is_plain(s.dims) for s in (instr.shape, waiting[0])):
                    self.bridges.append(instr.name)
            case _:
                _require(OPS[instr.opcode].elementwise)
                _require(all(shape.dims == instr.shape.dims for shape in waiting))
        _require(size is not None)
        self.full_waits |= size is Size.FULL

    def _waiting(self, instr: Instruction) -> list[Shape]:
        """Return the shapes of the operands that wait for a reduce: arrays."""
        found = [self.computation[o].shape for o in instr.operands if o in self._depth]
        arrays = [shape for shape in found if isinstance(shape, Shape)]
        _require(len(arrays) == len(found))
        return arrays


def _space_of(computation: Computation, reduce: Instruction) -> Space:
    shape = computation[reduce.operands[0]].shape
    assert isinstance(shape, Shape)
    return Space(shape, tuple(sorted(integers(reduce, "dimensions"))))


def _keeps_order(target: Shape, source: Shape) -> bool:
    """Tell whether a bitcast is a reshape."""
    return target.is_row_major and source.is_row_major and target.dtype is source.dtype


def _live(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in dims if n != 1)


def _require(holds: bool) -> None:
    if not holds:
        raise _MixedError
