"""Which computations do so little that a loop or a branch around them is the larger part."""

from __future__ import annotations

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS

FEW_ELEMENTS = 64

_FREE = frozenset({"constant", "get-tuple-element", "parameter", "tuple"})
_SPREADING = frozenset({"bitcast-convert", "broadcast", "iota"})
_MOVING = frozenset(
    {
        *("concatenate", "dynamic-slice", "dynamic-update-slice", "gather", "pad", "reshape"),
        *("reverse", "slice", "transpose"),
    }
)


def light_work(computation: Computation) -> int | None:
    """Return how many instructions compute something, if each of them fuses with the others.

    That is so where it works element by element, or moves at most FEW_ELEMENTS elements. Work on
    neighbours (slices of large arrays, windows, products) does not: joined with what comes before
    it would compute that again and again, or could not be joined at all.
    """
    return None if heavy_work(computation) else work_of(computation)


def work_of(computation: Computation) -> int:
    """Return how many instructions compute something."""
    return sum(i.opcode not in _FREE for i in computation.instructions)


def heavy_work(computation: Computation) -> tuple[str, ...]:
    """Return the names of those that are not light."""
    return tuple(
        i.name
        for i in computation.instructions
        if i.opcode not in _FREE and not _is_light(computation, i)
    )


def folds_nothing(computation: Computation) -> bool:
    """Tell whether an element of whatever it computes depends on a few elements only."""
    return all(
        i.opcode in _FREE | _SPREADING | _MOVING or OPS[i.opcode].elementwise
        for i in computation.instructions
    )


def _is_light(computation: Computation, instr: Instruction) -> bool:
    spec = OPS[instr.opcode]
    if not isinstance(instr.shape, Shape) or spec.effect:
        return False
    if spec.elementwise or instr.opcode in _SPREADING:
        return True
    shapes = [instr.shape, *(computation[o].shape for o in instr.operands)]
    few = all(isinstance(s, Shape) and s.elements <= FEW_ELEMENTS for s in shapes)
    return few and instr.opcode in _MOVING
