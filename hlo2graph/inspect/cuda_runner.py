"""What is measured on CUDA: the serial stream, the chain graph and the graph, on the same buffers.

A sample is two runs. The first is timed by the host's clock: `enqueue` until everything is handed
to the driver, `latency` until it has run. The second stands behind a gate until it is enqueued, and
is timed by CUDA events: `device` is what the GPU takes when the host does not hold it up. Of a
program whose loops the host steers, or of over 500 launches, a part of the second run is enqueued
while the first part runs, and the host shows in `device` too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from hlo2graph.backends.cuda.built import BuiltGraph
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory, Event
from hlo2graph.backends.cuda.partial.graphs import PartialGraph
from hlo2graph.backends.cuda.serial import Gate
from hlo2graph.inspect.figures import plural
from hlo2graph.inspect.timing import Mode, Sample

SERIAL, CHAIN, GRAPH = "serial", "chain", "graph"


class CudaRunner:
    """Runs an executable over its own buffers; a donated input is restored before each run."""

    def __init__(
        self, executable: CudaExecutable, args: Sequence[object], *, cold_l2: bool = False
    ) -> None:
        """Put `args` in place; `cold_l2` spoils the GPU's cache before each run."""
        executable.write_inputs(args)
        self._executable = executable
        self._stream = executable.stream
        self._gate = Gate(self._stream)
        self._start, self._end = Event(timed=True), Event(timed=True)
        self._restored = tuple(_saved(executable, at) for at in executable.plan.donated)
        cold = 2 * executable.device.l2_bytes if cold_l2 else 0
        self._cold = DeviceMemory(cold, "allocating memory to cool the cache") if cold else None
        self.modes = (
            Mode(SERIAL, "each thunk enqueued in program order"),
            Mode(CHAIN, f"a graph in program order, {plural(executable.chain.nodes, 'node')}"),
            Mode(GRAPH, _how(executable.graph)),
        )

    def prepare(self, mode: Mode) -> None:  # noqa: ARG002  # all modes start alike
        """Restore the inputs that the last run overwrote."""
        stream = self._stream.handle
        for address, saved, size in self._restored:
            call(cuda.cuMemcpyDtoDAsync, address, saved.address, size, stream)
        if self._cold is not None:
            call(cuda.cuMemsetD8Async, self._cold.address, 0, self._cold.size, stream)
        self._stream.synchronize("preparing a run")

    def launch(self, mode: Mode) -> Sample:
        """Run twice, once for the host's clock and once for the device's."""
        start = time.perf_counter()
        self._executable.enqueue(mode.name)
        enqueued = time.perf_counter()
        self._stream.synchronize("timing a run")
        done = time.perf_counter()
        self.prepare(mode)
        return Sample(done - start, enqueued - start, self._device_time(mode))

    def throughput(self, mode: Mode, runs: int = 100) -> float:
        """Return seconds a run when `runs` are enqueued back to back."""
        start = time.perf_counter()
        for _ in range(runs):
            self._executable.enqueue(mode.name)
        self._stream.synchronize("timing many runs")
        return (time.perf_counter() - start) / runs

    def _device_time(self, mode: Mode) -> float:
        enqueue: Callable[[], None]
        match mode.name:
            case "serial":
                serial, gate = self._executable.serial, self._gate

                def enqueue() -> None:
                    serial.enqueue(gate)
            case "chain":
                enqueue = self._executable.chain.launch
            case _:
                graph = self._executable.graph
                enqueue = graph.launch
                if isinstance(graph, PartialGraph):
                    enqueue = partial(graph.launch, self._gate)
        with self._executable.turn():  # from here on nobody may wait for the stream
            self._gate.close()
            try:
                self._start.record(self._stream.handle)
                enqueue()
                self._end.record(self._stream.handle)
            finally:
                self._gate.open()
        self._stream.synchronize("timing a run")
        return self._end.since(self._start)


def _how(graph: BuiltGraph | PartialGraph) -> str:
    if isinstance(graph, PartialGraph):
        return f"{plural(len(graph.graphs), 'graph')}, the other thunks one by one"
    return f"a graph along the DAG, {plural(graph.edges, 'edge')}"


def _saved(executable: CudaExecutable, position: int) -> tuple[int, DeviceMemory, int]:
    """Copy an input aside, to restore it from there."""
    own = executable.plan.inputs[position]
    address = executable.buffers.address(own.slice)
    saved = DeviceMemory(own.slice.size, f"keeping a copy of {own.name}")
    size = own.slice.size
    call(cuda.cuMemcpyDtoDAsync, saved.address, address, size, executable.stream.handle)
    return address, saved, size
