"""The state of one loop, as drafts of its body, its condition and what is around it see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hlo2graph.hlo import AnyShape, Computation, Instruction, TupleShape
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.tuple_parts import (
    index_of,
    narrowed,
    own_root,
    parts_of,
    renumber,
    take_apart,
    widened,
)


@dataclass(slots=True)
class LoopState:
    """A loop whose state is only ever taken apart and put together, element by element.

    `loop` names it in `around`; `given` and `tested` are the parameters of body and condition.
    """

    around: Draft
    loop: str
    body: Draft
    given: str
    condition: Draft
    tested: str

    @property
    def inits(self) -> tuple[str, ...]:
        """What each element is before the first round, in `around`."""
        return self.around[self.around[self.loop].operands[0]].operands

    @property
    def results(self) -> tuple[str, ...]:
        """What each element is after a round, in `body`."""
        return self.body[self.body.root].operands

    @property
    def parts(self) -> tuple[AnyShape, ...]:
        """The elements' shapes."""
        return parts_of(self.around, self.loop)

    def invariants(self) -> dict[int, str]:
        """Return the elements that no round changes, and their values in `around`."""
        return {
            k: self.inits[k]
            for k, name in enumerate(self.results)
            if _element_of(self.body[name], self.given) == k
        }

    def readers(self) -> tuple[tuple[Draft, str], ...]:
        """Return each draft with the name that the whole state has there; `around` comes last."""
        return (
            (self.body, self.given),
            (self.condition, self.tested),
            (self.around, self.loop),
        )

    def keep(self, kept: Iterable[int]) -> None:
        """Leave all other elements out; nothing may need them."""
        numbers = {old: new for new, old in enumerate(kept)}
        results = tuple(self.results[k] for k in numbers)
        inits = tuple(self.inits[k] for k in numbers)
        root = self.body[self.body.root]
        self.body.become(root.name, narrowed(replace(root, operands=results), numbers))
        loop = self.around[self.loop]
        whole = self.around[loop.operands[0]]
        narrow = narrowed(whole, numbers).shape
        first = self.around.add(loop, "tuple", narrow, inits)
        self.around.become(loop.name, narrowed(replace(loop, operands=(first,)), numbers))
        for draft, name in self.readers():
            if draft is not self.around:
                draft.become(name, narrowed(draft[name], numbers))
            renumber(draft, name, numbers)

    def append(self, init: str, shape: AnyShape, like: Instruction) -> str:
        """Add an element that no round changes; return its name in `body`."""
        number = len(self.parts)
        for draft, name in self.readers():
            if draft is not self.around:
                draft.become(name, widened(draft[name], shape))
        part = self.body.add(like, "get-tuple-element", shape, (self.given,), {"index": number})
        root = self.body[self.body.root]
        grown = replace(root, operands=(*root.operands, part))
        self.body.become(root.name, widened(grown, shape))
        loop = self.around[self.loop]
        whole = self.around[loop.operands[0]]
        wide = widened(whole, shape).shape
        first = self.around.add(loop, "tuple", wide, (*whole.operands, init))
        self.around.become(loop.name, widened(replace(loop, operands=(first,)), shape))
        return part


def loop_state(
    around: Draft,
    loop: Instruction,
    computations: Mapping[str, Computation],
    effects: frozenset[str],
) -> LoopState | None:
    """Return the state of `loop`, made to be taken apart; None where that is no tuple."""
    if not isinstance(loop.shape, TupleShape) or not around.is_pure(loop):
        return None
    if any(leaf.dtype.name == "token" for leaf in loop.shape.leaves()):
        return None
    take_apart(around, loop.operands[0])
    take_apart(around, loop.name)
    drafts = []
    for role in ("body", "condition"):
        computation = computations[str(loop.attrs[role])]
        draft = Draft(computation, computations, effects)
        [parameter] = computation.parameters
        take_apart(draft, parameter.name)
        drafts.append((draft, parameter.name))
    (body, given), (condition, tested) = drafts
    own_root(body)
    return LoopState(around, loop.name, body, given, condition, tested)


def _element_of(part: Instruction, whole: str) -> int | None:
    taken = part.opcode == "get-tuple-element" and part.operands == (whole,)
    return index_of(part) if taken else None
