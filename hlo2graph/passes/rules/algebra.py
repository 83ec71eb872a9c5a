"""Rules of arithmetic that change no bit of a result.

For floats that means: no reassociation, and identities with care for -0 (x + 0 is not x where x is
-0; x + -0 is) and NaN (x - x and x * 0 stay). What a NaN's bits are is left open by arithmetic:
x * 1 is x. Integers wrap, so that constants may be gathered.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import DType, Instruction, Kind, Shape
from hlo2graph.ops.expect import in_total_order
from hlo2graph.ops.spec import Array
from hlo2graph.ops.widening import widen
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.fold_constants import computed
from hlo2graph.passes.rules.values import (
    Found,
    Rule,
    add_filled,
    filled,
    filled_with,
    is_splat,
    made,
    splat,
)

_GATHERED = frozenset({"add", "and", "multiply", "or", "xor"})
_IDEMPOTENT = frozenset({"and", "maximum", "minimum", "or"})
_COMMUTING = _GATHERED | {"maximum", "minimum"}

_Known: TypeAlias = tuple[str, Array]
"""The operand that is no constant, and the value of the one that is."""


def combine(draft: Draft, instr: Instruction) -> Found:
    """Simplify add, multiply, and, or, xor, maximum or minimum."""
    left, right = instr.operands
    if left == right:
        if instr.opcode == "xor":
            return filled_with(draft, instr, 0)
        return left if instr.opcode in _IDEMPOTENT else None
    known = _known(draft, instr)
    return None if known is None else _with_known(draft, instr, *known)


def _with_known(draft: Draft, instr: Instruction, other: str, value: Array) -> Found:
    """Combine something with an array of equal elements."""
    dtype = draft.shape(other).dtype
    if _is_identity(instr.opcode, dtype, value):
        return other
    if _absorbs(instr.opcode, dtype, value):
        return filled(draft, instr, value)
    if instr.opcode == "xor" and dtype.kind is Kind.PRED:
        return made(instr, "not", (other,))
    return _gathered(draft, instr, other, value) if dtype.is_integer else None


def subtract(draft: Draft, instr: Instruction) -> Found:
    """Simplify x - 0, and x - x of integers."""
    left, right = instr.operands
    if is_splat(draft, right, 0):
        return left
    if left == right and draft.shape(left).dtype.is_integer:
        return filled_with(draft, instr, 0)
    return None


def divide(draft: Draft, instr: Instruction) -> Found:
    """Simplify x / 1, and division by powers of two where that is exact and cheaper."""
    left, right = instr.operands
    value, dtype = splat(draft, right), draft.shape(left).dtype
    if value is None:
        return _by_choice(draft, instr) if dtype.is_float else None
    if is_splat(draft, right, 1):
        return left
    if dtype.is_float:
        return _by_reciprocal(draft, instr, value)
    if dtype.kind is Kind.UNSIGNED and (bits := _power_of_two(value)) is not None:
        count = np.asarray(bits).astype(dtype.numpy)
        by = add_filled(draft, instr, draft.shape(right), count)
        return made(instr, "shift-right-logical", (left, by))
    return None


def remainder(draft: Draft, instr: Instruction) -> Found:
    """Simplify x % 2**n of unsigned numbers."""
    left, right = instr.operands
    value, dtype = splat(draft, right), draft.shape(left).dtype
    if value is None or dtype.kind is not Kind.UNSIGNED or _power_of_two(value) is None:
        return None
    mask = np.asarray(int(value) - 1).astype(dtype.numpy)
    return made(instr, "and", (left, add_filled(draft, instr, draft.shape(right), mask)))


def power(draft: Draft, instr: Instruction) -> Found:
    """Simplify x to the 0 and to the 1, and squares of integers."""
    base, exponent = instr.operands
    if draft.shape(base).dtype.is_complex:
        return None
    if is_splat(draft, exponent, 1):
        return base
    if is_splat(draft, exponent, 0):
        return filled_with(draft, instr, 1)
    if draft.shape(base).dtype.is_integer and is_splat(draft, exponent, 2):
        return made(instr, "multiply", (base, base))
    return None


def shift(draft: Draft, instr: Instruction) -> Found:
    """Simplify shifts by 0, and by the width or more."""
    value, dtype = splat(draft, instr.operands[1]), draft.shape(instr.operands[0]).dtype
    if value is None:
        return None
    count = int(value) & ((1 << dtype.bits) - 1)
    if count == 0:
        return instr.operands[0]
    if count >= dtype.bits and instr.opcode != "shift-right-arithmetic":
        return filled_with(draft, instr, 0)
    return None


def undone(draft: Draft, instr: Instruction) -> Found:
    """Simplify a negation of a negation, and the like."""
    [operand] = draft.operands(instr)
    if operand.opcode == instr.opcode:
        return operand.name if instr.opcode == "abs" else operand.operands[0]
    if instr.opcode == "abs" and operand.opcode == "negate":
        return made(instr, "abs", operand.operands)
    if instr.opcode == "not" and operand.opcode == "compare":
        return _opposite(draft, instr, operand)
    return None


def parts(draft: Draft, instr: Instruction) -> Found:
    """Simplify real and imag of a complex number made of them, and a number made of its parts."""
    operands = draft.operands(instr)
    if instr.opcode != "complex":
        [whole] = operands
        return whole.operands[instr.opcode == "imag"] if whole.opcode == "complex" else None
    real, imaginary = operands
    both = (real.opcode, imaginary.opcode) == ("real", "imag")
    same = both and real.operands == imaginary.operands
    whole_is_complex = same and draft.shape(real.operands[0]).dtype.is_complex
    return real.operands[0] if whole_is_complex else None


def _known(draft: Draft, instr: Instruction) -> _Known | None:
    left, right = instr.operands
    value = splat(draft, right)
    if value is not None:
        return left, value
    value = splat(draft, left)
    return None if value is None else (right, value)


def _is_identity(opcode: str, dtype: DType, value: Array) -> bool:
    """Tell whether combining with `value` changes nothing."""
    if dtype.is_complex:
        return False
    wide = widen(value)
    match opcode:
        case "add" if dtype.is_float:
            return bool(wide == 0 and np.signbit(wide))
        case "add" | "or" | "xor":
            return not wide
        case "multiply":
            return bool(wide == 1)
        case "and":
            return bool(wide == _ones(dtype))
        case _:
            return bool(wide == _extreme(dtype, lowest=opcode == "maximum"))


def _absorbs(opcode: str, dtype: DType, value: Array) -> bool:
    """Tell whether combining anything with `value` gives `value`."""
    if dtype.is_complex or dtype.is_float:
        return False
    wide = widen(value)
    match opcode:
        case "multiply" | "and":
            return not wide
        case "or":
            return bool(wide == _ones(dtype))
        case "maximum" | "minimum":
            return bool(wide == _extreme(dtype, lowest=opcode == "minimum"))
        case _:
            return dtype.kind is Kind.PRED and opcode == "add" and bool(wide)


def _ones(dtype: DType) -> int | bool:
    if dtype.kind is Kind.PRED:
        return True
    return -1 if dtype.kind is Kind.SIGNED else dtype.limits[1]


def _extreme(dtype: DType, *, lowest: bool) -> float:
    if dtype.is_float:
        return -np.inf if lowest else np.inf
    low, high = (0, 1) if dtype.kind is Kind.PRED else dtype.limits
    return low if lowest else high


def _gathered(draft: Draft, instr: Instruction, other: str, value: Array) -> Found:
    """Combine the constant with that of an operand of the same kind: (x + 2) + 3 is x + 5."""
    if instr.opcode not in _GATHERED or draft[other].opcode != instr.opcode:
        return None
    inner = _known(draft, draft[other])
    if inner is None:
        return None
    both = computed(instr, (value, inner[1]), Shape(draft.shape(other).dtype))
    if both is None:
        return None
    shape = draft.shape(other)
    return made(instr, instr.opcode, (inner[0], add_filled(draft, instr, shape, both)))


def _by_choice(draft: Draft, instr: Instruction) -> Found:
    """Multiply instead of dividing by one of two powers of two, as gradients of a maximum do."""
    left, right = instr.operands
    choice = draft[right]
    if choice.opcode != "select":
        return None
    values = [splat(draft, name) for name in choice.operands[1:]]
    by = [x for value in values if value is not None and (x := _reciprocal(value)) is not None]
    if len(by) < len(values):
        return None
    shape = draft.shape(right)
    either = [add_filled(draft, instr, shape, value) for value in by]
    chosen = draft.add(instr, "select", shape, (choice.operands[0], *either))
    return made(instr, "multiply", (left, chosen))


def _by_reciprocal(draft: Draft, instr: Instruction, value: Array) -> Found:
    left, right = instr.operands
    if (by := _reciprocal(value)) is None:
        return None
    return made(instr, "multiply", (left, add_filled(draft, instr, draft.shape(right), by)))


def _reciprocal(value: Array) -> Array | None:
    """Return the reciprocal of a power of two, where it is a normal number of the same type."""
    wide = np.asarray(widen(value))
    fraction, exponent = np.frexp(wide)
    tiny = np.finfo(wide.dtype).minexp
    if abs(fraction) != 0.5 or not tiny < 2 - exponent < -tiny:
        return None
    with np.errstate(over="ignore"):  # of a narrow type, which is seen below
        reciprocal = np.asarray(1 / wide).astype(value.dtype)
    return reciprocal if widen(reciprocal) * wide == 1 else None


def _power_of_two(value: Array) -> int | None:
    number = int(value)
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def _opposite(draft: Draft, instr: Instruction, compared: Instruction) -> Found:
    """Compare the other way round; NaN compares only as equal or not."""
    direction = str(compared.attrs["direction"])
    dtype = draft.shape(compared.operands[0]).dtype
    total = in_total_order(compared, dtype)
    if (dtype.is_float and not total) and direction not in ("EQ", "NE"):
        return None
    if dtype.is_complex:
        return None
    attrs = {k: v for k, v in compared.attrs.items() if k in ("direction", "order", "type")}
    return made(instr, "compare", compared.operands, {**attrs, "direction": _OPPOSITE[direction]})


ALGEBRA: dict[str, Rule] = {
    **dict.fromkeys(sorted(_COMMUTING), combine),
    **dict.fromkeys(("abs", "negate", "not"), undone),
    **dict.fromkeys(("complex", "imag", "real"), parts),
    **dict.fromkeys(("shift-left", "shift-right-arithmetic", "shift-right-logical"), shift),
    "divide": divide,
    "power": power,
    "remainder": remainder,
    "subtract": subtract,
}
