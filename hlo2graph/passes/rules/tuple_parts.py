"""Tuples in a draft: who takes which element, and tuples of more or fewer elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.hlo import AnyShape, Instruction, TupleShape
from hlo2graph.passes.draft import Draft

_BY_ELEMENT = frozenset({"origin", "parameter_replication", "sharding"})


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
    again = draft.add(whole, "tuple", shape, draft.leaves(whole, name))
    for reader in readers:
        operands = tuple(again if o == name else o for o in reader.operands)
        draft.become(reader.name, replace(reader, operands=operands))
    if draft.root == name:
        draft.root = again


def own_root(draft: Draft) -> None:
    """Let the result be a tuple that nothing inside reads, to be made smaller or larger."""
    take_apart(draft, draft.root)
    root = draft[draft.root]
    if draft.users_of(root.name):
        draft.root = draft.add(root, "tuple", root.shape, root.operands)


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


def renumber(draft: Draft, name: str, numbers: Mapping[int, int]) -> None:
    """Let those who take elements of the tuple `name` take them from their new places."""
    for part in elements(draft, name):
        at = numbers[index_of(part)]
        if at != index_of(part):
            draft.become(part.name, replace(part, attrs={**part.attrs, "index": at}))


def narrowed(whole: Instruction, numbers: Mapping[int, int]) -> Instruction:
    """Return a tuple with just the elements that `numbers` gives new places, in that order."""
    parts = _parts(whole)
    return _of_parts(whole, tuple(parts[k] for k in numbers))


def widened(whole: Instruction, part: AnyShape) -> Instruction:
    """Return a tuple with one element more."""
    return _of_parts(whole, (*_parts(whole), part))


def _of_parts(whole: Instruction, parts: tuple[AnyShape, ...]) -> Instruction:
    """Return the instruction for other elements, without what is said of each in its attributes."""
    attrs = {name: held for name, held in whole.attrs.items() if name not in _BY_ELEMENT}
    return replace(whole, shape=TupleShape(parts), attrs=attrs)


def _parts(whole: Instruction) -> tuple[AnyShape, ...]:
    assert isinstance(whole.shape, TupleShape)
    return whole.shape.parts
