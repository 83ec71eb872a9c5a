"""async-start/update/done and copy-start/done: the start holds the result, the done hands it out.

`async-start` has the shape ((operands), result, context...). On one device in one order the work
may as well be done at the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.device import INLINED
from hlo2graph.ops.expect import callee, gives, refuse, same, takes, tuple_of
from hlo2graph.ops.spec import Computations, Evaluator, HostValue, Lowering, OpSpec


def empty(shape: AnyShape) -> HostValue:
    """Return zeros in the place of a context, which nothing reads."""
    if isinstance(shape, TupleShape):
        return tuple(empty(part) for part in shape.parts)
    return np.zeros(shape.dims, shape.dtype.numpy)


def _infer_start(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
    called = callee(instr, "calls", known)
    takes(instr, called, operands)
    parts = tuple_of(instr, instr.shape, least=2).parts
    same(instr, parts[0], TupleShape(tuple(operands)), "the first part of its result")
    gives(instr, called, parts[1])
    return instr.shape


def _start(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    result = evaluate(str(instr.attrs["calls"]), operands)
    context = tuple_of(instr, instr.shape).parts[2:]
    return (tuple(operands), result, *(empty(part) for part in context))


def _infer_update(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return tuple_of(instr, operands[0], least=2)


def _update(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return operands[0]


def _infer_done(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return tuple_of(instr, operands[0], least=2).parts[1]


def second_part(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    """Return what a start holds as its result: beside its operands, or alone."""
    started = operands[0]
    return started[1] if isinstance(started, tuple) else started


def _infer_copy_start(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> AnyShape:
    parts = tuple_of(instr, instr.shape, least=3).parts
    for at in (0, 1):
        same(instr, parts[at], operands[0], f"part {at} of its result")
    if not isinstance(parts[2], Shape) or len(parts) != 3:
        refuse(instr, f"has a result of target, source and context, got {instr.shape}")
    return instr.shape


def _copy_start(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    return (operands[0], operands[0], empty(tuple_of(instr, instr.shape).parts[2]))


def _infer_copy_done(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return tuple_of(instr, operands[0], least=3).parts[0]


def _copy_done(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return operands[0][0]


_ATTRS = frozenset({"calls", "async_execution_thread"})
_PREFETCH = frozenset({"cross_program_prefetch_index"})
_STRUCTURE = Lowering.STRUCTURE

ASYNCHRONOUS: tuple[OpSpec, ...] = (
    OpSpec(
        "async-start",
        (0, None),
        _infer_start,
        _start,
        _ATTRS | {"output_to_operand_aliasing"},
        required=frozenset({"calls"}),
        lowering=_STRUCTURE,
        device=INLINED,
    ),
    OpSpec("async-update", 1, _infer_update, _update, _ATTRS, lowering=_STRUCTURE, device=INLINED),
    OpSpec("async-done", 1, _infer_done, second_part, _ATTRS, lowering=_STRUCTURE, device=INLINED),
    OpSpec(
        "copy-start",
        1,
        _infer_copy_start,
        _copy_start,
        _PREFETCH,
        lowering=_STRUCTURE,
        device=INLINED,
    ),
    OpSpec("copy-done", 1, _infer_copy_done, _copy_done, lowering=_STRUCTURE, device=INLINED),
)
