"""Device memory of a plan: one block an allocation, and how arrays get in and out."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from sys import is_finalizing
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.driver import call, cuda, is_out_of_memory
from hlo2graph.backends.cuda.owners import NAMED, hold, let_go, room_text
from hlo2graph.errors import BackendError
from hlo2graph.hlo import Shape
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Allocation, AllocationKind
from hlo2graph.program.thunks import Slice

POISON = 0x7FF5A5A5  # NaN as f64, f32 and each second f16 or bf16; absurd as an integer
WRITTEN = (AllocationKind.TEMP, AllocationKind.LIVE_OUT)
WORD = 4


class DeviceMemory:
    """A block of device memory, freed with the object, on whichever thread that happens.

    owner: the program, or what else, that it is counted for where there is no memory left.
    """

    __slots__ = ("_context", "address", "size")

    def __init__(self, size: int, doing: str, owner: str = "") -> None:
        self.address = 0
        self._context = call(cuda.cuCtxGetCurrent)
        self.size = -(-max(size, 1) // WORD) * WORD
        self.address = int(call_with_room(cuda.cuMemAlloc, self.size, doing=doing, asked=self.size))
        hold(self.address, owner, self.size)

    def __del__(self) -> None:
        if self.address and cuda is not None and not is_finalizing():
            let_go(self.address)
            (status,) = cuda.cuMemFree(self.address)
            if status == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT:
                cuda.cuCtxSetCurrent(self._context)
                cuda.cuMemFree(self.address)


def call_with_room(function: Any, *arguments: Any, doing: str, asked: int) -> Any:
    """Call what allocates; where there is no memory, once more without what graphs left unused.

    The driver keeps the memory that graphs have allocated themselves, for those that run next.

    Raises:
        BackendError: it failed; where there is no memory, it says how much was `asked` for, how
            much is free, and whose the most is.
    """
    try:
        return call(function, *arguments, doing=doing)
    except BackendError as error:
        if not is_out_of_memory(error):
            raise
        call(cuda.cuDeviceGraphMemTrim, call(cuda.cuCtxGetDevice))
    try:
        return call(function, *arguments, doing=doing)
    except BackendError as error:
        if not is_out_of_memory(error):
            raise
        raise BackendError(f"{error}; asked for {asked:,} bytes; {room_text()}") from error


def free_bytes() -> int:
    """Return how much memory of the GPU nobody has."""
    return int(call(cuda.cuMemGetInfo)[0])


class Stream:
    """A stream of our own, destroyed with the object once all that it was given has run."""

    __slots__ = ("_number", "handle")

    def __init__(self) -> None:
        self.handle: Any = None
        flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        self.handle = call(cuda.cuStreamCreate, flags)
        self._number = int(self.handle)

    def __int__(self) -> int:
        return self._number

    @property
    def is_idle(self) -> bool:
        """Everything that was enqueued has run."""
        (status,) = cuda.cuStreamQuery(self.handle)
        return bool(status == cuda.CUresult.CUDA_SUCCESS)

    def synchronize(self, doing: str) -> None:
        """Wait until everything that was enqueued has run."""
        call(cuda.cuStreamSynchronize, self.handle, doing=doing)

    def wait(self, event: Event) -> None:
        """Let what is enqueued from now on wait for what `event` marks."""
        call(cuda.cuStreamWaitEvent, self.handle, event.handle, 0)

    def __del__(self) -> None:
        if self.handle is not None and cuda is not None and not is_finalizing():
            cuda.cuStreamSynchronize(self.handle)
            cuda.cuStreamDestroy(self.handle)


class CallersStream(Stream):
    """A stream of the caller's, who destroys it."""

    __slots__ = ()

    def __init__(self, handle: int) -> None:
        self.handle, self._number = cuda.CUstream(handle), handle

    def __del__(self) -> None:
        pass


class Event:
    """A point in a stream; `timed` events can be told apart in seconds."""

    __slots__ = ("handle",)

    def __init__(self, *, timed: bool = False) -> None:
        self.handle: Any = None
        flags = cuda.CUevent_flags
        kind = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        self.handle = call(cuda.cuEventCreate, kind.value)

    def record(self, stream: Any) -> None:
        """Mark what `stream` has been given so far."""
        call(cuda.cuEventRecord, self.handle, stream)

    @property
    def is_past(self) -> bool:
        """What was marked has run."""
        (status,) = cuda.cuEventQuery(self.handle)
        return bool(status == cuda.CUresult.CUDA_SUCCESS)

    def synchronize(self) -> None:
        """Wait until what was marked has run."""
        call(cuda.cuEventSynchronize, self.handle)

    def since(self, earlier: Event) -> float:
        """Return the seconds between two recorded events."""
        return float(call(cuda.cuEventElapsedTime, earlier.handle, self.handle)) * 1e-3

    def __del__(self) -> None:
        if self.handle is not None and cuda is not None and not is_finalizing():
            cuda.cuEventDestroy(self.handle)


class PinnedWord:
    """Four bytes of host memory that the device sees too."""

    __slots__ = ("_host", "address", "cell")

    def __init__(self) -> None:
        self._host = 0
        self._host = int(call(cuda.cuMemHostAlloc, 64, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
        self.address = int(call(cuda.cuMemHostGetDevicePointer, self._host, 0))
        self.cell = ctypes.c_uint32.from_address(self._host)
        self.cell.value = 0

    @property
    def host(self) -> int:
        """Its address on the host."""
        return self._host

    def __del__(self) -> None:
        if self._host and cuda is not None and not is_finalizing():
            cuda.cuMemFreeHost(self._host)


class PlanMemory:
    """The blocks of a plan's allocations; constants are uploaded at once.

    Everything is written on `stream`, whose later work finds it there: a copy from pageable memory
    returns before it has arrived. With `like`, memory of the same plan, constants are those.
    Allocations that are `placed` have memory elsewhere, at these addresses. `owner` names the plan.
    """

    def __init__(
        self,
        allocations: Sequence[Allocation],
        available: int,
        stream: Stream,
        like: PlanMemory | None = None,
        placed: Mapping[int, int] | None = None,
        owner: str = "",
    ) -> None:
        placed = placed or {}
        own = [a for k, a in enumerate(allocations) if k not in placed]
        needed = sum(a.size for a in own if like is None or a.literal is None)
        if needed > available:
            raise BackendError(
                f"the program's buffers take {needed:,} bytes; this GPU has {available:,}; "
                f"the largest: {_largest(own)}"
            )
        self.total = needed
        self._stream = stream
        self.blocks: dict[int, DeviceMemory] = {
            index: like.blocks[index]
            if like is not None and a.literal is not None
            else DeviceMemory(a.size, f"allocating {_named(a)}", owner)
            for index, a in enumerate(allocations)
            if index not in placed
        }
        self.addresses = Addresses(
            tuple(
                placed[k] if k in placed else self.blocks[k].address
                for k in range(len(allocations))
            )
        )
        self._written = [
            self.blocks[k]
            for k, a in enumerate(allocations)
            if a.kind in WRITTEN and k not in placed
        ]
        for index, allocation in enumerate(allocations):
            literal = allocation.literal
            if like is None and literal is not None and literal.array is not None:
                self.write(Slice(index, 0, literal.shape.size), literal.shape, literal.array)

    def address(self, part: Slice) -> int:
        """Return the device address of a slice."""
        return self.addresses.of(part)

    def block(self, part: Slice) -> DeviceMemory:
        """Return what owns the bytes of a slice."""
        return self.blocks[part.allocation]

    def poison(self) -> None:
        """Spoil every byte that only thunks write, so that a read before its write shows."""
        stream = self._stream.handle
        for block in self._written:
            call(cuda.cuMemsetD32Async, block.address, POISON, block.size // WORD, stream)

    def write(self, part: Slice, shape: Shape, array: Array) -> None:
        """Copy `array` to a slice, laid out as `shape` says."""
        write_array(self.address(part), shape, array, self._stream)

    def read(self, part: Slice, shape: Shape) -> Array:
        """Return a copy of what a slice holds."""
        return read_array(self.address(part), shape)


def _named(allocation: Allocation) -> str:
    return f"{allocation.size:,} bytes for {allocation.kind} {allocation.owner}".rstrip()


def _largest(allocations: Sequence[Allocation]) -> str:
    by_size = sorted(allocations, key=lambda allocation: -allocation.size)
    return ", ".join(map(_named, by_size[:NAMED]))


def in_memory_order(array: Array, shape: Shape) -> Array:
    """Return the elements of `array` in the order that `shape` has them in memory."""
    order = tuple(reversed(shape.minor_to_major))
    return np.ascontiguousarray(array.astype(shape.dtype.numpy, copy=False).transpose(order))


def write_array(address: int, shape: Shape, array: Array, stream: Stream) -> None:
    """Enqueue a copy of `array`, laid out as `shape` says, to a device address.

    It may change at once: the driver has read it when this returns, being pageable memory.
    """
    if shape.elements:
        laid_out = in_memory_order(array, shape)
        source, size = laid_out.ctypes.data, laid_out.nbytes
        call(cuda.cuMemcpyHtoDAsync, address, source, size, stream.handle)


def read_array(address: int, shape: Shape) -> Array:
    """Return a host copy of the array at a device address."""
    order = tuple(reversed(shape.minor_to_major))
    laid_out = np.empty(tuple(shape.dims[d] for d in order), shape.dtype.numpy)
    if shape.elements:
        call(cuda.cuMemcpyDtoH, laid_out.ctypes.data, address, laid_out.nbytes)
    logical = laid_out.transpose(np.argsort(order)) if order else laid_out
    return np.ascontiguousarray(logical).reshape(shape.dims)  # it makes scalars vectors of one


def strides_of(shape: Shape) -> tuple[int, ...]:
    """Return the byte strides of an array laid out as `shape` says."""
    strides, step = [0] * shape.rank, shape.dtype.numpy.itemsize
    for dim in shape.minor_to_major:
        strides[dim] = step
        step *= shape.dims[dim]
    return tuple(strides)
