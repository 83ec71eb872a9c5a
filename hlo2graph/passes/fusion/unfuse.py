"""Take fusions apart: each becomes a call, for `inline_calls` to take in.

In and out: a Module of the same meaning. For modules that XLA has fused and that are to be fused
by our own rule.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.passes.sequences import sequences


def unfuse(module: Module) -> Module:
    """Return `module` with calls in the place of the fusions that would be thunks."""
    stepped = sequences(module)
    computations = {
        name: _with_calls(computation) if name in stepped else computation
        for name, computation in module.computations.items()
    }
    return replace(module, computations=computations)


def _with_calls(computation: Computation) -> Computation:
    return replace(computation, instructions=tuple(map(_as_call, computation.instructions)))


def _as_call(instr: Instruction) -> Instruction:
    if instr.opcode != "fusion":
        return instr
    dropped = ("kind", "calls", "output_to_operand_aliasing")
    attrs = {"to_apply": instr.attrs["calls"]}
    attrs |= {name: held for name, held in instr.attrs.items() if name not in dropped}
    return replace(instr, opcode="call", attrs=attrs)
