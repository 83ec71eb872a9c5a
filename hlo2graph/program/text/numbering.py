"""Thunk ids: one number a thunk, unique over a plan, the same in its text, JSON and DOT.

The thunks of one sequence have consecutive ids; a sequence's own come before those nested in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo2graph.program.thunks import Sequence, Slice, Thunk
from hlo2graph.program.uses import nested


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """A sequence whose thunk at position i has id `first + i`.

    `inside` maps the id of a loop or conditional to its sequences, each with its label.
    """

    sequence: Sequence[Slice]
    first: int
    inside: Mapping[int, tuple[tuple[str, Numbered], ...]]

    def __iter__(self) -> Iterator[tuple[int, Thunk[Slice]]]:
        return enumerate(self.sequence.thunks, self.first)

    def nested(self, id: int) -> tuple[tuple[str, Numbered], ...]:
        """Return the sequences inside the thunk with this id, none for most."""
        return self.inside.get(id, ())


def number(body: Sequence[Slice]) -> Numbered:
    """Give every thunk of `body`, and of all that is nested in it, its id."""
    return _number(body, 0)[0]


def _number(sequence: Sequence[Slice], first: int) -> tuple[Numbered, int]:
    """Return the numbered sequence and the next free id."""
    free = first + len(sequence.thunks)
    inside: dict[int, tuple[tuple[str, Numbered], ...]] = {}
    for id, thunk in enumerate(sequence.thunks, first):
        held: list[tuple[str, Numbered]] = []
        for label, inner in nested(thunk):
            numbered, free = _number(inner, free)
            held.append((label, numbered))
        if held:
            inside[id] = tuple(held)
    return Numbered(sequence, first, inside), free
