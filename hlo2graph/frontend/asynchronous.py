"""Writes `op-start`, `op-update` and `op-done` out in full, for any op that has no such op.

    s = ((f32[8]), f32[4], s32[]) slice-start(x), slice={[0:4]}

stands for an `async-start` that calls a computation with nothing but the slice in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo2graph.frontend.allowed import ALLOWED_ATTRS, COMMON_ATTRS
from hlo2graph.frontend.context import Context
from hlo2graph.frontend.structure import structure_fault
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import Attribute, Computation, Instruction, TupleShape

_SUFFIXES = ("start", "update", "done")
_THREAD = "async_execution_thread"
_ALIASING = "output_to_operand_aliasing"
_MAIN = "main"
_STARTS_ONLY = frozenset(
    {"control-predecessors", "sharding", "parameter_replication", _THREAD, _ALIASING}
)


@dataclass(frozen=True, slots=True)
class Sugar:
    """`slice-start` is the part "start" of the op "slice"."""

    op: str
    part: str

    @property
    def opcode(self) -> str:
        """The opcode that it stands for."""
        return f"async-{self.part}"

    @property
    def attrs(self) -> frozenset[str]:
        """The attributes it may have."""
        if self.part != "start":
            return COMMON_ATTRS | {_THREAD}
        return ALLOWED_ATTRS[self.op] | {_THREAD, _ALIASING}


def find_sugar(opcode: str) -> Sugar | None:
    """Return what `opcode` is short for, or None."""
    op, _, part = opcode.rpartition("-")
    if part == "start" and f"{op}-done" in ALLOWED_ATTRS:  # send and recv are starts by themselves
        return None
    if part in _SUFFIXES and op in ALLOWED_ATTRS and f"async-{part}" in ALLOWED_ATTRS:
        return Sugar(op, part)
    return None


def write_out(
    short: Instruction, sugar: Sugar, operands: Sequence[Instruction], context: Context, at: Token
) -> Instruction:
    """Return the instruction that `short` stands for; a start's computation goes to `context`."""
    if sugar.part == "start":
        return _start(short, sugar, operands, context, at)
    begun = operands[0] if len(operands) == 1 else None
    if not begun or begun.opcode not in ("async-start", "async-update"):
        context.refuse(f"{short.opcode} needs one operand, an async op that was started", at)
    return replace(short, opcode=sugar.opcode)


def follow(instr: Instruction, op: str | None, start: Instruction, context: Context) -> str | None:
    """Say what an async-update or -done, of `op` if it is short, says otherwise than its start."""
    calls = str(start.attrs["calls"])
    begun = context.computations[calls].result.opcode
    if op and op != begun:
        return f"{start.name} started {begun}, and so no {op}"
    thread, started = instr.attrs.get(_THREAD, _MAIN), start.attrs.get(_THREAD, _MAIN)
    if _THREAD in instr.attrs and thread != started:
        return f"{start.name} runs on the thread {started}, and so not on {thread}"
    if instr.attrs.get("calls", calls) != calls:
        return f"{start.name} calls {calls}, and so not {instr.attrs['calls']}"
    return None


def _start(
    short: Instruction, sugar: Sugar, operands: Sequence[Instruction], context: Context, at: Token
) -> Instruction:
    shape = short.shape
    parts = shape.parts if isinstance(shape, TupleShape) else ()
    if len(parts) < 2 or not isinstance(parts[0], TupleShape):
        context.refuse(f"{short.opcode} needs a shape ((operands), result, ...), got {shape}", at)
    parameters = [
        Instruction(f"param_{i}", "parameter", operand.shape, payload=i, span=short.span)
        for i, operand in enumerate(operands)
    ]
    inner = {name: value for name, value in short.attrs.items() if name not in _STARTS_ONLY}
    names = tuple(p.name for p in parameters)
    root = Instruction(sugar.op, sugar.op, parts[1], names, inner, span=short.span)
    if why := structure_fault(root, parameters, context.computations):
        context.refuse(why, at)
    thread = short.attrs.get(_THREAD)
    wrapped = Computation(
        context.unused(f"async_{short.name}"),
        (*parameters, root),
        root.name,
        str(thread) if thread is not None else None,
        short.span,
    )
    context.computations[wrapped.name] = wrapped
    return replace(short, opcode=sugar.opcode, attrs={"calls": wrapped.name, **_outer(short.attrs)})


def _outer(attrs: Mapping[str, Attribute]) -> dict[str, Attribute]:
    outer = COMMON_ATTRS | {_THREAD, _ALIASING}
    return {name: value for name, value in attrs.items() if name in outer}
