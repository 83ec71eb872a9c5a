"""How the results of a kernel's computation come of the instructions that decide for its form.

Each result is an elementwise function of these heroes' elements at its index, and one of them is of
all heroes'. Beside them the kernel of dots may have

- updates of parameters (dynamic-update-slice) by what has a hero's index, but for dimensions of
  size 1: a loop that gathers what it makes;
- scalars that wait for no hero: a loop that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS


@dataclass(frozen=True, slots=True)
class _Update:
    """A result that may be an update by `value`, which is seen through `views`."""

    number: int
    instr: Instruction
    views: tuple[str, ...]
    value: str


def updates_behind(
    computation: Computation, heroes: Sequence[Instruction]
) -> tuple[int, ...] | None:
    """Return which results are updates by what the heroes make; None where they end otherwise."""
    dims = next(heroes[0].shape.leaves()).dims
    root = computation.result
    names = root.operands if root.opcode == "tuple" else (root.name,)
    are_dots = all(hero.opcode == "dot" for hero in heroes)
    updates = list(_updates(computation, names, dims)) if are_dots else []
    apart = {name for update in updates for name in (update.instr.name, *update.views)}
    behind = {hero.name: frozenset({hero.name}) for hero in heroes}
    for instr in computation.instructions:
        waits = [behind[name] for name in instr.operands if name in behind]
        if waits and instr.name not in apart:
            if not _keeps_index(computation, instr, dims):
                return None
            behind[instr.name] = frozenset().union(*waits)
    found = {
        update.number
        for update in updates
        if update.value in behind and behind.keys().isdisjoint(update.instr.operands[2:])
    }
    made = [update.value for update in updates if update.number in found]
    most = max((len(behind.get(name, ())) for name in (*names, *made)), default=0)
    fits = (
        number in found
        or all(leaf.dims == dims for leaf in computation[name].shape.leaves())
        or (are_dots and name not in behind and _is_scalar(computation[name]))
        for number, name in enumerate(names)
    )
    return tuple(sorted(found)) if most == len(heroes) and all(fits) else None


def _updates(
    computation: Computation, names: Sequence[str], dims: tuple[int, ...]
) -> Iterator[_Update]:
    """Yield the results that update a parameter by something of `dims`, but for sizes of 1."""
    if any(not isinstance(computation[name].shape, Shape) for name in names):
        return
    users: dict[str, int] = {}
    for instr in computation.instructions:
        for operand in instr.operands:
            users[operand] = users.get(operand, 0) + 1
    for number, name in enumerate(names):
        instr = computation[name]
        if instr.opcode != "dynamic-update-slice" or not _is_of_parameter(computation, instr):
            continue
        views, value = [], computation[instr.operands[1]]
        while value.opcode == "reshape" and users[value.name] == 1:
            views.append(value.name)
            value = computation[value.operands[0]]
        if _dims(value) == dims and _live(_dims(computation[instr.operands[1]])) == _live(dims):
            yield _Update(number, instr, tuple(views), value.name)


def _is_of_parameter(computation: Computation, update: Instruction) -> bool:
    source = computation[update.operands[0]]
    while source.opcode == "bitcast":
        source = computation[source.operands[0]]
    return source.opcode == "parameter"


def _is_scalar(instr: Instruction) -> bool:
    return isinstance(instr.shape, Shape) and instr.shape.elements == 1


def _dims(instr: Instruction) -> tuple[int, ...]:
    return next(instr.shape.leaves()).dims


def _live(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in dims if n != 1)


def _keeps_index(computation: Computation, instr: Instruction, dims: tuple[int, ...]) -> bool:
    if instr.opcode == "tuple":
        return instr.name == computation.root
    if instr.opcode == "get-tuple-element":
        return True
    elementwise = OPS[instr.opcode].elementwise and isinstance(instr.shape, Shape)
    return elementwise and all(leaf.dims == dims for leaf in instr.shape.leaves())
