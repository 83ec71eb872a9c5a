"""Turn each async-start, with its updates and its end, into a call of what it began.

In and out: a Module of the same meaning: on one device, in one order, the work may as well be done
where it begins. A call is open to every pass, inside kernels too. Collectives and copies that have
starts and ends of their own stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, TupleShape
from hlo2graph.passes.draft import controls

_LATER = frozenset({"async-update", "async-done"})
_OF_STARTS = frozenset({"calls", "async_execution_thread", "output_to_operand_aliasing"})


def call_asyncs(module: Module) -> Module:
    """Return `module` with a call for each async-start; itself where there are none."""
    found = {name: _with_calls(held) for name, held in module.computations.items()}
    if all(found[name] is held for name, held in module.computations.items()):
        return module
    return replace(module, computations=found)


def _with_calls(computation: Computation) -> Computation:
    ends: dict[str, str] = {}  # of what was begun: the async-done, whose name the call takes
    for instr in reversed(computation.instructions):
        if instr.opcode in _LATER:
            [begun] = instr.operands
            ends[begun] = ends.get(instr.name, instr.name)
    if not ends:
        return computation
    kept = (i for i in computation.instructions if i.opcode not in _LATER)
    return replace(computation, instructions=tuple(_renamed(i, ends) for i in kept))


def _renamed(instr: Instruction, ends: dict[str, str]) -> Instruction:
    """Return the instruction with the names of ends; a start as the call that it becomes."""
    attrs = instr.attrs
    if before := controls(instr):
        renamed = dict.fromkeys(ends.get(name, name) for name in before)
        attrs = {**attrs, "control-predecessors": tuple(renamed)}
    if instr.opcode != "async-start":
        return instr if attrs is instr.attrs else replace(instr, attrs=attrs)
    assert isinstance(instr.shape, TupleShape)
    kept = {name: held for name, held in attrs.items() if name not in _OF_STARTS}
    return replace(
        instr,
        name=ends[instr.name],
        opcode="call",
        shape=instr.shape.parts[1],
        attrs={"to_apply": attrs["calls"], **kept},
    )
