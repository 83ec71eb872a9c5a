"""Names for what a thunk makes: those that the instructions had before they were one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo2graph.hlo import Computation, Shape
from hlo2graph.program.thunks import Kernel, Slice, Thunk


def names_of(thunk: Thunk[Slice], count: int, computations: Mapping[str, Computation]) -> list[str]:
    """Return a name for each of `count` values that a thunk makes.

    A value alone has the thunk's. Of several each has the thunk's and its number, and in front of
    it that of the instruction inside the kernel, which is one of the program's.
    """
    if count == 1:
        return [thunk.name]
    numbered = [f"{thunk.name}#{position}" for position in range(count)]
    computation = computations.get(thunk.computation) if isinstance(thunk, Kernel) else None
    inside = list(_leaves(computation, computations)) if computation else []
    if len(inside) != count:
        return numbered
    return [f"{name} of {one}" for name, one in zip(inside, numbered, strict=True)]


def _leaves(computation: Computation, computations: Mapping[str, Computation]) -> Iterator[str]:
    """Yield the names of the instructions that make a computation's results, if it says them."""
    root = computation.result
    if root.opcode != "tuple":
        return
    for operand in root.operands:
        instr = computation[operand]
        called = next(instr.called(), None)
        if isinstance(instr.shape, Shape):
            yield instr.name
        elif instr.opcode == "fusion" and called is not None:
            yield from _leaves(computations[called], computations)
        else:
            yield from (f"{instr.name}#{k}" for k in range(instr.shape.leaf_count))
