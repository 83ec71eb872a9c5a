"""Device rules of what compares, chooses and converts elements at one index."""

from __future__ import annotations

import numpy as np

from hlo2graph.hlo import Instruction
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import in_total_order, integer, written

_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


def compare(element: Element, instr: Instruction, index: Index) -> Expr:
    """Compare two elements, by total order where the type asks for it."""
    a, b = (element.operand(k, index) for k in (0, 1))
    if in_total_order(instr, element.shape(0).dtype):
        a, b = f"hlo::total_order({a})", f"hlo::total_order({b})"
    return element.bind(written(instr).dtype, f"{a} {_SIGNS[str(instr.attrs['direction'])]} {b}")


def select(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose between two elements, both computed: branches would hide them from later uses."""
    chosen = element.operand(0, index if element.shape(0).rank else ())
    on_true, on_false = (element.operand(k, index) for k in (1, 2))
    return element.bind(written(instr).dtype, f"{chosen} ? {on_true} : {on_false}")


def convert(element: Element, instr: Instruction, index: Index) -> Expr:
    """Convert as HLO does: saturating, rounding to nearest even."""
    target = written(instr).dtype
    return element.bind(target, f"hlo::convert<hlo::{target}>({element.operand(0, index)})")


def bitcast_convert(element: Element, instr: Instruction, index: Index) -> Expr:
    """Reinterpret bits; a dimension of parts appears or vanishes where the widths differ."""
    source, target = element.shape(0).dtype, written(instr).dtype
    if source.bits == target.bits:
        value = element.operand(0, index)
        return element.bind(target, f"hlo::bitcast<hlo::{target}, hlo::{source}>({value})")
    if source.bits > target.bits:
        value = element.operand(0, index[:-1])
        part = f"hlo::part<hlo::{target}, hlo::{source}, {target.bits}>({value}, {index[-1]})"
        return element.bind(target, part)
    parts = element.shape(0).dims[-1]
    values = [element.operand(0, (*index, str(k))) for k in range(parts)]
    whole = f"hlo::joined<hlo::{target}, hlo::{source}, {source.bits}>({', '.join(values)})"
    return element.bind(target, whole)


def reduce_precision(element: Element, instr: Instruction, index: Index) -> Expr:
    """Keep the bits asked for."""
    dtype = written(instr).dtype
    kept = f"hlo::{dtype}, {integer(instr, 'exponent_bits')}, {integer(instr, 'mantissa_bits')}"
    return element.bind(dtype, f"hlo::ReducePrecision<{kept}>::of({element.operand(0, index)})")


def stochastic_convert(element: Element, instr: Instruction, index: Index) -> Expr:
    """Round up or down with the probability that the random bits say."""
    source, target = element.shape(0).dtype, written(instr).dtype
    value, random = (element.operand(k, index) for k in (0, 1))
    kinds = f"hlo::{target}, hlo::{source}"
    return element.bind(target, f"hlo::stochastic_convert<{kinds}>({value}, {random})")


def map_(element: Element, instr: Instruction, index: Index) -> Expr:
    """Apply the region to the elements at this index."""
    arguments = [element.operand(k, index) for k in range(len(instr.operands))]
    (found,) = element.call(str(instr.attrs["to_apply"]), arguments)
    return found


def device_id(element: Element, instr: Instruction, _: Index) -> Expr:
    """Return 0: programs run on one device."""
    return element.bind(written(instr).dtype, "0u")


def batch_norm_inference(element: Element, instr: Instruction, index: Index) -> Expr:
    """Scale and shift by the statistics given, in at least float32."""
    feature = (index[integer(instr, "feature_index")],)
    value = element.operand(0, index)
    scale, offset, mean, variance = (element.operand(k, feature) for k in range(1, 5))
    spread = f"hlo::sqrt({variance} + {epsilon(instr)})"
    normal = f"({value} - {mean}) / {spread} * {scale} + {offset}"
    return element.bind(written(instr).dtype, normal)


def epsilon(instr: Instruction) -> Expr:
    """Return the attribute epsilon, which XLA holds as a float32."""
    held = instr.attrs["epsilon"]
    assert isinstance(held, int | float)
    return f"{float(np.float32(held))!r}f"
