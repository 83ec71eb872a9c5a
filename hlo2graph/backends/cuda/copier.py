"""Copies between places on the device that may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, addressof, c_uint, c_uint64, c_void_p
from typing import Any, ClassVar

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.route import Move, in_waves

WHOLE = 256  # what scratch is aligned to
BLOCKS_EACH = 8  # of a multiprocessor, at most, for one copy


class Moves(Structure):
    """The argument of the kernel that copies."""

    _fields_: ClassVar = [
        (name, c_uint64 * builtin.MOST_MOVES) for name in ("source", "target", "size")
    ]


class Copier:
    """Enqueues copies as if all were read before any is written.

    What does not wait for another copy shares one launch. Its scratch memory is its own: the
    streams of two calls must wait for each other.
    """

    def __init__(self, function: Any, multiprocessors: int) -> None:
        """Copy with a loaded kernel, builtin.MOVE."""
        self._scratch: DeviceMemory | None = None
        self._most_blocks = BLOCKS_EACH * multiprocessors
        self._moves = Moves()
        self._pointer = c_uint64(addressof(self._moves))
        self._blocks, self._rows, self._stream = c_uint(), c_uint(), c_void_p()
        one, threads, none = c_uint(1), c_uint(builtin.MOVE_THREADS), c_uint(0)
        self._launch = bound(
            "cuLaunchKernel",
            c_void_p(int(function)),
            *(self._blocks, self._rows, one),
            *(threads, one, one, none),
            self._stream,
            c_void_p(addressof(self._pointer)),
            None,
            place="moving arrays",
        )

    def __call__(self, moves: Sequence[Move], stream: Stream) -> None:
        """Enqueue `moves`."""
        if not moves:
            return
        waves, circle = in_waves(moves)
        for wave in waves:
            self._enqueue(wave, stream)
        if not circle:
            return
        scratch = self._room(sum(-(-m.size // WHOLE) * WHOLE for m in circle))
        away, back = [], []
        for move in circle:
            away.append(Move(move.source, scratch, move.size))
            back.append(Move(scratch, move.target, move.size))
            scratch += -(-move.size // WHOLE) * WHOLE
        self._enqueue(away, stream)
        self._enqueue(back, stream)

    def _enqueue(self, moves: Sequence[Move], stream: Stream) -> None:
        """Enqueue copies of which none waits for another."""
        held = self._moves
        for start in range(0, len(moves), builtin.MOST_MOVES):
            part = moves[start : start + builtin.MOST_MOVES]
            count = len(part)
            held.source[:count] = [move.source for move in part]
            held.target[:count] = [move.target for move in part]
            held.size[:count] = sizes = [move.size for move in part]
            self._blocks.value = min(self._most_blocks, -(-max(sizes) // builtin.MOVE_BYTES))
            self._rows.value = count
            self._stream.value = int(stream)
            self._launch()

    def _room(self, size: int) -> int:
        """Return the address of so many bytes; what is too small is freed once it is unused."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = DeviceMemory(size, f"allocating {size:,} bytes to exchange arrays")
        return self._scratch.address
