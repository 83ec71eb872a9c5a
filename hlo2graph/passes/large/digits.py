"""Sorts by digits: what orders elements, as digits of 8 bits, and the steps that sort by each.

The last digit of the last key comes first: each step keeps the order of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Literal, Shape
from hlo2graph.ops.sort_digits import COUNT_DIGITS, DIGIT_BITS, DIGITS, SORT_DIGITS, U8, Chunks
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


@dataclass(frozen=True, slots=True)
class KeyDigits:
    """What gives digits of an element's key, and the same of those arrays alone that make it."""

    region: Computation
    counted: Computation
    used: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The type of the bits of which there are digits."""
        shape = self.region.parameters[-1].shape
        assert isinstance(shape, Shape)
        return shape.dtype


def digits_of_keys(keys: tuple[SortKey, ...], names: Names, stem: str) -> Iterator[KeyDigits]:
    """Yield what gives digits of an element, for each key."""
    for key in keys:
        region = _region(key, names.fresh(f"{stem}.digit"))
        users = {o for i in region.instructions for o in i.operands}
        arrays = region.parameters[:-2]
        used = tuple(k for k, p in enumerate(arrays) if p.name in users)
        yield KeyDigits(region, _counted(region, used, names), used)


def sort_by_digits(
    draft: Draft, instr: Instruction, chunks: Chunks, keys: Sequence[KeyDigits]
) -> None:
    """Put a count and a step for each digit into a sort's place."""
    operands = instr.operands
    digits = [(key, n) for key in reversed(keys) for n in range(key.dtype.bits // DIGIT_BITS)]
    for step, (key, number) in enumerate(digits):
        bits = _bits(draft, instr, key.dtype, number)
        attrs = {**chunks.attrs(COUNT_DIGITS), "to_apply": key.counted.name}
        shape = chunks.counts_of(draft.shape(operands[0]))
        looked = (*(operands[k] for k in key.used), bits)
        counts = draft.add(instr, "custom-call", shape, looked, attrs)
        how = replace(chunks, first=step == 0)
        attrs = {**how.attrs(SORT_DIGITS), "to_apply": key.region.name}
        given = (*operands, bits, counts)
        if step < len(digits) - 1:
            name = draft.add(instr, "custom-call", instr.shape, given, attrs)
            operands = draft.leaves(instr, name)
            continue
        kept = {n: v for n, v in instr.attrs.items() if n not in ("dimensions", "is_stable")}
        last = replace(instr, opcode="custom-call", operands=given, attrs={**kept, **attrs})
        draft.become(instr.name, last)


def _counted(region: Computation, used: tuple[int, ...], names: Names) -> Computation:
    """Return a region of the arrays alone that it uses, and of the bits."""
    *arrays, place, mask = region.parameters
    if len(used) == len(arrays):
        return region
    kept = [*(arrays[k] for k in used), place, mask]
    numbers = {p.name: n for n, p in enumerate(kept)}
    lines = tuple(
        replace(i, payload=numbers[i.name]) if i.opcode == "parameter" else i
        for i in region.instructions
        if i.opcode != "parameter" or i.name in numbers
    )
    return Computation(names.fresh(f"{region.name}.counted"), lines, region.root)


def _bits(draft: Draft, instr: Instruction, kind: DType, number: int) -> str:
    """Write where digit `number` lies in a number, the least one first, and its mask."""
    shape = Shape(kind, (2,))
    array = np.asarray([number * DIGIT_BITS, DIGITS - 1], kind.numpy)
    return draft.add(instr, "constant", shape, payload=Literal(shape, array))


def _region(key: SortKey, name: str) -> Computation:
    """Return what gives the digit of a key at a place with a mask."""
    lines, found = _of_one_element(key.computation)
    write = _Lines(lines)
    bits, kind = _unsigned(write, found, key.dtype)
    if not key.rises:
        bits = write.add("not", kind, bits)
    count = sum(i.opcode == "parameter" for i in lines)
    place, mask = (write.add("parameter", kind, payload=count + k) for k in (0, 1))
    bits = write.add("shift-right-logical", kind, bits, place)
    root = write.add("convert", U8, write.add("and", kind, bits, mask))
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

    def add(
        self, opcode: str, dtype: DType, *operands: str, payload: int | Literal | None = None
    ) -> str:
        """Add an instruction and return its name."""
        name = self._names.fresh(opcode)
        self._lines.append(Instruction(name, opcode, Shape(dtype), operands, payload=payload))
        return name

    def constant(self, dtype: DType, value: int) -> str:
        """Add a constant and return its name."""
        return self.add(
            "constant", dtype, payload=Literal(Shape(dtype), np.asarray(value, dtype.numpy))
        )
