"""What is cheapest for addresses that have no graph, by costs, and by how often they come.

What costs more once and less later is done when going without has cost as much, so that what is
chosen costs at most twice what knowing the future would have cost:

- a graph of their own is built for addresses that have cost that much in copies and updates;
- the mover, a graph that is updated to whatever comes, is built when copies have cost that much
  more than updates would have;
- addresses that come call after call get the mover when their copies have cost an update.

Reckoning takes time too: the more often in a row it ended the same way, the more calls go that way
without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hlo2graph.backends.cuda.ports import Placement

REMEMBERED = 256  # placements whose costs are added up
LONGEST_HABIT = 15  # calls without reckoning


class Way(Enum):
    """How to meet addresses for which no graph is ready."""

    COPY = "copied"
    UPDATE = "updated"  # the mover
    BUILD = "built"  # a graph for these addresses
    BUILD_MOVER = "mover built"


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds, for one call: by copies, by an update of the mover; and to build a graph."""

    copying: float
    updating: float
    building: float
    has_mover: bool


@dataclass(slots=True)
class Reckoning:
    """Adds up what was paid."""

    paid: OrderedDict[Placement, float] = field(default_factory=OrderedDict)
    lost: float = 0.0  # what copies have cost more than updates would have, without a mover
    streak: float = 0.0  # what copies have cost for the same addresses, call after call
    streak_of: Placement | None = None
    habit: Way = Way.COPY
    left: int = 0  # calls that follow the habit
    skipped: int = 0  # calls that followed it since the last reckoning

    def follows(self, habit: Way) -> bool:
        """Tell whether this call goes this way by habit, and count it if so."""
        if self.left and self.habit is habit:
            self.left -= 1
            self.skipped += 1
            return True
        return False

    def way(self, key: Placement, prices: Callable[[], Prices]) -> Way:
        """Return how to meet `key`; `prices` is asked only if needed."""
        if self.left:
            self.left -= 1
            self.skipped += 1
            return self.habit
        calls, chosen = self.skipped + 1, self._cheapest(key, prices(), self.skipped + 1)
        lasts = chosen == self.habit and chosen in (Way.COPY, Way.UPDATE)
        self.left = min(2 * calls - 1, LONGEST_HABIT) if lasts else 0
        self.habit, self.skipped = chosen, 0
        return chosen

    def _cheapest(self, key: Placement, prices: Prices, calls: int) -> Way:
        """Choose, once for `calls` calls: all taken to be for `key` if it came before."""
        copying, updating = prices.copying, prices.updating
        once = min(copying, updating) if prices.has_mover else copying
        paid = once + (self.paid.pop(key) + once * (calls - 1) if key in self.paid else 0.0)
        if paid > prices.building:
            return Way.BUILD
        self.paid[key] = paid
        if len(self.paid) > REMEMBERED:
            self.paid.popitem(last=False)
        if not prices.has_mover:
            self.lost = max(0.0, self.lost + (copying - updating) * calls)
            if self.lost <= prices.building:
                return Way.COPY
            self.lost = 0.0
            return Way.BUILD_MOVER
        if updating <= copying:
            return Way.UPDATE
        if key != self.streak_of:
            self.streak_of, self.streak = key, -copying * (calls - 1)
        self.streak += copying * calls
        return Way.UPDATE if self.streak > updating else Way.COPY
