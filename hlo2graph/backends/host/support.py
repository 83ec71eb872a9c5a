"""What the host cannot run, found for the whole plan before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.errors import Note, Span, UnsupportedError
from hlo2graph.hlo import Instruction
from hlo2graph.ops import OPS
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Collective, Kernel, Library, Sequence, Slice
from hlo2graph.program.uses import nested


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""
    found: dict[tuple[str, str], list[Span | None]] = {}
    for instr in _instructions(plan):
        if (why_not := _why_not(instr)) is not None:
            found.setdefault((_kind(instr), why_not), []).append(instr.span)
    if not found:
        return
    notes = tuple(
        Note(f"{kind}{_times(len(places))}: {reason}", next((p for p in places if p), None))
        for (kind, reason), places in found.items()
    )
    count = len(found)
    what = "an operation" if count == 1 else f"{count} kinds of operation"
    raise UnsupportedError(f"the host cannot run {what} of {plan.name}", None, notes)


def _why_not(instr: Instruction) -> str | None:
    if instr.opcode == "parameter":
        return None
    spec = OPS.get(instr.opcode)
    return "unknown opcode" if spec is None else spec.why_not(instr)


def _kind(instr: Instruction) -> str:
    target = instr.attrs.get("custom_call_target")
    return f'{instr.opcode} "{target}"' if isinstance(target, str) else instr.opcode


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _instructions(plan: Plan) -> Iterator[Instruction]:
    """Yield what the thunks run, in program order, and all that it calls, each once."""
    seen: set[str] = set()
    waiting = list(dict.fromkeys(_called(plan.body)))
    waiting.reverse()
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        seen.add(name)
        for instr in plan.computations[name].instructions:
            yield instr
            waiting.extend(instr.called())


def _called(sequence: Sequence[Slice]) -> Iterator[str]:
    for thunk in sequence.thunks:
        if isinstance(thunk, Kernel | Library | Collective):
            yield thunk.computation
        for _, inner in nested(thunk):
            yield from _called(inner)
