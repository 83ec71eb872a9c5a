"""Several rounds of a stencil in one kernel: how many, and which part of the arrays a block has.

A block holds its part, with as much around it as the rounds reach, in its threads' registers, and
does all rounds there; what lies in the margins, its neighbours compute too. A thread has a patch:
some rows of some columns side by side. A warp's threads lie side by side, and one or several of
them, a power of two, span the part: so what is read of the patches beside one's own is handed over
by shuffles, and only what is read of those above and below goes through shared memory.

The rule, all of it: of the parts whose columns fill a row of threads, whose rows are an equal share
of all, the smallest for which multiprocessors take so many turns, and whose other dimensions are
powers of two, or all; of all patches which have room, their elements in up to MOST_OWN registers;
and of all numbers of rounds, those which take the least time in all. A kernel takes KERNEL_NS,
BLOCK_NS for each further block of a multiprocessor's share, FILL_NS for each element that it begins
with; each round ROUND_NS if rows are read of others, and the longer of what the busiest of its four
schedulers has to do, STEP_NS for each step of a warp, and of what is handed over, WORD_NS for each
warp's word. Steps are a patch's operations, for each element of a state SELECT more if the arrays
have borders, and NARROW more if it has less than four bytes, one for each word, and AROUND. Blocks
that begin while those of the kernel before are there do not spread evenly: where some
multiprocessors have none, the busiest may have two, if there is room, and does the one's rounds
while the other waits. All that has to be less than ENOUGH of what kernels of two rounds take which
compute each element's neighbours anew: PAIR_NS, and INDEX_NS for each index, one a dimension, of
each element that is read. The figures are an H200's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import inf, prod

from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.expect import integer
from hlo2graph.ops.large_gpu import MULTIPROCESSORS, SHARED_BYTES
from hlo2graph.ops.stencil import Stencil

KERNEL_NS = 900
BLOCK_NS = 150
FILL_NS = 0.06
ROUND_NS = 90
STEP_NS = 0.38
WORD_NS = 0.45
SELECT = 1.5
NARROW = 8
AROUND = 36
PAIR_NS = 650
INDEX_NS = 0.0125
ENOUGH = 0.9
SCHEDULERS = 4
WARP = 32
COLUMNS = (1, 2, 4)  # side by side that a thread may have
LINE_COLUMNS = (1, 2, 4, 8)  # the same where there is but one row
MOST_ROWS = 16
MOST_SIDE = MOST_ROWS * WARP  # rows of a block, of WARP warps
MOST_OWN = 24  # registers that the elements of a thread have
MOST_THREADS = 704  # of a block: those of more take longer than is counted
MOST_RESIDENT = 2048  # threads of a multiprocessor
REGISTERS = 1 << 16  # of a multiprocessor
OF_OWN = 2.5  # registers that a thread takes for each of its elements'
BESIDE = 26  # and beside those
LEAST = 0.8  # of those registers it may take no more than so many


@dataclass(frozen=True, slots=True)
class Sweeps:
    """A computation that calls `called` so many times, first of its parameters, then of results.

    states: how many of the parameters the results take the place of.
    """

    called: str
    rounds: int
    states: int


@dataclass(frozen=True, slots=True)
class Along:
    """One dimension of a part: `side` elements of `size`, `before` and `after` them margins."""

    size: int
    side: int
    before: int = 0
    after: int = 0

    @property
    def held(self) -> int:
        """How many elements a block holds."""
        return self.before + self.side + self.after

    @property
    def count(self) -> int:
        """How many parts lie along the dimension."""
        return -(-self.size // self.side)

    @property
    def whole(self) -> bool:
        """All of the dimension is held, and nothing around it."""
        return self.held == self.side == self.size


@dataclass(frozen=True, slots=True)
class Part:
    """What a block computes of `rounds` rounds, and its threads' patches."""

    rounds: int
    dims: tuple[Along, ...]
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """How many parts there are."""
        return prod(along.count for along in self.dims)

    @property
    def lanes(self) -> int:
        """How many threads lie side by side."""
        if len(self.dims) == 1:
            return WARP
        return 1 << (-(-self.dims[-1].held // self.columns) - 1).bit_length()

    @property
    def down(self) -> Along:
        """The dimension of rows, of one where there is none."""
        return self.dims[-2] if len(self.dims) > 1 else Along(1, 1)

    @property
    def groups(self) -> int:
        """How many patches lie below each other: so many that warps are whole."""
        each = WARP // self.lanes
        return -(-self.down.held // (self.rows * each)) * each

    @property
    def patches(self) -> int:
        """How many patches there are."""
        return self.groups * self.lanes * prod(along.held for along in self.dims[:-2])

    @property
    def room(self) -> tuple[int, ...]:
        """How many elements of each dimension the patches have."""
        held = [along.held for along in self.dims]
        held[-1] = self.lanes * self.columns
        if len(held) > 1:
            held[-2] = self.groups * self.rows
        return tuple(held)


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
    return _best(stencil, tuple(shape.dtype.size for shape in shapes), rounds)


def exchanged(stencil: Stencil, part: Part, state: int) -> tuple[int, ...]:
    """Return which rows of a patch others read, but for those beside it."""
    return tuple(sorted({at % part.rows for of, _, at in _far(stencil, part.rows) if of == state}))


@cache
def _far(stencil: Stencil, rows: int) -> frozenset[tuple[int, tuple[int, ...], int]]:
    """Return which rows a patch of so many reads that it has not: of which state, how far off."""
    found = set()
    for state, tap in stencil.taps:
        *outer, down = tap[:-1] or (0,)
        ats = range(down, down + rows)
        found |= {(state, tuple(outer), at) for at in ats if any(outer) or at not in range(rows)}
    return frozenset(found)


def past_ends(stencil: Stencil, part: Part, stored: int) -> int:
    """Return how many elements past a part's ends are read, of so many rows a patch, unchosen."""
    width = part.room[-1]
    reach = [max(low, high) for low, high in zip(stencil.low, stencil.high, strict=True)]
    found = -(-reach[-2] // part.rows) * stored * width if len(reach) > 1 else 0
    stride = part.groups * stored * width
    for far, along in zip(reversed(reach[:-2]), reversed(part.dims[:-2]), strict=True):
        found += far * stride
        stride *= along.held
    return -(-found // WARP) * WARP


def nanoseconds(stencil: Stencil, part: Part, sizes: Sequence[int]) -> float:
    """Return what a kernel of a part's rounds takes, of states whose elements have these sizes."""
    share, more = -(-part.blocks // MULTIPROCESSORS), _is_uneven(part, sizes)
    blocks = share + more
    held = prod(along.held for along in part.dims)
    begun = KERNEL_NS + (share - 1) * BLOCK_NS + blocks * held * FILL_NS * len(sizes)
    waits = ROUND_NS * part.rounds if _far(stencil, part.rows) and not more else 0
    words = _words(stencil, part.rows, part.columns)
    beside = sum(NARROW * (size < 4) + SELECT * (not all(stencil.around)) for size in sizes)
    steps = part.rows * part.columns * (stencil.work + beside) + words + AROUND
    rounds = sum(
        max(STEP_NS * steps * -(-blocks * warps // SCHEDULERS), WORD_NS * words * blocks * warps)
        for warps in _warps(stencil, part)
    )
    return begun + waits + rounds


def _is_uneven(part: Part, sizes: Sequence[int]) -> bool:
    """Tell whether a multiprocessor may have two blocks while others have none."""
    room = 2 * LEAST * _taken(part, sizes) <= REGISTERS and 2 * part.patches <= MOST_RESIDENT
    return room and part.blocks < MULTIPROCESSORS < 2 * part.blocks


def _warps(stencil: Stencil, part: Part) -> list[int]:
    """Return how many of a block's warps work in each round: rows are needed no more."""
    low = high = 0
    if len(part.dims) > 1 and not part.down.whole and part.lanes == WARP:
        low, high = stencil.low[-2], stencil.high[-2]
    held, rows, lines = part.down.held, part.rows, part.patches // part.groups
    return [
        -(-(-(-(held - high * done) // rows) - low * done // rows) * lines // WARP)
        for done in range(1, part.rounds + 1)
    ]


def nanoseconds_of_two(stencil: Stencil) -> float:
    """Return what a kernel of two rounds takes that holds nothing in shared memory."""
    busiest = -(-prod(stencil.dims) // MULTIPROCESSORS)
    indices = len(stencil.dims) * len(stencil.taps) ** 2
    return PAIR_NS + INDEX_NS * busiest * indices


@cache
def _words(stencil: Stencil, rows: int, columns: int) -> int:
    """Return how many words a patch hands over and is handed in a round."""
    far = _far(stencil, rows)
    given = {(state, at % rows) for state, _, at in far}
    beside = set()
    for state, tap in stencil.taps:
        *outer, down = tap[:-1] or (0,)
        for row, column in product(range(down, down + rows), range(columns)):
            lane, within = divmod(column + tap[-1], columns)
            if lane:
                beside.add((state, tuple(outer), row, within, lane))
    return len(beside) + columns * (len(far) + len(given))


@cache
def _best(stencil: Stencil, sizes: tuple[int, ...], rounds: int) -> Part | None:
    best, least = None, inf
    for part in _parts(stencil, sizes, rounds):
        taken = nanoseconds(stencil, part, sizes)
        if taken < least and _has_room(stencil, part, sizes):
            best, least = part, taken
    return best


def _has_room(stencil: Stencil, part: Part, sizes: Sequence[int]) -> bool:
    for size, along, around in zip(part.room, part.dims, stencil.around, strict=True):
        if around and not along.whole and size > along.size:
            return False
    if part.patches > MOST_THREADS or _taken(part, sizes) > REGISTERS:
        return False
    total = 0
    for state, size in enumerate(sizes):
        if rows := len(exchanged(stencil, part, state)):
            given = part.patches * part.columns * rows
            total += 2 * size * (given + 2 * past_ends(stencil, part, rows))
    return total <= SHARED_BYTES


def _taken(part: Part, sizes: Sequence[int]) -> float:
    """Return how many registers a block takes."""
    return part.patches * (BESIDE + OF_OWN * part.rows * part.columns * _registers(sizes))


def _registers(sizes: Sequence[int]) -> int:
    """Return how many registers an element of all states takes."""
    return sum(max(1, size // 4) for size in sizes)


def _parts(stencil: Stencil, sizes: Sequence[int], rounds: int) -> Iterator[Part]:
    *outer, last = zip(stencil.dims, stencil.low, stencil.high, stencil.around, strict=True)
    for columns in COLUMNS if outer else LINE_COLUMNS:
        across = _across(rounds, columns, *last)
        if across is None:
            continue
        if not outer:
            yield Part(rounds, (across,), 1, columns)
            continue
        most = min(MOST_ROWS, MOST_OWN // (columns * _registers(sizes)))
        *first, below = outer
        for found in product(*(_powers(rounds, *ends) for ends in first)):
            others = across.count * prod(along.count for along in found)
            for down in _shares(rounds, others, *below):
                yield from _patches((*found, down, across), rounds, columns, most, below[-1])


def _patches(
    dims: tuple[Along, ...], rounds: int, columns: int, most: int, around: bool
) -> Iterator[Part]:
    """Yield parts of up to so many rows a patch, that make whole numbers of warps a scheduler.

    Where the ends of rows that are all held meet, there is no row too many.
    """
    part = Part(rounds, dims, 1, columns)
    held, each, lines = part.down.held, WARP // part.lanes, prod(along.held for along in dims[:-2])
    tried = {
        -(-held * lines // (warps * each)) for warps in range(SCHEDULERS, WARP + 1, SCHEDULERS)
    }
    if part.down.whole and around:
        tried = {
            max(
                (n for n in range(1, min(rows, most) + 1) if held % (n * each) == 0),
                default=most + 1,
            )
            for rows in tried
        }
    for rows in sorted(tried):
        if rows <= most:
            yield Part(rounds, dims, rows, columns)


def _powers(rounds: int, size: int, low: int, high: int, _: bool) -> Iterator[Along]:
    """Yield all, and powers of two, where they need not be cut finely twice."""
    yield Along(size, size)
    for k in range(size.bit_length()):
        if 1 << k < size and (low or high or not k):
            yield Along(size, 1 << k, rounds * low, rounds * high)


def _shares(rounds: int, others: int, size: int, low: int, high: int, _: bool) -> Iterator[Along]:
    """Yield all, and the smallest equal shares for which multiprocessors take so many turns."""
    yield Along(size, size)
    smallest = {-(-others * -(-size // side) // MULTIPROCESSORS): side for side in _sides(size)}
    for side in smallest.values():
        yield Along(size, side, rounds * low, rounds * high)


@cache
def _sides(size: int) -> tuple[int, ...]:
    """Return how many of so many each of several has, the largest first."""
    counts = [-(-size // side) for side in range(min(size - 1, MOST_SIDE), 0, -1)]
    return tuple(dict.fromkeys(-(-size // count) for count in counts))


def _across(
    rounds: int, columns: int, size: int, low: int, high: int, around: bool
) -> Along | None:
    """Return the columns that a row of threads has, all if it can; None where margins fill it."""
    most = WARP * columns
    if size <= most and not (around and size % columns):
        return Along(size, size)
    before, after = -(-rounds * low // columns) * columns, rounds * high
    room = (most - before - after) // columns * columns
    if room <= 0:
        return None
    count = -(-size // room)
    return Along(size, -(-size // (count * columns)) * columns, before, after)
