"""What devices take, in nanoseconds: one table for the passes that weigh one way against another.

The figures are those of today's data-centre GPUs (small kernels, on an H200), of every target
alike, so that a plan depends on its program alone. A sum of them predicts no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops.expect import integers

LAUNCH_NS = 1000  # of a kernel: elementwise, of small arrays
FOLD_NS = 1000  # more, where threads fold together
OWN_NS = 4000  # more, of a sort, a scatter and the like
CALL_NS = 6000  # of a library
LOOP_NS = 10_000  # of a loop or a branch, whatever it does
PRODUCT_STEP_NS = 4  # more for each step of a sum of products in a kernel of our own
BYTES_EACH_NS = 4000  # that memory moves
STEPS_EACH_NS = 20_000  # cheap operations
PRODUCTS_EACH_NS = 100_000  # of a library, on tensor cores


def steps_of(dot: Instruction, lhs: AnyShape) -> int:
    """Return how many products make an element of a dot's result."""
    assert isinstance(lhs, Shape)
    return prod(lhs.dims[d] for d in integers(dot, "lhs_contracting_dims", ()))


def library_ns(instr: Instruction, shapes: Sequence[AnyShape]) -> int:
    """Return what a library's call takes, given the operands' shapes."""
    moved = sum(shape.size for shape in (instr.shape, *shapes)) // BYTES_EACH_NS
    if instr.opcode != "dot":
        return CALL_NS + moved
    products = sum(leaf.elements for leaf in instr.shape.leaves()) * steps_of(instr, shapes[0])
    return CALL_NS + max(moved, products // PRODUCTS_EACH_NS)
