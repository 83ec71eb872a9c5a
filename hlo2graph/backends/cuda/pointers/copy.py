"""Copy: the graph keeps its addresses; what lies elsewhere is copied there and back."""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter

from hlo2graph.backends.cuda.copier import Batch, Loose
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.backends.cuda.route import Move

KEPT = 64  # placements whose copies are kept ready


class Copy:
    """Costs what the copies cost, at every call with an array that lies elsewhere."""

    name = "copy"

    def __init__(self, site: Site) -> None:
        self._site, self._home = site, Home(site)
        self.tally = self._home.tally

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Copy in, run, copy out."""
        graph = self._site.graph
        self.tally.launches += 1
        if placement == self._site.home:
            graph.move(placement)
            graph.launch_on(stream)
        else:
            self.tally.moved += 1
            self._home.run(graph, placement, stream)


class Home:
    """Runs at home for ports elsewhere; the copies of a placement that comes again are kept ready.

    `tally` counts them.
    """

    def __init__(self, site: Site, tally: Tally | None = None) -> None:
        self._site = site
        self._ready: OrderedDict[Placement, tuple[Batch, Batch] | None] = OrderedDict()
        self.tally = tally or Tally()

    def run(self, graph: Launchable, placement: Placement, stream: Stream) -> tuple[float, int]:
        """Enqueue the copies in, a run of `graph` at home and the copies out.

        Return the host's seconds for the copies, and how many sets of them there were.
        """
        start = perf_counter()
        graph.move(self._site.home)
        inward, outward = self._copies(placement)
        inward(stream)
        copied = perf_counter()
        graph.launch_on(stream)
        launched = perf_counter()
        outward(stream)
        self.tally.copies += inward.count + outward.count
        self.tally.copied += inward.size + outward.size
        sets = bool(inward.count) + bool(outward.count)
        return perf_counter() - launched + copied - start, sets

    def sizes(self, placement: Placement) -> tuple[int, int]:
        """Return the bytes that a run copies in and out."""
        inward = outward = 0
        for port, home, at in zip(self._site.ports, self._site.home, placement, strict=True):
            if home != at:
                inward += port.size * (port.input is not None)
                outward += port.size * port.is_written
        return inward, outward

    def _copies(self, placement: Placement) -> tuple[Batch | Loose, Batch | Loose]:
        """Return the copies before and after a run: made ready from the second time on."""
        if (ready := self._ready.get(placement)) is not None:
            return ready
        inward, outward = self._moves(placement)
        if placement not in self._ready:
            self._ready[placement] = None
            if len(self._ready) > KEPT:
                self._ready.popitem(last=False)
        else:
            batches = self._site.copier.batch(inward), self._site.copier.batch(outward)
            if batches[0] is not None and batches[1] is not None:
                self._ready[placement] = ready = batches[0], batches[1]
                return ready
        return Loose(self._site.copier, inward), Loose(self._site.copier, outward)

    def _moves(self, placement: Placement) -> tuple[list[Move], list[Move]]:
        """Return the copies before and after a run."""
        inward, outward = [], []
        for port, home, at in zip(self._site.ports, self._site.home, placement, strict=True):
            if home == at:
                continue
            if port.input is not None:
                inward.append(Move(at, home, port.size))
            if port.is_written:
                outward.append(Move(home, at, port.size))
        return inward, outward
