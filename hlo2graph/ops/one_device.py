"""What communication between devices means for replica 0 of one: next to nothing.

A program runs as one replica and one partition, whatever its header says, as XLA runs it unless
told otherwise. A reduction gives what went in, a broadcast from device 0 too; a permutation gives
it where the device sends to itself, and zeros where nobody sends to it; an exchange of ragged rows
moves rows within the device. What is put together of other devices' parts, split among them, or
received from one cannot be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.asynchronous import empty
from hlo2graph.ops.device import ByLeaf, DeviceRule, Element, Expr, Index, NoDevice
from hlo2graph.ops.expect import host_arrays, written
from hlo2graph.ops.groups import first_of_group, is_alone, pairs_of
from hlo2graph.ops.spec import Array, Evaluator, HostValue

NEEDS_DEVICES = (
    "needs data of other devices, and programs run as one; lower it for a mesh of one device"
)
IN_PLACE = "sends slices into part of an array (slice_sizes), for which there is no rule"


def why_not(instr: Instruction) -> str | None:
    """Return why `instr` cannot run as one replica; None where it can."""
    if "slice_sizes" in instr.attrs:
        return IN_PLACE
    return None if _is_had(instr) else NEEDS_DEVICES


def _is_had(instr: Instruction) -> bool:
    match instr.opcode.removesuffix("-start"):
        case "all-reduce":
            return True
        case "collective-broadcast":
            return first_of_group(instr) == 0
        case "collective-permute":
            return not any(source for source, target in pairs_of(instr) if target == 0)
        case _:
            return is_alone(instr)


def sends_nothing(instr: Instruction) -> bool:
    """Tell whether `instr` is a permutation in which nobody sends to device 0."""
    return "source_target_pairs" in instr.attrs and all(to for _, to in pairs_of(instr))


def host(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    """Return the operands, or zeros; for a start, operands and result.

    Raises:
        UnsupportedError: it needs other devices, which modules are refused for before they run.
    """
    if (reason := why_not(instr)) is not None:
        raise UnsupportedError(f"{instr.opcode} cannot run here: it {reason}", instr.span)
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


def device(instr: Instruction) -> DeviceRule | ByLeaf | NoDevice:
    """Return the rule for one element: of the operand with its leaf's number, or a zero."""
    if (reason := why_not(instr)) is not None:
        return NoDevice(reason)
    if instr.opcode == "ragged-all-to-all":
        return _row_moved
    return ByLeaf(_zero if sends_nothing(instr) else _same)


def _same(element: Element, _: Instruction, leaf: int, index: Index) -> Expr:
    return element.operand(leaf, index)


def _zero(element: Element, _: Instruction, leaf: int, __: Index) -> Expr:
    return element.bind(element.shape(leaf).dtype, "{}")


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


_RESIZING = frozenset({"all-gather", "reduce-scatter"})  # whose sizes say how many there are


def with_devices(instr: Instruction, operands: Sequence[AnyShape], devices: int) -> Instruction:
    """Return `instr` with `devices` in its group where the text leaves out that it has several.

    The text leaves it out where groups are empty; then the module's header, or a size that grows
    or shrinks, says it. Such a size also says it where each group is of one.
    """
    if "source_target_pairs" in instr.attrs or not is_alone(instr):
        return instr
    count = _ratio(instr, operands)
    if instr.attrs.get("replica_groups", "{}") == "{}" and instr.opcode not in _RESIZING:
        count = max(count, devices)
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
