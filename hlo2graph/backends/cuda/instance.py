"""An instance: the memory, the graph and the stream that one call at a time needs."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, partial
from sys import getrefcount
from types import MappingProxyType
from typing import Any, NamedTuple

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.bind import Stopwatch
from hlo2graph.backends.cuda.budget import Holder
from hlo2graph.backends.cuda.copier import Copier
from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.driver import Device
from hlo2graph.backends.cuda.kept_alive import KeptAlive
from hlo2graph.backends.cuda.known import KnownCalls
from hlo2graph.backends.cuda.launchable import Launchable
from hlo2graph.backends.cuda.loaded import Loaded
from hlo2graph.backends.cuda.memory import Event, PlanMemory, Stream, write_array
from hlo2graph.backends.cuda.ours import Ours
from hlo2graph.backends.cuda.partial.graphs import built
from hlo2graph.backends.cuda.pointers import Site
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.backends.cuda.route import Brought, Move, Route, Router
from hlo2graph.errors import BackendError
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Bound

ROUTES = 64  # kept for calls whose arrays lie where those of an earlier one lay
NOTHING: Mapping[int, Array] = MappingProxyType({})  # from the host
OWN_REFERENCES = 3  # to what an instance holds: its own, a variable's, and getrefcount's argument


class Instance:
    """Runs calls one after another, on any stream; who uses it holds `lock`.

    Its results lie in its own memory until its next call. `user` is whose calls come here; an
    instance with results that somebody still holds is nobody else's.
    """

    def __init__(
        self, loaded: Loaded, stream: Stream, like: Instance | None, timed: Stopwatch
    ) -> None:
        plan, device = loaded.plan, loaded.device
        self.lock = threading.Lock()
        self.user: object = None
        self.stream = stream
        shared: PlanMemory | None = None if like is None else like.memory
        with timed("allocate"):
            self.memory: PlanMemory = PlanMemory(
                plan.allocations, device.memory_bytes, stream, shared, loaded.placed, plan.name
            )
        self._loaded = loaded
        self._router = Router(plan, loaded.ports, self.memory.addresses)
        self._routes: OrderedDict[Brought, Route] = OrderedDict()
        self._copier = Copier(loaded.move, device.multiprocessors)
        self._ran = Event()  # marks the last call where it was on another stream than our own
        wait = partial(_wait_for_runs, device, stream, self._ran)
        self.holder = Holder(plan.name, threading.Lock(), wait)
        build = partial(built, loaded.maker, self.memory.addresses, stream, holder=self.holder)
        home = self._router.home
        self.graph = build(home, timed)
        with_table = partial(
            _built_with_table, loaded, self.memory.addresses, stream, home, self.holder
        )
        self.strategy = loaded.strategy(
            Site(
                *(loaded.ports, home, self.graph, build, with_table),
                *(loaded.table_kernels, self._copier),
            )
        )
        self._last = stream
        self._kept = KeptAlive(sum(b.slice.size for b in (*plan.inputs, *plan.outputs)))
        self._results: tuple[DeviceArray, ...] = ()
        self._results_on: Stream | None = None
        self._known, self._ours = KnownCalls(), Ours(plan, stream)
        weakref.finalize(self, _wait, stream, self._ran, self._kept).atexit = False

    @cached_property
    def inputs(self) -> tuple[DeviceArray, ...]:
        """The arrays that the program reads when nothing else is brought."""
        return tuple(self._array(bound, self.stream) for bound in self._loaded.plan.inputs)

    @property
    def has_results_out(self) -> bool:
        """Somebody holds results that lie in its memory, or the tuple of them."""
        held = self._results
        if not held:  # there is one empty tuple in all, which everybody holds
            return False
        return getrefcount(held) > OWN_REFERENCES or any(
            getrefcount(array) > OWN_REFERENCES for array in held
        )

    @property
    def is_idle(self) -> bool:
        """Everything that was enqueued has run."""
        return self._last.is_idle if self._last is self.stream else self._ran.is_past

    def results(self, stream: Stream) -> tuple[DeviceArray, ...]:
        """Return the results in its own memory, as arrays that are ready on `stream`."""
        if self._results_on is not stream:
            outputs = self._loaded.plan.outputs
            self._results = tuple(self._array(bound, stream) for bound in outputs)
            self._results_on = stream
        return self._results

    def run(self, call: Call, stream: Stream) -> Route:
        """Enqueue one call on `stream`; return where its arrays lie."""
        self._known.forget_last()
        route = self._route(call.brought)
        self._enqueue(route, call.on_host, stream, call.owners)
        if call.is_still and stream is self.stream:
            self._known.note(call.args, route, call.owners, call.deletable)
        return route

    def run_at_once(
        self, args: tuple[object, ...], *, fresh: bool
    ) -> tuple[DeviceArray, ...] | None:
        """Enqueue a call on our own stream if there is little to it; return its results.

        Its arguments are the very ones of an earlier call, or arrays of ours used where they lie;
        results are at home, or in `fresh` memory.
        """
        known = self._known
        if fresh:
            known.forget_last()
        elif (route := known.find(args)) is not None:
            self._enqueue(route, NOTHING, self.stream, known.owners, ours=known.are_ours)
            return self.results(self.stream)
        addresses = self._ours.addresses(args)
        if addresses is None:
            return None
        return self.run_straight(args, addresses, args, fresh=fresh)

    def run_straight(
        self,
        args: tuple[object, ...],
        addresses: Sequence[int],
        owners: Sequence[object],
        *,
        fresh: bool,
        is_still: bool = True,
        deletable: Sequence[object] = (),
    ) -> tuple[DeviceArray, ...] | None:
        """Enqueue a call on our own stream if it copies nothing; return its results.

        owners, is_still, deletable: see Call.
        """
        stream, ours = self.stream, owners is args
        results, route = self.results(stream), self._router.straight(addresses)
        if fresh and route is not None:
            plan = self._loaded.plan
            results = tuple(
                array.fresh(
                    b.slice.size, stream, f"allocating memory for result {b.name}", plan.name
                )
                for array, b in zip(results, plan.outputs, strict=True)
            )
            owners = (*owners, *(array.home for array in results))
            route = self._router.straight(addresses, [array.address for array in results])
        if route is None:
            return None
        self._enqueue(route, NOTHING, stream, owners, ours=ours)
        if is_still and not fresh:
            self._known.note(args, route, owners, deletable)
        return results

    @property
    def home_results(self) -> tuple[int, ...]:
        """Where its own memory for the results is."""
        return self._router.home_results

    @property
    def home(self) -> Placement:
        """Where its own memory for the ports is."""
        return self._router.home

    def run_home(self) -> None:
        """Enqueue a run over its own memory."""
        with self.turn():
            self._enter(self.stream)
            self.graph.launch()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let nobody else call while something is enqueued on our stream, nor drop our graphs.

        Nor does another executable use a shared arena. The graph lies at home meanwhile.
        """
        share = self._loaded.share
        arena = nullcontext() if share is None else share.turn(self.stream)
        with self.lock, self.holder.lock, arena:
            held = self.graph.placement
            self.graph.move(self._router.home)
            try:
                yield
            finally:
                if held is not None:  # its strategy finds it where it left it
                    self.graph.move(held)

    def fill(
        self,
        addresses: Sequence[int | None],
        on_host: Mapping[int, Array],
        owners: Sequence[object],
    ) -> None:
        """Copy arrays into its own memory: those on the device by address, or from the host."""
        stream, inputs = self.stream, self._loaded.plan.inputs
        self._enter(stream)
        moves = [
            Move(source, self.memory.address(leaf.slice), leaf.slice.size)
            for source, leaf in zip(addresses, inputs, strict=True)
            if source is not None and source != self.memory.address(leaf.slice)
        ]
        self._copier([move for move in moves if move.size], stream)
        for position, array in on_host.items():
            self.memory.write(inputs[position].slice, inputs[position].shape, array)
        self._leave(stream, owners)

    def read_results(self) -> tuple[Array, ...]:
        """Return copies of the results in its own memory, which are there already."""
        return tuple(self.memory.read(b.slice, b.shape) for b in self._loaded.plan.outputs)

    def synchronize(self, doing: str) -> None:
        """Wait until its calls have run."""
        self.stream.synchronize(doing)
        if self._last is not self.stream:
            self._ran.synchronize()

    def _array(self, bound: Bound, stream: Stream) -> DeviceArray:
        address, block = self.memory.address(bound.slice), self.memory.block(bound.slice)
        return DeviceArray(address, bound.shape, self._loaded.device, stream, block)

    def _route(self, brought: Brought) -> Route:
        if (simple := self._router.simple(brought)) is not None:
            return simple
        route = self._routes.get(brought)
        if route is None:
            route = self._routes[brought] = self._router.route(brought)
            if len(self._routes) > ROUTES:
                self._routes.popitem(last=False)
        return route

    def _enqueue(
        self,
        route: Route,
        on_host: Mapping[int, Array],
        stream: Stream,
        owners: Sequence[object],
        *,
        ours: bool = False,
    ) -> None:
        with self.holder.lock:
            self._enter(stream)
            try:
                if route.before:
                    self._copier(route.before, stream)
                if on_host:
                    self._write(on_host, route, stream)
                self._launch(route.placement, stream)
                if route.after:
                    self._copier(route.after, stream)
            finally:
                self._leave(stream, owners, ours=ours)

    def _write(self, on_host: Mapping[int, Array], route: Route, stream: Stream) -> None:
        for position, array in on_host.items():
            shape = self._loaded.plan.inputs[position].shape
            write_array(route.inputs[position], shape, array, stream)

    def _launch(self, placement: Placement, stream: Stream) -> None:
        share = self._loaded.share
        if share is None:
            self.strategy.launch(placement, stream)
            return
        with share.turn(stream):
            self.strategy.launch(placement, stream)

    def _enter(self, stream: Stream) -> None:
        """Let `stream` wait for the last call."""
        if stream is not self._last:
            if self._last is self.stream:
                self._ran.record(self.stream.handle)
            stream.wait(self._ran)
            self._last = stream

    def _leave(self, stream: Stream, owners: Sequence[object], *, ours: bool = False) -> None:
        """Keep what the call uses until it has run; all of it may be arrays of `ours`."""
        is_theirs = stream is not self.stream
        if is_theirs:
            self._ran.record(stream.handle)
        self._kept.keep(owners, stream, ours=ours, at_once=is_theirs)


class Call(NamedTuple):
    """One call's arrays: those on the device by address, those on the host by position.

    `owners` must live until it has run. `is_still` says that the arguments are all on the device
    and can neither move nor change, but for those that JAX can delete.
    """

    brought: Brought
    on_host: Mapping[int, Array]
    owners: Sequence[object]
    args: tuple[object, ...] = ()
    is_still: bool = False
    deletable: Sequence[Any] = ()


def _built_with_table(
    loaded: Loaded,
    at: Addresses,
    stream: Stream,
    home: Placement,
    holder: Holder,
    table: int,
) -> Launchable:
    with_table = Addresses((*at.bases, table))
    return built(loaded.table_kernels.maker, with_table, stream, home, holder=holder)


def _wait_for_runs(device: Device, stream: Stream, ran: Event) -> None:
    """Wait until a graph that is to be dropped is not used, on whichever thread that happens."""
    device.make_current()
    stream.synchronize("waiting for a graph that is to be dropped")
    ran.synchronize()


def _wait(stream: Stream, ran: Event, kept: KeptAlive) -> None:
    """Wait for an instance's last calls: its graph and memory go with it."""
    with suppress(BackendError):  # who lost the GPU has been told
        stream.synchronize("ending")
        ran.synchronize()
        kept.wait()
