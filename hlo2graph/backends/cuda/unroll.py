"""Loops whose trip count is known, written out round by round: no conditional node, no waiting.

A WHILE node costs several times as much a round as a small kernel does. Written out, the rounds
overlap too, as far as the bytes that they use allow: edges are built anew over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hlo2graph.errors import InputError
from hlo2graph.program.edges import build_edges
from hlo2graph.program.order import has_effect
from hlo2graph.program.thunks import Conditional, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested

AUTO_THUNKS = 1024  # in all rounds of one loop: about 10 ms to build and to instantiate
MOST_THUNKS = 65536  # whatever was asked for


@dataclass(frozen=True, slots=True)
class Unrolling:
    """Which loops are written out: those of at most `rounds` rounds and `thunks` thunks in all."""

    rounds: int
    thunks: int

    @staticmethod
    def of(text: str) -> Unrolling:
        """Read `auto`, `never` or a number of rounds.

        Raises:
            InputError: it is none of them.
        """
        if text == "auto":
            return Unrolling(AUTO_THUNKS, AUTO_THUNKS)
        if text == "never":
            return Unrolling(-1, 0)
        if text.isascii() and text.isdigit():
            return Unrolling(int(text), MOST_THUNKS)
        raise InputError(f"unroll_loops is auto, never or a number of rounds, not {text!r}")

    def admits(self, loop: While[Slice], body: Sequence[Slice]) -> bool:
        """Tell whether `loop` is written out; `body` is its body, inner loops written out."""
        rounds = loop.trip_count
        return (
            rounds is not None
            and rounds <= self.rounds
            and rounds * max(1, count(body)) <= self.thunks
            and not any(has_effect(t) for t in loop.condition.thunks)
            and loop.inits == body.params == body.results == loop.results
        )


def unrolled(
    sequence: Sequence[Slice], unrolling: Unrolling, schedule: str
) -> tuple[Sequence[Slice], tuple[str, ...]]:
    """Return `sequence` with loops written out, nested ones too, and the names of those loops."""
    names: list[str] = []
    return _unrolled(sequence, unrolling, schedule, names), tuple(names)


def count(sequence: Sequence[Slice]) -> int:
    """Return the number of thunks, nested ones included."""
    return sum(1 + sum(count(inner) for _, inner in nested(t)) for t in sequence.thunks)


def _unrolled(
    sequence: Sequence[Slice], unrolling: Unrolling, schedule: str, names: list[str]
) -> Sequence[Slice]:
    awaited = {name for thunk in sequence.thunks for name in thunk.after}
    thunks: list[Thunk[Slice]] = []
    changed = False
    for thunk in sequence.thunks:
        match thunk:
            case While():
                body = _unrolled(thunk.body, unrolling, schedule, names)
                if unrolling.admits(thunk, body) and not thunk.after and thunk.name not in awaited:
                    changed = True
                    names.append(thunk.name)
                    thunks.extend(_rounds(thunk, body))
                else:
                    condition = _unrolled(thunk.condition, unrolling, schedule, names)
                    thunks.append(replace(thunk, condition=condition, body=body))
            case Conditional():
                branches = (_unrolled(b, unrolling, schedule, names) for b in thunk.branches)
                thunks.append(replace(thunk, branches=tuple(branches)))
            case _:
                thunks.append(thunk)
    edges = build_edges(thunks, schedule=schedule) if changed else sequence.edges
    return replace(sequence, thunks=tuple(thunks), edges=edges)


def _rounds(loop: While[Slice], body: Sequence[Slice]) -> Iterator[Thunk[Slice]]:
    """Yield the body's thunks for each round, under names of their own."""
    assert loop.trip_count is not None
    for number in range(loop.trip_count):
        stem = f"{loop.name}[{number}]/"
        for thunk in body.thunks:
            after = tuple(stem + name for name in thunk.after)
            yield replace(thunk, name=stem + thunk.name, after=after)
