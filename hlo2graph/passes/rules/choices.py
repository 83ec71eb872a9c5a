"""Rules of compare, select and convert that change no bit of a result."""

from __future__ import annotations

from dataclasses import replace
from operator import ge, gt, le, lt

from hlo2graph.hlo import DType, Instruction, Kind, Shape
from hlo2graph.hlo.floats import MANTISSA_BITS
from hlo2graph.ops.expect import integer
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.places import bounds
from hlo2graph.passes.rules.values import Found, Rule, filled_with, is_splat, made, splat

_REFLEXIVE = frozenset({"EQ", "GE", "LE"})
_ORDERS = {"LT": lt, "LE": le, "GT": gt, "GE": ge}
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def compare(draft: Draft, instr: Instruction) -> Found:
    """Decide comparisons of a whole number with itself, or with what bounds it."""
    left, right = instr.operands
    dtype = draft.shape(left).dtype
    if dtype.is_float:
        return _rectified(draft, instr)
    if not dtype.is_integer and dtype.kind is not Kind.PRED:
        return None
    direction = str(instr.attrs["direction"])
    if left == right:
        return filled_with(draft, instr, direction in _REFLEXIVE)
    bound, other = splat(draft, right), left
    if bound is None:
        bound, other, direction = splat(draft, left), right, _FLIPPED[direction]
    if bound is None:
        return None
    whole = (0, 1) if dtype.kind is Kind.PRED else dtype.limits
    found = _decided(direction, bounds(draft, other) or whole, int(bound))
    return None if found is None else filled_with(draft, instr, found)


def _decided(direction: str, limits: tuple[int, int], bound: int) -> bool | None:
    """Return how all numbers within limits compare with one; None if not all do so alike."""
    if direction in _ORDERS:
        found = {_ORDERS[direction](end, bound) for end in limits}
        return found.pop() if len(found) == 1 else None
    low, high = limits
    return None if low <= bound <= high else direction == "NE"


def _rectified(draft: Draft, instr: Instruction) -> Found:
    """Ask of max(x, 0) whether it is positive, where there is one, and no more of x: it may go."""
    left, right = instr.operands
    ordered = instr.attrs.get("type") == "TOTALORDER"
    if ordered or instr.attrs["direction"] != "GT" or not _is_zero(draft, right):
        return None
    for user in draft.users_of(left):
        others = [o for o in user.operands if o != left]
        if user.opcode == "maximum" and len(others) == 1 and _is_zero(draft, others[0]):
            return replace(instr, operands=(user.name, right))
    return None


def _is_zero(draft: Draft, name: str) -> bool:
    return is_splat(draft, name, 0.0) or is_splat(draft, name, -0.0)


def select(draft: Draft, instr: Instruction) -> Found:
    """Choose where the choice is known, or makes no difference."""
    choice, on_true, on_false = instr.operands
    if on_true == on_false:
        return on_true
    known = splat(draft, choice)
    if known is not None:
        return on_true if known else on_false
    chooser = draft[choice]
    if chooser.opcode == "not":
        return made(instr, "select", (chooser.operands[0], on_false, on_true))
    return _of_truths(draft, instr)


def _of_truths(draft: Draft, instr: Instruction) -> Found:
    """Take a choice between true and false for what it is."""
    assert isinstance(instr.shape, Shape)
    choice, on_true, on_false = instr.operands
    if instr.shape.dtype.kind is not Kind.PRED or draft.shape(choice).dims != instr.shape.dims:
        return None
    if is_splat(draft, on_true, 1) and is_splat(draft, on_false, 0):
        return choice
    negated = is_splat(draft, on_true, 0) and is_splat(draft, on_false, 1)
    return made(instr, "not", (choice,)) if negated else None


def convert(draft: Draft, instr: Instruction) -> Found:
    """Leave out a convert to the same type, and one on the way that loses nothing.

    Only whole numbers go there and back: floats' NaNs would come back changed.
    """
    [operand] = draft.operands(instr)
    assert isinstance(instr.shape, Shape)
    source, target = draft.shape(operand.name).dtype, instr.shape.dtype
    if source is target:
        return operand.name
    if operand.opcode != "convert":
        return None
    first = draft.shape(operand.operands[0]).dtype
    if not _holds(source, first):
        return None
    if first is target:
        return operand.operands[0]
    whole = source.is_integer and (target.is_integer or target.kind is Kind.PRED)
    if whole or _holds(target, source):
        return made(instr, "convert", operand.operands)
    return None


def bitcast_convert(draft: Draft, instr: Instruction) -> Found:
    """Leave out a reinterpretation as the same type, and one on the way."""
    [operand] = draft.operands(instr)
    assert isinstance(instr.shape, Shape)
    if draft.shape(operand.name).dtype is instr.shape.dtype:
        return operand.name
    if operand.opcode != "bitcast-convert":
        return None
    first = draft.shape(operand.operands[0])
    same_width = first.dtype.bits == instr.shape.dtype.bits
    if not same_width or first.dims != instr.shape.dims:
        return None
    return made(instr, "bitcast-convert", operand.operands)


def reduce_precision(draft: Draft, instr: Instruction) -> Found:
    """Leave out what keeps all bits."""
    dtype = draft.shape(instr.operands[0]).dtype
    mantissa = MANTISSA_BITS.get(dtype.name)
    if mantissa is None or integer(instr, "mantissa_bits") < mantissa:
        return None
    exponent = dtype.bits - 1 - mantissa
    return instr.operands[0] if integer(instr, "exponent_bits") >= exponent else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Tell whether a whole-number type, or pred, loses nothing on its way into `wide`."""
    if narrow.kind is Kind.PRED:
        return wide.is_integer or wide.is_float
    if not narrow.is_integer:
        return False
    if wide.is_integer:
        (low, high), (least, most) = narrow.limits, wide.limits
        return least <= low and high <= most
    return wide.is_float and narrow.bits <= MANTISSA_BITS.get(wide.name, 0)


CHOICES: dict[str, Rule] = {
    "bitcast-convert": bitcast_convert,
    "compare": compare,
    "convert": convert,
    "reduce-precision": reduce_precision,
    "select": select,
}
