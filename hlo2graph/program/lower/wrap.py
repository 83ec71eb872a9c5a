"""The computation around a lone instruction: parameters, embedded constants, the instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from hlo2graph.hlo import AnyShape, Computation, Instruction, Literal, Shape, TupleShape

Input: TypeAlias = int | Literal | None
"""What an operand's leaf is: a parameter's number, a constant to embed, or a token."""

NAMED = frozenset({"rng"})  # opcodes whose result depends on their name: two never share a kernel


def wrapping(
    name: str,
    instr: Instruction,
    parameters: Sequence[Shape],
    operands: Sequence[AnyShape],
    inputs: Iterable[Input],
) -> Computation:
    """Return a computation of just `instr`; tuple operands are put together from their leaves.

    `inputs` has an entry per leaf of all operands. The result is that of `instr` less its tokens.
    """
    made = [
        Instruction(f"p{k}", "parameter", shape, payload=k) for k, shape in enumerate(parameters)
    ]
    rest = iter(inputs)
    given = tuple(_operand(made, shape, rest).name for shape in operands)
    name_inside = instr.name if instr.opcode in NAMED else instr.opcode
    root = _add(made, replace(instr, name=name_inside, operands=given))
    if any(_is_token(leaf) for leaf in root.shape.leaves()):
        root = _without_tokens(made, root)
    return Computation(name, tuple(made), root.name)


def _add(made: list[Instruction], instr: Instruction) -> Instruction:
    made.append(instr)
    return instr


def _operand(made: list[Instruction], shape: AnyShape, inputs: Iterator[Input]) -> Instruction:
    if isinstance(shape, TupleShape):
        return _tuple(made, [_operand(made, part, inputs) for part in shape.parts])
    match next(inputs):
        case None:
            return _add(made, Instruction(f"token{len(made)}", "after-all", shape))
        case int() as number:
            return made[number]
        case Literal() as literal:
            return _add(
                made, Instruction(f"c{len(made)}", "constant", literal.shape, payload=literal)
            )


def _tuple(made: list[Instruction], parts: Sequence[Instruction]) -> Instruction:
    shape = TupleShape(tuple(part.shape for part in parts))
    names = tuple(part.name for part in parts)
    return _add(made, Instruction(f"tuple{len(made)}", "tuple", shape, names))


def _without_tokens(made: list[Instruction], root: Instruction) -> Instruction:
    """Make a tuple of the leaves that have bytes, or take the only one."""
    leaves = list(_leaves(made, root))
    return leaves[0] if len(leaves) == 1 else _tuple(made, leaves)


def _leaves(made: list[Instruction], held: Instruction) -> Iterator[Instruction]:
    if isinstance(held.shape, Shape):
        if not _is_token(held.shape):
            yield held
        return
    for index, part in enumerate(held.shape.parts):
        if not all(map(_is_token, part.leaves())):
            name = f"{held.name}.{index}"
            element = Instruction(
                name, "get-tuple-element", part, (held.name,), attrs={"index": index}
            )
            yield from _leaves(made, _add(made, element))


def _is_token(shape: Shape) -> bool:
    return shape.dtype.name == "token"
