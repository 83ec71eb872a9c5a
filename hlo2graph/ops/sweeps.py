"""Several rounds of a stencil in one kernel: how many, and which part of the arrays a block has.

A block holds its part in shared memory, with as much around it as the rounds reach, and does all
rounds there; what lies in the margins, its neighbours compute too.

The rule, all of it: of all parts whose sides are powers of two, or all of a dimension, and which
have room, and of all numbers of rounds, those which take the least time in all. A kernel takes
KERNEL_NS, BLOCK_NS for each further block of the busiest multiprocessor, FILL_NS for each element
that this begins with, and each round ROUND_NS and what it has to do: WORD_NS for each element read
or written, OPERATION_NS for each operation. That has to be less than ENOUGH of what kernels of two
rounds take which compute each element's neighbours anew: PAIR_NS, and AGAIN_NS for each element
that is read. The figures are an H200's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod

from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.expect import integer
from hlo2graph.ops.large_gpu import MULTIPROCESSORS, SHARED_BYTES
from hlo2graph.ops.stencil import Stencil

KERNEL_NS = 1500
BLOCK_NS = 400
FILL_NS = 0.05
ROUND_NS = 100
WORD_NS = 0.01
OPERATION_NS = 0.006
PAIR_NS = 900
AGAIN_NS = 0.025
ENOUGH = 0.9
WIDTH = 32  # elements of a row that a part has at least
MOST_SIDE = SHARED_BYTES // 2  # of one byte each
ROWS = 4  # elements below each other that a thread computes together, at least
MOST_ROWS = 16
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Sweeps:
    """A computation that calls `called` so many times, first of its parameters, then of results.

    states: how many of the parameters the results take the place of.
    """

    called: str
    rounds: int
    states: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a block computes of `rounds` rounds: `sides` elements, beginning with `held` ones.

    A dimension that is held whole has no margins.
    """

    rounds: int
    dims: tuple[int, ...]
    sides: tuple[int, ...]
    held: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many parts lie along each dimension."""
        return tuple(-(-n // side) for n, side in zip(self.dims, self.sides, strict=True))

    @property
    def down(self) -> int:
        """The dimension along which a thread has several elements: that of rows."""
        return max(0, len(self.dims) - 2)

    @property
    def rows(self) -> int:
        """How many elements below each other a thread has: so many that each has them once."""
        if len(self.dims) == 1:
            return 1
        held, across = self.held[self.down], prod(self.held) // self.held[self.down]
        fitting = (n for n in range(ROWS, MOST_ROWS + 1) if -(-held // n) * across <= MOST_THREADS)
        return min(held, next(fitting, ROWS))

    @property
    def room(self) -> tuple[int, ...]:
        """What is held, with as many rows as its threads have."""
        held, rows = list(self.held), self.rows
        held[self.down] = -(-held[self.down] // rows) * rows
        return tuple(held)

    def is_whole(self, dim: int) -> bool:
        """Tell whether all of a dimension is held."""
        return self.held[dim] == self.sides[dim] == self.dims[dim]


def sweeps_of(computation: Computation) -> Sweeps | None:
    """Return the rounds that `computation` is, if it is nothing else."""
    calls = [i for i in computation.instructions if i.opcode == "call"]
    if not calls or computation.root != calls[-1].name:
        return None
    given = tuple(p.name for p in computation.parameters)
    states = calls[0].shape.leaf_count
    parts = {i.name: i for i in computation.instructions if i.opcode == "get-tuple-element"}
    if len(calls) + len(parts) + len(given) != len(computation.instructions):
        return None
    wanted = given
    for call in calls:
        if call.attrs["to_apply"] != calls[0].attrs["to_apply"] or call.operands != wanted:
            return None
        own = [p for p in parts.values() if p.operands == (call.name,)]
        own.sort(key=partial(integer, name="index"))
        made = [p.name for p in own] if parts else [call.name]
        wanted = (*made, *given[states:])
    return Sweeps(str(calls[0].attrs["to_apply"]), len(calls), states)


def part_of(stencil: Stencil, shapes: Sequence[Shape], rounds: int) -> Part | None:
    """Return what a block has of states of these shapes, None where no part has room."""
    bytes_each = 2 * sum(shape.dtype.size for n, shape in enumerate(shapes) if n in stencil.shared)
    return _best(stencil, bytes_each, len(shapes), rounds)


def past_ends(stencil: Stencil, part: Part) -> int:
    """Return how many elements past the ends of a part are read where nobody chooses them."""
    found, stride = 0, 1
    for dim in reversed(range(len(part.dims))):
        found += max(stencil.low[dim], stencil.high[dim]) * stride
        stride *= part.room[dim]
    return found


def nanoseconds(stencil: Stencil, part: Part, states: int) -> float:
    """Return what a kernel of a part's rounds takes."""
    busiest = -(-prod(part.counts) // MULTIPROCESSORS)
    sizes = [1] * part.rounds
    for d, held in enumerate(part.held):
        lost = 0 if part.is_whole(d) else stencil.reach[d]
        sizes = [size * (held - done * lost) for done, size in enumerate(sizes, 1)]
    each = WORD_NS * (stencil.reads + states) + OPERATION_NS * stencil.work
    begun = KERNEL_NS + (busiest - 1) * BLOCK_NS + busiest * prod(part.held) * FILL_NS * states
    return begun + sum([ROUND_NS + busiest * size * each for size in sizes])


def nanoseconds_of_two(stencil: Stencil) -> float:
    """Return what a kernel of two rounds takes that holds nothing in shared memory."""
    busiest = -(-prod(stencil.dims) // MULTIPROCESSORS)
    return PAIR_NS + AGAIN_NS * busiest * stencil.reads**2


@cache
def _best(stencil: Stencil, bytes_each: int, states: int, rounds: int) -> Part | None:
    parts = (part for part in _parts(stencil, rounds) if _has_room(stencil, part, bytes_each))
    return min(parts, key=lambda p: (nanoseconds(stencil, p, states), prod(p.counts)), default=None)


def _has_room(stencil: Stencil, part: Part, bytes_each: int) -> bool:
    if prod(part.held) * bytes_each > SHARED_BYTES:
        return False
    room = part.room
    if any(
        size > n and not part.is_whole(d)
        for d, (size, n) in enumerate(zip(room, part.dims, strict=True))
    ):
        return False
    return (prod(room) + 2 * past_ends(stencil, part)) * bytes_each <= SHARED_BYTES


def _parts(stencil: Stencil, rounds: int) -> Iterator[Part]:
    dims, reach = stencil.dims, stencil.reach
    least = [1] * (len(dims) - 1) + [min(WIDTH, dims[-1])]
    for sides in product(*map(_sides, dims, reach, least)):
        margins = (
            0 if side == n else rounds * r for side, n, r in zip(sides, dims, reach, strict=True)
        )
        held = tuple(side + margin for side, margin in zip(sides, margins, strict=True))
        yield Part(rounds, dims, sides, held)


def _sides(size: int, reach: int, least: int) -> list[int]:
    """Return how many elements of a dimension a part may have; it need not be cut finely twice."""
    powers = (1 << k for k in range(size.bit_length()))
    found = [n for n in powers if least <= n < size and n <= MOST_SIDE and (reach or n == least)]
    return [*found, size] if size <= MOST_SIDE or not found else found
