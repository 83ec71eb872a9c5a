"""Which leaf is which: tuples are flat in kernels, their array leaves numbered in order."""

from __future__ import annotations

from hlo2graph.hlo import Computation, Instruction, Shape


def width_of(instr: Instruction) -> int:
    """Return how many array leaves an instruction has."""
    return 1 if isinstance(instr.shape, Shape) else len(tuple(instr.shape.leaves()))


def part_of(computation: Computation, instr: Instruction, number: int) -> tuple[str, int]:
    """Return which operand of a tuple holds its leaf `number`, and which leaf of it that is."""
    for operand in instr.operands:
        width = width_of(computation[operand])
        if number < width:
            return operand, number
        number -= width
    raise AssertionError("a tuple has as many leaves as its operands")


def first_leaf(whole: Instruction, element: Instruction) -> int:
    """Return the number of the first leaf that a get-tuple-element takes of `whole`."""
    number = element.attrs["index"]
    assert isinstance(number, int)
    return sum(len(tuple(part.leaves())) for part in getattr(whole.shape, "parts", ())[:number])
