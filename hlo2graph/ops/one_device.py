"""What communication between devices means for a device that is alone: next to nothing.

A reduction over one device, a gather from it, a broadcast from it give what went in. A permutation
gives it too where the device sends to itself, and zeros where nobody sends to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.asynchronous import empty
from hlo2graph.ops.device import INLINED, DeviceRule, Element, Expr, Index, NoDevice
from hlo2graph.ops.expect import written
from hlo2graph.ops.groups import is_alone
from hlo2graph.ops.spec import Evaluator, HostValue

NEEDS_DEVICES = "needs several devices, and programs run on one"
_REFUSED = NoDevice(NEEDS_DEVICES)


def why_not(instr: Instruction) -> str | None:
    """Return why `instr` cannot run on a device that is alone; None where it can."""
    if instr.opcode == "ragged-all-to-all" or "slice_sizes" in instr.attrs:
        return NEEDS_DEVICES
    return None if is_alone(instr) else NEEDS_DEVICES


def sends_nothing(instr: Instruction) -> bool:
    """Tell whether `instr` is a permutation in which nobody sends."""
    return "0" not in str(instr.attrs.get("source_target_pairs", "0"))


def host(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    """Return the operands, or zeros; for a start, operands and result."""
    if why_not(instr) is not None:
        raise UnsupportedError(f"{instr.opcode} cannot run here: it {NEEDS_DEVICES}", instr.span)
    given = tuple(operands)
    result = tuple(np.zeros_like(o) for o in given) if sends_nothing(instr) else given
    is_pair = instr.opcode.endswith("-start") and not instr.opcode.startswith("all-reduce")
    if not is_pair:
        return result if isinstance(instr.shape, TupleShape) else result[0]
    assert isinstance(instr.shape, TupleShape)
    context = tuple(map(empty, instr.shape.parts[2:]))
    if isinstance(instr.shape.parts[1], Shape):
        return (given[0], result[0], *context)
    return (given, result, *context)


def device(instr: Instruction) -> DeviceRule | NoDevice:
    """Return the rule for one array; tuples of them are taken apart before."""
    if why_not(instr) is not None:
        return _REFUSED
    if not isinstance(instr.shape, Shape) or len(instr.operands) != 1:
        return INLINED
    return _zero if sends_nothing(instr) else _same


def _same(element: Element, _: Instruction, index: Index) -> Expr:
    return element.operand(0, index)


def _zero(element: Element, instr: Instruction, _: Index) -> Expr:
    return element.bind(written(instr).dtype, "{}")


def with_devices(instr: Instruction, operands: Sequence[AnyShape], devices: int) -> Instruction:
    """Return `instr` with `devices` in its group where the text leaves out that it has several.

    The text leaves it out where groups are empty; then the module's header, or a size that grows
    or shrinks, says it.
    """
    if "source_target_pairs" in instr.attrs or why_not(instr) is not None:
        return instr
    count = max(devices, _ratio(instr, operands))
    if count == 1:
        return instr
    return replace(instr, attrs={**instr.attrs, "replica_groups": f"[1,{count}]<=[{count}]"})


def _ratio(instr: Instruction, operands: Sequence[AnyShape]) -> int:
    """Return how many devices the sizes of an all-gather, reduce-scatter or all-to-all imply."""
    if instr.opcode == "all-to-all" and "dimensions" not in instr.attrs:
        return len(operands)
    given_leaves = (leaf for shape in operands for leaf in shape.leaves())
    for given, result in zip(given_leaves, instr.shape.leaves(), strict=True):
        for a, b in zip(given.dims, result.dims, strict=True):
            if a != b:
                return max(a, b) // max(1, min(a, b))
    return 1
