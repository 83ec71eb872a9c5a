"""Cache: a graph for each set of addresses, as many as are kept."""

from __future__ import annotations

from collections import OrderedDict

from hlo2graph.backends.cuda.built import BuiltGraph
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement

KEPT = 8  # graphs


class Cache:
    """Costs nothing where the addresses come again, and an instantiation where they are new.

    Once `kept` graphs are there, the one that was not used for longest is updated to the new
    addresses. Only ports that a node touches count.
    """

    name = "cache"

    def __init__(self, site: Site, kept: int = KEPT) -> None:
        self._site, self._kept = site, kept
        self._matters = site.graph.matters
        self._graphs: OrderedDict[Placement, BuiltGraph] = OrderedDict()
        self._graphs[self.key(site.home)] = site.graph
        self.tally = Tally()

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run the graph for these addresses."""
        self.tally.launches += 1
        key = self.key(placement)
        graph = self._graphs.get(key)
        if graph is None:
            self.tally.moved += 1
            graph = self._made(placement)
            self._graphs[key] = graph
        else:
            last = next(reversed(self._graphs))
            self.tally.hits += last != key
            self.tally.moved += last != key
        self._graphs.move_to_end(key)
        self.tally.updates += graph.move(placement)  # who shares the graph may have moved it
        graph.launch_on(stream)

    def key(self, placement: Placement) -> Placement:
        """Return the addresses that matter."""
        return tuple(placement[k] for k in self._matters)

    def _made(self, placement: Placement) -> BuiltGraph:
        if len(self._graphs) < self._kept:
            self.tally.builds += 1
            return self._site.build(placement)
        key, graph = next(iter(self._graphs.items()))
        self.tally.updates += graph.move(placement)
        del self._graphs[key]
        return graph
