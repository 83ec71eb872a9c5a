"""Which instructions and computations do more than give a value."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops import OPS

_EFFECTS = frozenset(opcode for opcode, spec in OPS.items() if spec.effect)


def has_effect(instr: Instruction) -> bool:
    """Tell whether `instr` itself, whatever it calls, has a side effect."""
    return instr.opcode in _EFFECTS or instr.attrs.get("custom_call_has_side_effect") is True


def with_effects(computations: Mapping[str, Computation]) -> frozenset[str]:
    """Return the computations in which, or in whose callees, something has a side effect.

    Callees stand before their callers in `computations`.
    """
    found: set[str] = set()
    for name, computation in computations.items():
        for instr in computation.instructions:
            if has_effect(instr) or (found and not found.isdisjoint(instr.called())):
                found.add(name)
                break
    return frozenset(found)
