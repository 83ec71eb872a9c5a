"""Device memory that is given away for a while, to whoever takes a result over.

Freeing device memory waits for the whole device, and taking it is slow, so what comes back is kept.
Its last user may have enqueued work on it that has not run, on a stream that we don't know: an
event of the whole context marks that, and who gets the memory next waits for the event.
"""

from __future__ import annotations

from ctypes import c_uint, c_void_p
from sys import is_finalizing
from typing import Any

from hlo2graph.backends.cuda.driver import Device, bound, call, cuda
from hlo2graph.backends.cuda.memory import DeviceMemory, Event, Stream

GRAIN = 512  # bytes: sizes are multiples of it
HANDED_ON = "results handed on"
KEPT = 32  # the part of the device's memory, one in so many, that may lie here unused


class Mark:
    """A point in all that a context has been given, by whomever, and a stream to wait for it."""

    __slots__ = ("record", "wait")

    def __init__(self, context: Any, stream: Stream) -> None:
        event = Event()
        handle = c_void_p(int(event.handle))
        self.record = bound("cuCtxRecordEvent", c_void_p(int(context)), handle, keep=event)
        self.wait = bound("cuStreamWaitEvent", c_void_p(int(stream)), handle, c_uint(0), keep=event)


class Block:
    """A block of memory, which goes back when the object does, on whichever thread."""

    __slots__ = ("_blocks", "_mark", "_memory", "address")

    def __init__(self, blocks: Blocks, memory: DeviceMemory, mark: Mark) -> None:
        self.address = memory.address
        self._blocks, self._memory, self._mark = blocks, memory, mark

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing():
            self._blocks.take_back(self._memory, self._mark)


class Blocks:
    """Blocks by size; those that nobody has. `stream` is what writes them."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self._context = call(cuda.cuCtxGetCurrent)
        self._stream = stream
        self._unused: dict[int, list[tuple[DeviceMemory, Mark]]] = {}
        self._room = device.memory_bytes // KEPT
        self._now = Mark(self._context, stream)

    def give(self, size: int, doing: str) -> Block:
        """Return a block of at least `size` bytes, free to be written by what comes next.

        Raises:
            BackendError: there is no memory left; the message begins with `doing`.
        """
        size = -(-max(size, 1) // GRAIN) * GRAIN
        unused = self._unused.setdefault(size, [])
        try:
            memory, mark = unused.pop()  # the last, so that results come to the same few places
        except IndexError:
            return Block(
                self, DeviceMemory(size, doing, HANDED_ON), Mark(self._context, self._stream)
            )
        self._room += size
        mark.wait()
        return Block(self, memory, mark)

    def after_all(self) -> None:
        """Let the stream wait for all that the context has been given."""
        self._now.record()
        self._now.wait()

    def take_back(self, memory: DeviceMemory, mark: Mark) -> None:
        """Keep memory for another time, or free it where there is much already."""
        if memory.size > self._room or mark.record.function():
            return
        self._room -= memory.size
        self._unused[memory.size].append((memory, mark))
