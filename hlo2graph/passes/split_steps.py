"""How a reduce is written in two steps: the parts, their results, and what fills no part."""

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
from hlo2graph.ops.folding import neutral_of
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import add_filled, made

MOST_AGAIN = 64  # instructions that are written again for what fills no part


class Regions:
    """Computations that the steps call: of two scalars, one an opcode and element type."""

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

    def outlined(self, stem: str, instructions: Sequence[Instruction]) -> str:
        """Return the name of a new computation whose result is the last of these."""
        count, name = 1, stem
        while name in self._taken or name in self.made:
            count, name = count + 1, f"{stem}.{count}"
        self.made[name] = Computation(name, tuple(instructions), instructions[-1].name)
        return name

    def added_to(self, module: Module) -> Module:
        """Return `module` with them in front; the same one where none was asked for."""
        if not self.made:
            return module
        return replace(module, computations={**self.made, **module.computations})


@dataclass(frozen=True, slots=True)
class Cut:
    """The dimension `dim` is cut into `parts` of `size`; `rest` elements are left.

    So many neighbouring ones as lie `beside` are folded side by side, which divides the size.
    """

    dim: int
    parts: int
    size: int
    rest: int
    beside: int = 1


def become_sum(
    draft: Draft, instr: Instruction, terms: str, dimensions: Sequence[int], regions: Regions
) -> None:
    """Let `instr` be the sum of `terms` over `dimensions`, in their type and then in its own."""
    out, wide = instr.shape, draft.shape(terms).dtype
    assert isinstance(out, Shape)
    zero = add_filled(draft, instr, Shape(wide), np.zeros((), wide.numpy))
    folded: dict[str, Attribute] = {
        "dimensions": tuple(dimensions),
        "to_apply": regions.named("add", wide),
    }
    if out.dtype is wide:
        draft.become(instr.name, made(instr, "reduce", (terms, zero), folded))
        return
    total = draft.add(instr, "reduce", replace(out, dtype=wide), (terms, zero), folded)
    draft.become(instr.name, made(instr, "convert", (total,)))


def wide_type(dtype: DType) -> DType:
    """Return the type that parts are folded in."""
    return DTYPES["f32"] if dtype.is_float and dtype.bits < 32 else dtype


@dataclass(frozen=True, slots=True)
class Steps:
    """Writes both steps of a reduce, whose region in the parts' type is `region`."""

    draft: Draft
    instr: Instruction
    region: str
    opcode: str

    def write(self, name: str, shape: Shape, reduced: Sequence[int], cut: Cut) -> None:
        """Put the second step in the place of the reduce of `name`."""
        draft, instr = self.draft, self.instr
        wide = wide_type(shape.dtype)
        others = [d for d in reduced if d != cut.dim]
        moved = [d + (d > cut.dim) for d in others]  # behind the parts
        parts = self._folded(self._parts(name, shape, cut), [*moved, cut.dim + 1])
        if cut.beside > 1:  # dim is 0, and the only one
            apart = Shape(wide, (cut.parts * cut.beside, *shape.dims[1:]))
            parts = draft.add(instr, "reshape", apart, (parts,))
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

    def _rest(self, shape: Shape, cut: Cut, others: Sequence[int]) -> str:
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
        start = Literal(scalar, neutral_of(self.opcode, shape.dtype))
        neutral = self.draft.add(self.instr, "constant", scalar, payload=start)
        attrs: dict[str, Attribute] = {
            "dimensions": tuple(sorted(reduced)),
            "to_apply": self.region,
        }
        return self.draft.add(
            self.instr, "reduce", Shape(shape.dtype, dims), (name, neutral), attrs
        )

    def _parts(self, name: str, shape: Shape, cut: Cut) -> str:
        """Return the whole parts, in a dimension of their own before that of their elements."""
        if cut.rest:
            name = self.cut_out(name, shape, cut, 0, cut.parts * cut.size)
        if cut.beside > 1:
            wide = (cut.parts, cut.size // cut.beside, cut.beside * prod(shape.dims[1:]))
            return self.draft.add(self.instr, "reshape", Shape(shape.dtype, wide), (name,))
        dims = (*shape.dims[: cut.dim], cut.parts, cut.size, *shape.dims[cut.dim + 1 :])
        order: list[int] = []
        for d in shape.minor_to_major:
            order += [d + 1, d] if d == cut.dim else [d + (d > cut.dim)]
        layout = Layout(tuple(order)) if shape.layout else None
        return self.draft.add(self.instr, "reshape", Shape(shape.dtype, dims, layout), (name,))

    def cut_out(self, name: str, shape: Shape, cut: Cut, start: int, limit: int) -> str:
        """Return elements `start` to `limit` of the dimension that is cut."""
        places = [SliceDim(0, n) for n in shape.dims]
        places[cut.dim] = SliceDim(start, limit)
        dims = (*shape.dims[: cut.dim], limit - start, *shape.dims[cut.dim + 1 :])
        held = replace(shape, dims=dims)
        return self.draft.add(self.instr, "slice", held, (name,), {"slice": tuple(places)})

    def _widened(self, name: str) -> str:
        shape = self.draft.shape(name)
        wide = wide_type(shape.dtype)
        if wide is shape.dtype:
            return name
        return self.draft.add(self.instr, "convert", replace(shape, dtype=wide), (name,))


@dataclass(slots=True)
class _Rest:
    """Writes again, for what fills no part, the elementwise work that the reduce's input comes of.

    Else that input would have two readers, and might have to go through memory for them.
    """

    steps: Steps
    shape: Shape  # of the input, its reduced dimensions merged
    cut: Cut
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
