"""Checks that asynchronous operations are ended once each, and called as what they are."""

from __future__ import annotations

from hlo2graph.errors import Note, VerifyError
from hlo2graph.hlo import Computation, Instruction

_STARTS = {
    "all-gather-done": ("all-gather-start",),
    "all-reduce-done": ("all-reduce-start",),
    "async-done": ("async-start", "async-update"),
    "async-update": ("async-start", "async-update"),
    "collective-permute-done": ("collective-permute-start",),
    "copy-done": ("copy-start",),
    "recv-done": ("recv",),
    "send-done": ("send",),
}
_ENDS = {
    start: tuple(end for end, starts in _STARTS.items() if start in starts)
    for starts in _STARTS.values()
    for start in starts
}
_CARRIED = frozenset({"send", "recv"})  # loops may hold what these began


def check_pairs(computation: Computation) -> None:
    """Raise a VerifyError for an end without its start, or a start that anything else reads."""
    ended: dict[str, Instruction] = {}
    began = {i.name: i for i in computation.instructions if i.opcode in _ENDS}
    for instr in computation.instructions:
        if instr.opcode in _STARTS:
            _check_end(instr, computation[instr.operands[0]])
        if began:
            for name in instr.operands:
                if name in began and began[name].opcode not in _CARRIED:
                    _check_reader(instr, began[name], ended)
    for start in began.values():
        if start.name not in ended and start.opcode not in _CARRIED:
            message = f"{start.opcode}: is never ended by {' or '.join(_ENDS[start.opcode])}"
            raise VerifyError(message, start.span)


def _check_end(instr: Instruction, given: Instruction) -> None:
    starts = _STARTS[instr.opcode]
    note = Note(f"{given.name} is defined here", given.span)
    if given.opcode not in starts:
        if _CARRIED.issuperset(starts) and given.opcode not in _ENDS:
            return
        message = f"{instr.opcode}: needs the result of {starts[0]}, got that of {given.opcode}"
        raise VerifyError(message, instr.span, (note,))
    channels = [i.attrs.get("channel_id") for i in (instr, given)]
    if None not in channels and channels[0] != channels[1]:
        message = f"{instr.opcode}: has channel {channels[0]}, its {given.opcode} {channels[1]}"
        raise VerifyError(message, instr.span, (note,))


def _check_reader(instr: Instruction, start: Instruction, ended: dict[str, Instruction]) -> None:
    ends = _ENDS[start.opcode]
    if instr.opcode not in ends:
        message = f"{instr.opcode}: reads {start.name}, which only {' or '.join(ends)} may"
        raise VerifyError(message, instr.span, (Note("started here", start.span),))
    other = ended.setdefault(start.name, instr)
    if other is not instr:
        message = f"{instr.opcode}: {start.name} was ended before"
        raise VerifyError(message, instr.span, (Note("ended here", other.span),))
