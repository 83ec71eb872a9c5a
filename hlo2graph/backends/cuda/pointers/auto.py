"""Auto: whatever costs least, by what it has cost here and by how often addresses come again.

One graph stays over the instance's own memory, so that copying is always possible. Two others may
move to whatever comes: the mover, whose nodes are updated, and one whose kernels read addresses
from a table; these kernels are compiled beside the calls once that seems worth it. The rest, as
many as are kept, are each for addresses that keep coming. reckoning.py chooses among them.
"""

from __future__ import annotations

from time import perf_counter

from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.cache import KEPT, build_if_room, if_room, key_of
from hlo2graph.backends.cuda.pointers.copy import Home
from hlo2graph.backends.cuda.pointers.costs import READ, Costs, measured
from hlo2graph.backends.cuda.pointers.reckoning import BUILDING, TRUSTED, Prices, Reckoning, Way
from hlo2graph.backends.cuda.pointers.strategy import Movable, Site, Tally
from hlo2graph.backends.cuda.pointers.table import Tabled
from hlo2graph.backends.cuda.ports import Placement

UNUSED = 256  # launches after which the graph of some addresses may be given to others
READY, AS_IT_WAS = "ready", "as it was"
MOVED_BY = {building: way for way, building in BUILDING.items()}


class Auto:
    """Chooses at each call among a graph that is ready, copies, a move and a new graph."""

    name = "auto"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._key = key_of(site)
        self._home_key = self._key(site.home)
        self._there: dict[Placement, Movable] = {self._home_key: site.graph}  # besides movers
        self._used: dict[Placement, int] = {}  # the last launches of those that are not home's
        self._kept = KEPT - 1 - len(BUILDING)  # of these
        self._movers: dict[Way, Movable] = {}
        self._tabled: Tabled | None = None
        self._reading = 0.0  # seconds that its launch takes longer
        self._left = 0  # calls that go the usual way, without reckoning
        self._followed: Movable | None = None  # the mover that is this way
        self._last_graph: Movable = site.graph
        self._last_placement: Placement | None = site.home
        self._last_key: Placement | None = self._home_key
        self._costs: Costs | None = None
        self._reckoning = Reckoning()
        self._chosen = dict.fromkeys((AS_IT_WAS, READY, *Way), 0)
        self.tally = Tally(notes=site.graph.refusals)
        self._home = Home(site, self.tally)

    @property
    def says(self) -> str:
        """What it chose how often, and by what costs."""
        counts = dict(self._chosen)
        if self._followed is not None:
            counts[self._reckoning.habit] -= self._left
        chosen = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
        costs = f" ({self._costs})" if self._costs is not None else ""
        kernels = self._site.table_kernels.says
        return f"{chosen or 'not called'}{costs}" + (f"; {kernels}" if kernels else "")

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run with the ports at `placement`."""
        tally, graph = self.tally, self._followed
        tally.launches += 1
        if graph is not None and self._key(placement) not in self._there:
            self._last_placement = self._last_key = None
            tally.moved += 1
            tally.updates += graph.move(placement)
            self._left -= 1
            if not self._left:  # the next call is to be reckoned
                self._followed = None
            graph.launch_on(stream)
        elif placement is self._last_placement:
            self._chosen[AS_IT_WAS] += 1
            self._last_graph.launch_on(stream)
        else:
            self._look(placement, stream)

    def _look(self, placement: Placement, stream: Stream) -> None:
        """Run the graph for these addresses, or find a way to do without."""
        self._last_placement = None  # a move that fails leaves no graph for it
        key = self._key(placement)
        graph = self._graph_for(key, placement)
        if graph is None:
            self.tally.moved += 1
            self._meet(key, placement, stream)
            return
        if key == self._last_key:
            self._chosen[AS_IT_WAS] += 1
        else:
            self._chosen[READY] += 1
            self.tally.moved += 1
            self.tally.hits += 1
        self.tally.updates += graph.move(placement)  # addresses that no node touches move too
        self._run(graph, key, placement, stream)

    def _run(self, graph: Movable, key: Placement, placement: Placement, stream: Stream) -> None:
        self._last_key, self._last_graph = key, graph
        # What stays is not to read a table for ever: it is looked at each time
        self._last_placement = None if graph is self._tabled else placement
        graph.launch_on(stream)

    def _graph_for(self, key: Placement, placement: Placement) -> Movable | None:
        """Return the graph for these addresses, if there is one."""
        graph = self._there.get(key)
        if graph is not None:
            if key in self._used:
                self._used[key] = self.tally.launches
            return graph
        for mover in self._movers.values():
            if mover.placement is not None and self._key(mover.placement) == key:
                return self._reading_no_more(key, placement) if mover is self._tabled else mover
        return None

    def _reading_no_more(self, key: Placement, placement: Placement) -> Movable | None:
        """Return a graph that reads no table for addresses that stay, once that is worth one."""
        costs = self._costs
        assert costs is not None
        if self._reckoning.pays(key, self._reading, costs.build):
            return self._settle(key, placement, costs) or self._tabled
        return self._tabled

    def _meet(self, key: Placement, placement: Placement, stream: Stream) -> None:
        """Run with addresses for which there is no graph."""
        costs, reckoning = self._costs, self._reckoning
        if costs is None:
            costs = self._costs = measured(self._site, stream, self._site.graph.build_seconds)
        if self._left:  # movers are followed elsewhere
            self._left -= 1
            self._copy(placement, stream, costs)
            return
        way = reckoning.way(key, self._prices(placement, costs))
        self._go(way, key, placement, stream, costs)
        self._left = reckoning.lasts
        if self._left and way is not Way.COPY:
            self._followed = self._movers[way]
            self._chosen[way] += self._left

    def _go(
        self, way: Way, key: Placement, placement: Placement, stream: Stream, costs: Costs
    ) -> None:
        graph = self._movers.get(way)
        if graph is not None:
            start = perf_counter()
            nodes = graph.move(placement)
            costs.learn_update(perf_counter() - start, nodes)
            self.tally.updates += nodes
        elif way is Way.BUILD:
            graph = self._settle(key, placement, costs)
        elif way is not Way.COPY:
            graph = self._new_mover(MOVED_BY[way], placement, costs)
        if graph is None:
            self._copy(placement, stream, costs)
            return
        self._chosen[way] += 1
        self._run(graph, key, placement, stream)
        if graph is self._tabled:
            costs.learn_table(self._tabled.write_seconds)

    def _prices(self, placement: Placement, costs: Costs) -> Prices:
        kernels, site, movers = self._site.table_kernels, self._site, self._movers
        if self._reckoning.lost.get(Way.TABLE, 0.0) > costs.build * TRUSTED / 2:
            kernels.begin()
        copying = sum(map(costs.copying, self._home.sizes(placement)))
        mover, table = (movers.get(way) for way in BUILDING)
        updated = site.graph if mover is None else mover
        moving = {Way.UPDATE: costs.update * updated.nodes_to_move(placement)}
        if not kernels.failed:
            nodes = 0 if table is None else table.nodes_to_move(placement)
            self._reading = READ * site.graph.nodes_to_move(placement)
            moving[Way.TABLE] = costs.table + self._reading + costs.update * nodes
        return Prices(copying, moving, costs.build, frozenset(movers), self._has_room())

    def _has_room(self) -> bool:
        """Tell whether some addresses can have a graph of their own now."""
        if len(self._used) < self._kept:
            return True
        last = min(self._used.values(), default=self.tally.launches)
        return self.tally.launches - last > UNUSED

    def _settle(self, key: Placement, placement: Placement, costs: Costs) -> Movable | None:
        """Return a graph that is for these addresses from now on, where there is one to be had."""
        graph: Movable | None = None
        if len(self._used) < self._kept:
            graph = self._build(placement, costs)
        elif self._has_room():
            oldest = min(self._used, key=self._used.__getitem__)
            del self._used[oldest]
            graph = self._there.pop(oldest)
            self.tally.updates += graph.move(placement)
        if graph is not None:
            self._there[key], self._used[key] = graph, self.tally.launches
        return graph

    def _build(self, placement: Placement, costs: Costs) -> Launchable | None:
        """Build a graph for `placement`, if the GPU has room for one more."""
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._used)
            return None
        self._learn_build(graph, costs)
        return graph

    def _new_mover(self, way: Way, placement: Placement, costs: Costs) -> Movable | None:
        """Return a graph that moves to whatever comes, if there is one to be had now."""
        graph: Movable | None = None
        if way is Way.UPDATE:
            graph = self._build(placement, costs)
        elif self._site.table_kernels.are_ready:
            graph = self._tabled = if_room(self._site, lambda: Tabled(self._site))
            if graph is not None:
                self._learn_build(graph, costs)
        if graph is not None:
            self._movers[way] = graph
            graph.move(placement)
        return graph

    def _learn_build(self, graph: Movable, costs: Costs) -> None:
        costs.learn_build(graph.build_seconds)
        self.tally.builds += 1

    def _copy(self, placement: Placement, stream: Stream, costs: Costs) -> None:
        self._chosen[Way.COPY] += 1
        self._last_key = self._home_key
        costs.learn_copy(*self._home.run(self._site.graph, placement, stream))
