"""Loops that never end: a turn leaves all that decides on the next one as it was.

What decides is what the condition depends on, and what that depends on in the body. Thunks without
effect make the same of the same, so a loop that once finds all of it as it was a turn ago goes on
for ever. Short loops pay nothing: only some turns of long ones are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from hlo2graph.backends.host.arena import Arena
from hlo2graph.errors import UnsupportedError
from hlo2graph.program.thunks import Collective, Kernel, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, walk, writes

FIRST_TURN = 64  # to be looked at; then each that is twice as late


class Watch:
    """Looks for a turn of one run of a loop that changes nothing."""

    def __init__(self, loop: While[Slice], arena: Arena) -> None:
        self._loop, self._arena = loop, arena
        self._turn = 0
        self._next = FIRST_TURN
        self._before: tuple[bytes, ...] | None = None

    def turn(self) -> None:
        """Look at what decides, where it is time to; called before each turn.

        Raises:
            UnsupportedError: the loop never ends.
        """
        self._turn += 1
        if self._before is not None:
            if self._before == self._deciding():
                self._refuse()
            self._before = None
        if self._turn == self._next:
            self._next *= 2
            self._before = self._deciding()

    def _deciding(self) -> tuple[bytes, ...] | None:
        parts = deciding(self._loop)
        return None if parts is None else tuple(self._arena.raw(part).tobytes() for part in parts)

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"{self._loop.name} never ends: turn {self._turn - 1} left all that its condition "
            "depends on as it was",
            self._loop.span,
        )


def deciding(loop: While[Slice]) -> tuple[Slice, ...] | None:
    """Return what, before a turn, decides whether another one follows; None if an effect may."""
    known: frozenset[Slice] = frozenset()
    while True:
        asked = _needed(loop.condition, known.union(loop.condition.results))
        live = None if asked is None else _needed(loop.body, asked)
        if live is None:
            return None
        if live <= known:
            return tuple(known)
        known |= live


def _needed(sequence: Sequence[Slice], live: frozenset[Slice]) -> frozenset[Slice] | None:
    """Return what has to be known before a sequence to know `live` behind it."""
    for thunk in reversed(sequence.thunks):
        written = writes(thunk)
        if not any(w.overlaps(part) for w in written for part in live):
            continue
        if _has_effect(thunk):
            return None
        if not nested(thunk):  # what is nested may not run at all
            live = frozenset(part for part in live if not _hold(written, part))
        live = live.union(reads(thunk))
    return live


def _hold(written: Iterable[Slice], part: Slice) -> bool:
    return any(
        w.allocation == part.allocation and w.offset <= part.offset and part.end <= w.end
        for w in written
    )


def _has_effect(thunk: Thunk[Slice]) -> bool:
    inside = (inner for _, sequence in nested(thunk) for inner in walk(sequence))
    return any(
        isinstance(inner, Collective) or (isinstance(inner, Kernel) and inner.effect)
        for inner in (thunk, *inside)
    )
