"""Auto: whatever costs least, by what it has cost here and by how often addresses come again.

One graph stays over the instance's own memory, so that copying is always possible. Another may be
the mover, which is updated to whatever comes. The others, as many as are kept, are each for
addresses that keep coming. reckoning.py chooses among them.
"""

from __future__ import annotations

import time

from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.cache import KEPT, build_if_room, key_of
from hlo2graph.backends.cuda.pointers.copy import Home
from hlo2graph.backends.cuda.pointers.costs import Costs, measured
from hlo2graph.backends.cuda.pointers.reckoning import Prices, Reckoning, Way
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement

UNUSED = 256  # launches after which the graph of some addresses may be given to others
READY, AS_IT_WAS, UPDATED = "ready", "as it was", Way.UPDATE.value


class Auto:
    """Chooses at each call among a graph that is ready, copies, an update and a new graph."""

    name = "auto"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._key = key_of(site)
        self._home_key = self._key(site.home)
        self._settled: dict[Placement, tuple[Launchable, int]] = {}  # and their last launches
        self._mover: Launchable | None = None
        self._mover_key: Placement | None = None
        self._kept = KEPT - 2  # besides home's and the mover
        self._last = self._home_key
        self._last_graph = site.graph
        self._last_placement: Placement | None = site.home
        self._costs: Costs | None = None
        self._reckoning = Reckoning()
        self._chosen = dict.fromkeys((AS_IT_WAS, READY, *(way.value for way in Way)), 0)
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
        if placement is self._last_placement:
            self._chosen[AS_IT_WAS] += 1
            self._last_graph.launch_on(stream)
            return
        key = self._key(placement)
        graph = self._ready(key)
        if graph is None:
            self.tally.moved += 1
            self._meet(key, placement, stream)
            return
        if key == self._last:
            self._chosen[AS_IT_WAS] += 1
        else:
            self._chosen[READY] += 1
            self.tally.moved += 1
            self.tally.hits += 1
        self.tally.updates += graph.move(placement)  # addresses that no node touches move too
        self._run(graph, key, placement, stream)

    def _run(self, graph: Launchable, key: Placement, placement: Placement, stream: Stream) -> None:
        self._last, self._last_graph, self._last_placement = key, graph, placement
        graph.launch_on(stream)

    def _ready(self, key: Placement) -> Launchable | None:
        """Return the graph for these addresses."""
        if key in self._settled:
            graph, _ = self._settled[key]
            self._settled[key] = graph, self.tally.launches
            return graph
        if key == self._mover_key:
            return self._mover
        return self._site.graph if key == self._home_key else None

    def _meet(self, key: Placement, placement: Placement, stream: Stream) -> None:
        """Run with addresses for which there is no graph."""
        self._last_placement = None  # a move that fails leaves no graph for it
        if self._mover is not None and self._reckoning.follows(Way.UPDATE):
            self.tally.updates += self._mover.move(placement)
            self._chosen[UPDATED] += 1
            self._mover_key = key
            self._run(self._mover, key, placement, stream)
            return
        if self._costs is None:
            self._costs = measured(self._site, stream, self._site.graph.build_seconds)
        costs = self._costs
        way = self._reckoning.way(key, lambda: self._prices(placement, costs))
        graph = None
        if way is Way.BUILD:
            graph = self._settle(key, placement, costs)
        elif way is Way.BUILD_MOVER:
            graph = self._mover = self._build(placement, costs)
            self._mover_key = key if graph is not None else None
        elif way is Way.UPDATE and self._mover is not None:
            graph = self._moved(self._mover, placement, costs)
            self._mover_key = key
        if graph is None:
            self._copy(placement, stream, costs)
            return
        self._chosen[way.value] += 1
        self._run(graph, key, placement, stream)

    def _prices(self, placement: Placement, costs: Costs) -> Prices:
        copying = sum(map(costs.copying, self._home.sizes(placement)))
        mover = self._mover if self._mover is not None else self._site.graph
        updating = costs.update * mover.nodes_to_move(placement)
        return Prices(copying, updating, costs.build, has_mover=self._mover is not None)

    def _settle(self, key: Placement, placement: Placement, costs: Costs) -> Launchable | None:
        """Return a graph that is for these addresses from now on, where there is one to be had."""
        graph = None
        if len(self._settled) < self._kept:
            graph = self._build(placement, costs)
        elif self._settled:
            oldest = min(self._settled, key=lambda held: self._settled[held][1])
            held, used = self._settled[oldest]
            if self.tally.launches - used > UNUSED:
                del self._settled[oldest]
                graph = self._moved(held, placement, costs)
        if graph is not None:
            self._settled[key] = graph, self.tally.launches
        return graph

    def _build(self, placement: Placement, costs: Costs) -> Launchable | None:
        """Build a graph for `placement`, if the GPU has room for one more."""
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._settled)
            return None
        costs.learn_build(graph.build_seconds)
        self.tally.builds += 1
        return graph

    def _moved(self, graph: Launchable, placement: Placement, costs: Costs) -> Launchable:
        refused = len(graph.refusals)
        start = time.perf_counter()
        nodes = graph.move(placement)
        if len(graph.refusals) == refused:
            costs.learn_update(time.perf_counter() - start, nodes)
        self.tally.updates += nodes
        return graph

    def _copy(self, placement: Placement, stream: Stream, costs: Costs) -> None:
        self._chosen[Way.COPY.value] += 1
        self._last = self._home_key
        costs.learn_copy(*self._home.run(self._site.graph, placement, stream))
