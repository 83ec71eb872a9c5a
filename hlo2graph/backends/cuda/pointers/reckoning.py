"""What is cheapest for addresses that have no graph, by costs, and by how often they come.

What costs more once and less later is done when going without has cost as much, or sooner where
addresses of late have shown a habit:

- a graph of their own is built for addresses that have cost that much in copies and moves, or a
  part of that where nearly all addresses of late had come before;
- the mover, a graph that is updated to whatever comes, is built when going without has cost that
  much more than updates would have, or a part of that where nearly all addresses of late were new;
  so is the one whose kernels read addresses from a table;
- addresses that come call after call get one of these when their copies have cost a move of it.

Reckoning takes time too: the more often in a row it ended the same way, the more calls go that way
without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hlo2graph.backends.cuda.ports import Placement

REMEMBERED = 256  # placements whose costs are added up
FORGOTTEN = 0.9  # what a call leaves of those before it in what is known of late
FAMILIAR, TRUSTED = 0.8, 0.25  # how many have come before, and the part of a cost that is enough
LONGEST_HABIT = 63  # calls without reckoning


class Way(StrEnum):
    """How to meet addresses for which no graph is ready."""

    COPY = "copied"
    UPDATE = "updated"  # the mover
    TABLE = "by table"
    BUILD = "built"  # a graph for these addresses
    BUILD_MOVER = "mover built"
    BUILD_TABLE = "table built"


BUILDING = {Way.UPDATE: Way.BUILD_MOVER, Way.TABLE: Way.BUILD_TABLE}


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds, for one call: by copies, by moving each graph that moves; and to build a graph.

    `moving` are UPDATE and TABLE, as far as there are such graphs or could be; `there` those that
    are. `has_room` says whether these addresses can have a graph of their own.
    """

    copying: float
    moving: Mapping[Way, float]
    building: float
    there: frozenset[Way]
    has_room: bool


@dataclass(slots=True)
class Reckoning:
    """Adds up what was paid."""

    paid: OrderedDict[Placement, float] = field(default_factory=OrderedDict)
    lost: dict[Way, float] = field(default_factory=dict)  # for want of a graph that moves so
    familiar: float = 0.5  # which part of the placements of late had come before
    streak: float = 0.0  # what copies have cost for the same addresses, call after call
    streak_of: Placement | None = None
    habit: Way = Way.COPY
    lasts: int = 0  # calls that are to follow the habit before the next is reckoned

    def way(self, key: Placement, prices: Prices) -> Way:
        """Return how to meet `key`, and the next `lasts` calls after it."""
        calls = self.lasts + 1
        chosen = self._cheapest(key, prices, calls)
        lasts = chosen is self.habit and chosen in (Way.COPY, *BUILDING)
        self.lasts = min(2 * calls - 1, LONGEST_HABIT) if lasts else 0
        self.habit = chosen
        return chosen

    def pays(self, key: Placement, price: float, building: float) -> bool:
        """Add what a call with `key` has cost; tell whether it is worth a graph of its own."""
        paid = self.paid.pop(key, 0.0) + price
        if paid > building:
            return True
        self._remember(key, paid)
        return False

    def _remember(self, key: Placement, paid: float) -> None:
        self.paid[key] = paid
        if len(self.paid) > REMEMBERED:
            self.paid.popitem(last=False)

    def _cheapest(self, key: Placement, prices: Prices, calls: int) -> Way:
        """Choose, once for `calls` calls: all taken to be for `key` if it came before."""
        copying, there = prices.copying, [way for way in BUILDING if way in prices.there]
        moving = min(there, key=lambda way: prices.moving[way], default=None)
        best = copying if moving is None else min(copying, prices.moving[moving])
        has_come = key in self.paid
        self.familiar += (1 - FORGOTTEN**calls) * (has_come - self.familiar)
        paid = best + (self.paid.pop(key) + best * (calls - 1) if has_come else 0.0)
        trusted = has_come and self.familiar > FAMILIAR
        if prices.has_room and paid > prices.building * (TRUSTED if trusted else 1.0):
            return Way.BUILD
        self._remember(key, paid)
        for way, price in prices.moving.items():
            if way not in prices.there and self._is_worth(way, (best - price) * calls, prices):
                return BUILDING[way]
        if moving is None:
            return Way.COPY
        if prices.moving[moving] <= copying:
            return moving
        if key != self.streak_of:
            self.streak_of, self.streak = key, -copying * (calls - 1)
        self.streak += copying * calls
        return moving if self.streak > prices.moving[moving] else Way.COPY

    def _is_worth(self, way: Way, lost: float, prices: Prices) -> bool:
        self.lost[way] = max(0.0, self.lost.get(way, 0.0) + lost)
        trusted = self.familiar < 1 - FAMILIAR
        if self.lost[way] <= prices.building * (TRUSTED if trusted else 1.0):
            return False
        self.lost[way] = 0.0
        return True
