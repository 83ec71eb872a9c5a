"""Auto: whatever costs least, by what it has cost here and by how often addresses come again.

A placement for which no graph is ready is met by copies, or by updating the graph that was not used
for longest, whichever is cheaper; where it comes call after call, by an update as soon as copies
have cost as much. Once what one placement has cost exceeds what a graph of its own costs, it gets
one. So what is chosen costs at most twice what knowing the future would have cost.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.cache import KEPT, build_if_room, key_of
from hlo2graph.backends.cuda.pointers.copy import moves_home, run_at_home
from hlo2graph.backends.cuda.pointers.costs import Costs, measured
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement

REMEMBERED = 256  # placements whose costs are added up


class Auto:
    """Chooses at each call among a graph that is ready, copies, updates and a new graph."""

    name = "auto"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._key = key_of(site)
        self._home = self._key(site.home)
        self._graphs: OrderedDict[Placement, Launchable] = OrderedDict()
        self._graphs[self._home] = site.graph
        self._last = self._home
        self._paid: OrderedDict[Placement, float] = OrderedDict()
        self._kept = KEPT
        self._costs: Costs | None = None
        self._again = 0.0  # what copies for `_copied`, call after call, have cost
        self._copied: Placement = ()
        self._chosen = {"as it was": 0, "ready": 0, "copied": 0, "updated": 0, "built": 0}
        self.tally = Tally(notes=site.graph.refusals)

    @property
    def says(self) -> str:
        """What it chose how often, and by what costs."""
        chosen = ", ".join(f"{n:,} {what}" for what, n in self._chosen.items() if n)
        costs = f" ({self._costs})" if self._costs is not None else ""
        return f"{chosen or 'not called'}{costs}"

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run with the ports at `placement`."""
        self.tally.launches += 1
        key = self._key(placement)
        graph = self._graphs.get(key)
        if graph is None:
            self.tally.moved += 1
            self._meet(key, placement, stream)
            return
        if key == self._last:
            self._chosen["as it was"] += 1
        else:
            self._chosen["ready"] += 1
            self.tally.moved += 1
            self.tally.hits += 1
            self._graphs.move_to_end(key)
            self._last = key
        self.tally.updates += graph.move(placement)  # who shares the graph may have moved it
        graph.launch_on(stream)

    def _meet(self, key: Placement, placement: Placement, stream: Stream) -> None:
        """Run with addresses for which there is no graph."""
        if self._costs is None:
            self._costs = measured(self._site, stream, self._site.graph.build_seconds)
        costs = self._costs
        oldest = next(iter(self._graphs.values()))
        updating = costs.update * oldest.nodes_to_move(placement)
        copying = sum(
            costs.copying(sum(move.size for move in moves))
            for moves in moves_home(self._site, placement)
        )
        if self._home not in self._graphs:
            copying += costs.update * oldest.nodes_to_move(self._site.home)
        paid = self._paid.pop(key, 0.0) + min(updating, copying)
        if not (paid > costs.build and self._build(key, placement, costs)):
            self._remember(key, paid)
            if copying < updating and not self._stays(key, copying, updating):
                self._copy(placement, stream, costs)
                return
            self._move_oldest(key, placement, costs)
            self._chosen["updated"] += 1
        self._last = key
        self._graphs[key].launch_on(stream)

    def _stays(self, key: Placement, copying: float, updating: float) -> bool:
        """Tell whether copies for one placement, call after call, have cost as much as updating."""
        if key != self._copied:
            self._copied, self._again = key, 0.0
        self._again += copying
        return self._again > updating

    def _remember(self, key: Placement, paid: float) -> None:
        self._paid[key] = paid
        if len(self._paid) > REMEMBERED:
            self._paid.popitem(last=False)

    def _build(self, key: Placement, placement: Placement, costs: Costs) -> bool:
        """Build a graph for `placement`; tell whether there was room for one more."""
        if len(self._graphs) >= self._kept:
            return False
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._graphs)
            return False
        self._graphs[key] = graph
        costs.learn_build(graph.build_seconds)
        self.tally.builds += 1
        self._chosen["built"] += 1
        return True

    def _move_oldest(self, key: Placement, placement: Placement, costs: Costs) -> None:
        _, graph = self._graphs.popitem(last=False)
        self._graphs[key] = graph
        refused = len(graph.refusals)
        start = time.perf_counter()
        nodes = graph.move(placement)
        if len(graph.refusals) == refused:
            costs.learn_update(time.perf_counter() - start, nodes)
        self.tally.updates += nodes

    def _copy(self, placement: Placement, stream: Stream, costs: Costs) -> None:
        home = self._site.home
        if self._home not in self._graphs:
            self._move_oldest(self._home, home, costs)
        self._graphs.move_to_end(self._home)
        self._last = self._home
        moves = run_at_home(self._site, self._graphs[self._home], placement, stream)
        self.tally.copies += len(moves)
        self.tally.copied += sum(move.size for move in moves)
        self._chosen["copied"] += 1
