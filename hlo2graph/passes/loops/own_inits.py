"""Giving every element of a loop's state something of its own to begin with.

In and out: a Module of the same meaning. Rounds write over the state, so that what several elements
begin with, or others read too, would have to be copied, one after the other. A filled array is
filled anew, which is as cheap, and waits for nothing. A parameter or a constant of at most
MOST_ELEMENTS that rounds change is copied by an instruction, which shares a kernel with what else
there is to do before the loop. Comes behind all that finds equal instructions.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.tuple_parts import index_of

MOST_ELEMENTS = 1 << 14


def own_inits(module: Module) -> Module:
    """Return `module` with loops that share no filled arrays, and own what they write over."""
    is_entry_kept = "input_output_alias" not in module.attrs

    def parted(draft: Draft) -> Computation:
        copies = is_entry_kept and draft.computation.name == module.entry_name
        for loop in [i for i in draft.instructions.values() if i.opcode == "while"]:
            _part(draft, loop, copies=copies)
        return draft.done()

    return redraft(module, "while", parted)


def _part(draft: Draft, loop: Instruction, *, copies: bool) -> None:
    [state] = draft.operands(loop)
    if state.opcode != "tuple" or len(draft.users_of(state.name)) > 1:
        return
    inits = list(state.operands)
    body = draft.computations[str(loop.attrs["body"])]
    for number, name in enumerate(inits):
        init = draft[name]
        if _is_filled(draft, name) and _is_shared(draft, inits, name):
            attrs = {"dimensions": ()}
            inits[number] = draft.add(init, "broadcast", init.shape, init.operands, attrs)
        elif copies and _is_given(init) and _changes(body, number):
            inits[number] = draft.add(init, "copy", init.shape, (name,))
    if tuple(inits) != state.operands:
        draft.become(state.name, replace(state, operands=tuple(inits)))


def _is_given(init: Instruction) -> bool:
    """Tell whether it is a small array whose bytes nothing may write over."""
    small = isinstance(init.shape, Shape) and init.shape.elements <= MOST_ELEMENTS
    return small and init.opcode in ("constant", "parameter")


def _changes(body: Computation, number: int) -> bool:
    """Tell whether rounds make an element of the state anew, as far as that shows."""
    if body.result.opcode != "tuple":
        return False
    made = body[body.result.operands[number]]
    while made.opcode == "get-tuple-element":
        whole, number_there = body[made.operands[0]], index_of(made)
        if whole.opcode == "opt-barrier":
            whole = body[whole.operands[0]]
        if whole.opcode != "tuple":
            return whole.opcode != "parameter" or number_there != number
        made = body[whole.operands[number_there]]
    return True


def _is_filled(draft: Draft, name: str) -> bool:
    instr = draft[name]
    return instr.opcode == "broadcast" and draft[instr.operands[0]].opcode == "constant"


def _is_shared(draft: Draft, inits: list[str], name: str) -> bool:
    return inits.count(name) > 1 or len(draft.users_of(name)) > 1
