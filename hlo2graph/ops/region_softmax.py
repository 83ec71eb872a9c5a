"""How a softmax is known: the largest of some values, and the sum of what they are beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hlo2graph.hlo import Computation, Instruction, Literal, Shape
from hlo2graph.ops.scalar_region import binary_reducer

_VIEWS = frozenset({"copy", "reshape", "transpose"})


@dataclass(frozen=True, slots=True)
class Softmax:
    """Reduces: `total` sums exponentials of what `largest` folds, less what that found.

    Those exponentials are `grown`; the values are `folded`, behind whatever views.
    """

    largest: Instruction
    total: Instruction
    grown: Instruction
    folded: Instruction


def softmax_of(
    computation: Computation,
    computations: Mapping[str, Computation],
    stages: Sequence[Sequence[str]],
) -> Softmax | None:
    """Return the softmax of f32 that reduces, by stage, are the folds of, if they are."""
    if [len(stage) for stage in stages] != [1, 1]:
        return None
    largest, total = (computation[stage[0]] for stage in stages)
    named = [binary_reducer(computations, str(r.attrs["to_apply"])) for r in (largest, total)]
    grown = computation[total.operands[0]]
    if named != ["maximum", "add"] or grown.opcode != "exponential":
        return None
    less = _behind(computation, grown.operands[0])
    if less.opcode != "subtract" or not all(map(_is_f32, (largest, total, grown, less))):
        return None
    same, beside = (_behind(computation, name) for name in less.operands)
    folded = _behind(computation, largest.operands[0])
    is_softmax = (
        same is folded
        and _largest_behind(computation, beside) is largest
        and _is_scalar(computation[largest.operands[1]], -inf)
        and _is_scalar(computation[total.operands[1]], 0)
    )
    return Softmax(largest, total, grown, folded) if is_softmax else None


def are_shares(computation: Computation, softmax: Softmax, name: str) -> bool:
    """Tell whether weights are the exponentials divided by their sum, rounded or not."""
    divided = computation[name]
    while divided.opcode in ("convert", *_VIEWS):
        divided = computation[divided.operands[0]]
    if divided.opcode != "divide" or not _is_f32(divided):
        return False
    grown, total = divided.operands
    whole = computation[total]
    while whole.opcode in ("broadcast", *_VIEWS):
        whole = computation[whole.operands[0]]
    return _behind(computation, grown) is softmax.grown and whole is softmax.total


def _behind(computation: Computation, name: str) -> Instruction:
    """Return what a view shows."""
    instr = computation[name]
    while instr.opcode in _VIEWS:
        instr = computation[instr.operands[0]]
    return instr


def _largest_behind(computation: Computation, instr: Instruction) -> Instruction:
    """Return what a value is, each of its elements in many places, or as large as the least."""
    while instr.opcode in ("broadcast", "maximum", *_VIEWS):
        first, *others = (computation[name] for name in instr.operands)
        if any(not _is_least(computation, other) for other in others):
            return instr
        instr = first
    return instr


def _is_least(computation: Computation, instr: Instruction) -> bool:
    while instr.opcode in ("broadcast", "reshape"):
        instr = computation[instr.operands[0]]
    return _is_scalar(instr, -inf)


def _is_scalar(instr: Instruction, value: float) -> bool:
    array = instr.payload.array if isinstance(instr.payload, Literal) else None
    return array is not None and array.size == 1 and float(array.item()) == value


def _is_f32(instr: Instruction) -> bool:
    return isinstance(instr.shape, Shape) and instr.shape.dtype.name == "f32"
