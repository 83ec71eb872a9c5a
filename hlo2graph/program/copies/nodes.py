"""What the steps of placing copies share: thunks with a wished place, and the making of copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hlo2graph.hlo import Shape
from hlo2graph.program.thunks import (
    Conditional,
    Copy,
    Program,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import first_free_id, walk, writes


@dataclass(slots=True, eq=False)
class Node:
    """A thunk of the sequence being worked on; `place` is where in the order it wants to be.

    A thunk of the program has its position, a copy made here anything between.
    """

    thunk: Thunk[Value]
    place: float

    @property
    def is_given(self) -> bool:
        """It was in the program before."""
        return self.place.is_integer()


class Pair(NamedTuple):
    """A parameter of a sequence and the place of the result that is to share its buffer.

    `must` is False where sharing may be given up: for a may-alias.
    """

    param: Value
    result: int
    must: bool = True


class Namer:
    """Makes copies with names and values that the program does not have."""

    def __init__(self, program: Program) -> None:
        self._names = {thunk.name for thunk in walk(program.body)}
        self._numbers: dict[str, int] = {}
        self._next = first_free_id(program)

    def copy(self, source: Value, shape: Shape) -> Copy[Value]:
        """Return a copy of `source` to a new value, `NAME.copy` or `NAME.copy.1` and so on."""
        stem = name = f"{source.origin}.copy"
        while name in self._names:
            self._numbers[stem] = number = self._numbers.get(stem, 0) + 1
            name = f"{stem}.{number}"
        self._names.add(name)
        target = Value(self._next, shape, name)
        self._next += 1
        return Copy(name, source, target)


def outputs(thunk: Thunk[Value]) -> tuple[Value, ...]:
    """Return the values that `thunk` gives to the sequence it is in."""
    match thunk:
        case While() | Conditional():
            return thunk.results
        case _:
            return writes(thunk)
