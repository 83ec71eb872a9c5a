"""Which computations become thunks of their own, and not parts of kernels."""

from __future__ import annotations

from hlo2graph.hlo import Module

STEPPED = frozenset({"call", "conditional", "scan", "while"})
"""Opcodes whose callees those are."""


def sequences(module: Module) -> set[str]:
    """Return the names of the computations whose instructions become thunks of their own."""
    found: set[str] = set()
    pending = [module.entry_name]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for instr in module.computations[name].instructions:
            if instr.opcode in STEPPED:
                pending += instr.called()
    return found
