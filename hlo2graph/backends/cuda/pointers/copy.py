"""Copy: the graph keeps its addresses; what lies elsewhere is copied there and back."""

from __future__ import annotations

from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.backends.cuda.route import Move


class Copy:
    """Costs what the copies cost, at every call with an array that lies elsewhere."""

    name = "copy"

    def __init__(self, site: Site) -> None:
        self._site = site
        self.tally = Tally()

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Copy in, run, copy out."""
        site, tally = self._site, self.tally
        tally.launches += 1
        if placement == site.home:
            site.graph.move(placement)
            site.graph.launch_on(stream)
            return
        tally.moved += 1
        moves = run_at_home(site, site.graph, placement, stream)
        tally.copies += len(moves)
        tally.copied += sum(move.size for move in moves)


def run_at_home(
    site: Site, graph: Launchable, placement: Placement, stream: Stream
) -> tuple[Move, ...]:
    """Enqueue the copies in, a run of `graph` at home and the copies out; return the copies."""
    inward, outward = moves_home(site, placement)
    site.copier(inward, stream)
    graph.move(site.home)
    graph.launch_on(stream)
    site.copier(outward, stream)
    return (*inward, *outward)


def moves_home(site: Site, placement: Placement) -> tuple[list[Move], list[Move]]:
    """Return the copies before and after a run at home for ports at `placement`."""
    inward, outward = [], []
    for port, home, at in zip(site.ports, site.home, placement, strict=True):
        if home == at:
            continue
        if port.input is not None:
            inward.append(Move(at, home, port.size))
        if port.is_written:
            outward.append(Move(home, at, port.size))
    return inward, outward
