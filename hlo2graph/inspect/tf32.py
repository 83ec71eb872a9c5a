"""How far rounding the operands of products to TF32 moves a program's results.

What a program makes of a rounding is its own affair: a sine of a large product, or a loop that runs
until a residue is small, can make much of it. So where products were rounded to TF32, results may
differ from the exact ones by as much as that rounding itself moves them, some times over: devices
round in other directions and add in other orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from hlo2graph.hlo import Instruction, Module
from hlo2graph.inspect.compare import Tolerance, furthest
from hlo2graph.inspect.reference import host_results
from hlo2graph.ops import OPS
from hlo2graph.ops.own_dot import asks_for_more
from hlo2graph.ops.spec import Array, Evaluator, HostRule, HostValue

TIMES = 4.0
DROPPED = 13  # of the 23 bits of a float32's mantissa
PRODUCTS = ("dot", "convolution")


def moved_by_tf32(module: Module, args: Sequence[Array], want: Sequence[Array]) -> list[float]:
    """Return for each result the furthest that an element is from `want`, the exact results."""
    rounded = host_results(module, args, ROUNDING)
    return [furthest(got, exact) for got, exact in zip(rounded, want, strict=True)]


def loosened(tolerance: Tolerance, moved: float) -> Tolerance:
    """Return the tolerance for a result that TF32 moves so far."""
    return replace(tolerance, absolute=tolerance.absolute + TIMES * moved)


def to_tf32(array: Array) -> Array:
    """Round float32 to the nearest TF32, ties to even; infinities and NaNs stay."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    half = np.uint32((1 << (DROPPED - 1)) - 1)
    odd = (bits >> np.uint32(DROPPED)) & np.uint32(1)
    kept = (bits + half + odd) & ~np.uint32((1 << DROPPED) - 1)
    rounded: Array = kept.view(np.float32).reshape(array.shape)
    return np.where(np.isfinite(array), rounded, array)


def _rounding(opcode: str) -> HostRule:
    exact = OPS[opcode].host

    def rule(instr: Instruction, operands: Sequence[HostValue], evaluator: Evaluator) -> HostValue:
        if asks_for_more(instr):
            return exact(instr, operands, evaluator)
        return exact(instr, [_narrowed(operand) for operand in operands], evaluator)

    return rule


def _narrowed(operand: HostValue) -> HostValue:
    if isinstance(operand, np.ndarray) and operand.dtype == np.float32:
        return to_tf32(operand)
    return operand


ROUNDING: Mapping[str, HostRule] = MappingProxyType({op: _rounding(op) for op in PRODUCTS})
