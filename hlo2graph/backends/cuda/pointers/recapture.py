"""Recapture: the whole graph is built again, and the instantiated one updated to it."""

from __future__ import annotations

from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement


class Recapture:
    """Costs time in proportion to the graph: what others do, to compare with.

    Where cuGraphExecUpdate refuses, the new graph is instantiated, and `tally.notes` says why.
    """

    name = "recapture"

    def __init__(self, site: Site) -> None:
        self._graph = site.graph
        self.tally = Tally(notes=site.graph.refusals)

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Build again where anything moved, and run."""
        tally, graph = self.tally, self._graph
        tally.launches += 1
        if placement != graph.placement:
            refusals = len(graph.refusals)
            tally.moved += 1
            graph.replace(placement)
            tally.updates += graph.nodes
            tally.builds += len(graph.refusals) - refusals
        graph.launch_on(stream)
