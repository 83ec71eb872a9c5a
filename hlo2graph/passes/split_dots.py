"""Sum in two steps what a library cannot multiply in one: products of images, then their sum.

In and out: a Module of the same meaning; a machine may take the sums in another order. Where the
dimensions that a dot sums up do not lie one inside the other, as images and places where features
stand between them, it is no product of matrices with strides. The outer ones then become a batch,
if that is one, and a reduce sums its products. Where these would take more than MOST_PARTS times
the operands' bytes, the dot stays as it is, and so does one that a kernel of ours multiplies.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape
from hlo2graph.ops.matmul import product_of
from hlo2graph.ops.own_dot import runs_as_own_kernel
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import numbers
from hlo2graph.passes.split_steps import Regions, become_sum, wide_type

MOST_PARTS = 16  # what the products take is written once and read once


def split_dots(module: Module) -> Module:
    """Return `module` with such dots as products of a batch and their sums."""
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for dot in [i for i in draft.instructions.values() if i.opcode == "dot"]:
            if draft.is_pure(dot) and (batch := _batch_of(draft, dot)):
                _split(draft, dot, batch, regions)
        return draft.done()

    return regions.added_to(redraft(module, "dot", rewrite))


def _batch_of(draft: Draft, dot: Instruction) -> int:
    """Return how many of the summed dimensions become a batch; 0 leaves the dot as it is."""
    if len(dot.operands) != 2 or "sparsity" in dot.attrs or numbers(dot, "lhs_batch_dims"):
        return 0
    lhs, rhs = (draft.shape(name) for name in dot.operands)
    out = dot.shape
    assert isinstance(out, Shape)
    if not all(is_settled(s) and s.elements for s in (lhs, rhs, out)) or out.dtype.is_complex:
        return 0
    if runs_as_own_kernel(dot, lhs, rhs) or product_of(dot, lhs, rhs, out):
        return 0
    summed = numbers(dot, "lhs_contracting_dims")
    for count in range(1, len(summed)):
        parts = _parts(draft, dot, count)
        assert isinstance(parts.shape, Shape)
        if parts.shape.size > MOST_PARTS * (lhs.size + rhs.size):
            return 0
        if product_of(parts, lhs, rhs, parts.shape):
            return count
    return 0


def _parts(draft: Draft, dot: Instruction, count: int) -> Instruction:
    """Return the dot whose batch are the first summed dimensions."""
    out, attrs = dot.shape, dict[str, Attribute](dot.attrs)
    assert isinstance(out, Shape)
    for side in ("lhs", "rhs"):
        summed = numbers(dot, f"{side}_contracting_dims")
        attrs[f"{side}_batch_dims"] = summed[:count]
        attrs[f"{side}_contracting_dims"] = summed[count:]
    lhs = draft.shape(dot.operands[0])
    batch = tuple(lhs.dims[d] for d in numbers(dot, "lhs_contracting_dims")[:count])
    shape = Shape(wide_type(out.dtype), (*batch, *out.dims))
    return replace(dot, shape=shape, attrs=attrs)


def _split(draft: Draft, dot: Instruction, count: int, regions: Regions) -> None:
    """Put the sum of the batch's products into the dot's place."""
    found, out = _parts(draft, dot, count), dot.shape
    assert isinstance(out, Shape)
    assert isinstance(found.shape, Shape)
    wide = found.shape.dtype
    parts = draft.add(dot, "dot", found.shape, dot.operands, found.attrs)
    flat = (prod(found.shape.dims[:count]), *out.dims)
    if count > 1:
        parts = draft.add(dot, "reshape", Shape(wide, flat), (parts,))
    become_sum(draft, dot, parts, (0,), regions)
