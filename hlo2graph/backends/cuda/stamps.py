"""A plan whose kernels write down when they ran, inside loops and branches too.

The graph has the same nodes and edges; each kernel gets one more argument, the place for its time
stamps, and is some tenths of a microsecond slower. Copies, fills by the driver, library calls and
the kernels that set conditions are not stamped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.addresses import Operand
from hlo2graph.backends.cuda.bind import Binder, plain
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.functions import Functions, compile_kernels
from hlo2graph.backends.cuda.graph import GraphBuilder
from hlo2graph.backends.cuda.graph_exec import GraphExec, GraphOwner
from hlo2graph.backends.cuda.kept_graph import KeptGraph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.wrap import Outer, Parameter, wrapped
from hlo2graph.backends.node_times import NodeTimes
from hlo2graph.program.thunks import Computing, Slice

LAUNCHES = 256  # include/stamp.cuh
SLOT = np.dtype([("launches", "<u4"), ("blocks", "<u4"), ("times", "<u8", (LAUNCHES, 2))])


class StampedGraph:
    """A graph like an executable's, over the same memory, that writes time stamps."""

    def __init__(self, executable: CudaExecutable) -> None:
        self._executable = executable
        plan, device = executable.plan, executable.device
        products = executable.products
        plain = kernels_of(plan, without=products, precise=executable.precise)
        sources = {key: stamped(source) for key, source in plain.items()}
        texts = tuple(sources.values())
        self._functions = Functions(compile_kernels(texts, device.arch), {s.name: s for s in texts})
        self._names: list[str] = []
        count = executable.graph_steps.count()
        self._slots = DeviceMemory(max(count, 1) * SLOT.itemsize, "allocating time stamps")
        binder = Binder(self._functions, sources, products, self._with_slot)
        nothing = self._functions[builtin.NOTHING]
        builder = GraphBuilder(device, nothing, executable.addresses)
        graph = builder.build(binder.bind(executable.graph_body))
        with GraphOwner(graph) as owner:
            size = builder.lanes, builder.nodes
            make = partial(GraphExec, graph, builder.places, device)
            self._graph = KeptGraph(plan.name, *size, make)
            self._launch = self._graph.exec.own(owner).launcher(executable.stream)

    def run(self) -> tuple[NodeTimes, ...]:
        """Run once over what the buffers hold; return when each node ran, those that did."""
        size = len(self._names) * SLOT.itemsize
        if not size:
            return ()
        call(cuda.cuMemsetD8, self._slots.address, 0, size)
        call(cuda.cuCtxSynchronize)
        with self._executable.turn():
            self._launch()
        self._executable.synchronize()
        held = np.empty(len(self._names), SLOT)
        call(cuda.cuMemcpyDtoH, held.ctypes.data, self._slots.address, size)
        return tuple(
            _node(name, slot) for name, slot in zip(self._names, held, strict=True) if slot[0]
        )

    def _with_slot(
        self, thunk: Computing[Slice], source: KernelSource
    ) -> tuple[KernelSource, tuple[Operand, ...]]:
        slot = self._slots.address + len(self._names) * SLOT.itemsize
        self._names.append(thunk.name)
        source, arguments = plain(thunk, source)
        return source, (*arguments, slot)


def stamped(source: KernelSource) -> KernelSource:
    """Return the kernel with a body that is the same, between two time stamps."""

    def outer(parameters: tuple[Parameter, ...]) -> Outer:
        arguments = ", ".join(p.name for p in parameters)
        return Outer(
            (*map(str, parameters), "hlo::Stamps* stamps"),
            (
                "hlo::follow();",
                "hlo::stamp_begin(stamps);",
                f"{{body}}({arguments});",
                "hlo::stamp_end(stamps);",
            ),
        )

    found = wrapped(source, source.name, outer)
    return replace(found, text=f'#include "stamp.cuh"\n{found.text}')


def _node(name: str, slot: Any) -> NodeTimes:
    launches = int(slot["launches"])
    rows = slot["times"]
    first = launches % LAUNCHES
    kept = rows[:launches] if launches <= LAUNCHES else np.roll(rows, -first, axis=0)
    return NodeTimes(name, launches, kept.astype(np.int64))
