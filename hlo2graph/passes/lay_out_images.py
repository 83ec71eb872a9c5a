"""Laying small images out feature by feature, so that products of points are single products.

In and out: a Module of the same meaning, of which some arrays lie otherwise. A product of points
takes each image's places as a matrix of its own. Where these are small, or no multiple of what is
read at once, a library takes several times as long as it does for the places of all images in one
matrix. They are that where all images of a feature lie together: as the most major dimension the
features then have that of the images inside. Gradients of kernels are one product, too, and need no
sum over images.

The rule, all of it: images of at most MOST_PLACES that are multiplied with a kernel of points; then
all arrays of as many such images that are made and read by what knows no order of bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hlo2graph.hlo import Computation, Instruction, Layout, Module, Shape
from hlo2graph.ops import OPS
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import numbers

MOST_PLACES = 256
FIRST = Layout((3, 2, 0, 1))  # of images, features, rows and columns
BEHIND = Layout((2, 1, 0, 3))  # the same bytes as those of images, rows, columns and features

_MOVING = frozenset({"broadcast", "pad", "reduce", "reshape", "reverse", "slice", "transpose"})
_Images: TypeAlias = tuple[int, int, int]  # how many, rows, columns


def lay_out_images(module: Module) -> Module:
    """Return `module` with the small images of products of points laid out so."""
    return redraft(module, "dot", _laid_out)


def _laid_out(draft: Draft) -> Computation:
    dots = [instr for instr in draft.instructions.values() if instr.opcode == "dot"]
    images = {found for dot in dots if (found := _multiplied(draft, dot))}
    for instr in list(draft.instructions.values()) if images else ():
        shape = instr.shape
        if not isinstance(shape, Shape) or shape.rank != 4:
            continue
        turned = instr.opcode == "dot"
        count, *rest = shape.dims
        size = (count, *(rest[:2] if turned else rest[1:]))
        layout = BEHIND if turned else FIRST
        if size in images and _may_lie(draft, instr, turned):
            draft.become(instr.name, replace(instr, shape=shape.with_layout(layout)))
    return draft.done()


def _multiplied(draft: Draft, dot: Instruction) -> _Images | None:
    """Return what images are multiplied with a kernel of points, if these are."""
    if len(dot.operands) != 2 or numbers(dot, "lhs_batch_dims"):
        return None
    lhs, rhs = (draft.shape(name) for name in dot.operands)
    contracting = numbers(dot, "lhs_contracting_dims")
    if lhs.rank != 4 or rhs.rank != 2 or contracting != (1,) or not lhs.is_row_major:
        return None
    count, _, rows, columns = lhs.dims
    return (count, rows, columns) if count > 1 and 1 < rows * columns <= MOST_PLACES else None


def _may_lie(draft: Draft, instr: Instruction, turned: bool) -> bool:
    """Tell whether nobody depends on how a value lies."""
    if not (OPS[instr.opcode].elementwise or turned or instr.opcode in _MOVING):
        return False
    users = draft.users_of(instr.name)
    return instr.name != draft.root and all(
        OPS[user.opcode].elementwise or user.opcode in _MOVING or user.opcode == "dot"
        for user in users
    )
