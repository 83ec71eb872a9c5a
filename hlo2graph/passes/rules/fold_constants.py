"""Rules that compute what is known: with the host's rules, so to the bits that the host gives.

- An elementwise instruction of scalars each spread over an array computes the scalar once.
- An instruction whose operands are constants, of a result of at most MOST_ELEMENTS elements, is a
  constant. Larger ones would be memory for what a kernel makes on its way.
- Only what any machine computes to the same bits: what moves elements, integers, and arithmetic
  that IEEE 754 rounds in one way. No result with a NaN in it, whose bits differ between machines,
  unless it was moved there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import Array
from hlo2graph.ops.widening import widen
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import Found, constant, filled, made, splat

MOST_ELEMENTS = 256

_MOVING = frozenset(
    {
        *("bitcast-convert", "concatenate", "dynamic-slice", "pad", "reshape", "reverse"),
        *("select", "slice", "transpose"),
    }
)
_EXACT = frozenset(
    {
        *("abs", "add", "and", "ceil", "clamp", "compare", "complex", "convert"),
        *("count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum", "minimum"),
        *("mulhi", "multiply", "negate", "not", "or", "popcnt", "real", "reduce-precision"),
        *("remainder", "round-nearest-afz", "round-nearest-even", "shift-left"),
        *("shift-right-arithmetic", "shift-right-logical", "sign", "sqrt", "subtract", "xor"),
    }
)
_OF_INTEGERS = frozenset({"power"})
_ROUNDED_IN_PARTS = frozenset({"abs", "divide", "multiply", "sign", "sqrt"})  # of complex numbers
_NOTHING_CALLED = HostEvaluator({})


def fold(draft: Draft, instr: Instruction) -> Found:
    """Return `instr` as what it is known to be."""
    shape = instr.shape
    if not isinstance(shape, Shape) or not instr.operands or not _is_exact(draft, instr):
        return None
    if OPS[instr.opcode].elementwise and shape.dims:
        return _fold_once(draft, instr, shape)
    if shape.elements > MOST_ELEMENTS:
        return None
    arrays = [constant(operand) for operand in draft.operands(instr)]
    given = [a for a in arrays if a is not None]
    if len(given) < len(arrays):
        return None
    value = computed(instr, given)
    return None if value is None else made(instr, "constant", payload=Literal(shape, value))


def unspread(draft: Draft, instr: Instruction) -> Found:
    """Return a constant array of equal elements as a scalar, spread."""
    value = constant(instr)
    if value is None or not value.size or not isinstance(instr.shape, Shape):
        return None
    if not instr.shape.dims or not _is_uniform(value):
        return None
    return filled(draft, instr, np.array(value.reshape(-1)[0]))


def _is_exact(draft: Draft, instr: Instruction) -> bool:
    if instr.opcode in _MOVING:
        return True
    if instr.opcode in _OF_INTEGERS:
        return draft.shape(instr.operands[0]).dtype.is_integer
    if instr.opcode not in _EXACT:
        return False
    in_parts = instr.opcode in _ROUNDED_IN_PARTS
    return not (in_parts and draft.shape(instr.operands[0]).dtype.is_complex)


def _fold_once(draft: Draft, instr: Instruction, shape: Shape) -> Found:
    """Compute an element where all are equal; else all of a few."""
    scalars = [splat(draft, name) for name in instr.operands]
    given = [s for s in scalars if s is not None]
    if len(given) == len(scalars):
        value = computed(instr, given, Shape(shape.dtype))
        return None if value is None else filled(draft, instr, value)
    if shape.elements > MOST_ELEMENTS:
        return None
    arrays = [
        constant(operand) if found is None else np.broadcast_to(found, draft.shape(name).dims)
        for operand, name, found in zip(draft.operands(instr), instr.operands, scalars, strict=True)
    ]
    held = [a for a in arrays if a is not None]
    if len(held) < len(arrays):
        return None
    value = computed(instr, held)
    return None if value is None else made(instr, "constant", payload=Literal(shape, value))


def computed(
    instr: Instruction, given: Sequence[Array], shape: Shape | None = None
) -> Array | None:
    """Return the result for these operands, of `shape` if it is not `instr`'s.

    None where NaNs come out of arithmetic.
    """
    asked = (
        instr
        if shape is None
        else Instruction(
            instr.name, instr.opcode, shape, instr.operands, instr.attrs, None, instr.span
        )
    )
    with np.errstate(all="ignore"):
        value = np.array(OPS[instr.opcode].host(asked, given, _NOTHING_CALLED), order="C")
        moved = instr.opcode in _MOVING
        if not moved and value.dtype.kind not in "biu" and np.isnan(widen(value)).any():
            return None
    return value


def _is_uniform(array: Array) -> bool:
    """Tell whether all elements have the same bits."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    few = raw[:16]  # tells most arrays apart without a look at all of a large one
    return bool((few == raw[0]).all() and (raw == raw[0]).all())
