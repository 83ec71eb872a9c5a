"""What a plan for several devices does where it runs, as replica 0 of one: said, never silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlo2graph.hlo import Instruction
from hlo2graph.ops.groups import group_sizes, is_alone, pairs_of
from hlo2graph.ops.one_device import sends_nothing, why_not
from hlo2graph.program.plan import Plan
from hlo2graph.program.uses import computing

_NUMBERS = ("partition-id", "replica-id")


def caveats_of(plan: Plan) -> tuple[str, ...]:
    """Return what running as one replica makes of the plan's collectives and device numbers."""
    ran = (i for t in computing(plan.body) for i in _instructions(plan, t.computation))
    found = Counter(said for instr in ran if (said := _said(instr)) is not None)
    return tuple(
        f"{what}{f', {count} times,' if count > 1 else ''} {said}"
        for (what, said), count in found.items()
    )


def _instructions(plan: Plan, computation: str) -> Iterator[Instruction]:
    for instr in plan.computations[computation].instructions:
        yield instr
        for called in instr.called():
            yield from _instructions(plan, called)


def _said(instr: Instruction) -> tuple[str, str] | None:
    if instr.opcode in _NUMBERS:
        return instr.opcode, "gives 0: the program runs as one replica, in one partition"
    is_collective = "replica_groups" in instr.attrs or "source_target_pairs" in instr.attrs
    if not is_collective or is_alone(instr) or why_not(instr) is not None:
        return None
    result = "zeros, as nobody sends to it" if sends_nothing(instr) else "what it is given"
    return instr.opcode, f"is among {_devices(instr)}: run as one replica, it returns {result}"


def _devices(instr: Instruction) -> str:
    listed = [device for pair in pairs_of(instr) for device in pair]
    count = max(*group_sizes(instr), *(device + 1 for device in listed), 0, 0)
    return f"{count} devices" if count > 1 else "several devices"
