"""Cache: a graph for each set of addresses, as many as are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from hlo2graph.backends.cuda.budget import BUDGET
from hlo2graph.backends.cuda.driver import is_out_of_memory
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.errors import BackendError

KEPT = 8  # graphs

T = TypeVar("T")


class Cache:
    """Costs nothing where the addresses come again, and an instantiation where they are new.

    Once `kept` graphs are there, the one that was not used for longest is updated to the new
    addresses. Only ports that a node touches count.
    """

    name = "cache"

    def __init__(self, site: Site, kept: int = KEPT) -> None:
        self._site, self._kept = site, kept
        self._key = key_of(site)
        self._graphs: OrderedDict[Placement, Launchable] = OrderedDict()
        self._graphs[self._key(site.home)] = site.graph
        self.tally = Tally()

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Run the graph for these addresses."""
        self.tally.launches += 1
        key = self._key(placement)
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

    def _made(self, placement: Placement) -> Launchable:
        if len(self._graphs) < self._kept:
            built = build_if_room(self._site, placement)
            if built is not None:
                self.tally.builds += 1
                return built
            self._kept = len(self._graphs)
        key, graph = next(iter(self._graphs.items()))
        self.tally.updates += graph.move(placement)
        del self._graphs[key]
        return graph


def build_if_room(site: Site, placement: Placement) -> Launchable | None:
    """Return a graph for `placement`, or None where there is no room for another one."""
    return if_room(site, lambda: site.build(placement))


def if_room(site: Site, build: Callable[[], T]) -> T | None:
    """Return what `build` does, a graph like the site's, or None where there is no room for it.

    Neither the GPU nor the process's budget may have any.
    """
    if not BUDGET.has_room(site.graph.size, site.graph.holder):
        return None
    try:
        return build()
    except BackendError as error:
        if not is_out_of_memory(error):
            raise
        return None


def key_of(site: Site) -> Callable[[Placement], Placement]:
    """Return what finds the addresses that matter: of ports that some node touches."""
    matters = site.graph.matters
    if len(matters) == len(site.ports):
        return lambda placement: placement
    return lambda placement: tuple(placement[k] for k in matters)
