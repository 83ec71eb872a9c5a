"""Take large LU factors apart into panels of columns, solves of triangles and products.

In and out: a Module of the same meaning. A matrix is halved: the left columns are factored, their
exchanges of rows done to the right ones, and what these then are above comes of a triangle, below
of a product, which is factored in turn. A panel is what a block keeps in its registers.

The order of the rows is known on the way, so nothing need follow the exchanges one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_lapack import call_of
from hlo2graph.ops.custom_target import result_leaves, target_of
from hlo2graph.ops.linalg import leaf_columns
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays, by_columns
from hlo2graph.passes.large.triangles import product, solved
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import is_splat
from hlo2graph.passes.split_steps import Regions

_BESIDE: dict[str, Attribute] = {
    "left_side": True,
    "lower": True,
    "unit_diagonal": True,
    "transpose_a": "NO_TRANSPOSE",
}
_PANEL = "LuDecomposition"  # whose pivots count from 0, and which tells the order of the rows
_ORDER = "cu_lu_pivots_to_permutation"


def split_lus(module: Module) -> Module:
    """Return `module` with LU factors of panels that a block keeps in registers."""
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode == "custom-call"]:
            name = _factors(instr)
            if name is None or not draft.is_pure(instr) or not is_settled(instr.shape):
                continue
            shape = result_leaves(instr)[0]
            rows, columns = shape.dims[-2:]
            if shape.elements and leaf_columns(shape.dtype, rows) < columns:
                _write(Arrays(draft, instr), regions, name)
        return draft.done()

    return regions.added_to(redraft(module, "custom-call", rewrite))


def _factors(instr: Instruction) -> str | None:
    call = call_of(instr)
    return call.name if call and call.name in ("getrf", "lu") else None


def _write(to: Arrays, regions: Regions, name: str) -> None:
    """Put the steps into the place of a call."""
    factors, pivots, order = _Lu(to).of(to.like.operands[0])
    if name == "getrf":
        _use_order(to, order)
        last = _first_without_pivot(to, regions, factors)
        pivots = to.apply("add", pivots, to.like_filled(pivots, 1))
    else:
        last = order
    to.end_with((factors, pivots, last))
    to.draft.drop_if_dead(order)


def _use_order(to: Arrays, order: str) -> None:
    """Let calls that make the order of the rows of pivots less 1 have the one that is known."""
    draft = to.draft
    for pivots in [u.name for u in draft.users_of(to.like.name) if u.attrs.get("index") == 1]:
        for less in [u for u in draft.users_of(pivots) if _is_less_one(draft, u, pivots)]:
            for call in draft.users_of(less.name):
                if _makes_order(call, to.shape(order)) and draft.is_pure(call):
                    draft.redirect(call.name, order)


def _makes_order(instr: Instruction, order: Shape) -> bool:
    """Tell whether an instruction is a call that makes the order of as many rows."""
    if instr.opcode != "custom-call" or target_of(instr) != _ORDER:
        return False
    return isinstance(instr.shape, Shape) and instr.shape.dims == order.dims


def _is_less_one(draft: Draft, instr: Instruction, name: str) -> bool:
    """Tell whether an instruction is an array less 1."""
    is_less = instr.opcode == "subtract" and instr.operands[0] == name
    return is_less and is_splat(draft, instr.operands[1], 1)


def _first_without_pivot(to: Arrays, regions: Regions, factors: str) -> str:
    """Return which of U's diagonal, from 1, is the first to be zero, or 0: as LAPACK's info is."""
    shape = to.shape(factors)
    last, size = shape.rank - 1, min(shape.dims[-2:])
    square = to.part(factors, (0, size), (0, size))
    row, column = to.row_and_column(to.shape(square))
    none = to.compare(square, "EQ", to.like_filled(square, 0))
    none = to.apply("and", none, to.compare(row, "EQ", column))
    after = to.apply("add", row, to.like_filled(row, 1))
    found = to.apply("select", none, after, to.like_filled(row, size + 1))
    info = Shape(S32, shape.dims[:-2])
    far = to.filled(Shape(S32), size + 1)
    region = regions.named("minimum", S32)
    dims = (last - 1, last)
    first = to.add("reduce", info, (found, far), dimensions=dims, to_apply=region)
    good = to.compare(first, "GT", to.like_filled(first, size))
    return to.apply("select", good, to.like_filled(first, 0), first)


@dataclass(frozen=True, slots=True)
class _Lu:
    """Writes factors; their pivots count from 0."""

    to: Arrays

    def of(self, name: str) -> tuple[str, str, str]:
        """Return L and U, the pivots, and the order of the rows."""
        to = self.to
        shape = to.shape(name)
        (rows, columns), last = shape.dims[-2:], shape.rank - 1
        most = leaf_columns(shape.dtype, rows)
        if columns <= most:
            return self._leaf(name)
        size = rows if columns > rows else -(-columns // (2 * most)) * most
        left, pivots, order = self.of(to.cut(name, last, 0, size))
        right = self._ordered(to.cut(name, last, size, columns), order)
        corner = to.cut(left, last - 1, 0, size)
        above = solved(to, corner, to.cut(right, last - 1, 0, size), _BESIDE)
        if size == rows:
            return to.join((left, above), last), pivots, order
        below = to.cut(left, last - 1, size, rows)
        rest = to.cut(right, last - 1, size, rows)
        rest = to.apply(
            "subtract", rest, product(to, (below, above), (last, last - 1), to.shape(rest))
        )
        low, others, moves = self.of(to.held(rest))
        below = self._ordered(below, moves)
        found = to.join([to.join(x, last - 1) for x in ((corner, below), (above, low))], last)
        others = to.apply("add", others, to.like_filled(others, size))
        top, bottom = (to.cut(order, last - 1, *part) for part in ((0, size), (size, rows)))
        order = to.held(to.join((top, self._ordered(bottom, moves)), last - 1))
        return found, to.join((pivots, others), last - 1), order

    def _leaf(self, name: str) -> tuple[str, str, str]:
        to = self.to
        shape = to.shape(name)
        batch, rows = shape.dims[:-2], shape.dims[-2]
        numbers = (Shape(S32, (*batch, n)) for n in (min(shape.dims[-2:]), rows))
        whole = TupleShape((by_columns(shape), *numbers))
        attrs: dict[str, Attribute] = {"custom_call_target": _PANEL}
        found = to.draft.add(to.like, "custom-call", whole, (name,), attrs)
        factors, pivots, order = to.draft.leaves(to.like, found)
        return factors, pivots, order

    def _ordered(self, name: str, order: str) -> str:
        """Return the rows of an array, or the elements of a vector, in an order."""
        to = self.to
        shape, batch = to.shape(name), to.shape(order).rank - 1
        sizes = (*(1,) * (batch + 1), *shape.dims[batch + 1 :])
        dims = tuple(range(batch))
        return to.add(
            "gather",
            shape,
            (name, order),
            offset_dims=tuple(range(batch + 1, shape.rank)),
            collapsed_slice_dims=(batch,),
            start_index_map=(batch,),
            operand_batching_dims=dims,
            start_indices_batching_dims=dims,
            index_vector_dim=batch + 1,
            slice_sizes=sizes,
        )
