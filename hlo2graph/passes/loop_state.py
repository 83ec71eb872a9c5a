"""The state of one loop, as drafts of its body, its condition and what is around it see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hlo2graph.hlo import AnyShape, Computation, Instruction, TupleShape
from hlo2graph.passes.draft import Draft


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
        self.body.become(root.name, _narrowed(replace(root, operands=results), numbers))
        loop = self.around[self.loop]
        whole = self.around[loop.operands[0]]
        narrow = _narrowed(whole, numbers).shape
        first = self.around.add(loop, "tuple", narrow, inits)
        self.around.become(loop.name, _narrowed(replace(loop, operands=(first,)), numbers))
        for draft, name in self.readers():
            if draft is not self.around:
                draft.become(name, _narrowed(draft[name], numbers))
            for part in elements(draft, name):
                at = numbers[index_of(part)]
                if at != index_of(part):
                    draft.become(part.name, replace(part, attrs={**part.attrs, "index": at}))

    def append(self, init: str, shape: AnyShape, like: Instruction) -> str:
        """Add an element that no round changes; return its name in `body`."""
        number = len(self.parts)
        for draft, name in self.readers():
            if draft is not self.around:
                draft.become(name, _widened(draft[name], shape))
        part = self.body.add(like, "get-tuple-element", shape, (self.given,), {"index": number})
        root = self.body[self.body.root]
        grown = replace(root, operands=(*root.operands, part))
        self.body.become(root.name, _widened(grown, shape))
        loop = self.around[self.loop]
        whole = self.around[loop.operands[0]]
        wide = _widened(whole, shape).shape
        first = self.around.add(loop, "tuple", wide, (*whole.operands, init))
        self.around.become(loop.name, _widened(replace(loop, operands=(first,)), shape))
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
    take_apart(body, body.root)
    return LoopState(around, loop.name, body, given, condition, tested)


def take_apart(draft: Draft, name: str) -> None:
    """Let those who read a tuple whole read one made of its elements."""
    whole = draft[name]
    shape = whole.shape
    if whole.opcode == "tuple":
        return
    assert isinstance(shape, TupleShape)
    readers = [u for u in draft.users_of(name) if u.opcode != "get-tuple-element"]
    if not readers and draft.root != name:
        return
    parts = [
        draft.add(whole, "get-tuple-element", part, (name,), {"index": k})
        for k, part in enumerate(shape.parts)
    ]
    again = draft.add(whole, "tuple", shape, parts)
    for reader in readers:
        operands = tuple(again if o == name else o for o in reader.operands)
        draft.become(reader.name, replace(reader, operands=operands))
    if draft.root == name:
        draft.root = again


def elements(draft: Draft, name: str) -> list[Instruction]:
    """Return the instructions that take elements of the tuple `name`."""
    return [u for u in draft.users_of(name) if u.opcode == "get-tuple-element"]


def index_of(part: Instruction) -> int:
    """Return which element a get-tuple-element takes."""
    index = part.attrs["index"]
    assert isinstance(index, int)
    return index


def parts_of(draft: Draft, name: str) -> tuple[AnyShape, ...]:
    """Return the shapes of a tuple's elements."""
    shape = draft[name].shape
    assert isinstance(shape, TupleShape)
    return shape.parts


def _element_of(part: Instruction, whole: str) -> int | None:
    taken = part.opcode == "get-tuple-element" and part.operands == (whole,)
    return index_of(part) if taken else None


def _narrowed(whole: Instruction, numbers: Mapping[int, int]) -> Instruction:
    assert isinstance(whole.shape, TupleShape)
    return replace(whole, shape=TupleShape(tuple(whole.shape.parts[k] for k in numbers)))


def _widened(whole: Instruction, part: AnyShape) -> Instruction:
    assert isinstance(whole.shape, TupleShape)
    return replace(whole, shape=TupleShape((*whole.shape.parts, part)))
