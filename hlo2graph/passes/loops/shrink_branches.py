"""Making the results of conditionals fewer: what nobody reads, no branch needs to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import Instruction, TupleShape
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.tuple_parts import (
    elements,
    index_of,
    narrowed,
    own_root,
    renumber,
    take_apart,
)


def shrink_branches(around: Draft, conditional: Instruction, branches: Sequence[Draft]) -> None:
    """Take the elements that nothing in `around` reads out of the result of all branches."""
    if not isinstance(conditional.shape, TupleShape) or not around.is_pure(conditional):
        return
    take_apart(around, conditional.name)
    read = sorted({index_of(part) for part in elements(around, conditional.name)})
    if len(read) == len(conditional.shape.parts):
        return
    numbers = {old: new for new, old in enumerate(read)}
    for branch in branches:
        own_root(branch)
        root = branch[branch.root]
        kept = replace(root, operands=tuple(root.operands[k] for k in read))
        branch.become(root.name, narrowed(kept, numbers))
    around.become(conditional.name, narrowed(conditional, numbers))
    renumber(around, conditional.name, numbers)
