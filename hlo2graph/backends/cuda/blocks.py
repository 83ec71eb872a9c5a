"""Device memory that is given away for a while, to whoever takes a result over.

Freeing device memory waits for the whole device, and taking it is slow, so what comes back is kept.
Its last user may have enqueued work on it that has not run, on a stream that we don't know: an
event of the whole context marks that, and who gets the memory next waits for the event.
"""

from __future__ import annotations

from collections import deque

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.memory import DeviceMemory, Event, Stream

GRAIN = 512  # bytes: sizes are multiples of it
KEPT = 32  # the part of the device's memory, one in so many, that may lie here unused
WAITING = 4  # blocks of a size in use by what was enqueued before memory is waited for


class Block:
    """A block of memory, which goes back when the object does, on whichever thread."""

    __slots__ = ("_blocks", "_event", "_memory", "address")

    def __init__(self, blocks: Blocks, memory: DeviceMemory, event: Event) -> None:
        self.address = memory.address
        self._blocks, self._memory, self._event = blocks, memory, event

    def __del__(self) -> None:
        if cuda is not None:
            self._blocks.take_back(self._memory, self._event)


class Blocks:
    """Blocks by size; those that nobody uses."""

    def __init__(self, device: Device) -> None:
        self._context = call(cuda.cuCtxGetCurrent)
        self._unused: dict[int, deque[tuple[DeviceMemory, Event]]] = {}
        self._room = device.memory_bytes // KEPT
        self._all = Event()  # marks what the whole context has been given

    def give(self, size: int, stream: Stream, doing: str) -> Block:
        """Return a block of at least `size` bytes, free to be written by what `stream` gets next.

        Raises:
            BackendError: there is no memory left; the message begins with `doing`.
        """
        size = -(-max(size, 1) // GRAIN) * GRAIN
        unused = self._unused.setdefault(size, deque())
        try:
            memory, event = unused.popleft()
        except IndexError:
            return Block(self, DeviceMemory(size, doing), Event())
        self._room += size
        if not event.is_past:
            if len(unused) < WAITING:
                self._keep(memory, event)
                return Block(self, DeviceMemory(size, doing), Event())
            stream.wait(event)
        return Block(self, memory, event)

    def after_all(self, stream: Stream) -> None:
        """Let `stream` wait for all that the context has been given, by whomever."""
        (status,) = cuda.cuCtxRecordEvent(self._context, self._all.handle)
        if status == cuda.CUresult.CUDA_SUCCESS:
            stream.wait(self._all)
        else:
            call(cuda.cuCtxSynchronize)

    def take_back(self, memory: DeviceMemory, event: Event) -> None:
        """Keep memory for another time, or free it where there is much already."""
        if memory.size > self._room:
            return
        (status,) = cuda.cuCtxRecordEvent(self._context, event.handle)
        if status == cuda.CUresult.CUDA_SUCCESS:
            self._keep(memory, event)

    def _keep(self, memory: DeviceMemory, event: Event) -> None:
        self._room -= memory.size
        self._unused[memory.size].append((memory, event))
