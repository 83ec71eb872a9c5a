"""Stencils: computations whose elements read arrays near their own place, a known way off.

What becomes of an array by one round of a stencil can become of a part of it, and of as much
around that as the rounds reach: several rounds are then one kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hlo2graph.hlo import Computation, Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integers

_At: TypeAlias = "tuple[int, int] | None"  # a dimension of the results and how far off; or anywhere
_Index: TypeAlias = tuple[_At, ...]


@dataclass(frozen=True, slots=True)
class Stencil:
    """How the results, all of `dims`, read the first parameters, of as many.

    low, high: how far off an element reads at most, by dimension, the shorter way around.
    around: of which dimensions the ends are neighbours.
    taps: what an element reads: of which state, and how far off, the shorter way around.
    work: operations that it takes.
    """

    dims: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    around: tuple[bool, ...]
    taps: tuple[tuple[int, tuple[int, ...]], ...]
    work: int


def stencil_of(computation: Computation, states: int) -> Stencil | None:
    """Return how `computation` makes as many arrays of its first `states` parameters.

    None if it reads them from anywhere, or they are not all of the same dimensions.
    """
    roots = [computation.result]
    if roots[0].opcode == "tuple":
        roots = [computation[name] for name in roots[0].operands]
    given = [p.shape for p in computation.parameters[:states]]
    shapes = [shape for shape in given if isinstance(shape, Shape)]
    if not shapes or len(roots) != states or [r.shape for r in roots] != given:
        return None
    dims = shapes[0].dims
    if not dims or any(s.dims != dims or s.dynamic or not s.elements for s in shapes):
        return None
    walk = _Walk(computation, states, dims, _depending(computation, states))
    own = tuple((d, 0) for d in range(len(dims)))
    if not all(walk.visit(root.name, own) for root in roots):
        return None
    return walk.found()


def _depending(computation: Computation, states: int) -> frozenset[str]:
    """Return what depends on the states, by name."""
    found = {p.name for p in computation.parameters[:states]}
    for instr in computation.instructions:
        if not found.isdisjoint(instr.operands):
            found.add(instr.name)
    return frozenset(found)


@dataclass(slots=True)
class _Walk:
    computation: Computation
    states: int
    dims: tuple[int, ...]
    depending: frozenset[str]
    seen: set[tuple[str, _Index]] = field(default_factory=set)
    offsets: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)  # state, how far off
    work: int = 0

    def visit(self, name: str, index: _Index) -> bool:
        """Note what the element of `name` at `index` needs; False if that is anywhere."""
        known = (name, index) in self.seen
        self.seen.add((name, index))
        return known or self._visit(self.computation[name], index)

    def _visit(self, instr: Instruction, index: _Index) -> bool:
        if not isinstance(instr.shape, Shape) or OPS[instr.opcode].effect:
            return False
        if instr.opcode == "parameter":
            assert isinstance(instr.payload, int)
            return instr.payload >= self.states or self._reads(instr.payload, index)
        if instr.opcode in ("constant", "iota"):
            return instr.opcode == "iota" or not instr.shape.rank
        if OPS[instr.opcode].elementwise or instr.opcode == "copy":
            self.work += 1
            return all(self.visit(o, index if self._rank(o) else ()) for o in instr.operands)
        follow = _FOLLOWED.get(instr.opcode)
        if follow is None or self._takes_tuples(instr):
            return self._anywhere(instr)
        return follow(self, instr, index)

    def found(self) -> Stencil:
        """Return what the walk has seen."""
        offsets = list({offset for _, offset in self.offsets} or {(0,) * len(self.dims)})
        ways = [self._nearest(offset) for offset in offsets]
        by_dim = list(zip(*ways, strict=True))
        plain = zip(*offsets, strict=True)
        return Stencil(
            self.dims,
            low=tuple(max(0, -min(way)) for way in by_dim),
            high=tuple(max(0, *way) for way in by_dim),
            around=tuple(way != offset for way, offset in zip(by_dim, plain, strict=True)),
            taps=tuple(sorted({(state, self._nearest(offset)) for state, offset in self.offsets})),
            work=self.work,
        )

    def _nearest(self, offset: tuple[int, ...]) -> tuple[int, ...]:
        """Return the same place by the shorter way, where the ends of a dimension meet."""
        return tuple(
            o - n * ((o > n // 2) - (o < -(n // 2))) for o, n in zip(offset, self.dims, strict=True)
        )

    def _reads(self, state: int, index: _Index) -> bool:
        offset: list[int] = []
        for dim, (at, size) in enumerate(zip(index, self.dims, strict=True)):
            if size > 1 and (at is None or at[0] != dim):
                return False
            offset.append(at[1] if at is not None and size > 1 else 0)
        self.offsets.add((state, tuple(offset)))
        return True

    def _anywhere(self, instr: Instruction) -> bool:
        """Look through what the states have no part in, wherever in it elements are read."""
        if instr.name in self.depending:
            return False
        return all(self.visit(o, (None,) * self._rank(o)) for o in instr.operands)

    def _rank(self, name: str) -> int:
        shape = self.computation[name].shape
        return shape.rank if isinstance(shape, Shape) else 0

    def _takes_tuples(self, instr: Instruction) -> bool:
        return any(not isinstance(self.computation[o].shape, Shape) for o in instr.operands)

    def slice(self, instr: Instruction, index: _Index) -> bool:
        """Each element lies further on in the operand."""
        parts = [p for p in _listed(instr, "slice") if isinstance(p, SliceDim)]
        moved = [
            _moved(at, p.start) if p.stride == 1 else None
            for at, p in zip(index, parts, strict=True)
        ]
        return self.visit(instr.operands[0], tuple(moved))

    def pad(self, instr: Instruction, index: _Index) -> bool:
        """Each element lies further back in the operand, or beyond its ends."""
        parts = [p for p in _listed(instr, "padding") if isinstance(p, PaddingDim)]
        moved = [
            None if part.interior else _moved(at, -part.low)
            for at, part in zip(index, parts, strict=True)
        ]
        return self.visit(instr.operands[0], tuple(moved)) and self.visit(instr.operands[1], ())

    def concatenate(self, instr: Instruction, index: _Index) -> bool:
        """Each element lies in one of the operands."""
        [along], start, fine = integers(instr, "dimensions"), 0, True
        for name in instr.operands:
            moved = (*index[:along], _moved(index[along], -start), *index[along + 1 :])
            fine = fine and self.visit(name, moved)
            shape = self.computation[name].shape
            assert isinstance(shape, Shape)
            start += shape.dims[along]
        return fine

    def broadcast(self, instr: Instruction, index: _Index) -> bool:
        """Elements have a place in some of the dimensions."""
        kept = tuple(index[d] for d in integers(instr, "dimensions", ()))
        return self.visit(instr.operands[0], kept)

    def transpose(self, instr: Instruction, index: _Index) -> bool:
        """Dimensions change their places."""
        source: list[_At] = [None] * len(index)
        for at, dim in zip(index, integers(instr, "dimensions", ()), strict=True):
            source[dim] = at
        return self.visit(instr.operands[0], tuple(source))

    def reshape(self, instr: Instruction, index: _Index) -> bool:
        """Dimensions of one element come and go; others are parted or joined."""
        before, after = self.computation[instr.operands[0]].shape, instr.shape
        assert isinstance(before, Shape)
        assert isinstance(after, Shape)
        live = [at for at, size in zip(index, after.dims, strict=True) if size > 1]
        if [n for n in before.dims if n > 1] != [n for n in after.dims if n > 1]:
            return self._anywhere(instr)
        places = iter(live)
        source = tuple(next(places) if size > 1 else None for size in before.dims)
        return self.visit(instr.operands[0], source)


_FOLLOWED = {
    "broadcast": _Walk.broadcast,
    "concatenate": _Walk.concatenate,
    "pad": _Walk.pad,
    "reshape": _Walk.reshape,
    "slice": _Walk.slice,
    "transpose": _Walk.transpose,
}


def _moved(at: _At, by: int) -> _At:
    return None if at is None else (at[0], at[1] + by)


def _listed(instr: Instruction, name: str) -> Sequence[object]:
    held = instr.attrs.get(name, ())
    return held if isinstance(held, tuple) else ()
