"""The cuda backend: a plan that runs as one graph, or on the serial stream."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Unpack

from hlo2graph.backends.arguments import check_arguments
from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.bind import Binder, Stopwatch
from hlo2graph.backends.cuda.bound_plan import bind_plan
from hlo2graph.backends.cuda.built import BuiltGraph
from hlo2graph.backends.cuda.call import (
    FRESH,
    ArgumentReader,
    Out,
    Outputs,
    described,
    donated_positions,
    in_order,
    stream_handle,
)
from hlo2graph.backends.cuda.choices import Choices, CudaOptions
from hlo2graph.backends.cuda.device_array import LEGACY_STREAM, DeviceArray, let_wait
from hlo2graph.backends.cuda.driver import device_count, open_device
from hlo2graph.backends.cuda.functions import Functions
from hlo2graph.backends.cuda.held import memory_of
from hlo2graph.backends.cuda.instance import Call, Instance
from hlo2graph.backends.cuda.kernels import Texts
from hlo2graph.backends.cuda.loaded import Loaded
from hlo2graph.backends.cuda.memory import CallersStream, DeviceMemory, Stream
from hlo2graph.backends.cuda.partial.graphs import PartialGraph
from hlo2graph.backends.cuda.pointers import STRATEGIES, Strategy
from hlo2graph.backends.cuda.pointers.table_kernels import TableKernels
from hlo2graph.backends.cuda.pool import Pool
from hlo2graph.backends.cuda.prepared import Prepared, prepared_here
from hlo2graph.backends.cuda.products import Products
from hlo2graph.backends.cuda.route import Brought
from hlo2graph.backends.cuda.serial import SerialStream
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.cuda.temporaries.shared import share_of
from hlo2graph.backends.elided import fill_elided
from hlo2graph.backends.held import Memory
from hlo2graph.ops.spec import Array
from hlo2graph.program.one_device import caveats_of
from hlo2graph.program.plan import ArrayType, Plan


class CudaExecutable:
    """A plan ready to run; it owns every buffer, kernel and graph.

    With NumPy arguments a call gives NumPy results. With at least one device array (DLPack or
    `__cuda_array_interface__`) it gives DeviceArrays and returns before they are computed. They
    show the executable's own memory, which the next call of the same thread on the same stream
    overwrites; no other call does. `device_inputs` are the buffers that the program reads: a call
    with exactly those copies nothing.

    Calls may come from several threads and go to several streams at once. Up to `instances` of
    them (two at least) run side by side, each with memory and a graph of its own; others wait.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        elided: str | None = None,
        ordinal: int = 0,
        kernels: Prepared | None = None,
        texts: Texts | None = None,
        **options: Unpack[CudaOptions],
    ) -> None:
        """Compile, load and bind `plan`, and build its graph.

        `elided` gives values to constants that the text left out. `kernels` are the plan's,
        compiled before for this precision and a device such as this: NVRTC is not needed then.
        `texts` are kernels of the plan that were written before for this precision.

        Raises:
            UnsupportedError: for operations that have no device code, all at once, and for elided
                constants where `elided` is None.
            BackendError: there is no GPU, or the driver refuses something.
        """
        self.choices = chosen = Choices(**options)
        self.plan = plan = fill_elided(plan, elided)
        texts = texts or Texts()
        if kernels is None and not texts.known:
            check_support(plan)
        timed = Stopwatch()
        self.stages = timed.stages
        self.device = device = open_device(ordinal)
        device.make_current()
        with timed("plan products"):
            self.precise = chosen.matmul_precision != "default"
            products = Products(plan, precise=self.precise)
        self._product_notes = products.notes
        self.products = products.plans
        if kernels is None:
            with timed("compile kernels"):
                kernels = prepared_here(
                    plan, device.arch, products.plans, texts, precise=self.precise
                )
        sources, units = dict(kernels.sources), kernels.units
        own = [s for key, s in sources.items() if key.computation not in products.plans]
        self.tf32 = products.tf32 or any(source.tf32 for source in own)
        self.kernels = len(set(sources.values()))
        self.units, self.cached_units = len(units), sum(u.cached for u in units)
        with timed("load"):
            self._functions = Functions(units, {s.name: s for s in sources.values()})
            self.stream = Stream()
            self.steps = Binder(self._functions, sources, products.plans)
            bound = bind_plan(plan, self.steps, device, chosen)
        self.serial_steps, self.graph_body, self.ports = bound.serial, bound.body, bound.ports
        self.cutter, self.unrolled, maker = bound.cutter, bound.unrolled, bound.maker
        self.graph_steps = maker.steps
        table_kernels = TableKernels(
            maker, plan, self.graph_body, sources, products.plans, kernels.table_units
        )
        share = share_of(plan, device) if chosen.temporaries == "shared" else None
        strategy, move = STRATEGIES[chosen.pointers], self._functions[builtin.MOVE]
        self._loaded = Loaded(
            plan, device, maker, self.ports, table_kernels, strategy, move, self._functions, share
        )
        self._first = Instance(self._loaded, self.stream, None, timed)
        self.buffers = self._first.memory
        self._pool = Pool(
            self._first, partial(_another, self._loaded, self._first), chosen.instances
        )
        self._current, self._has_others = threading.local(), device_count() > 1
        self._streams: dict[int, Stream] = {}
        self._donated, self._read = plan.donated, ArgumentReader(plan, device)

    def __repr__(self) -> str:
        return f"<CudaExecutable of {self.plan!r}>"

    @property
    def inputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each parameter leaf."""
        return tuple(bound.array_type for bound in self.plan.inputs)

    @property
    def outputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each result leaf."""
        return tuple(bound.array_type for bound in self.plan.outputs)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What running as one replica makes of communication between devices."""
        return caveats_of(self.plan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth saying of how the graph was built."""
        notes = (*self._product_notes, *self.graph.notes)
        if not self.unrolled:
            return notes
        loops = ", ".join(self.unrolled[:4]) + (" ..." if len(self.unrolled) > 4 else "")
        return (f"written out round by round: {loops}", *notes)

    @property
    def graph(self) -> BuiltGraph | PartialGraph:
        """The graph over the executable's own buffers, or the graphs and lone thunks."""
        return self._first.graph

    @property
    def device_inputs(self) -> tuple[DeviceArray, ...]:
        """The buffers that the program reads, as arrays."""
        return self._first.inputs

    @property
    def device_outputs(self) -> tuple[DeviceArray, ...]:
        """The buffers that the results of `put` arrays are in, as arrays."""
        return self._first.results(self.stream)

    @property
    def memory(self) -> Memory:
        """What it holds of the GPU's memory now, and what for."""
        return memory_of(self._loaded, len(self._pool.instances))

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """How each instance deals with arrays that moved, and what that took so far."""
        return tuple(instance.strategy for instance in self._pool.instances)

    @property
    def is_compiling(self) -> bool:
        """Kernels are being compiled beside the calls: `auto` may ask for that."""
        return self._loaded.table_kernels.is_compiling

    def __call__(self, *args: object) -> tuple[Any, ...]:
        """Run the graph once; `args` are the parameter leaves. See `run`."""
        return self.run(args)

    def run(
        self,
        args: Sequence[object],
        *,
        out: Out = None,
        stream: object = None,
        donate: bool | Collection[int] = False,
    ) -> tuple[Any, ...]:
        """Run the graph once and return the result leaves.

        args: the parameter leaves: NumPy arrays, or device arrays of any library.
        out: None, for results in the executable's own memory; "fresh", for results in memory of
            their own; or an array (or None) for each result to go to, which is what is returned.
        stream: a CUDA stream, by its handle or as an object with `__cuda_stream__`, on which the
            arguments are ready and the results will be; None is one of the executable's own.
        donate: the positions of device arrays that the program may overwrite, or all that it would;
            a result that takes the place of one is returned there.

        Raises:
            InputError: arguments, or arrays in `out`, do not fit.
            BackendError: the driver refuses something.
        """
        if type(args) is not tuple:
            args = in_order(args)
        on = self._stream_of(stream)
        self._enter()
        instance = self._pool.take(on)
        try:
            fresh = type(out) is str and out == FRESH
            plain = args and on is None and not donate and (fresh or out is None)
            if plain and (results := instance.run_at_once(args, fresh=fresh)) is not None:
                return results
            used = instance.stream if on is None else on
            found = self._read(args, used)
            if plain and (results := found.run_straight(instance, args, fresh)) is not None:
                return results
            to_host = out is None and len(found.on_host) == len(args)
            outputs = Outputs(self.plan, out, self.device, used)
            donated = donated_positions(donate, self._donated, len(args))
            route = instance.run(described(args, found, outputs, donated), used)
            if to_host:
                used.synchronize(f"running {self.plan.name}")
                return instance.read_results()
            return outputs.collect(route, instance, args)
        finally:
            instance.lock.release()

    def run_at(
        self,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        on_host: Mapping[int, Array],
        owners: Sequence[object],
    ) -> Stream:
        """Run the graph once on memory that is known to fit; return the stream that it is on.

        inputs: where the parameter leaves are, None for those in `on_host`; they are ready on
            `stream`.
        outputs: where the result leaves go.
        owners: what keeps all that alive until it has run.
        """
        self._enter()
        instance = self._pool.take(None)
        try:
            used = instance.stream
            if used is not self.stream:
                let_wait(int(used), self.stream.handle)
            brought = Brought(tuple(inputs), tuple(outputs))
            instance.run(Call(brought, on_host, owners), used)
        finally:
            instance.lock.release()
        return used

    def put(self, *args: object) -> tuple[DeviceArray, ...]:
        """Copy arrays into the buffers that the program reads; return those as device arrays."""
        self._enter()
        with self._first.lock:
            found = self._read(args, self.stream)
            self._first.fill(found.addresses, found.on_host, found.owners)
        self.synchronize()
        return self.device_inputs

    def synchronize(self) -> None:
        """Wait until everything that was called has run."""
        for instance in self._pool.instances:
            instance.synchronize(f"running {self.plan.name}")

    # ---- what checks and timing use ---------------------------------------------------------

    def write_inputs(self, args: Sequence[object], *, only: Sequence[int] | None = None) -> None:
        """Copy host arrays into their buffers: all, or those at the positions in `only`."""
        arrays = check_arguments(args, self.plan.inputs)
        self._enter()
        self.stream.synchronize("writing inputs")  # a run under way may still read them
        for at in range(len(arrays)) if only is None else only:
            leaf = self.plan.inputs[at]
            self.buffers.write(leaf.slice, leaf.shape, arrays[at])

    def poison(self) -> None:
        """Spoil every byte that only thunks write, but for what graphs allocate themselves."""
        self.buffers.poison()
        if self._loaded.share is not None:
            self._loaded.share.poison(self.stream)

    def turn(self) -> AbstractContextManager[None]:
        """Let nobody else call while something is enqueued on `stream`; see Instance.turn."""
        return self._first.turn()

    def execute(self, mode: str) -> None:
        """Run over what the buffers hold, to the end: serial, chain or graph."""
        self.enqueue(mode)
        self.synchronize()

    def enqueue(self, mode: str) -> None:
        """Enqueue one run: serial, chain or graph."""
        match mode:
            case "serial":
                with self.turn():
                    self.serial.enqueue()
            case "chain":
                with self.turn():
                    self.chain.launch()
            case _:
                self._first.run_home()

    def read_outputs(self) -> tuple[Array, ...]:
        """Return copies of what the result buffers hold."""
        self.stream.synchronize("waiting for results")
        return self._first.read_results()

    @cached_property
    def serial(self) -> SerialStream:
        """The serial stream over the same buffers."""
        return SerialStream(self.serial_steps, self.stream, self.addresses)

    @cached_property
    def addresses(self) -> Addresses:
        """Where all allocations lie, for what is no graph of the executable's.

        Where these allocate the arena themselves, that is one more of them.
        """
        inside = self._loaded.maker.inside
        if inside is None:
            return self.buffers.addresses
        size = inside.layout.size
        self._arena = DeviceMemory(
            size, f"allocating {size:,} bytes for a serial arena", self.plan.name
        )
        placed = inside.layout.at(self._arena.address)
        return Addresses([placed.get(k, a) for k, a in enumerate(self.buffers.addresses.bases)])

    @cached_property
    def chain(self) -> BuiltGraph:
        """The same nodes in program order, as a graph."""
        maker = replace(self._loaded.maker, script=None, chain=True)
        home = self._first.home
        holder = self._first.holder
        return BuiltGraph(maker, self.buffers.addresses, self.stream, home, holder=holder)

    # ---- inside ------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Make the context current on this thread; where there are several, another may be now."""
        if self._has_others or not getattr(self._current, "is_set", False):
            self.device.make_current()
            self._current.is_set = True

    def _stream_of(self, given: Any) -> Stream | None:
        if given is None:
            return None
        handle = stream_handle(given) or LEGACY_STREAM
        return self._streams.setdefault(handle, CallersStream(handle))


def _another(loaded: Loaded, first: Instance) -> Instance:
    return Instance(loaded, Stream(), first, Stopwatch())
