"""Which thunks a graph may hold: what `--capture` says.

    all             everything
    temps           what touches temporaries and constants alone: nothing that a caller may move
    loops:N         loops of a known trip count over N, with all that is in them
    KIND            thunks of this kind: kernel, library, copy, fill, collective, while, conditional
    -KIND, +KIND    all kinds, or those said before, without this one, or with it
    min:N           graphs of at least N thunks, those nested in loops and branches counted; else 2,
                    or 1 where graphs hold everything

Several of them, with commas between, must all hold. A loop or conditional is held if all in it may
be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hlo2graph.errors import InputError
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, walk, writes

KINDS = ("kernel", "library", "copy", "fill", "collective", "while", "conditional")
STABLE = (AllocationKind.TEMP, AllocationKind.CONSTANT)
DIGITS = 18  # of a number in a policy
LEAST = 2  # thunks: launching a graph takes longer than enqueuing one


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that was read. `rounds` is the N of loops:N; a graph has `least` thunks or more."""

    kinds: frozenset[str] = frozenset(KINDS)
    only_stable: bool = False
    rounds: int | None = None
    least: int = 1

    @staticmethod
    def of(text: str) -> Policy:
        """Read a policy.

        Raises:
            InputError: it is none.
        """
        kinds: frozenset[str] | None = None
        only_stable, rounds, least = False, None, None
        for term in text.split(","):
            sign, name = (term[0], term[1:]) if term[:1] in ("+", "-") else ("", term)
            if name in KINDS:
                kinds = _edited(kinds, sign, name)
            elif term == "temps":
                only_stable = True
            elif (number := _number(term, "loops")) is not None:
                rounds = number
            elif (number := _number(term, "min")) is not None:
                least = number
            elif term == "all":
                kinds = frozenset(KINDS)
            else:
                raise InputError(
                    "capture is all, temps, loops:N, min:N, or kinds of thunks to hold or, with a "
                    f"minus, to leave out ({', '.join(KINDS)}), not {text!r}"
                )
        found = Policy(frozenset(KINDS) if kinds is None else kinds, only_stable, rounds)
        if least is None:
            least = 1 if found == Policy() else LEAST
        return replace(found, least=max(1, least))


def _edited(kinds: frozenset[str] | None, sign: str, name: str) -> frozenset[str]:
    if not sign:
        return (kinds or frozenset()) | {name}
    known = frozenset(KINDS) if kinds is None else kinds
    return known - {name} if sign == "-" else known | {name}


def _number(term: str, word: str) -> int | None:
    """Return the N of WORD:N."""
    head, _, number = term.partition(":")
    is_number = number.isascii() and number.isdigit() and len(number) <= DIGITS
    return int(number) if head == word and is_number else None


@dataclass(frozen=True, slots=True)
class Judge:
    """Says of a plan's thunks why a graph may not hold them."""

    plan: Plan
    policy: Policy

    def why_not(self, thunk: Thunk[Slice]) -> str:
        """Return why no graph holds `thunk`, in words, or nothing: one may."""
        rounds = self.policy.rounds
        if rounds is not None and (why := _too_short(thunk, rounds)):
            return why
        for inner in walk_of(thunk):
            if why := self._unfit(inner):
                return why if inner is thunk else f"holds {inner.name}, which {why}"
        return ""

    def _unfit(self, thunk: Thunk[Slice]) -> str:
        kind = kind_of(thunk)
        if kind not in self.policy.kinds:
            return f"is a {kind}"
        if not self.policy.only_stable:
            return ""
        for part in (*reads(thunk), *writes(thunk)):
            touched = self.plan.allocations[part.allocation]
            if part.size and touched.kind not in STABLE:
                what = "parameter" if touched.kind is AllocationKind.PARAMETER else "result"
                return f"touches {what} {touched.owner}, which a caller may move"
        return ""


def walk_of(thunk: Thunk[Slice]) -> Iterator[Thunk[Slice]]:
    """Yield `thunk`, and those nested in it."""
    yield thunk
    for _, inner in nested(thunk):
        yield from walk(inner)


def _too_short(thunk: Thunk[Slice], rounds: int) -> str:
    if not isinstance(thunk, While):
        return f"is in no loop of over {rounds} rounds"
    if thunk.trip_count is None:
        return "has a trip count that is not known"
    if thunk.trip_count <= rounds:
        return f"has {thunk.trip_count} rounds, not over {rounds}"
    return ""
