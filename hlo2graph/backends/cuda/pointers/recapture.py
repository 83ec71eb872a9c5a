"""Recapture: the whole graph is built again, and the instantiated one updated to it."""

from __future__ import annotations

from hlo2graph.backends.cuda.pointers.strategy import Site
from hlo2graph.backends.cuda.pointers.update import Update
from hlo2graph.backends.cuda.ports import Placement


class Recapture(Update):
    """Costs time in proportion to the graph: what others do, to compare with.

    Where cuGraphExecUpdate refuses, the new graph is instantiated, and `tally.notes` says why.
    """

    name = "recapture"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._whole = site.graph

    def _move(self, placement: Placement) -> None:
        graph = self._whole
        refusals = len(graph.refusals)
        graph.replace(placement)
        self.tally.updates += graph.nodes
        self.tally.builds += len(graph.refusals) - refusals
