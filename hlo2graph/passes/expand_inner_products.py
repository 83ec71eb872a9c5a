"""Products of vectors as what they are: multiplications and a sum.

In and out: a Module of the same meaning; a machine may take the sums in another order. A dot none
of whose dimensions is free fills no tile of a product's kernel. As a reduce it shares one with all
that is folded or made of the same vectors, and a long one is folded by many blocks.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, DType, Instruction, Module, Shape
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import numbers
from hlo2graph.passes.split_steps import Regions, become_sum, wide_type


def expand_inner_products(module: Module) -> Module:
    """Return `module` with products of vectors, and of batches of them, written as sums."""
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for dot in [i for i in draft.instructions.values() if i.opcode == "dot"]:
            if draft.is_pure(dot) and _is_inner(draft, dot):
                _expand(draft, dot, regions)
        return draft.done()

    return regions.added_to(redraft(module, "dot", rewrite))


def _is_inner(draft: Draft, dot: Instruction) -> bool:
    """Tell whether the operands' dimensions are all paired, each with the one at its place."""
    if len(dot.operands) != 2 or "sparsity" in dot.attrs:
        return False
    lhs, rhs = (draft.shape(name) for name in dot.operands)
    out = dot.shape
    assert isinstance(out, Shape)
    if not all(is_settled(s) and s.elements and not s.dtype.is_complex for s in (lhs, rhs, out)):
        return False
    wide = wide_type(out.dtype)
    if any(s.dtype.is_integer != wide.is_integer or s.dtype.size > wide.size for s in (lhs, rhs)):
        return False  # its factors would be rounded to the result's type, not its products
    batch = numbers(dot, "lhs_batch_dims")
    paired = batch + numbers(dot, "lhs_contracting_dims")
    there = numbers(dot, "rhs_batch_dims") + numbers(dot, "rhs_contracting_dims")
    same = paired == there and sorted(paired) == list(range(lhs.rank)) and lhs.rank == rhs.rank
    return same and list(batch) == sorted(batch)


def _expand(draft: Draft, dot: Instruction, regions: Regions) -> None:
    out, like = dot.shape, draft.shape(dot.operands[0])
    assert isinstance(out, Shape)
    wide = wide_type(out.dtype)
    shape = replace(like, dtype=wide)
    factors = [_converted(draft, dot, name, wide) for name in dot.operands]
    product = draft.add(dot, "multiply", shape, factors)
    become_sum(draft, dot, product, sorted(numbers(dot, "lhs_contracting_dims")), regions)


def _converted(draft: Draft, dot: Instruction, name: str, dtype: DType) -> str:
    shape = draft.shape(name)
    if shape.dtype is dtype:
        return name
    return draft.add(dot, "convert", replace(shape, dtype=dtype), (name,))
