"""Device rules of linear algebra calls that compute element by element."""

from __future__ import annotations

from hlo2graph.hlo import Instruction
from hlo2graph.ops.custom_target import word_config
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import written


def symmetric_product(element: Element, instr: Instruction, index: Index) -> Expr:
    """Return alpha a a^T + beta c in the lower triangle, c in the upper one (syrk)."""
    dtype = written(instr).dtype
    *batch, row, column = index
    turned = word_config(instr)["transpose"] == "true"
    kept = element.operand(1, index)
    alpha, beta = element.operand(2), element.operand(3)
    total = element.variable(dtype, "{}")
    step = element.fresh("k")
    count = element.shape(0).dims[-2 if turned else -1]
    with element.block(f"for (int {step} = 0; {step} < {count}; ++{step})"):
        places = [(step, at) if turned else (at, step) for at in (row, column)]
        one, other = (element.operand(0, (*batch, *place)) for place in places)
        element.line(f"{total} = hlo::plus_product({total}, {one}, {other});")
    product, added = f"hlo::multiply({alpha}, {total})", f"hlo::multiply({beta}, {kept})"
    return element.bind(dtype, f"{row} >= {column} ? hlo::add({product}, {added}) : {kept}")
