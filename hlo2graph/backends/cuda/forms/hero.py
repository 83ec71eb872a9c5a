"""The one instruction of a computation that decides for a form, with elementwise work behind it."""

from __future__ import annotations

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS


def hero_of(computation: Computation, opcode: str) -> Instruction | None:
    """Return the instruction of `opcode` of which every result element is an elementwise function.

    Each result leaf has the hero's dimensions, and what depends on the hero looks at its element
    at the same index only, so that a form can go on to the results where it has the hero's element.
    None where there are several such instructions.
    """
    found = [i for i in computation.instructions if i.opcode == opcode]
    if len(found) != 1:
        return None
    (hero,) = found
    dims = next(hero.shape.leaves()).dims
    reached = {hero.name}
    for instr in computation.instructions:
        if reached.isdisjoint(instr.operands):
            continue
        if not _keeps_index(computation, instr, dims):
            return None
        reached.add(instr.name)
    same = all(leaf.dims == dims for leaf in computation.result.shape.leaves())
    return hero if same and computation.root in reached else None


def _keeps_index(computation: Computation, instr: Instruction, dims: tuple[int, ...]) -> bool:
    if instr.opcode == "tuple":
        return instr.name == computation.root
    if instr.opcode == "get-tuple-element":
        return True
    elementwise = OPS[instr.opcode].elementwise and isinstance(instr.shape, Shape)
    return elementwise and all(leaf.dims == dims for leaf in instr.shape.leaves())
