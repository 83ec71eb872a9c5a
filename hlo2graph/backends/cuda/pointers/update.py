"""Update: the nodes that touch what moved get its address before the next run."""

from __future__ import annotations

from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Movable, Site, Tally
from hlo2graph.backends.cuda.ports import Placement


class Update:
    """Costs a driver call for each node that touches a moved port."""

    name = "update"

    def __init__(self, site: Site) -> None:
        self._graph = self._movable(site)
        self.tally = Tally(notes=self._graph.refusals)

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Move what runs where anything moved, and run."""
        tally, graph = self.tally, self._graph
        tally.launches += 1
        if placement != graph.placement:
            tally.moved += 1
            self._move(placement)
        graph.launch_on(stream)

    def _move(self, placement: Placement) -> None:
        self.tally.updates += self._graph.move(placement)

    def _movable(self, site: Site) -> Movable:
        return site.graph
