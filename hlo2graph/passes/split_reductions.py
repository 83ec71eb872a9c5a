"""Fold in two steps what one step would fold with most of the device idle.

In and out: a Module of the same meaning. A reduce of few results has few blocks of threads; where
its input is large, the elements of each result are cut into parts. The first step folds each part,
from the neutral element; the second folds the parts' results, from the real start. What does not
fill a part goes into the second step as it is. Narrow floats are folded in float32 in both steps,
as one step would. Only regions that are one associative operation are taken apart.

The rule, all of it: a reduce is taken apart where that saves GAIN_NS by this reckoning. A block
moves BLOCK_BYTES_EACH_NS, all together at most what memory gives. There is a block for each result
where the most minor dimension is folded, else one for each RUN_BYTES of results side by side. The
first step is given PARTS blocks, or fewer of PART_BYTES.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from hlo2graph.hlo import (
    DTYPES,
    Attribute,
    Computation,
    DType,
    Instruction,
    Layout,
    Literal,
    Module,
    Shape,
    SliceDim,
)
from hlo2graph.ops import OPS
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.folding import UFUNCS, identity_of
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.ops.spec import Array
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.fuse_cost import BYTES_EACH_NS, LAUNCH_NS
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.values import made, numbers

GAIN_NS = 4 * LAUNCH_NS  # of which the second step's launch takes one
BLOCK_BYTES_EACH_NS = 40
RUN_BYTES = 128
PARTS = 1056  # at most: eight a multiprocessor of a large GPU
PART_BYTES = 32 << 10  # of a part, at least
ACCESS_BYTES = 16  # that a thread reads at once: parts of rows begin at a multiple
MOST_AGAIN = 64  # instructions that are written again for what fills no part


def split_reductions(module: Module) -> Module:
    """Return `module` with large reduces of few results taken apart."""
    regions = _Regions(module)
    effects, stepped = with_effects(module.computations), sequences(module)
    computations = dict(module.computations)
    for name in stepped:
        draft = Draft(module.computations[name], module.computations, effects)
        for instr in module.computations[name].instructions:
            if instr.opcode == "reduce" and draft.is_pure(instr):
                _split(draft, instr, regions)
        computations[name] = draft.done()
    if not regions.made:
        return module
    return replace(module, computations=regions.made | computations)


class _Regions:
    """Computations of two scalars that the steps call: one an opcode and element type."""

    def __init__(self, module: Module) -> None:
        self.made: dict[str, Computation] = {}
        self._taken = set(module.computations)

    def named(self, opcode: str, dtype: DType) -> str:
        """Return the name of the computation that applies `opcode` to two of `dtype`."""
        name = f"{opcode}_{dtype}"
        while name in self._taken:
            name += "_"
        if name not in self.made:
            scalar = Shape(dtype)
            left, right = (
                Instruction(p, "parameter", scalar, payload=k) for k, p in enumerate("ab")
            )
            root = Instruction("r", opcode, scalar, ("a", "b"))
            self.made[name] = Computation(name, (left, right, root), "r")
        return name


@dataclass(frozen=True, slots=True)
class _Cut:
    """The dimension `dim` is cut into `parts` of `size`; `rest` elements are left."""

    dim: int
    parts: int
    size: int
    rest: int


def _split(draft: Draft, instr: Instruction, regions: _Regions) -> None:
    """Take a reduce apart where that pays."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, Shape):
        return
    source = draft.shape(instr.operands[0])
    opcode = binary_reducer(draft.computations, str(instr.attrs["to_apply"]))
    if opcode not in UFUNCS or source.dtype.is_complex or not is_settled(source):
        return
    if instr.shape.dtype is not source.dtype:
        return
    blocks = _blocks(source, numbers(instr))
    if not _pays(source, blocks):
        return
    name, shape, reduced = _merged(draft, instr, source)
    parts = min(PARTS, source.size // PART_BYTES)
    cut = _cut(shape, reduced, -(-parts // blocks))
    if cut is not None:
        _Steps(draft, instr, regions.named(opcode, _wide(source.dtype)), opcode).write(
            name, shape, reduced, cut
        )


def _wide(dtype: DType) -> DType:
    """Return the type that parts are folded in."""
    return DTYPES["f32"] if dtype.is_float and dtype.bits < 32 else dtype


def _is_rows(shape: Shape, reduced: Sequence[int]) -> bool:
    return next((d in reduced for d in shape.minor_to_major if shape.dims[d] > 1), True)


def _blocks(shape: Shape, reduced: Sequence[int]) -> int:
    """Return how many blocks fold in one step."""
    results = prod(n for d, n in enumerate(shape.dims) if d not in reduced)
    return results if _is_rows(shape, reduced) else -(-results * shape.dtype.size // RUN_BYTES)


def _pays(shape: Shape, blocks: int) -> bool:
    if not blocks:
        return False
    now = shape.size // min(BYTES_EACH_NS, blocks * BLOCK_BYTES_EACH_NS)
    return now - shape.size // BYTES_EACH_NS >= GAIN_NS


def _merged(draft: Draft, instr: Instruction, shape: Shape) -> tuple[str, Shape, tuple[int, ...]]:
    """Return the input with its reduced dimensions as one, where they lie side by side."""
    name, reduced = instr.operands[0], tuple(sorted(numbers(instr)))
    first, last = reduced[0], reduced[-1]
    if len(reduced) == 1 or reduced != tuple(range(first, last + 1)) or not shape.is_row_major:
        return name, shape, reduced
    dims = (*shape.dims[:first], prod(shape.dims[d] for d in reduced), *shape.dims[last + 1 :])
    merged = Shape(shape.dtype, dims)
    return draft.add(instr, "reshape", merged, (name,)), merged, (first,)


def _cut(shape: Shape, reduced: Sequence[int], parts: int) -> _Cut | None:
    """Return how to cut the longest reduced dimension into about so many parts."""
    dim = max(reduced, key=lambda d: shape.dims[d])
    count = shape.dims[dim]
    unit = max(1, ACCESS_BYTES // shape.dtype.size) if _is_rows(shape, (dim,)) else 1
    for exact in range(parts, 2 * parts):
        if count % (exact * unit) == 0 and count > exact:
            return _Cut(dim, exact, count // exact, 0)
    size = count // parts // unit * unit if parts > 1 else 0
    return _Cut(dim, parts, size, count - parts * size) if size > 1 else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """Writes both steps of a reduce, whose region in the parts' type is `region`."""

    draft: Draft
    instr: Instruction
    region: str
    opcode: str

    def write(self, name: str, shape: Shape, reduced: Sequence[int], cut: _Cut) -> None:
        """Put the second step in the place of the reduce of `name`."""
        draft, instr = self.draft, self.instr
        wide = _wide(shape.dtype)
        others = [d for d in reduced if d != cut.dim]
        moved = [d + (d > cut.dim) for d in others]  # behind the parts
        parts = self._folded(self._parts(name, shape, cut), [*moved, cut.dim + 1])
        dim = cut.dim - sum(d < cut.dim for d in others)
        if cut.rest:
            parts = self._with_rest(parts, dim, self._rest(shape, cut, others), cut.rest)
        attrs: dict[str, Attribute] = {"dimensions": (dim,), "to_apply": self.region}
        operands = (parts, self._widened(instr.operands[1]))
        if wide is shape.dtype:
            draft.become(instr.name, made(instr, "reduce", operands, attrs))
            return
        assert isinstance(instr.shape, Shape)
        total = draft.add(instr, "reduce", replace(instr.shape, dtype=wide), operands, attrs)
        draft.become(instr.name, made(instr, "convert", (total,)))

    def _rest(self, shape: Shape, cut: _Cut, others: Sequence[int]) -> str:
        """Return what fills no part, folded along all dimensions but the one that is cut."""
        rest = _Rest(self, shape, cut).of(self.instr.operands[0])
        return self._folded(rest, others) if others else self._widened(rest)

    def _with_rest(self, parts: str, dim: int, rest: str, count: int) -> str:
        shape = self.draft.shape(parts)
        dims = tuple(n + count * (d == dim) for d, n in enumerate(shape.dims))
        attrs: dict[str, Attribute] = {"dimensions": (dim,)}
        both = Shape(shape.dtype, dims)
        return self.draft.add(self.instr, "concatenate", both, (parts, rest), attrs)

    def _folded(self, name: str, reduced: Sequence[int]) -> str:
        """Fold from the neutral element."""
        name = self._widened(name)
        shape = self.draft.shape(name)
        dims = tuple(n for d, n in enumerate(shape.dims) if d not in reduced)
        scalar = Shape(shape.dtype)
        start = Literal(scalar, _neutral(self.opcode, shape.dtype))
        neutral = self.draft.add(self.instr, "constant", scalar, payload=start)
        attrs: dict[str, Attribute] = {
            "dimensions": tuple(sorted(reduced)),
            "to_apply": self.region,
        }
        return self.draft.add(
            self.instr, "reduce", Shape(shape.dtype, dims), (name, neutral), attrs
        )

    def _parts(self, name: str, shape: Shape, cut: _Cut) -> str:
        """Return the whole parts, in a dimension of their own before that of their elements."""
        if cut.rest:
            name = self.cut_out(name, shape, cut, 0, cut.parts * cut.size)
        dims = (*shape.dims[: cut.dim], cut.parts, cut.size, *shape.dims[cut.dim + 1 :])
        order: list[int] = []
        for d in shape.minor_to_major:
            order += [d + 1, d] if d == cut.dim else [d + (d > cut.dim)]
        layout = Layout(tuple(order)) if shape.layout else None
        return self.draft.add(self.instr, "reshape", Shape(shape.dtype, dims, layout), (name,))

    def cut_out(self, name: str, shape: Shape, cut: _Cut, start: int, limit: int) -> str:
        places = [SliceDim(0, n) for n in shape.dims]
        places[cut.dim] = SliceDim(start, limit)
        dims = (*shape.dims[: cut.dim], limit - start, *shape.dims[cut.dim + 1 :])
        held = replace(shape, dims=dims)
        return self.draft.add(self.instr, "slice", held, (name,), {"slice": tuple(places)})

    def _widened(self, name: str) -> str:
        shape = self.draft.shape(name)
        wide = _wide(shape.dtype)
        if wide is shape.dtype:
            return name
        return self.draft.add(self.instr, "convert", replace(shape, dtype=wide), (name,))


@dataclass(slots=True)
class _Rest:
    """Writes again, for what fills no part, the elementwise work that the reduce's input comes of.

    Else that input would have two readers, and might have to go through memory for them.
    """

    steps: _Steps
    shape: Shape  # of the input, its reduced dimensions merged
    cut: _Cut
    again: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """Return the rest of `name`, which has the dimensions of the input before merging."""
        if name not in self.again:
            self.again[name] = self._written(self.steps.draft[name])
        return self.again[name]

    def _written(self, instr: Instruction) -> str:
        draft, cut = self.steps.draft, self.cut
        assert isinstance(instr.shape, Shape)
        dims = list(self.shape.dims)
        dims[cut.dim] = cut.rest
        if instr.opcode == "broadcast" and not draft.shape(instr.operands[0]).dims:
            shape = Shape(instr.shape.dtype, tuple(dims))
            return draft.add(instr, "broadcast", shape, instr.operands, {"dimensions": ()})
        if OPS[instr.opcode].elementwise and draft.is_pure(instr) and len(self.again) < MOST_AGAIN:
            self.again[instr.name] = ""
            operands = [
                self.of(o) if draft.shape(o).dims == instr.shape.dims else o for o in instr.operands
            ]
            shape = Shape(instr.shape.dtype, tuple(dims))
            return draft.add(instr, instr.opcode, shape, operands, instr.attrs)
        name, whole = instr.name, replace(self.shape, dtype=instr.shape.dtype)
        if instr.shape.dims != whole.dims:
            name = draft.add(instr, "reshape", whole, (name,))
        return self.steps.cut_out(name, whole, cut, cut.parts * cut.size, whole.dims[cut.dim])


def _neutral(opcode: str, dtype: DType) -> Array:
    """Return the element that changes no other: of float sums -0, for 0 + -0 is 0."""
    if opcode == "add" and dtype.is_float:
        return np.asarray(-0.0, dtype.numpy)
    if opcode == "and":
        return np.asarray(-1).astype(dtype.numpy)
    return np.asarray(identity_of(UFUNCS[opcode], dtype), dtype.numpy)
