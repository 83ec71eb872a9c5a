"""One arena for all executables on a GPU that share it: addresses that stay, memory that grows.

The addresses are reserved once, as many as the GPU has memory. Where an executable needs a larger
arena than there is, memory is added behind, so that no graph ever moves. It goes when the last
executable that shares it goes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from sys import is_finalizing
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.memory import (
    POISON,
    WORD,
    CallersStream,
    Event,
    Stream,
    call_with_room,
)
from hlo2graph.backends.cuda.owners import hold, let_go
from hlo2graph.backends.cuda.temporaries.layout import Layout, layout_of
from hlo2graph.program.plan import Plan

ALIGNED = 0  # as the driver likes


class SharedArena:
    """Memory that runs take turns in."""

    def __init__(self, device: Device) -> None:
        self.address, self.size = 0, 0
        self.sharers: WeakSet[Share] = WeakSet()
        self._pieces: list[tuple[int, int]] = []  # address and size of each that was added
        self._turn = threading.Lock()
        self._last: Stream | None = None
        self._ran = Event()
        self._kind = _kind(device)
        granularity = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        self._step = int(call(cuda.cuMemGetAllocationGranularity, self._kind, granularity))
        self._reserved = -(-device.memory_bytes // self._step) * self._step
        doing = "reserving addresses for a shared arena"
        self.address = int(
            call(cuda.cuMemAddressReserve, self._reserved, ALIGNED, 0, 0, doing=doing)
        )

    def grow(self, size: int) -> None:
        """Have at least `size` bytes.

        Raises:
            BackendError: the GPU has not as much.
        """
        with self._turn:
            missing = -(-(size - self.size) // self._step) * self._step
            if missing > 0:
                self._add(missing)

    @contextmanager
    def turn(self, stream: Stream) -> Iterator[None]:
        """Let nobody else use it while something is enqueued on `stream`, which waits its turn."""
        with self._turn:
            last = self._last
            if last is not None and last is not stream:
                if not isinstance(last, CallersStream):
                    self._ran.record(last.handle)
                stream.wait(self._ran)
            try:
                yield
            finally:
                self._last = stream
                if isinstance(stream, CallersStream):  # it may be gone when somebody else comes
                    self._ran.record(stream.handle)

    def _add(self, size: int) -> None:
        at, doing = self.address + self.size, f"adding {size:,} bytes to a shared arena"
        handle = call_with_room(cuda.cuMemCreate, size, self._kind, 0, doing=doing, asked=size)
        try:
            call(cuda.cuMemMap, at, size, 0, handle, 0, doing=doing)
        finally:
            call(cuda.cuMemRelease, handle)  # what is mapped stays until it is unmapped
        self._pieces.append((at, size))
        hold(at, "the shared arena", size)
        access = cuda.CUmemAccessDesc()
        access.location = self._kind.location
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(cuda.cuMemSetAccess, at, size, [access], 1, doing=doing)
        self.size += size

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing() and self.address:
            if isinstance(self._last, CallersStream):
                cuda.cuEventSynchronize(self._ran.handle)
            elif self._last is not None:
                cuda.cuStreamSynchronize(self._last.handle)
            for address, size in self._pieces:
                let_go(address)
                cuda.cuMemUnmap(address, size)
            cuda.cuMemAddressFree(self.address, self._reserved)


class Share:
    """One executable's part in the shared arena of its GPU: all of it, while it runs."""

    def __init__(self, device: Device, layout: Layout, name: str) -> None:
        self.name, self.layout = name, layout
        self.arena = _arena_of(device)
        self.arena.grow(layout.size)
        self.arena.sharers.add(self)
        self.turn = self.arena.turn

    @property
    def placed(self) -> Mapping[int, int]:
        """Where the temporaries lie."""
        return self.layout.at(self.arena.address)

    def poison(self, stream: Stream) -> None:
        """Spoil the bytes that a run uses."""
        count = self.layout.size // WORD
        if count:
            with self.turn(stream):
                call(cuda.cuMemsetD32Async, self.arena.address, POISON, count, stream.handle)


def share_of(plan: Plan, device: Device) -> Share | None:
    """Return a plan's part in the shared arena, if it has temporaries.

    Raises:
        BackendError: the GPU has no room for them.
    """
    layout = layout_of(plan)
    return Share(device, layout, plan.name) if layout.size else None


_ARENAS: WeakValueDictionary[int, SharedArena] = WeakValueDictionary()
_MAKING = threading.Lock()


def _arena_of(device: Device) -> SharedArena:
    with _MAKING:
        found = _ARENAS.get(device.ordinal)
        if found is None:
            found = _ARENAS[device.ordinal] = SharedArena(device)
        return found


def _kind(device: Device) -> Any:
    """Return the driver's description of plain memory of a device."""
    kind = cuda.CUmemAllocationProp()
    kind.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kind.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    kind.location.id = device.ordinal
    return kind
