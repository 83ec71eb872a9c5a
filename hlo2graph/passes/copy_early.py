"""Copying what is updated before it is known what with: a cache that an argument brings.

In and out: a Module of the same meaning. Nobody may write over an argument that is not donated, so
that an update of it makes a new array, most of it a copy. Where what is put there comes of a
product or a fold, the copy is an instruction of its own, which waits for nothing, and the update
then writes a little in its place. For arrays of LARGE bytes, of which at most a part in SMALL
changes; smaller ones are copied in less than a launch takes. Comes behind all that finds copies
superfluous; fusion leaves them alone.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.fusion.body import VIEWS, keeps_arguments
from hlo2graph.passes.fusion.facts import FOLDS
from hlo2graph.passes.redraft import redraft

LARGE = 1 << 20
SMALL = 8


def copy_early(module: Module) -> Module:
    """Return `module` with such arguments of its entry copied by an instruction of their own."""

    def copied(draft: Draft) -> Computation:
        if keeps_arguments(module, draft.computation):
            for instr in tuple(draft.instructions.values()):
                if instr.opcode == "dynamic-update-slice" and _gains(draft, instr):
                    source = draft[instr.operands[0]]
                    name = draft.add(source, "copy", source.shape, (source.name,))
                    operands = (name, *instr.operands[1:])
                    draft.become(instr.name, replace(instr, operands=operands))
        return draft.done()

    return redraft(module, "dynamic-update-slice", copied)


def _gains(draft: Draft, update: Instruction) -> bool:
    """Tell whether a large argument is updated, in a small part, by what takes long to be made."""
    whole, part = (draft.shape(name) for name in update.operands[:2])
    source = draft[update.operands[0]]
    while source.opcode in VIEWS and source.operands:
        source = draft[source.operands[0]]
    large = whole.size >= LARGE and whole.size >= SMALL * part.size
    return large and source.opcode == "parameter" and _takes_long(draft, update.operands[1])


def _takes_long(draft: Draft, name: str) -> bool:
    seen, pending = {name}, [name]
    while pending:
        instr = draft[pending.pop()]
        if instr.opcode in FOLDS:
            return True
        fresh = [o for o in instr.operands if o not in seen]
        seen.update(fresh)
        pending += fresh
    return False
