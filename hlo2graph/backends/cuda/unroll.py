"""Loops whose trip count is known, written out: no conditional node, or one that runs less often.

A WHILE node costs several times as much a round as a small kernel does. Written out, the rounds
overlap too, as far as the bytes that they use allow: edges are built anew over all of them. A loop
too long to be written out whole gets a body of several rounds; those over stand in front of it.
What only counts rounds is left out where nobody asks any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from hlo2graph.errors import InputError
from hlo2graph.program.edges import build_edges
from hlo2graph.program.order import has_effect
from hlo2graph.program.thunks import Conditional, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, writes

AUTO_THUNKS = 1024  # in all rounds of one loop: about 10 ms to build and to instantiate
BODY_THUNKS = 256  # in the rounds of one body: the node's own time is then a hundredth of theirs
MOST_THUNKS = 65536  # whatever was asked for


@dataclass(frozen=True, slots=True)
class Unrolling:
    """Which loops are written out: those of at most `rounds` rounds and `thunks` thunks in all.

    The bodies of longer ones get as many rounds as fit in `body_thunks`.
    """

    rounds: int
    thunks: int
    body_thunks: int

    @staticmethod
    def of(text: str) -> Unrolling:
        """Read `auto`, `never` or a number of rounds.

        Raises:
            InputError: it is none of them.
        """
        if text == "auto":
            return Unrolling(AUTO_THUNKS, AUTO_THUNKS, BODY_THUNKS)
        if text == "never":
            return Unrolling(-1, 0, 0)
        if text.isascii() and text.isdigit():
            return Unrolling(int(text), MOST_THUNKS, 0)
        raise InputError(f"unroll_loops is auto, never or a number of rounds, not {text!r}")

    def rounds_of(self, loop: While[Slice], body: Sequence[Slice]) -> int:
        """Return how many rounds of `loop` to write out at once: all, one (so none), or between.

        `body` is its body, inner loops written out.
        """
        rounds = known_rounds(loop, body)
        if rounds is None:
            return 1
        each = max(1, count(body))
        if rounds <= self.rounds and rounds * each <= self.thunks:
            return rounds
        return max(1, self.body_thunks // each)


def known_rounds(loop: While[Slice], body: Sequence[Slice]) -> int | None:
    """Return how often the body runs, where the condition need not be asked."""
    is_plain = not any(has_effect(thunk) for thunk in loop.condition.thunks)
    is_in_place = loop.inits == body.params == body.results == loop.results
    return loop.trip_count if is_plain and is_in_place else None


def unrolled(
    sequence: Sequence[Slice], unrolling: Unrolling, schedule: str
) -> tuple[Sequence[Slice], tuple[str, ...]]:
    """Return `sequence` with loops written out, nested ones too.

    Also what was done, a phrase a loop.
    """
    writer = _Writer(unrolling, schedule, [])
    return writer.sequence(sequence), tuple(writer.done)


def count(sequence: Sequence[Slice]) -> int:
    """Return the number of thunks, nested ones included."""
    return sum(1 + sum(count(inner) for _, inner in nested(t)) for t in sequence.thunks)


@dataclass(frozen=True, slots=True)
class _Writer:
    unrolling: Unrolling
    schedule: str
    done: list[str]

    def sequence(self, given: Sequence[Slice]) -> Sequence[Slice]:
        awaited = {name for thunk in given.thunks for name in thunk.after}
        before = len(self.done)
        thunks: list[Thunk[Slice]] = []
        for at, thunk in enumerate(given.thunks):
            match thunk:
                case While():
                    is_free = not thunk.after and thunk.name not in awaited
                    later = chain.from_iterable(map(reads, given.thunks[at + 1 :]))
                    needed = [*given.results, *later]
                    thunks.extend(self._loop(thunk, needed, is_free=is_free))
                case Conditional():
                    branches = tuple(self.sequence(b) for b in thunk.branches)
                    thunks.append(replace(thunk, branches=branches))
                case _:
                    thunks.append(thunk)
        if len(self.done) == before:
            return given
        return self._with(given, thunks)

    def _loop(
        self, loop: While[Slice], needed: list[Slice], *, is_free: bool
    ) -> Iterator[Thunk[Slice]]:
        """Yield what stands for `loop`: all its rounds, or those over and a loop of several.

        `needed` is what is read behind it.
        """
        condition, body = self.sequence(loop.condition), self.sequence(loop.body)
        at_once = self.unrolling.rounds_of(loop, body)
        if loop.trip_count == at_once and is_free:
            self.done.append(f"{loop.name} ({at_once} rounds)")
            yield from _rounds(loop.name, _lasting(body, needed), range(at_once))
        elif loop.trip_count is None or at_once == 1 or not is_free:
            yield replace(loop, condition=condition, body=body)
        else:
            over = loop.trip_count % at_once
            self.done.append(f"{loop.name} ({at_once} of {loop.trip_count} rounds at a time)")
            yield from _rounds(loop.name, body, range(over))
            inside = self._with(body, _rounds(loop.name, body, range(over, over + at_once)))
            times = loop.trip_count // at_once
            yield replace(loop, condition=condition, body=inside, trip_count=times)

    def _with(self, given: Sequence[Slice], thunks: Iterable[Thunk[Slice]]) -> Sequence[Slice]:
        listed = tuple(thunks)
        return replace(given, thunks=listed, edges=build_edges(listed, schedule=self.schedule))


def _lasting(body: Sequence[Slice], needed: list[Slice]) -> Sequence[Slice]:
    """Return the body without what only counted rounds: nobody asks for their number any more."""
    if any(thunk.after for thunk in body.thunks):
        return body
    live, kept = list(needed), dict.fromkeys(range(len(body.thunks)), False)
    before = -1
    while before < sum(kept.values()):
        before = sum(kept.values())
        for at, thunk in enumerate(body.thunks):
            lasts = any(w.overlaps(other) for w in writes(thunk) for other in live)
            if not kept[at] and (lasts or has_effect(thunk)):
                kept[at] = True
                live += reads(thunk)
    return replace(body, thunks=tuple(t for at, t in enumerate(body.thunks) if kept[at]), edges=())


def _rounds(loop: str, body: Sequence[Slice], numbers: range) -> Iterator[Thunk[Slice]]:
    """Yield the body's thunks for each round, under names of their own."""
    for number in numbers:
        stem = f"{loop}[{number}]/"
        for thunk in body.thunks:
            after = tuple(stem + name for name in thunk.after)
            yield replace(thunk, name=stem + thunk.name, after=after)
