"""Copies between places on the device that may overlap."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.route import Move, in_order

WHOLE = 256  # what scratch is aligned to


class Copier:
    """Enqueues copies as if all were read before any is written.

    Its scratch memory is its own: the streams of two calls must wait for each other.
    """

    def __init__(self) -> None:
        self._scratch: DeviceMemory | None = None

    def __call__(self, moves: Sequence[Move], stream: Stream) -> None:
        """Enqueue `moves`."""
        if not moves:
            return
        ordered, circle = in_order(moves)
        for move in ordered:
            _copy(move.source, move.target, move.size, stream)
        if not circle:
            return
        scratch = self._room(sum(-(-m.size // WHOLE) * WHOLE for m in circle))
        kept = []
        for move in circle:
            _copy(move.source, scratch, move.size, stream)
            kept.append(scratch)
            scratch += -(-move.size // WHOLE) * WHOLE
        for move, held in zip(circle, kept, strict=True):
            _copy(held, move.target, move.size, stream)

    def _room(self, size: int) -> int:
        """Return the address of so many bytes; what is too small is freed once it is unused."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = DeviceMemory(size, f"allocating {size:,} bytes to exchange arrays")
        return self._scratch.address


def _copy(source: int, target: int, size: int, stream: Stream) -> None:
    call(cuda.cuMemcpyDtoDAsync, target, source, size, stream.handle, doing="moving an array")
