"""What computations have in common that differ in names and in scalar constants alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import compute_type, scalar_literal
from hlo2graph.backends.cuda.literals import NamedLiteral, scalar_of
from hlo2graph.hlo import Computation, Instruction, Literal


@dataclass(frozen=True, slots=True)
class Pattern:
    """A computation whose scalar constants have names instead of values.

    `literals` are their C++ type, name and value; `key` is equal for those that are alike.
    """

    computation: Computation
    literals: tuple[tuple[str, str, str], ...]
    key: Hashable


def pattern_of(computation: Computation) -> Pattern:
    """Return the pattern that a computation follows."""
    literals: list[tuple[str, str, str]] = []
    instructions = []
    for instr in computation.instructions:
        literal = instr.payload
        if isinstance(literal, Literal) and literal.array is not None and literal.array.size == 1:
            dtype, name = literal.shape.dtype, f"literal{len(literals)}"
            value = scalar_literal(dtype, scalar_of(literal))
            literals.append((compute_type(dtype), name, value))
            instr = replace(instr, payload=NamedLiteral(literal.shape, None, name))
        instructions.append(instr)
    found = replace(computation, instructions=tuple(instructions))
    return Pattern(found, tuple(literals), _key(found))


def _key(computation: Computation) -> Hashable:
    numbers = {instr.name: k for k, instr in enumerate(computation.instructions)}
    return numbers[computation.root], *(_line(i, numbers) for i in computation.instructions)


def _line(instr: Instruction, numbers: dict[str, int]) -> Hashable:
    """Return what an instruction does; an array of constants is that very one."""
    attrs = tuple((name, held) for name, held in instr.attrs.items() if name != "metadata")
    operands = tuple(numbers[name] for name in instr.operands)
    return instr.opcode, instr.shape, operands, attrs, instr.payload
