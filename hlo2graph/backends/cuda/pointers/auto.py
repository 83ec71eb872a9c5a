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
        self._homes = _Held(site.graph)
        self._there = {self._home_key: self._homes}  # graphs by the addresses that they are for
        self._port = next(iter(site.graph.matters), 0)
        self._held_at = set(self._home_key[:1])  # where that port lies for one of these
        self._kept = KEPT - 1 - len(BUILDING)  # besides home's and the movers
        self._movers: dict[Way, Movable] = {}
        self._tabled: Tabled | None = None
        self._reading = 0.0  # seconds that its launch takes longer
        self._left = 0  # calls that go the usual way, without reckoning
        self._followed: Movable | None = None  # the mover that is this way
        self._last: Movable | None = site.graph  # what ran last, if that was not by habit
        self._still: Movable | None = site.graph  # it, where it may run again unseen
        self._costs: Costs | None = None
        self._reckoning = Reckoning()
        self._as_it_was = 0  # calls
        self._chosen: dict[str, int] = dict.fromkeys(Way, 0)
        self.tally = Tally(notes=site.graph.refusals)
        self._home = Home(site, self.tally)

    @property
    def says(self) -> str:
        """What it chose how often, and by what costs."""
        counts = {AS_IT_WAS: self._as_it_was, READY: self.tally.hits, **self._chosen}
        if self._followed is not None:
            counts[self._reckoning.habit] -= self._left
        chosen = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
        costs = f" ({self._costs})" if self._costs is not None else ""
        kernels = self._site.table_kernels.says
        return f"{chosen or 'not called'}{costs}" + (f"; {kernels}" if kernels else "")

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run with the ports at `placement`."""
        tally, graph, still = self.tally, self._followed, self._still
        tally.launches += 1
        if graph is not None and (
            placement[self._port] not in self._held_at or self._key(placement) not in self._there
        ):
            self._last = self._still = None
            tally.moved += 1
            tally.updates += graph.move(placement)
            self._left -= 1
            if not self._left:  # the next call is to be reckoned
                self._followed = None
            graph.launch_on(stream)
        elif still is not None and placement is still.placement:
            self._as_it_was += 1
            still.launch_on(stream)
        else:
            self._choose(placement, stream)

    def _choose(self, placement: Placement, stream: Stream) -> None:
        """Run the graph that is there for these addresses, or find a way to do without."""
        key = self._key(placement)
        held = self._there.get(key)
        if held is not None:
            held.used = self.tally.launches
            self._go_on(held.graph, placement, stream)
            return
        for mover in self._movers.values():
            if mover.placement is not None and self._key(mover.placement) == key:
                graph = self._reading_no_more(key, placement) if mover is self._tabled else mover
                self._go_on(graph, placement, stream)
                return
        self.tally.moved += 1
        self._meet(key, placement, stream)

    def _go_on(self, graph: Movable, placement: Placement, stream: Stream) -> None:
        """Run the graph that is there for these addresses."""
        tally = self.tally
        if graph is self._last:
            self._as_it_was += 1
        else:
            tally.moved += 1
            tally.hits += 1
        tally.updates += graph.move(placement)  # addresses that no node touches move too
        self._run(graph, stream)

    def _run(self, graph: Movable, stream: Stream) -> None:
        self._last = graph
        # What stays is not to read a table for ever.
        self._still = None if graph is self._tabled else graph
        graph.launch_on(stream)

    def _reading_no_more(self, key: Placement, placement: Placement) -> Movable:
        """Return a graph that reads no table for addresses that stay, once that is worth one."""
        costs, tabled = self._costs, self._tabled
        assert costs is not None
        assert tabled is not None
        if self._reckoning.pays(key, self._reading, costs.build):
            return self._settle(key, placement, costs) or tabled
        return tabled

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
        graph, start, nodes = self._movers.get(way), perf_counter(), 0
        if graph is not None:
            nodes = graph.move(placement)
            self.tally.updates += nodes
        elif way is Way.BUILD:
            graph = self._settle(key, placement, costs)
        elif way is not Way.COPY:
            graph = self._new_mover(MOVED_BY[way], placement, costs)
        if graph is None:
            self._copy(placement, stream, costs)
            return
        self._chosen[way] += 1
        self._run(graph, stream)
        if graph is self._tabled:
            costs.learn_table(self._tabled.write_seconds)
        else:
            costs.learn_update(perf_counter() - start, nodes)

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
        if len(self._there) <= self._kept:
            return True
        return bool(self._kept) and self.tally.launches - self._oldest[1].used > UNUSED

    @property
    def _oldest(self) -> tuple[Placement, _Held]:
        """What was not used for longest, but for home."""
        others = [found for found in self._there.items() if found[1] is not self._homes]
        return min(others, key=lambda found: found[1].used)

    def _settle(self, key: Placement, placement: Placement, costs: Costs) -> Movable | None:
        """Return a graph that is for these addresses from now on, where there is one to be had."""
        graph: Movable | None = None
        if len(self._there) <= self._kept:
            graph = self._build(placement, costs)
        elif self._has_room():
            oldest, held = self._oldest
            del self._there[oldest]
            self._held_at = {key[0] for key in self._there}
            graph = held.graph
            self.tally.updates += graph.move(placement)
        if graph is not None:
            self._there[key] = _Held(graph, self.tally.launches)
            self._held_at.add(key[0])
        return graph

    def _build(self, placement: Placement, costs: Costs) -> Launchable | None:
        """Build a graph for `placement`, if the GPU has room for one more."""
        graph = build_if_room(self._site, placement)
        if graph is None:
            self._kept = len(self._there) - 1
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
        self._last = self._still = self._site.graph
        costs.learn_copy(*self._home.run(self._site.graph, placement, stream))


class _Held:
    """A graph that is for some addresses, and the launch that used it last."""

    __slots__ = ("graph", "used")

    def __init__(self, graph: Movable, used: int = 0) -> None:
        self.graph, self.used = graph, used
