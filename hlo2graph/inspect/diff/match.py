"""Which thunk of one plan is which of another.

In turn, each time among those not yet matched:

1. the same name and likeness;
2. the only ones of a likeness between the same matched neighbours, and the only ones of a likeness
   whatever their neighbours, again and again; then the rest of a likeness in program order;
3. the same name and kind, for what now does something else;
4. as 2, with a looser likeness: kind, sizes of what is written, and the name without its number.

Everything else has been added or removed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias

from hlo2graph.inspect.diff.likeness import Likenesses
from hlo2graph.program.thunks import Sequence, Slice, Thunk
from hlo2graph.program.uses import writes


def match_thunks(
    before: Sequence[Slice], after: Sequence[Slice], old: Likenesses, new: Likenesses
) -> dict[int, int]:
    """Return positions in `after` by positions in `before`, for what is in both."""
    matcher = _Matcher(before, after, old, new)
    matcher.run()
    return dict(sorted(matcher.found.items()))


_Key: TypeAlias = Callable[[int], Hashable]
_Keys: TypeAlias = Callable[[int], _Key]
_NUMBER = re.compile(r"(\.\d+|\.clone|\.remat\d*)+$")


class _Matcher:
    def __init__(
        self, before: Sequence[Slice], after: Sequence[Slice], old: Likenesses, new: Likenesses
    ) -> None:
        self.found: dict[int, int] = {}
        self._sides = (before.thunks, after.thunks)
        self._likes = (
            [old.of(thunk) for thunk in before.thunks],
            [new.of(thunk) for thunk in after.thunks],
        )
        self._around = (_around(before), _around(after))
        self._taken: dict[int, int] = {}  # the other way round

    def run(self) -> None:
        """Match what can be."""
        self._match(lambda side: lambda at: (self._sides[side][at].name, self._likes[side][at]))
        self._by_likeness(lambda side: lambda at: self._likes[side][at])
        self._match(lambda side: lambda at: _called(self._sides[side][at]))
        self._by_likeness(lambda side: lambda at: _loosely(self._sides[side][at]))

    def _by_likeness(self, likes: _Keys) -> None:
        pending = [*self.found.items(), *self._match(likes)]
        while pending:
            while pending:
                pending += self._match_near(*pending.pop(), likes)
            pending = self._match(likes)
        held = [self._groups(likes(side), self._free(side)) for side in (0, 1)]
        for key, places in held[0].items():
            for one, other in zip(places, held[1].get(key, []), strict=False):
                self._pair(one, other)

    def _match(self, keys: _Keys) -> list[tuple[int, int]]:
        """Match and return those that alone have a key on both sides."""
        return self._match_unique(*(self._groups(keys(side), self._free(side)) for side in (0, 1)))

    def _match_near(self, one: int, other: int, likes: _Keys) -> list[tuple[int, int]]:
        """Match and return neighbours of a pair, by likeness and all matched neighbours.

        Whoever has the same matched neighbours as one of these is one of these.
        """
        held = []
        for side, at, done in ((0, one, self.found), (1, other, self._taken)):
            near = (place for around in self._around[side] for place in around[at])
            free = [place for place in dict.fromkeys(near) if place not in done]
            held.append(self._groups(self._with_neighbours(side, likes(side)), free))
        return self._match_unique(*held)

    def _match_unique(
        self, ours: Mapping[Hashable, list[int]], theirs: Mapping[Hashable, list[int]]
    ) -> list[tuple[int, int]]:
        pairs = [
            (places[0], others[0])
            for key, places in ours.items()
            if len(places) == len(others := theirs.get(key, [])) == 1
        ]
        for one, other in pairs:
            self._pair(one, other)
        return pairs

    def _free(self, side: int) -> list[int]:
        done = self.found if side == 0 else self._taken
        return [at for at in range(len(self._sides[side])) if at not in done]

    @staticmethod
    def _groups(key: _Key, places: Iterable[int]) -> defaultdict[Hashable, list[int]]:
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for at in places:
            groups[key(at)].append(at)
        return groups

    def _with_neighbours(self, side: int, like: _Key) -> _Key:
        """Return a key of likeness and matched neighbours."""
        before, after = self._around[side]

        def key(at: int) -> Hashable:
            near = (frozenset(self._names(side, places[at])) for places in (before, after))
            return (like(at), *near)

        return key

    def _names(self, side: int, places: list[int]) -> list[int]:
        """Return matched places as those of `after`."""
        if side == 1:
            return [at for at in places if at in self._taken]
        return [self.found[at] for at in places if at in self.found]

    def _pair(self, one: int, other: int) -> None:
        self.found[one], self._taken[other] = other, one


def _called(thunk: Thunk[Slice]) -> Hashable:
    return type(thunk).__name__, thunk.name


def _loosely(thunk: Thunk[Slice]) -> Hashable:
    name = _NUMBER.sub("", thunk.name)
    return type(thunk).__name__, name, tuple(place.size for place in writes(thunk))


def _around(sequence: Sequence[Slice]) -> tuple[list[list[int]], list[list[int]]]:
    """Return for each thunk those it has an edge from, and those it has an edge to."""
    before: list[list[int]] = [[] for _ in sequence.thunks]
    after: list[list[int]] = [[] for _ in sequence.thunks]
    for edge in sequence.edges:
        before[edge.dst].append(edge.src)
        after[edge.src].append(edge.dst)
    return before, after
