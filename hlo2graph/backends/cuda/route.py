"""Where the arrays of one call lie while it runs, and what must be copied before and after.

Nothing here touches the device: addresses in, a Route out. An array is used where it lies if the
program only reads it, or may overwrite it, if its address is as aligned as kernels take it for, and
if it shares no byte with anything that the call writes. Any other is copied to the instance's own
memory, its home, before the run; a result that cannot be made where it is wanted is copied there
after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.ports import Placement, Port
from hlo2graph.backends.cuda.spans import bounds
from hlo2graph.backends.cuda.straight import Straight
from hlo2graph.errors import InputError
from hlo2graph.program.plan import Plan


class Move(NamedTuple):
    """A copy of `size` bytes on the device."""

    source: int
    target: int
    size: int


class Route(NamedTuple):
    """One call: copies before, where the ports lie, copies after, where each result then is.

    `inputs` are where the arguments must be when it runs: those from the host are written there.
    """

    before: tuple[Move, ...]
    inputs: tuple[int, ...]
    placement: Placement
    after: tuple[Move, ...]
    results: tuple[int, ...]


class Brought(NamedTuple):
    """The addresses that a caller brings: None for an argument on the host, a result at home.

    `donated` are the positions of the arguments that the call may overwrite.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    donated: tuple[int, ...] = ()


class Router:
    """Finds the route of each call of one instance, whose memory is at `home`."""

    def __init__(self, plan: Plan, ports: Sequence[Port], home: Addresses) -> None:
        self._plan, self._ports = plan, ports
        self._inputs = {p.input: k for k, p in enumerate(ports) if p.input is not None}
        self._outputs = {p.output: k for k, p in enumerate(ports) if p.output is not None}
        self._home_in = tuple(home.of(b.slice) for b in plan.inputs)
        self.home_results = tuple(home.of(b.slice) for b in plan.outputs)
        self.home: Placement = tuple(home.bases[p.allocation] for p in ports)
        self._all_home = (None,) * len(plan.outputs)
        self._blocks = {
            index: (base, base + allocation.size)
            for index, (base, allocation) in enumerate(
                zip(home.bases, plan.allocations, strict=True)
            )
        }
        self._makes_all = len(self._outputs) == len(plan.outputs)  # each result is in a port
        self._donors = {  # by result, the argument whose place it takes
            k: donor
            for k, port in self._outputs.items()
            if (donor := ports[port].input) is not None
        }
        self._straight = self._made_straight()

    def route(self, brought: Brought) -> Route:
        """Return how to run with these arrays.

        Raises:
            InputError: results were asked for in memory that they would overwrite for each other.
        """
        self._refuse_shared_results(brought)
        placement = list(self.home)
        for position, wanted in enumerate(brought.outputs):
            port = self._outputs.get(position)
            if port is not None and wanted is not None and self._is_free(port, wanted):
                placement[port] = wanted
        for port, described in enumerate(self._ports):
            if described.is_written and described.input is not None:
                self._donate(port, placement, brought)
        self._settle(placement, brought)
        return self._finished(placement, brought)

    def simple(self, brought: Brought) -> Route | None:
        """Return the route of a call that copies nothing, None where there is more to it."""
        inputs = [given for given in brought.inputs if given is not None]
        if len(inputs) != len(brought.inputs):
            return None
        if brought.outputs == self._all_home:
            return self.straight(inputs, None, brought.donated)
        results = [wanted for wanted in brought.outputs if wanted is not None]
        if len(results) != len(brought.outputs):
            return None
        return self.straight(inputs, results, brought.donated)

    def straight(
        self,
        inputs: Sequence[int],
        results: Sequence[int] | None = None,
        donated: Collection[int] = (),
    ) -> Route | None:
        """Return the same of arguments and results, all at addresses; None stands for home."""
        if self._straight is None or (results is not None and not self._makes_all):
            return None
        placement = self._straight.placement(inputs, results, donated)
        if placement is None:
            return None
        made = self.home_results if results is None else tuple(results)
        if results is None and self._donors:
            made = tuple(
                inputs[self._donors[k]] if k in self._donors else at for k, at in enumerate(made)
            )
        return Route((), tuple(inputs), placement, (), made)

    def _made_straight(self) -> Straight | None:
        """Return what finds such routes, unless an argument has no port."""
        found = [self._inputs.get(position) for position in range(len(self._plan.inputs))]
        inputs = [port for port in found if port is not None]
        if len(inputs) != len(found):
            return None
        written = self._written(
            self.home, range(len(self._ports)), Brought(self._home_in, self._all_home)
        )
        return Straight(self._ports, inputs, self.home, written, list(self._blocks.values()))

    def _refuse_shared_results(self, brought: Brought) -> None:
        ends = [
            (self.home_results[k] if wanted is None else wanted, bound)
            for k, (wanted, bound) in enumerate(
                zip(brought.outputs, self._plan.outputs, strict=True)
            )
        ]
        for k, (start, bound) in enumerate(ends):
            if brought.outputs[k] is None:
                continue
            for j, (other, its) in enumerate(ends):
                span = (other, other + its.slice.size)
                if j != k and its.slice.size and _overlap(span, start, bound.slice.size):
                    raise InputError(f"results {bound.name} and {its.name} would share memory")

    def _is_free(self, port: int, wanted: int) -> bool:
        """A result can be made at `wanted` itself."""
        return not wanted % self._ports[port].alignment and not self._is_at_home(wanted, port)

    def _is_at_home(self, address: int, port: int) -> bool:
        """Something at `address`, as large as `port`, shares a byte with another home."""
        described = self._ports[port]
        span = (address, address + described.size)
        own = described.allocation
        return any(
            index != own and _overlap(span, start, end - start)
            for index, (start, end) in self._blocks.items()
        )

    def _donate(self, port: int, placement: list[int], brought: Brought) -> None:
        described = self._ports[port]
        assert described.input is not None
        given = brought.inputs[described.input]
        wanted = None if described.output is None else brought.outputs[described.output]
        if (
            given is not None
            and wanted is None
            and described.input in brought.donated
            and not given % described.alignment
            and not self._is_at_home(given, port)
            and not self._is_written(given, port, placement, brought)
        ):
            placement[port] = given

    def _is_written(
        self, address: int, port: int, placement: Sequence[int], brought: Brought
    ) -> bool:
        """Something at `address`, as large as `port`, meets what is written for another one.

        That may be written later too, where a result is copied to.
        """
        size = self._ports[port].size
        spans = [
            (at, at + p.size)
            for k, (at, p) in enumerate(zip(placement, self._ports, strict=True))
            if k != port and p.is_written
        ]
        spans += [
            (at, at + bound.slice.size)
            for at, bound in zip(brought.outputs, self._plan.outputs, strict=True)
            if at is not None
        ]
        return any(_overlap(span, address, size) for span in spans)

    def _settle(self, placement: list[int], brought: Brought) -> None:
        """Place arguments that are only read: where they lie, unless something is written there.

        What is copied home is itself written, so that another argument that lies there must be
        copied too; each round brings home one argument more, or is the last.
        """
        loose = {}
        for position, given in enumerate(brought.inputs):
            port = self._inputs.get(position)
            if port is None or given is None or self._ports[port].is_written:
                continue
            if not given % self._ports[port].alignment:
                placement[port] = given
                loose[port] = given
        while loose:
            starts, ends = bounds(self._written(placement, loose, brought))
            stuck = []
            for port, given in loose.items():
                before = bisect_left(starts, given + self._ports[port].size)
                if before and ends[before - 1] > given:
                    stuck.append(port)
            if not stuck:
                return
            for port in stuck:
                placement[port] = self.home[port]
                del loose[port]

    def _written(
        self, placement: Sequence[int], loose: Collection[int], brought: Brought
    ) -> list[tuple[int, int]]:
        """Return the spans that the call writes: results, donations, and what is copied home."""
        found = [
            (placement[k], placement[k] + p.size) for k, p in enumerate(self._ports) if p.is_written
        ]
        for position, given in enumerate(brought.inputs):
            port = self._inputs.get(position)
            home = self._home_in[position]
            if port not in loose and given != home:
                found.append((home, home + self._plan.inputs[position].slice.size))
        found += [
            (at, at + bound.slice.size)
            for k, (at, bound) in enumerate(zip(self.home_results, self._plan.outputs, strict=True))
            if k not in self._outputs
        ]
        return found

    def _finished(self, placement: Sequence[int], brought: Brought) -> Route:
        before, inputs, after, results = [], [], [], []
        for position, given in enumerate(brought.inputs):
            port = self._inputs.get(position)
            target = self._home_in[position] if port is None else placement[port]
            size = self._plan.inputs[position].slice.size
            inputs.append(target)
            if given is not None and given != target and size:
                before.append(Move(given, target, size))
        for position, wanted in enumerate(brought.outputs):
            port = self._outputs.get(position)
            made = self.home_results[position] if port is None else placement[port]
            size = self._plan.outputs[position].slice.size
            if wanted is not None and wanted != made and size:
                after.append(Move(made, wanted, size))
            results.append(made if wanted is None else wanted)
        return Route(tuple(before), tuple(inputs), tuple(placement), tuple(after), tuple(results))


def in_waves(
    moves: Sequence[Move],
) -> tuple[tuple[tuple[Move, ...], ...], tuple[Move, ...]]:
    """Return `moves` in waves, of which none overwrites what it or a later one reads; and a circle.

    The sources of the circle must all be read before any of its targets is written.
    """
    low = min([move.target for move in moves], default=0)
    high = max([move.target + move.size for move in moves], default=0)
    if all(source + size <= low or source >= high for source, _, size in moves):
        return (tuple(moves),) if moves else (), ()
    left = list(moves)
    waves: list[tuple[Move, ...]] = []
    while left:
        targets = sorted([(target, target + size) for _, target, size in left])
        read = {k for source, _, size in left for k in _meeting(targets, source, source + size)}
        if not read:
            return (*waves, tuple(left)), ()
        overwriting = {targets[k] for k in read}
        free = tuple(m for m in left if (m.target, m.target + m.size) not in overwriting)
        if not free:
            return tuple(waves), tuple(left)
        waves.append(free)
        left = [m for m in left if (m.target, m.target + m.size) in overwriting]
    return tuple(waves), ()


def _meeting(spans: Sequence[tuple[int, int]], start: int, end: int) -> range:
    """Return the numbers of the spans, sorted and apart, that share a byte with this one."""
    last = first = bisect_left(spans, (end,))
    while first and spans[first - 1][1] > start:
        first -= 1
    return range(first, last)


def _overlap(span: tuple[int, int], start: int, size: int) -> bool:
    return size > 0 and span[0] < start + size and start < span[1]
