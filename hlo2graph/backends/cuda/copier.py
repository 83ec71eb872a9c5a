"""Copies between places on the device that may overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from ctypes import Structure, addressof, c_uint64
from functools import partial
from itertools import accumulate
from operator import add
from typing import Any, ClassVar

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.launch_config import LaunchConfig, launch_call
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.route import Move, in_waves
from hlo2graph.backends.cuda.spans import bounds

WHOLE = 256  # what scratch is aligned to
BLOCKS_EACH = 8  # of a multiprocessor, at most, for one copy


class Moves(Structure):
    """The argument of the kernel that copies."""

    _fields_: ClassVar = [
        (name, c_uint64 * builtin.MOST_MOVES) for name in ("source", "target", "size")
    ]


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

    def aim(self, ends: Sequence[int], *, inward: bool) -> None:
        """Let the copies begin, or not `inward` end, elsewhere."""
        held = self._moves.source if inward else self._moves.target
        held[: len(ends)] = ends

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

    def crossing(self, homes: Sequence[int], sizes: Sequence[int], *, inward: bool) -> Crossing:
        """Return copies to these places, or from them, whose other ends are new each time."""
        return Crossing(self, self._new, homes, sizes, inward=inward)

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


class Crossing:
    """Copies between places that stay, their homes, and others that are new each time."""

    __slots__ = (
        *("count", "size"),
        *("_copier", "_ends", "_homes", "_inward", "_launches", "_loose", "_sizes", "_starts"),
    )

    def __init__(
        self,
        copier: Copier,
        new: Callable[[], Launch],
        homes: Sequence[int],
        sizes: Sequence[int],
        *,
        inward: bool,
    ) -> None:
        self._copier, self._homes, self._sizes, self._inward = copier, homes, sizes, inward
        self.count, self.size = len(homes), sum(sizes)
        ends = map(add, homes, sizes)
        self._starts, self._ends = bounds(list(zip(homes, ends, strict=True)))
        self._loose: Sequence[Move] = ()  # where these are what can be done
        self._launches: list[tuple[int, Launch]] = []
        stays = [Move(at, at, size) for at, size in zip(homes, sizes, strict=True)]
        for start in range(0, len(stays), builtin.MOST_MOVES):
            launch = new()
            launch.give(stays[start : start + builtin.MOST_MOVES])
            self._launches.append((start, launch))

    def aim(self, others: Sequence[int]) -> None:
        """Let the ends that are elsewhere lie there from the next copies on."""
        starts, ends = self._starts, self._ends
        self._loose = ()
        for at, size in zip(others, self._sizes, strict=True):
            before = bisect_left(starts, at + size)
            if before and ends[before - 1] > at:  # it lies in the way of other copies
                self._loose = self._moves(others)
                return
        for start, launch in self._launches:
            launch.aim(others[start : start + builtin.MOST_MOVES], inward=self._inward)

    def __call__(self, stream: Stream) -> None:
        """Enqueue them on `stream`."""
        if self._loose:
            self._copier(self._loose, stream)
            return
        for _, launch in self._launches:
            launch(stream)

    def _moves(self, others: Sequence[int]) -> Sequence[Move]:
        ends = (others, self._homes) if self._inward else (self._homes, others)
        return [Move(*move) for move in zip(*ends, self._sizes, strict=True)]
