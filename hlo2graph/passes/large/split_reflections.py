"""Take QR factors apart into panels of columns and products, and multiply reflections out by these.

In and out: a Module of the same meaning. Reflections that follow each other are one step,
I - V T V^H, where V has their vectors as columns. With M = I + U D, of what is above the diagonal
in V^H V and the reflections' factors D, T is D M^-1: so a triangle is solved, and T never made.

- geqrf: a matrix is halved. The left columns are factored, and what their reflections make of the
  right ones is factored in turn. A panel is what a block keeps in its registers.
- orgqr: blocks of reflections, from the last to the first; where one begins, the matrix that it is
  multiplied by is still a unit matrix to the left and above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.hlo import (
    Attribute,
    Computation,
    Instruction,
    Module,
    PaddingDim,
    Shape,
    TupleShape,
)
from hlo2graph.ops.custom_lapack import call_of
from hlo2graph.ops.custom_target import result_leaves
from hlo2graph.ops.linalg import largest_block, leaf_columns
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays, by_columns, resized
from hlo2graph.passes.large.triangles import conjugate, product, solved
from hlo2graph.passes.redraft import redraft

FEWEST = 8  # reflections that are multiplied out together
_FACTORS, _PRODUCTS = ("geqrf",), ("orgqr", "ungqr")
_PANEL = "Qr"


def split_reflections(module: Module) -> Module:
    """Return `module` with QR factors of panels, and products for those of reflections."""
    return redraft(module, "custom-call", _split)


def _split(draft: Draft) -> Computation:
    for instr in [i for i in draft.instructions.values() if i.opcode == "custom-call"]:
        call = call_of(instr)
        if call is None or not draft.is_pure(instr) or not is_settled(instr.shape):
            continue
        shape = result_leaves(instr)[0]
        if not shape.elements:
            continue
        if call.name in _PRODUCTS and _is_worth_it(draft, instr):
            _multiply_out(Arrays(draft, instr))
        elif call.name in _FACTORS and _is_large(shape):
            to = Arrays(draft, instr)
            to.end_with(_factor(to, instr.operands[0]))
    return draft.done()


def _is_large(shape: Shape) -> bool:
    return leaf_columns(shape.dtype, shape.dims[-2]) < shape.dims[-1]


def _is_worth_it(draft: Draft, instr: Instruction) -> bool:
    count = draft.shape(instr.operands[1]).dims[-1]
    block = largest_block(draft.shape(instr.operands[0]).dtype)
    return count >= FEWEST and block > 0 and not isinstance(instr.shape, TupleShape)


# ---- factors --------------------------------------------------------------------------------


def _factor(to: Arrays, name: str) -> tuple[str, str]:
    """Return R with the reflections' vectors below it, and their factors."""
    shape = to.shape(name)
    (rows, columns), last = shape.dims[-2:], shape.rank - 1
    most = leaf_columns(shape.dtype, rows)
    if columns <= most:
        return _panel(to, name)
    size = rows if columns > rows else -(-columns // (2 * most)) * most
    left, factors = _factor(to, to.cut(name, last, 0, size))
    step = _Reflections.of(to, left, factors)
    right = to.held(step.applied(to.cut(name, last, size, columns)))
    if size == rows:
        return to.join((left, right), last), factors
    low, others = _factor(to, to.cut(right, last - 1, size, rows))
    right = to.join((to.cut(right, last - 1, 0, size), low), last - 1)
    return to.join((left, right), last), to.join((factors, others), last - 1)


def _panel(to: Arrays, name: str) -> tuple[str, str]:
    shape = to.shape(name)
    factors = resized(replace(shape, layout=None), shape.rank - 2, min(shape.dims[-2:]))
    whole = TupleShape((by_columns(shape), replace(factors, dims=factors.dims[:-1])))
    attrs: dict[str, Attribute] = {"custom_call_target": _PANEL}
    found = to.draft.add(to.like, "custom-call", whole, (name,), attrs)
    left, right = to.draft.leaves(to.like, found)
    return left, right


# ---- reflections ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reflections:
    """Reflections that follow each other: their vectors, and their factors."""

    to: Arrays
    vectors: str
    factors: str

    @classmethod
    def of(cls, to: Arrays, name: str, factors: str) -> _Reflections:
        """Return those whose vectors stand below a matrix's diagonal, each without its 1."""
        row, column = to.row_and_column(to.shape(name))
        ends = to.apply(
            "select",
            to.compare(row, "EQ", column),
            to.like_filled(name, 1),
            to.like_filled(name, 0),
        )
        return cls(to, to.apply("select", to.compare(row, "GT", column), name, ends), factors)

    def applied(self, name: str) -> str:
        """Return what their product's adjoint makes of a matrix."""
        adjoint = self._across(name, self.vectors)
        scaled = self.to.apply("multiply", adjoint, self._spread(adjoint, along=1, turned=True))
        return self._less(name, self._solved(scaled, "ADJOINT"))

    def multiplied(self, rest: str, width: int) -> str:
        """Return the first columns of their product by a unit matrix, or one that ends in `rest`.

        width: the columns; where there is no `rest`, all of them come of a unit matrix.
        """
        to = self.to
        shape, last = to.shape(self.vectors), to.shape(self.vectors).rank - 1
        rows, count = shape.dims[-2:]
        whole = resized(shape, last, width)
        top = to.cut(self.vectors, last - 1, 0, count if rest else width)
        adjoint = conjugate(to, to.exchanged(top, last - 1, last))
        if rest:
            right = self._across(rest, to.cut(self.vectors, last - 1, count, rows))
            adjoint = to.join((adjoint, right), last)
        turned = self._solved(adjoint, "NO_TRANSPOSE")
        turned = to.apply("multiply", turned, self._spread(turned, along=1, turned=False))
        return self._less(self._unit(whole, rest, count), turned)

    def _unit(self, shape: Shape, rest: str, count: int) -> str:
        """Return a unit matrix, whose rows and columns from `count` on are those of `rest`."""
        to, last = self.to, shape.rank - 1
        row, column = to.row_and_column(shape)
        same = to.compare(row, "EQ", column)
        one = to.filled(shape, 1)
        if not rest:
            return to.apply("select", same, one, to.filled(shape, 0))
        nothing = to.filled(replace(shape, dims=(), layout=None), 0)
        for dim in (last - 1, last):
            rest = to.padded(rest, dim, PaddingDim(count, 0), nothing)
        first = to.apply("and", same, to.compare(row, "LT", to.like_filled(row, count)))
        return to.apply("select", first, one, rest)

    def _across(self, name: str, vectors: str) -> str:
        """Return the vectors' adjoint times a matrix."""
        to, last = self.to, self.to.shape(name).rank - 1
        shape = resized(to.shape(name), last - 1, to.shape(vectors).dims[-1])
        return product(to, (conjugate(to, vectors), name), (last - 1, last - 1), shape)

    def _less(self, name: str, turned: str) -> str:
        """Return a matrix less the vectors times another."""
        to, last = self.to, self.to.shape(name).rank - 1
        made = product(to, (self.vectors, turned), (last, last - 1), to.shape(name))
        return to.apply("subtract", name, made)

    def _solved(self, name: str, transpose: str) -> str:
        """Return what M^-1, or its adjoint, makes of a matrix."""
        square = self._across(self.vectors, self.vectors)
        square = self.to.apply("multiply", square, self._spread(square, along=0, turned=False))
        how: dict[str, Attribute] = {
            "left_side": True,
            "lower": False,
            "unit_diagonal": True,
            "transpose_a": transpose,
        }
        return solved(self.to, square, name, how)

    def _spread(self, name: str, *, along: int, turned: bool) -> str:
        """Return each reflection's factor for all of a column, or of a row, of a matrix."""
        to, shape = self.to, self.to.shape(name)
        factors = conjugate(to, self.factors) if turned else self.factors
        dims = (*range(shape.rank - 2), shape.rank - 1 - along)
        return to.broadcast(factors, shape, dims)


# ---- products -------------------------------------------------------------------------------


def _multiply_out(to: Arrays) -> None:
    a, factors = to.like.operands
    (rows, columns), last = to.shape(a).dims[-2:], to.shape(a).rank - 1
    count, block = to.shape(factors).dims[-1], largest_block(to.shape(a).dtype)
    found = ""
    for start in reversed(range(0, count, block)):
        stop = min(start + block, count)
        vectors = to.part(a, (start, rows), (start, stop))
        step = _Reflections.of(to, vectors, to.cut(factors, last - 1, start, stop))
        found = step.multiplied(found, columns - start)
    to.end(found)
