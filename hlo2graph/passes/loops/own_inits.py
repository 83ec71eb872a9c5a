"""Giving every element of a loop's state that begins as a filled array one of its own.

In and out: a Module of the same meaning. Rounds write over the state, so that what several elements
begin with, or others read too, would have to be copied, one after the other; to fill an array
anew is as cheap, and waits for nothing. Comes behind all that finds equal instructions.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Module
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft


def own_inits(module: Module) -> Module:
    """Return `module` with loops that share no filled arrays."""
    return redraft(module, "while", _parted)


def _parted(draft: Draft) -> Computation:
    for loop in [i for i in draft.instructions.values() if i.opcode == "while"]:
        [state] = draft.operands(loop)
        if state.opcode != "tuple" or len(draft.users_of(state.name)) > 1:
            continue
        inits = list(state.operands)
        for number, name in enumerate(inits):
            if _is_filled(draft, name) and _is_shared(draft, inits, name):
                fill = draft[name]
                inits[number] = draft.add(
                    fill, "broadcast", fill.shape, fill.operands, {"dimensions": ()}
                )
        if tuple(inits) != state.operands:
            draft.become(state.name, replace(state, operands=tuple(inits)))
    return draft.done()


def _is_filled(draft: Draft, name: str) -> bool:
    instr = draft[name]
    return instr.opcode == "broadcast" and draft[instr.operands[0]].opcode == "constant"


def _is_shared(draft: Draft, inits: list[str], name: str) -> bool:
    return inits.count(name) > 1 or len(draft.users_of(name)) > 1
