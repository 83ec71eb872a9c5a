"""A computation of several rounds of a loop, one behind the other, with barriers between them.

Without a barrier fusion computes again, in a later round's kernel, what an earlier round's kernel
has made, and the state cannot be written in its own place any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hlo2graph.hlo import Attribute, Computation, Instruction, TupleShape
from hlo2graph.passes.draft import Draft


def several_rounds(
    body: Computation,
    called: Sequence[str],
    computations: Mapping[str, Computation],
    *,
    through: Collection[int] = (),
    apart: bool = True,
) -> Computation:
    """Return a computation of the state of `body` that calls `called` one after the other.

    apart: whether there are barriers between them. through: the elements that pass these.
    """
    [given] = body.parameters
    state = Instruction("state", "parameter", given.shape, payload=0, span=given.span)
    draft = Draft(
        Computation(body.name, (state,), "state", span=body.span), computations, frozenset()
    )
    last = state
    for number, name in enumerate(called):
        before = _held(draft, last, through) if number and apart else last.name
        attrs: dict[str, Attribute] = {"to_apply": name}
        last = draft[draft.add(last, "call", body.result.shape, (before,), attrs)]
        draft.root = last.name
    return draft.done()


def _held(draft: Draft, state: Instruction, through: Collection[int]) -> str:
    """Put a barrier behind a state; return the state behind it."""
    shape = state.shape
    assert isinstance(shape, TupleShape)
    parts = [
        draft.add(state, "get-tuple-element", part, (state.name,), {"index": number})
        for number, part in enumerate(shape.parts)
    ]
    held = [number for number in range(len(parts)) if number not in through]
    whole = TupleShape(tuple(shape.parts[number] for number in held))
    inside = draft.add(state, "tuple", whole, [parts[number] for number in held])
    barrier = draft.add(state, "opt-barrier", whole, (inside,))
    for place, number in enumerate(held):
        index = {"index": place}
        parts[number] = draft.add(
            state, "get-tuple-element", shape.parts[number], (barrier,), index
        )
    return draft.add(state, "tuple", shape, parts)
