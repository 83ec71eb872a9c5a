"""Cutting out the next round's input while this round computes.

In and out: a Module of the same meaning. What a round multiplies is often a slice of an array, at
the number of the round: to get there it reads the number, and then what lies there. Here a round
cuts out the slice for the next one and hands it on in the loop's state; the first one's is cut out
before the loop. The last round's is never looked at.

Loops of FEWEST_ROUNDS or more, a known number; slices of at most MOST_ELEMENTS, of an array that no
round changes, that go into a product. Runs once, behind simplify_loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.trip_count import written_count
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.loops.double_rounds import FEWEST_ROUNDS
from hlo2graph.passes.loops.state import LoopState, loop_state
from hlo2graph.passes.names import Names
from hlo2graph.passes.rules.tuple_parts import index_of
from hlo2graph.passes.rules.values import add_filled, splat
from hlo2graph.passes.sequences import sequences

MOST_ELEMENTS = 1 << 14

_BETWEEN = frozenset({"bitcast", "convert", "reshape", "transpose"})


def look_ahead(module: Module) -> Module:
    """Return `module` with loops that hand on what their next round multiplies."""
    stepped = sequences(module)
    effects = with_effects(module.computations)
    names = Names(module.computations)
    done: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        loops = [i.name for i in computation.instructions if i.opcode == "while"]
        if loops and name in stepped:
            draft = Draft(computation, module.computations, effects)
            known = {**module.computations, **done}
            for loop in loops:
                if loop in draft and _may_look(draft[loop], known):
                    done |= _looking(draft, draft[loop], known, effects, names)
            computation = draft.done()
        done[name] = computation
    return module if len(done) == len(module.computations) else replace(module, computations=done)


def _may_look(loop: Instruction, computations: Mapping[str, Computation]) -> bool:
    body = computations[str(loop.attrs["body"])]
    opcodes = {instr.opcode for instr in body.instructions}
    return (written_count(loop) or 0) >= FEWEST_ROUNDS and {"dot", "dynamic-slice"} <= opcodes


def _looking(
    draft: Draft,
    loop: Instruction,
    computations: Mapping[str, Computation],
    effects: frozenset[str],
    names: Names,
) -> dict[str, Computation]:
    """Let a loop look ahead; return its new body and condition, if it has slices to look at."""
    state = loop_state(draft, loop, computations, effects)
    if state is None:
        return {}
    slices = list(_slices(state))
    for instr, number in slices:
        _hand_on(state, instr, number)
    if not slices:
        return {}
    made = {}
    attrs = dict(draft[loop.name].attrs)
    for role, part in (("body", state.body), ("condition", state.condition)):
        computation = part.done()
        computation = replace(computation, name=names.fresh(f"{computation.name}.ahead"))
        made[computation.name] = computation
        attrs[role] = computation.name
    draft.become(loop.name, replace(draft[loop.name], attrs=attrs))
    return made


def _slices(state: LoopState) -> Iterator[tuple[Instruction, int]]:
    """Yield what is cut out at the number of the round, and which element counts the rounds."""
    body, fixed = state.body, state.invariants()
    for instr in tuple(body.instructions.values()):
        if instr.opcode != "dynamic-slice" or body.shape(instr.name).elements > MOST_ELEMENTS:
            continue
        source, *starts = instr.operands
        numbers = {_element(state, name) for name in starts if splat(body, name) is None}
        number = numbers.pop() if len(numbers) == 1 else None
        if number is None or _element(state, source) not in fixed or not _counts(state, number):
            continue
        if body.is_pure(instr) and _is_multiplied(body, instr):
            yield instr, number


def _element(state: LoopState, name: str) -> int | None:
    instr = state.body[name]
    taken = instr.opcode == "get-tuple-element" and instr.operands == (state.given,)
    return index_of(instr) if taken else None


def _counts(state: LoopState, number: int) -> bool:
    """Tell whether a round makes an element one more."""
    made = state.body[state.results[number]]
    if made.opcode != "add":
        return False
    values = [splat(state.body, name) for name in made.operands]
    return number in [_element(state, o) for o in made.operands] and any(v == 1 for v in values)


def _is_multiplied(body: Draft, instr: Instruction) -> bool:
    """Tell whether all that is made of it, seen in another way at most, are products."""
    pending, found = body.users_of(instr.name), False
    while pending:
        user = pending.pop()
        if user.opcode in _BETWEEN:
            pending += body.users_of(user.name)
        elif user.opcode == "dot":
            found = True
        else:
            return False
    return found


def _hand_on(state: LoopState, instr: Instruction, number: int) -> None:
    """Take a slice out of the state, and put the next round's there."""
    body, around = state.body, state.around
    source, *starts = instr.operands
    loop, first = around[state.loop], []
    for name in starts:
        known = splat(body, name)
        scalar = Shape(body.shape(name).dtype)
        begin = state.inits[number] if known is None else add_filled(around, loop, scalar, known)
        first.append(begin)
    held = _element(state, source)
    assert held is not None
    operands = (state.inits[held], *first)
    init = around.add(loop, "dynamic-slice", instr.shape, operands, instr.attrs)
    following = [state.results[number] if splat(body, n) is None else n for n in starts]
    made = body.add(instr, "dynamic-slice", instr.shape, (source, *following), instr.attrs)
    part = state.append(init, instr.shape, instr)
    body.redirect(instr.name, part)
    root = body[body.root]
    body.become(root.name, replace(root, operands=(*root.operands[:-1], made)))
