"""Checks on which thread computations run, and that a computation run beside others is one step."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.errors import Note, VerifyError
from hlo2graph.hlo import Computation, Instruction

_MAIN = "main"
_ON_ITS_THREAD = frozenset({"call", "conditional", "custom-call", "fusion", "while"})


def check_threads(computation: Computation, known: Mapping[str, Computation]) -> None:
    """Raise a VerifyError for a call from one thread to another, or one of several steps beside."""
    for instr in computation.instructions:
        if instr.opcode == "async-start":
            _check_async(instr, known[str(instr.attrs["calls"])])
        elif instr.opcode in _ON_ITS_THREAD:
            for name in instr.called():
                _check_thread(instr, known[name], _thread(computation))


def _thread(computation: Computation) -> str:
    return computation.execution_thread or _MAIN


def _check_async(instr: Instruction, called: Computation) -> None:
    thread = instr.attrs.get("async_execution_thread", _MAIN)
    _check_thread(instr, called, str(thread))
    for step in called.instructions:
        if step.opcode != "parameter" and step.name != called.root:
            message = f"async-start: {called.name} may have nothing but parameters and its root"
            raise VerifyError(message, instr.span, (Note("another instruction", step.span),))


def _check_thread(instr: Instruction, called: Computation, thread: str) -> None:
    if _thread(called) != thread:
        runs = f"runs on the thread {thread}, but calls {called.name} of {_thread(called)}"
        note = Note("defined here", called.span)
        raise VerifyError(f"{instr.opcode}: {runs}", instr.span, (note,))
