"""What a backend cannot run, found for the whole plan before anything is compiled or run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from hlo2graph.errors import Note, Span, UnsupportedError
from hlo2graph.hlo import Instruction
from hlo2graph.program.plan import Plan
from hlo2graph.program.uses import computing

Refusals: TypeAlias = Iterable[tuple[Instruction, str]]
"""Instructions that cannot run, each with the reason."""


def check_computations(plan: Plan, backend: str, refusals: Callable[[str], Refusals]) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why.

    refusals: what the backend cannot run of the computation with that name; asked once for each.
    """
    known: dict[str, tuple[tuple[Instruction, str], ...]] = {}
    found: dict[tuple[str, str], list[Span | None]] = {}
    for thunk in computing(plan.body):
        name = thunk.computation
        if name not in known:
            known[name] = tuple(refusals(name))
        for instr, reason in known[name]:
            found.setdefault((_kind(instr), reason), []).append(instr.span or thunk.span)
    if not found:
        return
    notes = tuple(
        Note(f"{kind}{_times(len(places))}: {reason}", next((p for p in places if p), None))
        for (kind, reason), places in found.items()
    )
    what = "an operation" if len(found) == 1 else f"{len(found)} kinds of operation"
    raise UnsupportedError(f"{backend} cannot run {what} of {plan.name}", None, notes)


def _kind(instr: Instruction) -> str:
    target = instr.attrs.get("custom_call_target")
    return f'{instr.opcode} "{target}"' if isinstance(target, str) else instr.opcode


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""
