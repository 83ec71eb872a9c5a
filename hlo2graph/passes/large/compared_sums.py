"""Sums that a scatter makes of floats for few elements: each element looks at all updates.

An element adds those updates whose index is its own; what it adds of the others is a zero that
changes nothing. That is a fold of updates by elements, which fills a device, and needs neither the
updates in order nor, as sums in memory do, the same order each time.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integers
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.ops.spec import Computations
from hlo2graph.passes.large.arrays import Arrays

MOST_PAIRS = 3 << 24  # of an element and an update, more than which take longer than other ways
_FLOATS = frozenset({"f32", "f64"})


def compares(instr: Instruction, shapes: list[Shape], computations: Computations) -> bool:
    """Tell whether a scatter can be taken apart so, and is better."""
    if len(instr.operands) != 3 or instr.attrs.get("indices_are_sorted") is True:
        return False
    operand, _, update = shapes
    return (
        operand.rank == 1
        and integers(instr, "inserted_window_dims", ()) == (0,)
        and operand.dtype.name in _FLOATS
        and operand.elements * update.elements <= MOST_PAIRS
        and binary_reducer(computations, str(instr.attrs["to_apply"])) == "add"
    )


def write_compared(to: Arrays) -> None:
    """Put the fold into a scatter's place."""
    operand, indices, update = to.like.operands
    updates = to.shape(update).elements
    shape = to.shape(operand)
    index, added = (
        to.add("reshape", Shape(to.shape(name).dtype, (updates,)), (name,))
        for name in (indices, update)
    )
    if to.shape(index).dtype.bits < S32.bits:
        index = to.apply("convert", index, to=S32)
    pairs = Shape(to.shape(index).dtype, (updates, shape.elements))
    is_own = to.compare(to.broadcast(index, pairs, (0,)), "EQ", to.iota(pairs, 1))
    floats = replace(pairs, dtype=shape.dtype)
    added = to.broadcast(added, floats, (0,))
    none = to.filled(floats, -0.0)
    chosen = to.add("select", floats, (is_own, added, none))
    sums = to.add(
        "reduce",
        shape,
        (chosen, to.filled(Shape(shape.dtype), 0)),
        dimensions=(0,),
        to_apply=to.like.attrs["to_apply"],
    )
    is_none = to.compare(sums, "EQ", to.like_filled(sums, 0))
    to.end(to.apply("select", is_none, operand, to.apply("add", operand, sums)))
