"""Sums that a scatter makes of floats for few elements, or rows: each looks at all updates.

An element adds those updates whose index is its row's; what it adds of the others is a zero that
changes nothing. That is a fold of updates by elements, which fills a device, and needs neither the
updates in order nor, as sums in memory do, the same order each time. How many updates a row has
does not matter.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integers
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.ops.spec import Computations
from hlo2graph.passes.large.arrays import Arrays

FEWEST = 512  # updates
SORTED = 4096  # updates, from which on other ways sort
MOST_PAIRS = 3 << 24  # of an element and an update, more than which take longer than sorting
MOST_UNSORTED = 3 << 22  # the same where other ways do not sort
_FLOATS = frozenset({"f32", "f64"})


def compares(instr: Instruction, shapes: list[Shape], computations: Computations) -> bool:
    """Tell whether a scatter can be taken apart so, and is better."""
    if len(instr.operands) != 3 or instr.attrs.get("indices_are_sorted") is True:
        return False
    operand, _, update = shapes
    row = operand.dims[1:]
    batch = update.rank - len(row)
    updates = prod(update.dims[:batch])
    most = MOST_PAIRS if updates >= SORTED else MOST_UNSORTED
    return (
        integers(instr, "inserted_window_dims", ()) == (0,)
        and integers(instr, "scatter_dims_to_operand_dims", ()) == (0,)
        and integers(instr, "update_window_dims", ()) == tuple(range(batch, update.rank))
        and update.dims[batch:] == row
        and operand.dtype.name in _FLOATS
        and updates >= FEWEST
        and operand.elements * updates <= most
        and binary_reducer(computations, str(instr.attrs["to_apply"])) == "add"
    )


def write_compared(to: Arrays) -> None:
    """Put the fold into a scatter's place."""
    operand, indices, update = to.like.operands
    shape = to.shape(operand)
    rows, window = shape.dims[0], prod(shape.dims[1:])
    updates = to.shape(update).elements // window
    index = to.add("reshape", Shape(to.shape(indices).dtype, (updates,)), (indices,))
    added = to.add("reshape", Shape(shape.dtype, (updates, window)), (update,))
    if to.shape(index).dtype.bits < S32.bits:
        index = to.apply("convert", index, to=S32)
    pairs = Shape(to.shape(index).dtype, (updates, rows, window))
    is_own = to.compare(to.broadcast(index, pairs, (0,)), "EQ", to.iota(pairs, 1))
    floats = replace(pairs, dtype=shape.dtype)
    added = to.broadcast(added, floats, (0, 2))
    none = to.filled(floats, -0.0)
    chosen = to.add("select", floats, (is_own, added, none))
    sums = to.add(
        "reduce",
        Shape(shape.dtype, (rows, window)),
        (chosen, to.filled(Shape(shape.dtype), 0)),
        dimensions=(0,),
        to_apply=to.like.attrs["to_apply"],
    )
    sums = to.add("reshape", replace(shape, layout=None), (sums,))
    is_none = to.compare(sums, "EQ", to.like_filled(sums, 0))
    to.end(to.apply("select", is_none, operand, to.apply("add", operand, sums)))
