"""A plan's thunks bound to a device: functions, addresses and packed arguments.

The serial stream and the graph are made of the same steps, so they run the same kernels on the
same bytes. Arguments are packed once, here; enqueuing a step makes one driver call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlo2graph.backends.cuda.driver import call, cuda


class PackedArguments:
    """Kernel arguments of 8 bytes each, and the array of pointers to them that a launch takes."""

    __slots__ = ("pointers", "values")

    def __init__(self, values: tuple[int, ...]) -> None:
        self.values = np.array(values, dtype=np.uint64)
        self.pointers = self.values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)

    @property
    def address(self) -> int:
        """Where the array of pointers lies."""
        return int(self.pointers.ctypes.data)


@dataclass(frozen=True, slots=True)
class EmptyStep:
    """A thunk that touches no byte: no node, no launch."""

    name: str


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A kernel launch."""

    name: str
    function: Any
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: PackedArguments

    def enqueue(self, stream: Any) -> None:
        """Launch on `stream`."""
        call(
            cuda.cuLaunchKernel,
            self.function,
            *self.grid,
            self.threads,
            1,
            1,
            self.shared_bytes,
            stream,
            self.arguments.address,
            0,
            doing=self.name,
        )

    def node_params(self) -> Any:
        """Return the parameters of a kernel node."""
        params = cuda.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function
        params.gridDimX, params.gridDimY, params.gridDimZ = self.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = self.threads, 1, 1
        params.sharedMemBytes = self.shared_bytes
        params.kernelParams = self.arguments.address
        return params


@dataclass(frozen=True, slots=True)
class SetConditionStep:
    """The kernel that hands a predicate or selector on the device to a conditional node."""

    name: str
    function: Any
    selector: int  # address
    branches: int  # of a switch, the last of which takes what is out of range

    def with_handle(self, handle: Any) -> KernelStep:
        """Return the kernel for one conditional handle."""
        arguments = PackedArguments((int(handle), self.selector, self.branches))
        return KernelStep(self.name, self.function, (1, 1, 1), 1, 0, arguments)


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A copy of device bytes."""

    name: str
    source: int
    target: int
    size: int

    def enqueue(self, stream: Any) -> None:
        """Copy on `stream`."""
        call(cuda.cuMemcpyDtoDAsync, self.target, self.source, self.size, stream, doing=self.name)

    def node_params(self) -> Any:
        """Return the parameters of a memcpy node: one row of bytes."""
        params = cuda.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = self.source, self.target
        params.WidthInBytes, params.Height, params.Depth = self.size, 1, 1
        return params


@dataclass(frozen=True, slots=True)
class FillStep:
    """A fill of device bytes with an element of 1, 2 or 4 bytes."""

    name: str
    target: int
    element: int
    element_size: int
    count: int

    def enqueue(self, stream: Any) -> None:
        """Fill on `stream`."""
        fill = {1: cuda.cuMemsetD8Async, 2: cuda.cuMemsetD16Async, 4: cuda.cuMemsetD32Async}
        call(
            fill[self.element_size], self.target, self.element, self.count, stream, doing=self.name
        )

    def node_params(self) -> Any:
        """Return the parameters of a memset node: one row of elements."""
        params = cuda.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = self.target, self.element, self.element_size
        params.width, params.height, params.pitch = self.count, 1, 0
        return params


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A loop: its condition's predicate is one byte at `predicate`."""

    name: str
    condition: StepSequence
    body: StepSequence
    predicate: int
    setter: SetConditionStep


@dataclass(frozen=True, slots=True)
class BranchStep:
    """A conditional: a pred selector (one byte) or an s32 one."""

    name: str
    branches: tuple[StepSequence, ...]
    selector: int
    is_pred: bool
    setter: SetConditionStep


Step: TypeAlias = EmptyStep | KernelStep | CopyStep | FillStep | LoopStep | BranchStep


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps in program order; predecessors[k] are the positions that step k waits for."""

    steps: tuple[Step, ...]
    predecessors: tuple[tuple[int, ...], ...]
