"""Auto: whatever costs least, by what it has cost here and by how often addresses come again.

One graph stays over the instance's own memory, so that copying is always possible. There are
others, as many as are kept, each over the addresses that it met last. Addresses for which no graph
is ready are met by copies, or by updating the graph that was not used for longest, whichever is
cheaper. What costs more once and less later is done when going without has cost as much:

- a graph is built for addresses that have cost that much in copies and updates;
- the first graph that can be updated is built when copies have cost that much more than updates;
- addresses that come call after call get an update when their copies have cost that much.

So what is chosen costs at most twice what knowing the future would have cost.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.cache import KEPT, build_if_room, key_of
from hlo2graph.backends.cuda.pointers.copy import Home
from hlo2graph.backends.cuda.pointers.costs import Costs, measured
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement

REMEMBERED = 256  # placements whose costs are added up


class Auto:
    """Chooses at each call among a graph that is ready, copies, an update and a new graph."""

    name = "auto"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._key = key_of(site)
        self._home_key = self._key(site.home)
        self._graphs: OrderedDict[Placement, Launchable] = OrderedDict()  # those besides home's
        self._last = self._home_key
        self._kept = KEPT - 1
        self._costs: Costs | None = None
        self._paid: OrderedDict[Placement, float] = OrderedDict()  # by addresses
        self._lost = 0.0  # what copies have cost more than updates, had there been a graph for them
        self._streak = 0.0  # what copies have cost for the same addresses, call after call
        self._streak_key: Placement = ()
        self._chosen = {"as it was": 0, "ready": 0, "copied": 0, "updated": 0, "built": 0}
        self.tally = Tally(notes=site.graph.refusals)
        self._home = Home(site, self.tally)

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
        graph = self._site.graph if key == self._home_key else self._graphs.get(key)
        if key == self._last:
            assert graph is not None
            self._chosen["as it was"] += 1
        elif graph is not None:
            self._chosen["ready"] += 1
            self.tally.moved += 1
            self.tally.hits += 1
            self._last = key
            if key in self._graphs:
                self._graphs.move_to_end(key)
        else:
            self.tally.moved += 1
            self._meet(key, placement, stream)
            return
        self.tally.updates += graph.move(placement)  # addresses that no node touches move too
        graph.launch_on(stream)

    def _meet(self, key: Placement, placement: Placement, stream: Stream) -> None:
        """Run with addresses for which there is no graph."""
        if self._costs is None:
            self._costs = measured(self._site, stream, self._site.graph.build_seconds)
        costs = self._costs
        copying = sum(map(costs.copying, self._home.sizes(placement)))
        oldest = next(iter(self._graphs.values()), None)
        mover = self._site.graph if oldest is None else oldest
        updating = costs.update * mover.nodes_to_move(placement)
        if oldest is None:
            self._lost += copying - updating
            cost = copying
        else:
            cost = min(copying, updating)
        paid = self._paid.pop(key, 0.0) + cost
        if max(paid, self._lost) > costs.build and self._build(key, placement, costs):
            pass
        elif oldest is not None and (updating <= copying or self._stays(key, copying, updating)):
            self._move_oldest(key, placement, costs)
        else:
            self._paid[key] = paid
            if len(self._paid) > REMEMBERED:
                self._paid.popitem(last=False)
            self._last = self._home_key
            self._home.run(self._site.graph, placement, stream)
            self._chosen["copied"] += 1
            return
        self._last = key
        self._graphs[key].launch_on(stream)

    def _stays(self, key: Placement, copying: float, updating: float) -> bool:
        """Tell whether copies for the same addresses, call after call, have cost an update."""
        if key != self._streak_key:
            self._streak_key, self._streak = key, 0.0
        self._streak += copying
        return self._streak > updating

    def _build(self, key: Placement, placement: Placement, costs: Costs) -> bool:
        """Build a graph for `placement`; tell whether there was room for one more."""
        if len(self._graphs) >= self._kept:
            return False
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._graphs)
            return False
        self._graphs[key] = graph
        self._lost = 0.0
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
        self._chosen["updated"] += 1
