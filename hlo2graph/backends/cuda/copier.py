"""Copies between places on the device that may overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import Structure, addressof, c_uint64
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.launch_config import LaunchConfig, launch_call
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.route import Move, in_waves

WHOLE = 256  # what scratch is aligned to
BLOCKS_EACH = 8  # of a multiprocessor, at most, for one copy


class Moves(Structure):
    """The argument of the kernel that copies."""

    _fields_: ClassVar = [
        (name, c_uint64 * builtin.MOST_MOVES) for name in ("source", "target", "size")
    ]


class Batch:
    """Copies ready to be enqueued, at once or one launch after another."""

    __slots__ = ("_launches", "count", "size")

    def __init__(self, moves: Sequence[Move], launches: Sequence[Launch]) -> None:
        self.count, self.size = len(moves), sum(move.size for move in moves)
        self._launches = tuple(launches)

    def __call__(self, stream: Stream) -> None:
        """Enqueue them on `stream`."""
        for launch in self._launches:
            launch(stream)


class Loose:
    """Copies that come once."""

    __slots__ = ("_copier", "_moves", "count", "size")

    def __init__(self, copier: Copier, moves: Sequence[Move]) -> None:
        self._copier, self._moves = copier, moves
        self.count, self.size = len(moves), sum(move.size for move in moves)

    def __call__(self, stream: Stream) -> None:
        """Enqueue them on `stream`."""
        self._copier(self._moves, stream)


class Launch:
    """One launch of the kernel that copies; another set of copies may take its place."""

    __slots__ = ("_call", "_config", "_most_blocks", "_moves")

    def __init__(self, function: Any, most_blocks: int) -> None:
        self._most_blocks = most_blocks
        self._moves = moves = Moves()
        self._config = LaunchConfig(0, 0, 1, builtin.MOVE_THREADS, 1, 1, 0, 0)
        pointer = c_uint64(addressof(moves))
        self._call = launch_call(
            self._config, function, addressof(pointer), "moving arrays", pointer
        )

    def give(self, moves: Sequence[Move]) -> None:
        """Take these copies, MOST_MOVES at most, of which none waits for another."""
        count, held = len(moves), self._moves
        sources, targets, sizes = zip(*moves, strict=True)
        held.source[:count], held.target[:count], held.size[:count] = sources, targets, sizes
        self._config.grid_x = min(self._most_blocks, -(-max(sizes) // builtin.MOVE_BYTES))
        self._config.grid_y = count

    def __call__(self, stream: Stream) -> None:
        """Enqueue them on `stream`; the driver has read them when this returns."""
        self._config.stream = int(stream)
        self._call()


class Copier:
    """Enqueues copies as if all were read before any is written.

    What does not wait for another copy shares one launch. Its scratch memory is its own: the
    streams of two calls must wait for each other.
    """

    def __init__(self, function: Any, multiprocessors: int) -> None:
        """Copy with a loaded kernel, builtin.MOVE."""
        self._scratch: DeviceMemory | None = None
        self._new = partial(Launch, function, BLOCKS_EACH * multiprocessors)
        self._launch = self._new()

    def __call__(self, moves: Sequence[Move], stream: Stream) -> None:
        """Enqueue `moves`."""
        if not moves:
            return
        waves, circle = in_waves(moves)
        for part in _cut((*waves, *self._through_scratch(circle))):
            self._launch.give(part)
            self._launch(stream)

    def batch(self, moves: Sequence[Move]) -> Batch | None:
        """Return `moves` made ready, to come again; None where that takes scratch memory."""
        waves, circle = in_waves(moves)
        if circle:
            return None
        launches = []
        for part in _cut(waves):
            launches.append(self._new())
            launches[-1].give(part)
        return Batch(moves, launches)

    def _through_scratch(self, circle: Sequence[Move]) -> Iterator[Sequence[Move]]:
        if not circle:
            return
        sizes = [-(-move.size // WHOLE) * WHOLE for move in circle]
        starts = accumulate(sizes, initial=self._room(sum(sizes)))
        rooms = list(zip(circle, starts, strict=False))
        yield [Move(move.source, at, move.size) for move, at in rooms]
        yield [Move(at, move.target, move.size) for move, at in rooms]

    def _room(self, size: int) -> int:
        """Return the address of so many bytes; what is too small is freed once it is unused."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = DeviceMemory(size, f"allocating {size:,} bytes to exchange arrays")
        return self._scratch.address


def _cut(waves: Sequence[Sequence[Move]]) -> Iterator[Sequence[Move]]:
    """Yield what shares a launch."""
    for wave in waves:
        for start in range(0, len(wave), builtin.MOST_MOVES):
            yield wave[start : start + builtin.MOST_MOVES]
