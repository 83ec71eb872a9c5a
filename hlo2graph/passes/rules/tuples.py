"""Rules of tuples, and of conditionals whose choice is known."""

from __future__ import annotations

from hlo2graph.hlo import Instruction
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import Found, Rule, made, splat


def element(draft: Draft, instr: Instruction) -> Found:
    """Take the element of a tuple that is made here from where it comes."""
    [whole] = draft.operands(instr)
    index = instr.attrs["index"]
    assert isinstance(index, int)
    return whole.operands[index] if whole.opcode == "tuple" else None


def conditional(draft: Draft, instr: Instruction) -> Found:
    """Call the branch that is known to be chosen."""
    selector = splat(draft, instr.operands[0])
    if selector is None:
        return None
    branches = list(instr.called())
    if selector.dtype.kind == "b":
        chosen = int(not selector)
    else:
        inside = 0 <= int(selector) < len(branches)
        chosen = int(selector) if inside else len(branches) - 1
    return made(instr, "call", (instr.operands[1 + chosen],), {"to_apply": branches[chosen]})


TUPLES: dict[str, Rule] = {
    "conditional": conditional,
    "get-tuple-element": element,
}
