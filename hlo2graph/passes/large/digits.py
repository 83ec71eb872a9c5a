"""Sorts by digits: what orders elements, as digits of 8 bits, and the steps that sort by each.

The last digit of the last key comes first: each step keeps the order of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Literal, Shape
from hlo2graph.ops.sort_digits import COUNT_DIGITS, DIGIT_BITS, SORT_DIGITS, U8, Chunks
from hlo2graph.ops.sort_key import SortKey
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.names import Names

_FLOATS = frozenset(DTYPES[name] for name in ("bf16", "f16", "f32", "f64"))


def digits_of(keys: tuple[SortKey, ...]) -> int:
    """Return how many digits all keys have; 0 where some key has none."""
    if not all(key.dtype.is_integer or key.dtype in _FLOATS for key in keys):
        return 0
    if any(key.dtype.bits % DIGIT_BITS for key in keys):
        return 0
    return sum(key.dtype.bits // DIGIT_BITS for key in keys)


def regions_of(keys: tuple[SortKey, ...], names: Names, stem: str) -> Iterator[Computation]:
    """Yield what gives the digits of an element, those that weigh least first."""
    for key in reversed(keys):
        for number in range(key.dtype.bits // DIGIT_BITS):
            yield _region(key, number, names.fresh(f"{stem}.digit"))


def sort_by_digits(
    draft: Draft, instr: Instruction, chunks: Chunks, regions: list[Computation]
) -> None:
    """Put a count and a step for each digit into a sort's place."""
    operands = instr.operands
    for number, region in enumerate(regions):
        attrs = {**chunks.attrs(COUNT_DIGITS), "to_apply": region.name}
        shape = chunks.counts_of(draft.shape(operands[0]))
        counts = draft.add(instr, "custom-call", shape, operands, attrs)
        attrs = {**chunks.attrs(SORT_DIGITS), "to_apply": region.name}
        if number == len(regions) - 1:
            kept = {n: v for n, v in instr.attrs.items() if n not in ("dimensions", "is_stable")}
            made = replace(instr, opcode="custom-call", operands=(*operands, counts))
            draft.become(instr.name, replace(made, attrs={**kept, **attrs}))
            return
        name = draft.add(instr, "custom-call", instr.shape, (*operands, counts), attrs)
        operands = leaves_of(draft, instr, name)


def leaves_of(draft: Draft, instr: Instruction, name: str) -> tuple[str, ...]:
    """Return the arrays of a result like that of `instr`."""
    if isinstance(instr.shape, Shape):
        return (name,)
    return tuple(
        draft.add(instr, "get-tuple-element", part, (name,), {"index": number})
        for number, part in enumerate(instr.shape.parts)
    )


def _region(key: SortKey, number: int, name: str) -> Computation:
    """Return what gives digit `number` of a key, the least one first."""
    lines, found = _of_one_element(key.computation)
    write = _Lines(lines)
    bits, kind = _unsigned(write, found, key.dtype)
    if not key.rises:
        bits = write.add("not", kind, bits)
    if number:
        by = write.constant(kind, number * DIGIT_BITS)
        bits = write.add("shift-right-logical", kind, bits, by)
    root = write.add("convert", U8, bits)
    return Computation(name, tuple(lines), root)


def _of_one_element(compared: Computation) -> tuple[list[Instruction], str]:
    """Return what makes a key, as instructions that are given one element, and its name."""
    wanted, stack = set[str](), [compared.root]
    while stack:
        if (name := stack.pop()) not in wanted:
            wanted.add(name)
            stack += compared[name].operands
    parameters: dict[int, Instruction] = {}
    rest: list[Instruction] = []
    for instr in compared.instructions:
        if instr.opcode == "parameter":
            assert isinstance(instr.payload, int)
            operand = instr.payload // 2
            if operand not in parameters or instr.name in wanted:
                parameters[operand] = replace(instr, payload=operand)
        elif instr.name in wanted:
            rest.append(instr)
    return [*(parameters[k] for k in sorted(parameters)), *rest], compared.root


def _unsigned(write: _Lines, value: str, dtype: DType) -> tuple[str, DType]:
    """Write a number without sign that is the larger, the later a value is in the total order."""
    unsigned, signed = DTYPES[f"u{dtype.bits}"], DTYPES[f"s{dtype.bits}"]
    if dtype == unsigned:
        return value, unsigned
    bits = write.add("bitcast-convert", unsigned, value)
    mask = write.constant(unsigned, 1 << (dtype.bits - 1))
    if dtype.is_float:
        number = write.add("bitcast-convert", signed, value)
        by = write.constant(signed, dtype.bits - 1)
        sign = write.add("shift-right-arithmetic", signed, number, by)
        mask = write.add("or", unsigned, write.add("bitcast-convert", unsigned, sign), mask)
    return write.add("xor", unsigned, bits, mask), unsigned


class _Lines:
    """Adds scalar instructions to others."""

    def __init__(self, lines: list[Instruction]) -> None:
        self._lines = lines
        self._names = Names(i.name for i in lines)

    def add(self, opcode: str, dtype: DType, *operands: str) -> str:
        """Add an instruction and return its name."""
        name = self._names.fresh(opcode)
        self._lines.append(Instruction(name, opcode, Shape(dtype), operands))
        return name

    def constant(self, dtype: DType, value: int) -> str:
        """Add a constant and return its name."""
        name = self._names.fresh("constant")
        literal = Literal(Shape(dtype), np.asarray(value, dtype.numpy))
        self._lines.append(Instruction(name, "constant", Shape(dtype), payload=literal))
        return name
