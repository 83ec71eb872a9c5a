"""Take large Cholesky factors and triangular solves apart into small ones and products.

In and out: a Module of the same meaning. A block factors, or solves with, a triangle that it keeps
at hand; what other rows need of its result is a product of matrices, subtracted before their turn
comes. So few steps follow each other, and most of the work is products, which fill a device.

- cholesky, and LAPACK's potrf of a lower triangle: panels of columns, from left to right. A very
  large matrix is halved first, so that its parts are put together of few panels each.
- triangular-solve: blocks of the triangle's diagonal, in the order of substitution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from hlo2graph.hlo import (
    DTYPES,
    Computation,
    Instruction,
    Module,
    PaddingDim,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_lapack import call_of
from hlo2graph.ops.linalg import largest_block
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays
from hlo2graph.passes.large.triangles import BELOW, conjugate, less, real_part, solved
from hlo2graph.passes.redraft import redraft

MOST_PANELS = 32
FEW_PANELS = 4
MOST_BLOCKS = 512  # along a side; what has more fills a device's memory, and a module with steps


def split_factors(module: Module) -> Module:
    """Return `module` with factors and solves of triangles that a block keeps at hand."""
    for opcode in ("custom-call", "cholesky", "triangular-solve"):
        module = redraft(module, opcode, partial(_split, opcode))
    return module


def _split(opcode: str, draft: Draft) -> Computation:
    for instr in [i for i in draft.instructions.values() if i.opcode == opcode]:
        if not draft.is_pure(instr) or not all(
            isinstance(draft[o].shape, Shape) and is_settled(draft.shape(o)) for o in instr.operands
        ):
            continue
        if opcode == "triangular-solve":
            _split_solve(Arrays(draft, instr))
        elif opcode == "cholesky":
            _split_cholesky(Arrays(draft, instr))
        elif _factors_lower(instr):
            _split_potrf(Arrays(draft, instr))
    return draft.done()


def _is_large(shape: Shape) -> bool:
    block = largest_block(shape.dtype)
    return bool(shape.elements) and block > 0 and block < shape.dims[-1] <= MOST_BLOCKS * block


def _factors_lower(instr: Instruction) -> bool:
    call = call_of(instr)
    return call is not None and call.name == "potrf" and call.options["uplo"] == "L"


# ---- factors --------------------------------------------------------------------------------


def _split_cholesky(to: Arrays) -> None:
    name = to.like.operands[0]
    shape = to.shape(name)
    if not _is_large(shape):
        return
    lower = bool(to.like.attrs.get("lower", False))
    held = name if lower else _adjoint(to, name)
    found, _ = _Factor(to, informs=False).of(held)
    last = shape.rank - 1
    corner = to.cut(found, last, shape.dims[-1] - 1, shape.dims[-1])
    corner = real_part(to, to.cut(corner, last - 1, shape.dims[-1] - 1, shape.dims[-1]))
    batch = to.add("reshape", Shape(to.shape(corner).dtype, shape.dims[:-2]), (corner,))
    bad = to.compare(batch, "NE", batch)
    whole = to.shape(found)
    spread = to.broadcast(bad, replace(whole, dtype=DTYPES["pred"]), range(shape.rank - 2))
    found = to.apply("select", spread, to.like_filled(found, float("nan")), found)
    to.end(found if lower else _adjoint(to, found))


def _split_potrf(to: Arrays) -> None:
    """The other triangle stays, and all of a matrix that has no factor."""
    name = to.like.operands[0]
    shape = to.shape(name)
    if not _is_large(shape):
        return
    found, info = _Factor(to, informs=True).of(name)
    lower = _is_lower(to, shape)
    good = to.compare(info, "EQ", to.like_filled(info, 0))
    spread = to.broadcast(good, to.shape(lower), range(shape.rank - 2))
    kept = to.apply("select", to.apply("and", lower, spread), found, name)
    to.end_with((kept, info))


@dataclass(frozen=True, slots=True)
class _Factor:
    """Writes lower factors; with `informs`, also the first leading minor that has none, or 0."""

    to: Arrays
    informs: bool

    def of(self, name: str) -> tuple[str, str]:
        """Return the factor, zeros above it, and what is wrong with it."""
        shape = self.to.shape(name)
        size, block = shape.dims[-1], largest_block(shape.dtype)
        if size > MOST_PANELS * block:
            return self._by_halves(name, size // 2 // block * block)
        return self._by_panels(name, block)

    def _by_halves(self, name: str, size: int) -> tuple[str, str]:
        to = self.to
        low, info = self.of(to.part(name, (0, size), (0, size)))
        rows = (size, to.shape(name).dims[-1])
        below = solved(to, low, to.part(name, rows, (0, size)), BELOW)
        rest = less(to, to.part(name, rows, rows), below, below)
        high, later = self.of(rest)
        last = to.shape(name).rank - 1
        left = to.join((low, below), last - 1)
        right = self._under_zeros(high, size)
        return to.join((left, right), last), self._first(info, later, size)

    def _by_panels(self, name: str, block: int) -> tuple[str, str]:
        """Take panels off the left; the next one does not wait for what is taken of the rest."""
        to = self.to
        whole, last = to.shape(name).dims[-1], to.shape(name).rank - 1
        corner, under, rest = self._parted(name, min(block, whole))
        panels: list[str] = []
        info, start = "", 0
        while True:
            size = to.shape(corner).dims[-1]
            factor, wrong = self._leaf(corner)
            info = self._first(info, wrong, start) if info else wrong
            if not under:
                panels.append(self._under_zeros(factor, start))
                return to.join(panels, last), info
            below = solved(to, factor, under, BELOW)
            panels.append(self._under_zeros(to.join((factor, below), last - 1), start))
            start += size
            corner, under, rest = self._less(rest, below, block)

    def _less(self, name: str, below: str, block: int) -> tuple[str, str, str]:
        """Return the parts of a matrix less what a panel makes of them.

        The panel has a product of its own, and where much is behind, its corner has, too: so that
        its factor need not wait for what is below it. What is needed first is written first.
        """
        to, last = self.to, self.to.shape(name).rank - 1
        whole = to.shape(name).dims[-1]
        size = min(block, whole)
        near = to.cut(below, last - 1, 0, size)
        if size == whole:
            return less(to, name, near, near), "", ""
        corner, under, rest = self._parted(name, size)
        far = to.cut(below, last - 1, size, whole)
        if whole > FEW_PANELS * block:
            corner, under = less(to, corner, near, near), less(to, under, far, near)
        else:
            panel = less(to, to.cut(name, last, 0, size), below, near)
            corner, under = (to.cut(panel, last - 1, *p) for p in ((0, size), (size, whole)))
        return corner, under, less(to, rest, far, far)

    def _parted(self, name: str, size: int) -> tuple[str, str, str]:
        """Return the corner of some rows, what is below it, and what is right of that."""
        to = self.to
        whole = to.shape(name).dims[-1]
        if size == whole:
            return name, "", ""
        corner, behind = (0, size), (size, whole)
        under, rest = (to.part(name, behind, columns) for columns in (corner, behind))
        return to.part(name, corner, corner), under, rest

    def _leaf(self, name: str) -> tuple[str, str]:
        to, shape = self.to, self.to.shape(name)
        if not self.informs:
            return to.add("cholesky", shape, (name,), lower=True), ""
        numbers = Shape(S32, shape.dims[:-2])
        whole = TupleShape((shape, numbers))
        names = ("api_version", "backend_config", "custom_call_target")
        attrs = {n: to.like.attrs[n] for n in names if n in to.like.attrs}
        found = to.draft.add(to.like, "custom-call", whole, (name,), attrs)
        factor, info = to.draft.leaves(to.like, found)
        return _lower_of(to, factor), info

    def _first(self, info: str, later: str, start: int) -> str:
        """Return which minor is the first to be wrong, `later` counting from `start`."""
        if not self.informs:
            return ""
        to = self.to
        none = to.like_filled(info, 0)
        moved = to.apply("add", later, to.like_filled(later, start))
        moved = to.apply("select", to.compare(later, "EQ", none), none, moved)
        return to.apply("select", to.compare(info, "EQ", none), moved, info)

    def _under_zeros(self, name: str, rows: int) -> str:
        if not rows:
            return name
        to, shape = self.to, self.to.shape(name)
        zero = to.filled(Shape(shape.dtype), 0)
        return to.padded(name, shape.rank - 2, PaddingDim(rows, 0), zero)


def _lower_of(to: Arrays, name: str) -> str:
    lower = _is_lower(to, to.shape(name))
    return to.apply("select", lower, name, to.like_filled(name, 0))


def _is_lower(to: Arrays, shape: Shape) -> str:
    """Return which elements of matrices are on the diagonal, or below it."""
    row, column = to.row_and_column(shape)
    return to.compare(row, "GE", column)


def _split_solve(to: Arrays) -> None:
    a, b = to.like.operands
    if _is_large(to.shape(a)):
        names = ("left_side", "lower", "unit_diagonal", "transpose_a")
        how = {name: to.like.attrs[name] for name in names if name in to.like.attrs}
        to.end(solved(to, a, b, how))


def _adjoint(to: Arrays, name: str) -> str:
    last = to.shape(name).rank - 1
    return conjugate(to, to.exchanged(name, last - 1, last))
