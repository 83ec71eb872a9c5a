"""What the host cannot run, found for the whole plan before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.errors import Note, Span, UnsupportedError
from hlo2graph.hlo import Instruction
from hlo2graph.ops.evaluate import unsupported
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Collective, Kernel, Library, Sequence, Slice
from hlo2graph.program.uses import nested


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""
    refused: dict[str, list[tuple[Instruction, str]]] = {}
    found: dict[tuple[str, str], list[Span | None]] = {}
    for thunk in _computing(plan.body):
        name = thunk.computation
        if name not in refused:
            refused[name] = unsupported(plan.computations, name)
        for instr, reason in refused[name]:
            found.setdefault((_kind(instr), reason), []).append(instr.span or thunk.span)
    if not found:
        return
    notes = tuple(
        Note(f"{kind}{_times(len(places))}: {reason}", next((p for p in places if p), None))
        for (kind, reason), places in found.items()
    )
    what = "an operation" if len(found) == 1 else f"{len(found)} kinds of operation"
    raise UnsupportedError(f"the host cannot run {what} of {plan.name}", None, notes)


def _computing(
    sequence: Sequence[Slice],
) -> Iterator[Kernel[Slice] | Library[Slice] | Collective[Slice]]:
    """Yield the thunks that run a computation, those of nested sequences too, in order."""
    for thunk in sequence.thunks:
        if isinstance(thunk, Kernel | Library | Collective):
            yield thunk
        for _, inner in nested(thunk):
            yield from _computing(inner)


def _kind(instr: Instruction) -> str:
    target = instr.attrs.get("custom_call_target")
    return f'{instr.opcode} "{target}"' if isinstance(target, str) else instr.opcode


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""
