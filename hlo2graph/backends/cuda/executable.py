"""The cuda backend: a plan that runs as one graph, or on the serial stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hlo2graph.backends.arguments import check_argument, check_arguments
from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.bind import Binder, Functions, Stopwatch, compile_kernels
from hlo2graph.backends.cuda.device_array import DeviceArray, is_on_device, take
from hlo2graph.backends.cuda.driver import Bound as Call
from hlo2graph.backends.cuda.driver import call, cuda, open_device
from hlo2graph.backends.cuda.graph import GraphBuilder, GraphExec
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.memory import Event, PlanMemory, Stream
from hlo2graph.backends.cuda.products import Products
from hlo2graph.backends.cuda.serial import SerialStream
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.cuda.unroll import Unrolling, unrolled
from hlo2graph.backends.elided import fill_elided
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import ArrayType, Bound, Plan


class BuiltGraph:
    """One graph of a plan, instantiated and on the device."""

    def __init__(self, builder: GraphBuilder, graph: Any, exec_: GraphExec, launch: Call) -> None:
        self.nodes, self.edges, self.notes = builder.nodes, builder.edges, tuple(builder.notes)
        self.graph, self.exec, self.launch = graph, exec_, launch


class CudaExecutable:
    """A plan ready to run; it owns every buffer, kernel and graph.

    With NumPy arguments a call gives NumPy results. With at least one device array (DLPack or
    `__cuda_array_interface__`) it gives DeviceArrays and returns before they are computed; they
    show the executable's own buffers, which its next call overwrites. `device_inputs` are the
    buffers that the program reads: a call with exactly those copies nothing. Calls from several
    threads take turns.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        elided: str | None = None,
        matmul_precision: str = "default",
        unroll_loops: str = "auto",
        ordinal: int = 0,
    ) -> None:
        """Compile, load and bind `plan`, and build its graph.

        `elided` gives values to constants that the text left out. `matmul_precision` other than
        default forbids TF32 in products of f32, and tensor cores in kernels of ours. `unroll_loops`
        is auto, never or a number: loops of a known trip count up to it are written out in the
        graph.

        Raises:
            UnsupportedError: for operations that have no device code, all at once, and for elided
                constants where `elided` is None.
            BackendError: there is no GPU, or the driver refuses something.
        """
        unrolling = Unrolling.of(unroll_loops)
        self.plan = plan = fill_elided(plan, elided)
        check_support(plan)
        timed = Stopwatch()
        self.stages = timed.stages
        self.device = device = open_device(ordinal)
        device.make_current()
        with timed("plan products"):
            self.precise = matmul_precision != "default"
            products = Products(plan, precise=self.precise)
        self._product_notes = products.notes
        self.products = products.plans
        with timed("kernels as text"):
            sources = kernels_of(plan, without=products.plans, precise=self.precise)
        self.tf32 = products.tf32 or any(source.tf32 for source in sources.values())
        with timed("compile kernels"):
            units = compile_kernels(tuple(sources.values()), device.arch)
        self.kernels = len(sources)
        self.units, self.cached_units = len(units), sum(u.cached for u in units)
        with timed("load"):
            self._functions = Functions(units, {s.name: s for s in sources.values()})
            self.stream = Stream()
            self.memory = PlanMemory(plan.allocations, device.memory_bytes, self.stream)
            binder = Binder(self.memory, self._functions, sources, products=products.plans)
            self.serial_steps = binder.bind(plan.body)
            self.graph_body, self.unrolled = unrolled(plan.body, unrolling, plan.schedule)
            self.graph_steps = binder.bind(self.graph_body) if self.unrolled else self.serial_steps
        self._timed = timed
        self.graph = self._build(chain=False, timed=timed)
        self._thread = threading.get_ident()
        self._turn = threading.Lock()
        self._borrowed: list[object] = []
        self._copied = Event()
        self.device_inputs = tuple(self._array(b) for b in plan.inputs)
        self.device_outputs = tuple(self._array(b) for b in plan.outputs)

    @property
    def inputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each parameter leaf."""
        return tuple(bound.array_type for bound in self.plan.inputs)

    @property
    def outputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each result leaf."""
        return tuple(bound.array_type for bound in self.plan.outputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth saying of how the graph was built."""
        notes = (*self._product_notes, *self.graph.notes)
        if not self.unrolled:
            return notes
        loops = ", ".join(self.unrolled[:4]) + (" ..." if len(self.unrolled) > 4 else "")
        return (f"written out round by round: {loops}", *notes)

    def __call__(self, *args: object) -> tuple[Any, ...]:
        """Run the graph once; `args` are the parameter leaves."""
        with self._turn:
            if threading.get_ident() != self._thread:
                self._enter()
            if len(args) == len(self.device_inputs) and all(
                a is b for a, b in zip(args, self.device_inputs, strict=True)
            ):
                if args:
                    self.graph.launch()
                    return self.device_outputs
            elif any(is_on_device(a) for a in args):
                return self._run_on_device(args)
            arrays = check_arguments(args, self.plan.inputs)
            self._write(dict(enumerate(arrays)))
            self.graph.launch()
            self.synchronize()
            return self.read_outputs()

    def put(self, *args: object) -> tuple[DeviceArray, ...]:
        """Copy arrays into the buffers that the program reads; return those as device arrays."""
        with self._turn:
            self._enter()
            self._fill(args)
            self.synchronize()
        return self.device_inputs

    def synchronize(self) -> None:
        """Wait until everything that was called has run."""
        self.stream.synchronize(f"running {self.plan.name}")

    # ---- what checks and timing use ---------------------------------------------------------

    def write_inputs(self, args: Sequence[object], *, only: Sequence[int] | None = None) -> None:
        """Copy host arrays into their buffers: all, or those at the positions in `only`."""
        arrays = check_arguments(args, self.plan.inputs)
        self._enter()
        self._write({at: arrays[at] for at in (range(len(arrays)) if only is None else only)})

    def poison(self) -> None:
        """Spoil every byte that only thunks write."""
        self.memory.poison()

    def execute(self, mode: str) -> None:
        """Run over what the buffers hold, to the end: serial, chain or graph."""
        self.enqueue(mode)
        self.synchronize()

    def enqueue(self, mode: str) -> None:
        """Enqueue one run: serial, chain or graph."""
        match mode:
            case "serial":
                self.serial.enqueue()
            case "chain":
                self.chain.launch()
            case _:
                self.graph.launch()

    def read_outputs(self) -> tuple[Array, ...]:
        """Return copies of what the result buffers hold."""
        return tuple(np.asarray(array) for array in self.device_outputs)

    @cached_property
    def serial(self) -> SerialStream:
        """The serial stream over the same buffers."""
        return SerialStream(self.serial_steps, self.stream)

    @cached_property
    def chain(self) -> BuiltGraph:
        """The same nodes in program order, as a graph."""
        return self._build(chain=True, timed=Stopwatch())

    # ---- inside ------------------------------------------------------------------------------

    def _build(self, *, chain: bool, timed: Stopwatch) -> BuiltGraph:
        builder = GraphBuilder(self.device, self._functions[builtin.NOTHING])
        with timed("build"):
            graph = builder.build(self.graph_steps, chain=chain)
        with timed("instantiate"):
            exec_ = GraphExec(graph, builder.places, self.device)
        with timed("upload"):
            exec_.upload(self.stream.handle)
            self.synchronize()
        return BuiltGraph(builder, graph, exec_, exec_.launcher(self.stream))

    def _array(self, bound: Bound) -> DeviceArray:
        address = self.memory.address(bound.slice)
        return DeviceArray(address, bound.shape, self.device, self.stream, self.memory)

    def _run_on_device(self, args: Sequence[object]) -> tuple[DeviceArray, ...]:
        self._fill(args)
        self.graph.launch()
        return self.device_outputs

    def _fill(self, args: Sequence[object]) -> None:
        """Bring every argument, on the host or on the device, into its buffer."""
        if len(args) != len(self.plan.inputs):
            check_arguments(args, self.plan.inputs)  # says what is wrong
        borrowed: list[object] = []
        for position, (arg, own) in enumerate(zip(args, self.device_inputs, strict=True)):
            leaf = self.plan.inputs[position]
            if arg is own:
                continue
            if not is_on_device(arg):
                self._write({position: check_argument(arg, leaf, position)})
                continue
            given = take(arg, leaf, position, self.stream)
            borrowed.append(given.owner)
            if leaf.shape.size:
                copy, size = cuda.cuMemcpyDtoDAsync, leaf.shape.size
                to, source = own.address, given.address
                call(copy, to, source, size, self.stream.handle, doing=f"copying {leaf.name}")
        self._borrow(borrowed)

    def _borrow(self, owners: list[object]) -> None:
        """Keep what is being copied alive until the copies are done, at the next call at latest."""
        if self._borrowed:
            self._copied.synchronize()
        self._borrowed = owners
        if owners:
            self._copied.record(self.stream.handle)

    def _write(self, arrays: Mapping[int, Array]) -> None:
        """Copy host arrays into the buffers of the inputs at those positions."""
        self.synchronize()  # a run under way may still read them
        for position, array in arrays.items():
            leaf = self.plan.inputs[position]
            self.memory.write(leaf.slice, leaf.shape, array)

    def _enter(self) -> None:
        """Make the context current on this thread."""
        self.device.make_current()
        self._thread = threading.get_ident()
