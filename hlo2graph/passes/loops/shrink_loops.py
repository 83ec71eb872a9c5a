"""Making the state of loops smaller: what rounds don't change, change alike, or nobody needs."""

from __future__ import annotations

from collections.abc import Hashable

from hlo2graph.hlo import Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.loops.state import LoopState
from hlo2graph.passes.rules.fold_constants import MOST_ELEMENTS
from hlo2graph.passes.rules.repeats import Regions, key_of
from hlo2graph.passes.rules.tuple_parts import elements, index_of
from hlo2graph.passes.rules.values import add_filled, constant, splat

_ITSELF = 0  # stands for the element in question among names


def shrink(state: LoopState, regions: Regions) -> None:
    """Take elements out of the state of one loop.

    - One that no round changes is the init itself behind the loop, and a constant inside if the
      init is one.
    - Of elements that begin equal and change alike, as counters do, one will do.
    - One that reaches neither a result that is used, nor the condition, nor an effect, goes.
    """
    fixed = state.invariants()
    for draft, whole in state.readers():
        for part in elements(draft, whole):
            if index_of(part) in fixed:
                _settle(state, draft, part, fixed[index_of(part)])
    if state.loop not in state.around:
        return  # all that was used of it were inits
    _join_alike(state, regions)
    drop_unneeded(state)


def drop_unneeded(state: LoopState) -> None:
    """Take out the elements that nothing needs."""
    needed = _needed(state)
    if needed and len(needed) < len(state.parts):
        state.keep(sorted(needed))


def _settle(state: LoopState, draft: Draft, part: Instruction, init: str) -> None:
    """Take an element that keeps its init for that."""
    around = state.around
    if draft is around:
        if same_places(part.shape, around[init].shape):
            draft.redirect(part.name, init)
        return
    if not isinstance(part.shape, Shape) or part.name in draft.held:
        return
    known = splat(around, init)
    if known is not None:
        draft.redirect(part.name, add_filled(draft, part, part.shape, known))
        return
    held = constant(around[init])
    if held is not None and held.size <= MOST_ELEMENTS:
        literal = Literal(part.shape, held)
        draft.redirect(part.name, draft.add(part, "constant", part.shape, payload=literal))


def _join_alike(state: LoopState, regions: Regions) -> None:
    first: dict[Hashable, int] = {}
    for number, init in enumerate(state.inits):
        change = _change(state, state.results[number], number, regions)
        same = first.setdefault((init, change), number)
        if same == number or not same_places(state.parts[same], state.parts[number]):
            continue
        for draft, whole in state.readers():
            taken = {index_of(part): part for part in elements(draft, whole)}
            other = taken.get(number)
            if other is None or other.name in draft.held:
                continue
            kept = taken.get(same)
            value = (
                kept.name
                if kept
                else draft.add(other, "get-tuple-element", other.shape, (whole,), {"index": same})
            )
            draft.redirect(other.name, value)


def _change(state: LoopState, name: str, number: int, regions: Regions) -> Hashable:
    """Return what a round does with an element, said without its number."""
    instr = state.body[name]
    if _is_element(state, instr):
        return _ITSELF if index_of(instr) == number else name
    if not OPS[instr.opcode].elementwise:
        return name
    operands = (state.body[o] for o in instr.operands)
    named = (
        _ITSELF if _is_element(state, o) and index_of(o) == number else o.name for o in operands
    )
    return key_of(instr, tuple(named), regions)


def _is_element(state: LoopState, instr: Instruction) -> bool:
    """Tell whether an instruction of the body takes an element of the state."""
    return instr.opcode == "get-tuple-element" and instr.operands == (state.given,)


def _needed(state: LoopState) -> set[int]:
    """Return the elements that anything needs, directly or for others."""
    body = state.body
    needed = {
        index_of(part)
        for draft, whole in ((state.around, state.loop), (state.condition, state.tested))
        for part in elements(draft, whole)
    }
    seen: set[str] = set()
    pending = [state.results[k] for k in needed]
    pending += [i.name for i in body.instructions.values() if _stays(body, i)]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        instr = body[name]
        if _is_element(state, instr):
            if index_of(instr) not in needed:
                needed.add(index_of(instr))
                pending.append(state.results[index_of(instr)])
        else:
            pending += instr.operands
    return needed


def _stays(draft: Draft, instr: Instruction) -> bool:
    return instr.opcode != "parameter" and not draft.is_pure(instr)
