"""What communication between devices means for a device that is alone: next to nothing.

A reduction over one device, a gather from it, a broadcast from it give what went in. A permutation
gives it too where the device sends to itself, and zeros where nobody sends to it; an exchange of
ragged rows moves rows within it. Devices that the text names but the module's header does not have
contribute nothing to a reduction, and are sent to in vain, as XLA has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.asynchronous import empty
from hlo2graph.ops.device import INLINED, DeviceRule, Element, Expr, Index, NoDevice
from hlo2graph.ops.expect import host_arrays, written
from hlo2graph.ops.groups import is_alone, pairs_of
from hlo2graph.ops.spec import Array, Evaluator, HostValue

NEEDS_DEVICES = "needs several devices, and programs run on one"
_REFUSED = NoDevice(NEEDS_DEVICES)


def why_not(instr: Instruction) -> str | None:
    """Return why `instr` cannot run on a device that is alone; None where it can."""
    return None if is_alone(instr) and "slice_sizes" not in instr.attrs else NEEDS_DEVICES


def among_one(instr: Instruction) -> Instruction:
    """Return `instr`, of a module for one device, without the devices that are not there.

    What cannot do without them (a gather of several parts, a device that waits for another) is
    left as it is.
    """
    if instr.opcode.startswith("all-reduce"):
        return replace(instr, attrs={**instr.attrs, "replica_groups": "{}"})
    sources = [source for source, target in pairs_of(instr) if target == 0]
    if "source_target_pairs" not in instr.attrs or any(sources):
        return instr
    pairs = "{{0,0}}" if sources else "{}"
    return replace(instr, attrs={**instr.attrs, "source_target_pairs": pairs})


def sends_nothing(instr: Instruction) -> bool:
    """Tell whether `instr` is a permutation in which nobody sends."""
    return "0" not in str(instr.attrs.get("source_target_pairs", "0"))


def host(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    """Return the operands, or zeros; for a start, operands and result.

    Modules for several devices are refused before anything runs.
    """
    instr = among_one(instr)
    if why_not(instr) is not None:
        raise UnsupportedError(f"{instr.opcode} cannot run here: it {NEEDS_DEVICES}", instr.span)
    given = tuple(operands)
    if instr.opcode == "ragged-all-to-all":
        return _rows_moved(host_arrays(operands))
    result = tuple(np.zeros_like(o) for o in given) if sends_nothing(instr) else given
    is_start = instr.opcode.endswith("-start") and not instr.opcode.startswith("all-reduce")
    if not is_start or isinstance(instr.shape, Shape):
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
    if instr.opcode == "ragged-all-to-all":
        return _row_moved
    if not isinstance(instr.shape, Shape) or len(instr.operands) != 1:
        return INLINED
    return _zero if sends_nothing(instr) else _same


def _same(element: Element, _: Instruction, index: Index) -> Expr:
    return element.operand(0, index)


def _zero(element: Element, instr: Instruction, _: Index) -> Expr:
    return element.bind(written(instr).dtype, "{}")


def _rows_moved(given: Sequence[Array]) -> Array:
    """Move each block of rows to where it goes; rows that are not there are left out.

    Operands: the rows, what the result holds elsewhere, where each block starts, how many rows it
    has, where it goes, and how many rows are received, which says nothing new to one device.
    """
    rows, target, starts, sizes, places, _ = given
    result = target.copy()
    for start, size, place in zip(*map(_numbers, (starts, sizes, places)), strict=True):
        for step in range(size):
            if 0 <= start + step < len(rows) and 0 <= place + step < len(result):
                result[place + step] = rows[start + step]
    return result


def _numbers(array: Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _row_moved(element: Element, instr: Instruction, index: Index) -> Expr:
    rows, blocks = element.shape(0), element.shape(2)
    dtype, count = written(instr).dtype, blocks.elements
    source = element.variable(blocks.dtype, "-1")
    with element.block(f"for (int block = 0; block < {count}; ++block)"):
        at = element.split("block", blocks.dims)
        start, size, place = (element.operand(k, at) for k in (2, 3, 4))
        step = element.bind(blocks.dtype, f"{index[0]} - {place}")
        inside = f"{step} >= 0 && {step} < {size}"
        element.line(f"if ({inside}) {source} = {start} + {step};")
    kept = element.operand(1, index)
    result = element.variable(dtype, kept)
    there = f"{source} >= 0 && {source} < {rows.dims[0]}"
    with element.block(f"if ({there})"):
        row = element.integer(source)
        element.line(f"{result} = {element.operand(0, (row, *index[1:]))};")
    return result


def with_devices(instr: Instruction, operands: Sequence[AnyShape], devices: int) -> Instruction:
    """Return `instr` with `devices` in its group where the text leaves out that it has several.

    The text leaves it out where groups are empty; then the module's header, or a size that grows
    or shrinks, says it. Such a size also says it where each group is of one.
    """
    if "source_target_pairs" in instr.attrs or not is_alone(instr):
        return instr
    is_empty = instr.attrs.get("replica_groups", "{}") == "{}"
    count = max(devices if is_empty else 1, _ratio(instr, operands))
    if count == 1:
        return instr
    return replace(instr, attrs={**instr.attrs, "replica_groups": f"[1,{count}]<=[{count}]"})


def _ratio(instr: Instruction, operands: Sequence[AnyShape]) -> int:
    """Return how many devices the sizes of an all-gather, reduce-scatter or all-to-all imply."""
    if instr.opcode == "all-to-all" and "dimensions" not in instr.attrs:
        return len(operands)
    if instr.opcode == "ragged-all-to-all":
        return 1
    given_leaves = (leaf for shape in operands for leaf in shape.leaves())
    for given, result in zip(given_leaves, instr.shape.leaves(), strict=True):
        for a, b in zip(given.dims, result.dims, strict=True):
            if a != b:
                return max(a, b) // max(1, min(a, b))
    return 1
