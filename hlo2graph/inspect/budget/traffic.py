"""The bytes that a kernel has to move, at the least: of what it slices, only the slice.

In: a computation. Out: bytes of each parameter and of each result leaf. A parameter of which all
readers take a part counts as those parts; an update in place counts as what is put there, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo2graph.hlo import Computation, Instruction

_PARTS = frozenset({"slice", "dynamic-slice", "gather"})
_UPDATES = {"dynamic-update-slice": 1, "scatter": -1}  # the operand that is put there


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes by position. updated: the parameter that a result is an update of, in its place."""

    read: tuple[int, ...]
    written: tuple[int, ...]
    updated: Mapping[int, int]


def traffic_of(computation: Computation, computations: Mapping[str, Computation]) -> Traffic:
    """Return the least bytes that a kernel of `computation` reads and writes."""
    users: dict[str, list[Instruction]] = {}
    for instr in computation.instructions:
        for operand in dict.fromkeys(instr.operands):
            users.setdefault(operand, []).append(instr)
    numbers = {p.name: k for k, p in enumerate(computation.parameters)}
    root = computation.result
    leaves = [computation[n] for n in root.operands] if root.opcode == "tuple" else [root]
    updated: dict[int, int] = {}
    written: list[int] = []
    for leaf in leaves:
        if leaf.opcode in _UPDATES and leaf.operands[0] in numbers:
            updated[len(written)] = numbers[leaf.operands[0]]
            written.append(computation[leaf.operands[_UPDATES[leaf.opcode]]].shape.size)
        elif leaf.opcode == "fusion":
            inner = traffic_of(computations[next(leaf.called())], computations)
            written += inner.written
        else:
            written += [part.size for part in leaf.shape.leaves()]
    read = []
    for parameter in computation.parameters:
        name, size = parameter.name, parameter.shape.size
        taken = sum(_taken(user, name, size, computations) for user in users.get(name, ()))
        read.append(min(size, taken))
    return Traffic(tuple(read), tuple(written), updated)


def _taken(user: Instruction, name: str, size: int, computations: Mapping[str, Computation]) -> int:
    """Return the bytes that an instruction reads of the parameter `name`."""
    if user.opcode in _PARTS and user.operands[0] == name and user.operands.count(name) == 1:
        return user.shape.size
    if user.opcode in _UPDATES and user.operands[0] == name and user.operands.count(name) == 1:
        return 0
    if user.opcode == "fusion":
        inner = traffic_of(computations[next(user.called())], computations)
        return sum(b for o, b in zip(user.operands, inner.read, strict=True) if o == name)
    return size
