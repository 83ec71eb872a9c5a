"""Loops whose number of rounds is known and small, written out as calls of their bodies.

A loop of no round is its init; of one round, a call. A few rounds of light work (see light) are
written out so that they fuse, where rounds times instructions come to at most MOST_INSTRUCTIONS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hlo2graph.hlo import Computation, Instruction, Literal, Shape, TupleShape
from hlo2graph.ops.trip_count import trip_count
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.loops.light import light_work
from hlo2graph.passes.rules.values import made

MOST_INSTRUCTIONS = 512


class _Leaf(NamedTuple):
    """An element of loop state before the first round."""

    shape: Shape
    literal: Literal | None


def rounds_of(
    draft: Draft, loop: Instruction, computations: Mapping[str, Computation]
) -> int | None:
    """Return how often the body of `loop` runs, where that is known."""
    return trip_count(loop, list(_leaves(draft, loop.operands[0])), computations)


def unroll(
    draft: Draft, loop: Instruction, rounds: int, computations: Mapping[str, Computation]
) -> bool:
    """Write a loop of so many rounds out if the rule says so; tell whether it did."""
    body = computations[str(loop.attrs["body"])]
    work = light_work(body)
    if rounds > 1 and (work is None or rounds * work > MOST_INSTRUCTIONS):
        return False
    if rounds == 0:
        same = same_places(draft[loop.operands[0]].shape, loop.shape)
        if same:
            draft.redirect(loop.name, loop.operands[0])
        return same
    state = loop.operands[0]
    call = {"to_apply": body.name}
    for _ in range(rounds - 1):
        state = draft.add(loop, "call", loop.shape, (state,), call)
    draft.become(loop.name, made(loop, "call", (state,), call))
    return True


def _leaves(draft: Draft, name: str) -> Iterator[_Leaf]:
    instr = draft[name]
    if instr.opcode == "tuple":
        for operand in instr.operands:
            yield from _leaves(draft, operand)
    elif isinstance(instr.shape, TupleShape):
        yield from (_Leaf(leaf, None) for leaf in instr.shape.leaves())
    else:
        literal = instr.payload if instr.opcode == "constant" else None
        yield _Leaf(instr.shape, literal if isinstance(literal, Literal) else None)
