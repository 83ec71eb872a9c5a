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
        self._settled: dict[Placement, tuple[Launchable, int]] = {}  # and their last launches
        self._movers: dict[Way, _Mover] = {}
        self._followed: _Mover | None = None  # what is moved by habit, as long as that lasts
        self._following = 0  # calls for which it did
        self._tabled: Tabled | None = None
        self._kept = KEPT - 1 - len(BUILDING)  # besides home's and the movers
        self._last_graph: Movable = site.graph
        self._last_placement: Placement | None = site.home
        self._last_key = self._home_key
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
            counts[self._followed.way] += self._following
        chosen = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
        costs = f" ({self._costs})" if self._costs is not None else ""
        kernels = self._site.table_kernels.says
        return f"{chosen or 'not called'}{costs}" + (f"; {kernels}" if kernels else "")

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run with the ports at `placement`."""
        self.tally.launches += 1
        if placement is self._last_placement:
            self._chosen[AS_IT_WAS] += 1
            self._last_graph.launch_on(stream)
            return
        key = self._key(placement)
        mover = self._followed
        if mover and key not in self._settled and key not in (mover.key, self._home_key):
            self._follow(mover, key, placement, stream)
            return
        graph = self._ready(key)
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
        self._last_key, self._last_graph, self._last_placement = key, graph, placement
        graph.launch_on(stream)

    def _follow(self, mover: _Mover, key: Placement, placement: Placement, stream: Stream) -> None:
        """Move what is moved by habit. Calls with arrays that are always new wait for this."""
        tally, graph = self.tally, mover.graph
        self._last_placement = mover.key = None  # a move that fails leaves no graph for it
        tally.moved += 1
        tally.updates += graph.move(placement)
        mover.key = self._last_key = key
        self._last_graph, self._last_placement = graph, placement
        self._following += 1
        if self._following == self._reckoning.left:  # the next call is to be reckoned
            self._chosen[mover.way] += self._following
            self._reckoning.skip(self._following)
            self._followed, self._following = None, 0
        graph.launch_on(stream)

    def _ready(self, key: Placement) -> Movable | None:
        """Return the graph for these addresses."""
        if key in self._settled:
            graph, _ = self._settled[key]
            self._settled[key] = graph, self.tally.launches
            return graph
        for mover in self._movers.values():
            if mover.key == key:
                return mover.graph
        return self._site.graph if key == self._home_key else None

    def _meet(self, key: Placement, placement: Placement, stream: Stream) -> None:
        """Run with addresses for which there is no graph."""
        self._last_placement = None  # a move that fails leaves no graph for it
        costs, reckoning = self._costs, self._reckoning
        if costs is None:
            costs = self._costs = measured(self._site, stream, self._site.graph.build_seconds)
        if reckoning.is_due():
            way = reckoning.way(key, self._prices(placement, costs))
            self._followed = None if reckoning.is_due() else self._movers.get(way)
        else:
            reckoning.skip(1)
            way = reckoning.habit
        self._go(way, key, placement, stream, costs)

    def _go(
        self, way: Way, key: Placement, placement: Placement, stream: Stream, costs: Costs
    ) -> None:
        graph: Movable | None = None
        if (mover := self._movers.get(way)) is not None:
            graph = mover.graph
            start = perf_counter()
            nodes = mover.move(key, placement)
            costs.learn_update(perf_counter() - start, nodes)
            self.tally.updates += nodes
        elif way is Way.BUILD:
            graph = self._settle(key, placement, costs)
        elif way is not Way.COPY:
            graph = self._new_mover(MOVED_BY[way], key, placement, costs)
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
        updated = site.graph if mover is None else mover.graph
        moving = {Way.UPDATE: costs.update * updated.nodes_to_move(placement)}
        if not kernels.failed:
            nodes = 0 if table is None else table.graph.nodes_to_move(placement)
            reading = READ * site.graph.nodes_to_move(placement)
            moving[Way.TABLE] = costs.table + reading + costs.update * nodes
        return Prices(copying, moving, costs.build, frozenset(movers))

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
                graph = held
                self.tally.updates += held.move(placement)
        if graph is not None:
            self._settled[key] = graph, self.tally.launches
        return graph

    def _build(self, placement: Placement, costs: Costs) -> Launchable | None:
        """Build a graph for `placement`, if the GPU has room for one more."""
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._settled)
            return None
        self._learn_build(graph, costs)
        return graph

    def _new_mover(
        self, way: Way, key: Placement, placement: Placement, costs: Costs
    ) -> Movable | None:
        """Return a graph that moves to whatever comes, if there is one to be had now."""
        graph: Movable | None = None
        if way is Way.UPDATE:
            graph = self._build(placement, costs)
        elif self._site.table_kernels.are_ready:
            graph = self._tabled = if_room(self._site, lambda: Tabled(self._site))
            if graph is not None:
                self._learn_build(graph, costs)
        if graph is not None:
            self._movers[way] = mover = _Mover(way, graph)
            mover.move(key, placement)
        return graph

    def _learn_build(self, graph: Movable, costs: Costs) -> None:
        costs.learn_build(graph.build_seconds)
        self.tally.builds += 1

    def _copy(self, placement: Placement, stream: Stream, costs: Costs) -> None:
        self._chosen[Way.COPY] += 1
        self._last_key = self._home_key
        costs.learn_copy(*self._home.run(self._site.graph, placement, stream))


class _Mover:
    """A graph that moves to whatever comes, and the addresses that it is for now."""

    __slots__ = ("graph", "key", "way")

    def __init__(self, way: Way, graph: Movable) -> None:
        self.way, self.graph = way, graph
        self.key: Placement | None = None

    def move(self, key: Placement, placement: Placement) -> int:
        """Move it; return how many nodes that changed."""
        self.key = None  # where that fails midway
        nodes = self.graph.move(placement)
        self.key = key
        return nodes
