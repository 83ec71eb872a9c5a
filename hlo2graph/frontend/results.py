"""What the written result of an opcode must be for its text to be read: its form and its size.

XLA's process ends over most of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeGuard

from hlo2graph.hlo import DTYPES, UNBOUNDED, AnyShape, Instruction, Kind, Shape, TupleShape

_NO_DATA = (Kind.TOKEN, Kind.OPAQUE)
_Rule: TypeAlias = Callable[[Instruction, Sequence[AnyShape]], str | None]


def result_fault(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    """Say what keeps an instruction of `RESULTS` from being read, or None."""
    return RESULTS[instr.opcode](instr, operands)


def _tuple(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    if not isinstance(instr.shape, TupleShape):
        return f"tuple gives a tuple, not {_shown(instr.shape)}"
    if len(instr.shape.parts) != len(operands):
        return f"a tuple of {len(instr.shape.parts)} parts has {len(operands)} operands"
    return None


def _reshape(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    (shape,), result = operands, instr.shape
    if not (_has_data(shape) and _has_data(result)):
        return f"reshape takes and gives arrays, got {_shown(shape)} and {_shown(result)}"
    if UNBOUNDED not in (*shape.dims, *result.dims) and result.elements != shape.elements:
        given, wanted = f"{shape.elements} elements of {_shown(shape)}", result.elements
        return f"reshape: cannot turn the {given} into the {wanted} of {_shown(result)}"
    return None


def _dynamic_reshape(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    rank = instr.shape.rank if isinstance(instr.shape, Shape) else 0
    if len(operands) != rank + 1:
        return f"dynamic-reshape takes an array and {rank} sizes, got {len(operands)} operands"
    return None


def _number(instr: Instruction, _: Sequence[AnyShape]) -> str | None:
    if not instr.shape.compatible(Shape(DTYPES["u32"])):
        return f"{instr.opcode} gives u32[], not {_shown(instr.shape)}"
    return None


def _array(instr: Instruction, _: Sequence[AnyShape]) -> str | None:
    if not isinstance(instr.shape, Shape) or instr.shape.dtype.kind in _NO_DATA:
        return f"{instr.opcode} gives an array, not {_shown(instr.shape)}"
    return None


def _copy(instr: Instruction, _: Sequence[AnyShape]) -> str | None:
    if isinstance(instr.shape, Shape) and instr.shape.dtype.kind is Kind.OPAQUE:
        return f"{instr.opcode} gives no opaque[]"
    return None


def _compare(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    shape = operands[0]
    if "type" not in instr.attrs and not _has_data(shape):
        return f"compare takes arrays, got {_shown(shape)}"
    return None


def _data(instr: Instruction, _: Sequence[AnyShape]) -> str | None:
    if not isinstance(instr.shape, TupleShape) or not instr.shape.parts:
        return f"{instr.opcode} gives a tuple of the data and a token, not {_shown(instr.shape)}"
    return None


def _has_data(shape: AnyShape) -> TypeGuard[Shape]:
    return isinstance(shape, Shape) and shape.dtype.kind not in _NO_DATA


def _shown(shape: AnyShape) -> str:
    return shape.without_layout_text()


RESULTS: dict[str, _Rule] = {
    "compare": _compare,
    "copy": _copy,
    "dynamic-reshape": _dynamic_reshape,
    "infeed": _data,
    "map": _array,
    "partition-id": _number,
    "recv": _data,
    "replica-id": _number,
    "reshape": _reshape,
    "tuple": _tuple,
}
