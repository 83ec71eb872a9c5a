"""`hlo2graph$count_digits`, `hlo2graph$sort_digits`: steps of a sort by digits, which passes write.

`to_apply` gives a digit, u8, of an element of the arrays and of two numbers, which stand behind
these in one array: where in a key the digit lies, and a mask of its bits. So all steps of a key
have the same kernels. Elements along a dimension are taken in chunks of `chunk` (the last may be
shorter). The first call gives how many elements of each chunk of a row have each digit:
s32[rows, chunks, 256]. The second one is given these counts behind the others, and sorts by the
digit; elements of the same digit keep their order. The `first` of these may read what its kernel
computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlo2graph.hlo import AnyShape, Attribute, Instruction, Shape, TupleShape
from hlo2graph.hlo.attributes import Raw
from hlo2graph.hlo.dtype import DTYPES, S32
from hlo2graph.ops.custom_target import json_config
from hlo2graph.ops.expect import as_arrays, callee, dimension, host_arrays, require, takes_scalars
from hlo2graph.ops.folding import as_tuple
from hlo2graph.ops.reduction import as_result
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue

COUNT_DIGITS, SORT_DIGITS = "hlo2graph$count_digits", "hlo2graph$sort_digits"
DIGITS, DIGIT_BITS = 256, 8
WIDEST = 8  # bytes of an element that is moved
MOST_SORTED = 1 << 30  # elements of a row: an int has room for sums of places
MANY = 1 << 21  # elements, from which on two blocks share a multiprocessor
U8 = DTYPES["u8"]
_NAMES = ("dimension", "chunk", "first")


@dataclass(frozen=True, slots=True)
class Chunks:
    """Along which dimension elements are sorted, how many a block takes, and whether first."""

    dimension: int
    chunk: int
    first: bool = False

    def attrs(self, target: str) -> dict[str, Attribute]:
        """Return the attributes of a call, all but `to_apply`."""
        config = ", ".join(f'"{name}": {int(getattr(self, name))}' for name in _NAMES)
        return {
            "custom_call_target": target,
            "backend_config": Raw(f'{{"sort_digits": {{{config}}}}}'),
        }

    def counts_of(self, shape: Shape) -> Shape:
        """Return the shape of the counts of arrays like `shape`."""
        length = shape.dims[self.dimension]
        rows = shape.elements // length if length else 0
        return Shape(S32, (rows, -(-length // self.chunk), DIGITS))


def chunks_of(instr: Instruction) -> Chunks | None:
    """Return what a call says of its chunks; None where it does not say it."""
    config = json_config(instr, "sort_digits")
    held: Mapping[str, Any] = config or {}
    along, chunk, first = (held.get(name) for name in _NAMES)
    if not (type(along) is int and type(chunk) is int and along >= 0 and 0 < chunk < 2**31):
        return None
    return Chunks(along, chunk, first == 1) if first in (0, 1) else None


def begins_with_digits(instr: Instruction) -> bool:
    """Tell whether a call that sorts is a first step, which looks at each element once."""
    chunks = chunks_of(instr)
    return chunks is not None and chunks.first


def why_not_digits(instr: Instruction) -> str | None:
    """Return why a call cannot run, or None."""
    if chunks_of(instr) is None:
        return f"its backend_config must say {', '.join(_NAMES)}"
    if any(leaf.dtype.size > WIDEST for leaf in instr.shape.leaves()):
        return f"it moves elements of at most {WIDEST} bytes"
    return None


def infer_counts(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    """Return the shape of the counts."""
    chunks = chunks_of(instr)
    if chunks is None:
        return instr.shape
    arrays = _checked(instr, operands, chunks, computations)
    return chunks.counts_of(arrays[0])


def infer_sorted(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    """Return the shape of what a step gives: that of all operands but the counts."""
    chunks = chunks_of(instr)
    if chunks is None:
        return instr.shape
    arrays = _checked(instr, operands[:-1], chunks, computations)
    wanted, given = chunks.counts_of(arrays[0]), operands[-1]
    require(instr, wanted.compatible(given), f"takes counts of {wanted}, got {given}")
    shapes = tuple(Shape(a.dtype, a.dims) for a in arrays)
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def _checked(
    instr: Instruction, operands: Sequence[AnyShape], chunks: Chunks, computations: Computations
) -> list[Shape]:
    require(instr, len(operands) > 1, "takes arrays, the bits of a digit, and perhaps counts")
    *arrays, bits = as_arrays(instr, operands)
    require(instr, bits.dims == (2,), f"takes two numbers as the bits of a digit, got {bits}")
    alike = all(a.dims == arrays[0].dims for a in arrays)
    require(instr, alike, "takes arrays of the same sizes")
    along = replace(instr, attrs={"dimensions": (chunks.dimension,)})
    dimension(along, "dimensions", arrays[0].rank)
    length = arrays[0].dims[chunks.dimension]
    require(instr, length <= MOST_SORTED, f"sorts rows of up to {MOST_SORTED}, got {length}")
    called = callee(instr, "to_apply", computations)
    takes_scalars(instr, called, "to_apply", [a.dtype for a in (*arrays, bits, bits)])
    found = called.result.shape
    require(instr, found.compatible(Shape(U8)), f"to_apply={called.name} must return u8[]")
    return arrays


def count_digits(
    instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator
) -> HostValue:
    """Count the digits of each chunk."""
    chunks = chunks_of(instr)
    assert chunks is not None
    digits = _digits(instr, host_arrays(operands), chunks, evaluate)
    starts = range(0, digits.shape[1], chunks.chunk)
    counts = np.zeros((digits.shape[0], len(starts), DIGITS), np.int32)
    for row in range(digits.shape[0]):
        for number, start in enumerate(starts):
            part = digits[row, start : start + chunks.chunk]
            counts[row, number] = np.bincount(part, minlength=DIGITS)
    return counts


def sort_digits(
    instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator
) -> HostValue:
    """Sort the arrays by their digits."""
    chunks, (*arrays, bits, _) = chunks_of(instr), host_arrays(operands)
    assert chunks is not None
    digits = _digits(instr, [*arrays, bits], chunks, evaluate)
    order = np.argsort(digits, axis=-1, kind="stable")
    results = []
    for array in arrays:
        moved = np.moveaxis(array, chunks.dimension, -1)
        taken = np.take_along_axis(moved.reshape(order.shape), order, -1)
        results.append(np.moveaxis(taken.reshape(moved.shape), -1, chunks.dimension))
    return as_result(instr, results)


def _digits(
    instr: Instruction, operands: Sequence[Array], chunks: Chunks, evaluate: Evaluator
) -> Array:
    """Return the digits of each row."""
    *arrays, bits = operands
    (found,) = as_tuple(evaluate(str(instr.attrs["to_apply"]), (*arrays, *bits)))
    whole = np.moveaxis(np.broadcast_to(found, arrays[0].shape), chunks.dimension, -1)
    length = whole.shape[-1]
    rows = whole.size // length if length else 0
    return whole.reshape(rows, length)
