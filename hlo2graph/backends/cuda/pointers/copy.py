"""Copy: the graph keeps its addresses; what lies elsewhere is copied there and back."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from hlo2graph.backends.cuda.copier import Crossing
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement

KEPT = 64  # sets of ports whose copies are kept ready


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
    """Runs at home for ports elsewhere; the copies of ports that moved together are kept ready.

    `tally` counts them.
    """

    def __init__(self, site: Site, tally: Tally | None = None) -> None:
        self._site = site
        self._ready: dict[tuple[int, ...], _Crossings] = {}
        self._last: Placement | None = None
        self._between: tuple[Crossing, Crossing] | None = None  # home and that one
        self.tally = tally or Tally()

    def run(self, graph: Launchable, placement: Placement, stream: Stream) -> Ran:
        """Enqueue the copies in, a run of `graph` at home and the copies out."""
        start = perf_counter()
        graph.move(self._site.home)
        into, from_ = self._aimed(placement)
        into(stream)
        copied = perf_counter()
        graph.launch_on(stream)
        launched = perf_counter()
        from_(stream)
        self.tally.copies += into.count + from_.count
        self.tally.copied += into.size + from_.size
        sets = bool(into.count) + bool(from_.count)
        return Ran(perf_counter() - launched + copied - start, sets, launched - copied)

    def sizes(self, placement: Placement) -> tuple[int, int]:
        """Return the bytes that a run copies in and out."""
        crossings = self._crossings(placement)
        return crossings.into.size, crossings.from_.size

    def _aimed(self, placement: Placement) -> tuple[Crossing, Crossing]:
        if self._between is None or placement is not self._last:
            found = self._crossings(placement)
            self._last, self._between = placement, (found.into, found.from_)
            found.into.aim([placement[k] for k in found.read])
            found.from_.aim([placement[k] for k in found.written])
        return self._between

    def _crossings(self, placement: Placement) -> _Crossings:
        home = self._site.home
        moved = tuple([k for k, at in enumerate(placement) if at != home[k]])
        found = self._ready.get(moved)
        if found is None:
            if len(self._ready) >= KEPT:
                self._ready.clear()
            found = self._ready[moved] = self._made(moved)
        return found

    def _made(self, moved: Sequence[int]) -> _Crossings:
        ports, home, crossing = self._site.ports, self._site.home, self._site.copier.crossing
        read = tuple(k for k in moved if ports[k].input is not None)
        written = tuple(k for k in moved if ports[k].is_written)
        into, from_ = (
            crossing([home[k] for k in ks], [ports[k].size for k in ks], inward=inward)
            for ks, inward in ((read, True), (written, False))
        )
        return _Crossings(read, written, into, from_)


class Ran(NamedTuple):
    """The host's seconds for so many sets of copies, and for the launch between them."""

    copying: float
    sets: int
    launching: float


class _Crossings(NamedTuple):
    """The copies before and after a run, and the ports that they are for."""

    read: tuple[int, ...]
    written: tuple[int, ...]
    into: Crossing
    from_: Crossing
