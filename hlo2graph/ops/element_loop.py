"""Loops in which each element goes its own way: a thread can take one through all rounds.

The state is of arrays of the same dimensions, and of scalars, which alone decide when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo2graph.hlo import AnyShape, Computation, Instruction, Shape, TupleShape
from hlo2graph.ops import OPS

_STRUCTURE = frozenset({"copy", "get-tuple-element", "parameter", "tuple"})
_CALLS = frozenset({"call", "fusion"})


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A computation that is a loop, by the instruction's name; `results` are elements of it."""

    loop: str
    results: tuple[int, ...]


def element_loop_of(computation: Computation) -> ElementLoop | None:
    """Return the loop that `computation` is, if it is nothing else."""
    root = computation.result
    parts = [computation[o] for o in root.operands] if root.opcode == "tuple" else [root]
    if not parts or any(part.opcode != "get-tuple-element" for part in parts):
        return None
    loops = {part.operands[0] for part in parts}
    loop = computation[loops.pop()]
    if loops or loop.opcode != "while" or computation[loop.operands[0]].opcode != "tuple":
        return None
    numbers = (part.attrs["index"] for part in parts)
    return ElementLoop(loop.name, tuple(n for n in numbers if isinstance(n, int)))


def is_per_element(loop: Instruction, computations: Mapping[str, Computation]) -> bool:
    """Tell whether an element of `loop`'s state has to do with those at its index, and scalars."""
    parts = loop.shape.parts if isinstance(loop.shape, TupleShape) else ()
    dims = {part.dims for part in parts if isinstance(part, Shape) and part.dims}
    if not parts or len(dims) > 1:
        return False
    allowed = dims | {()}
    seen: set[str] = set()
    waiting = [str(loop.attrs["condition"]), str(loop.attrs["body"])]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for instr in computations[name].instructions:
            if not _is_pointwise(instr, computations[name], allowed):
                return False
            if instr.opcode in _CALLS:
                waiting += set(instr.called()) - seen
    return True


def _is_pointwise(instr: Instruction, computation: Computation, dims: set[tuple[int, ...]]) -> bool:
    if not all(_is_numbers(leaf, dims) for leaf in instr.shape.leaves()):
        return False
    if instr.opcode == "constant":
        return instr.shape.elements == 1 if isinstance(instr.shape, Shape) else False
    if instr.opcode == "broadcast":
        given = computation[instr.operands[0]].shape
        return isinstance(given, Shape) and not given.dims
    spec = OPS[instr.opcode]
    return instr.opcode in _STRUCTURE | _CALLS or (spec.elementwise and not spec.effect)


def _is_numbers(leaf: AnyShape, dims: set[tuple[int, ...]]) -> bool:
    return isinstance(leaf, Shape) and not leaf.dynamic and leaf.dims in dims and leaf.size > 0
