"""How a softmax is known: the largest of some values, and the sum of what they are beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf

from hlo2graph.hlo import Computation, Instruction, Literal, Shape
from hlo2graph.ops.scalar_region import binary_reducer

KEEPS_ORDER = frozenset({"copy", "reshape"})
VIEWS = KEEPS_ORDER | {"transpose"}
_F32 = frozenset({"f32"})


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
    computations: Mapping[str, Computation] | None,
    stages: Sequence[Sequence[str]],
    dtypes: Set[str] = _F32,
    views: Set[str] = VIEWS,
) -> Softmax | None:
    """Return the softmax, of one of the types, that reduces, by stage, are the folds of, if any.

    Exponentials of a narrow type may be summed in float32.
    computations: None where nobody knows what reduces fold with: they are told by where they start.
    views: what may stand between, of a caller who knows that elements are in the same places.
    """
    if [len(stage) for stage in stages] != [1, 1]:
        return None
    largest, total = (computation[stage[0]] for stage in stages)
    grown = computation[total.operands[0]]
    if grown.opcode == "convert":
        grown = computation[grown.operands[0]]
    if grown.opcode != "exponential" or not _fold(computations, largest, total):
        return None
    less = _behind(computation, grown.operands[0], views)
    if less.opcode != "subtract":
        return None
    types = {_dtype(instr) for instr in (largest, grown, less)}
    if len(types) != 1 or not types <= dtypes or _dtype(total) not in types | _F32:
        return None
    same, beside = (_behind(computation, name, views) for name in less.operands)
    folded = _behind(computation, largest.operands[0], views)
    is_softmax = (
        same is folded
        and _largest_behind(computation, beside, views) is largest
        and _is_scalar(computation[largest.operands[1]], -inf)
        and _is_scalar(computation[total.operands[1]], 0)
    )
    return Softmax(largest, total, grown, folded) if is_softmax else None


def _fold(
    computations: Mapping[str, Computation] | None, largest: Instruction, total: Instruction
) -> bool:
    """Tell whether the largest is what one reduce finds, and a sum what the other does."""
    if computations is None:
        return True
    named = [binary_reducer(computations, str(r.attrs["to_apply"])) for r in (largest, total)]
    return named == ["maximum", "add"]


def are_shares(computation: Computation, softmax: Softmax, name: str) -> bool:
    """Tell whether weights are the exponentials divided by their sum, rounded or not."""
    divided = computation[name]
    while divided.opcode in ("convert", *VIEWS):
        divided = computation[divided.operands[0]]
    if divided.opcode != "divide" or not _is_f32(divided):
        return False
    grown, total = divided.operands
    whole = computation[total]
    while whole.opcode in ("broadcast", *VIEWS):
        whole = computation[whole.operands[0]]
    return _behind(computation, grown) is softmax.grown and whole is softmax.total


def _behind(computation: Computation, name: str, views: Set[str] = VIEWS) -> Instruction:
    """Return what a view shows."""
    instr = computation[name]
    while instr.opcode in views:
        instr = computation[instr.operands[0]]
    return instr


def _largest_behind(computation: Computation, instr: Instruction, views: Set[str]) -> Instruction:
    """Return what a value is, each of its elements in many places, or as large as the least."""
    while instr.opcode in ("broadcast", "maximum", *views):
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
    return _dtype(instr) == "f32"


def _dtype(instr: Instruction) -> str | None:
    return instr.shape.dtype.name if isinstance(instr.shape, Shape) else None
