"""Loop-invariant code motion: work that gives the same in every round is done once, before.

What moves is what depends on nothing but elements of the state that no round changes, at most
takes as much memory as it reads, and is worth an array of its own: scalars, and what only spreads
or renames elements, are made again in each round, where they cost nothing. Nothing with an effect
moves; HLO has no traps, so that a loop of no round does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.passes.draft import is_settled
from hlo2graph.passes.loops.state import LoopState
from hlo2graph.passes.rules.tuple_parts import elements, index_of

_CHEAP = frozenset(
    {
        *("bitcast", "bitcast-convert", "broadcast", "constant", "copy", "get-tuple-element"),
        *("iota", "reshape", "slice", "tuple"),
    }
)
_STAYING = frozenset({"after-all", "custom-call", "opt-barrier", "parameter", "rng"})


def hoist(state: LoopState) -> None:
    """Move the invariant work of one loop before it."""
    body = state.body
    fixed = state.invariants()
    outside = {  # names in the body, and what they are around the loop, where that is known
        part.name: fixed[index_of(part)]
        for part in elements(body, state.given)
        if index_of(part) in fixed
    }
    same = set(outside)
    ordered = body.done().instructions
    for instr in ordered:
        if _may_move(state, instr) and all(o in same for o in instr.operands):
            same.add(instr.name)
    moving = [i for i in _wanted(state, ordered, same) if i.name not in outside]
    for instr in moving:
        moved = _moved(state, instr.name, outside)
        part = state.append(moved, instr.shape, instr)
        body.redirect(instr.name, part)
        outside[part] = moved  # what else moves may read it


def _wanted(
    state: LoopState, ordered: Sequence[Instruction], same: Set[str]
) -> Iterator[Instruction]:
    """Yield what is worth an array and is read by what stays in the loop."""
    staying: set[str] = set()
    wanted: list[Instruction] = []
    for instr in reversed(ordered):
        if instr.name not in same:
            continue
        users = [u.name for u in state.body.users_of(instr.name)]
        if any(u not in same or u in staying for u in users):
            if _is_worth_it(state, instr):
                wanted.append(instr)
            else:
                staying.add(instr.name)
    return reversed(wanted)


def _may_move(state: LoopState, instr: Instruction) -> bool:
    return (
        state.body.is_pure(instr)
        and instr.opcode not in _STAYING
        and not instr.opcode.endswith(("-start", "-update", "-done"))
        and is_settled(instr.shape)
    )


def _is_worth_it(state: LoopState, instr: Instruction) -> bool:
    if instr.opcode in _CHEAP or not isinstance(instr.shape, Shape) or instr.shape.elements <= 1:
        return False
    read = sum(leaf.size for o in state.body.operands(instr) for leaf in o.shape.leaves())
    return instr.shape.size <= read


def _moved(state: LoopState, name: str, outside: dict[str, str]) -> str:
    """Compute `name` of the body around the loop; return its name there."""
    pending = [name]
    while pending:
        top = pending[-1]
        if top in outside:
            pending.pop()
            continue
        instr = state.body[top]
        missing = [o for o in instr.operands if o not in outside]
        if missing:
            pending += missing
            continue
        operands = [outside[o] for o in instr.operands]
        payload = None if isinstance(instr.payload, tuple) else instr.payload
        outside[top] = state.around.add(
            instr, instr.opcode, instr.shape, operands, instr.attrs, payload
        )
        pending.pop()
    return outside[name]
