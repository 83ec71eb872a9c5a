"""The transpose form of narrow elements that are moved as they are: by words, wherever rows begin.

A warp reads words that lie side by side in a row of the argument. Where the row begins within one,
a lane takes the rest of its word from the next lane's; so the last lane of a row has none. Four
words of four rows are a square of elements, which a thread turns and puts into shared memory. From
there threads take words of the results' rows as these lie in memory, each out of two.

Memory takes whole sectors, so a tile's rows of the result begin at one: up to a sector less a word
before the tile, as in transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.folding import power_below
from hlo2graph.backends.cuda.forms.transposes.grain import Across
from hlo2graph.backends.cuda.forms.transposes.through_tile import go_through_tile
from hlo2graph.backends.cuda.forms.transposes.transpose_plan import SECTOR, WRITTEN_BYTES
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.device import Expr, Index

KEEPS_INDICES = frozenset({"copy", "transpose"})
SIDE = 4  # elements of a word, and words of a square
SIZES = (1, 2)  # bytes of an element
WIDEST = 256  # words, where few lie across
STRIP = 80  # tiles side by side, at most
THREADS = 256
TOGETHER = 4  # words of a row that a thread takes on the way out
FEWEST_LANES = 8


@dataclass(frozen=True, slots=True)
class WordTile:
    """How the elements are cut into tiles, of `wide` words along the result by `high` across.

    Before each row of a tile `spare` words more are read.
    """

    along: int  # elements
    across: int
    batches: int
    size: int  # bytes of an element
    wide: int
    high: int
    spare: int

    @property
    def word(self) -> str:
        """The type of a word."""
        return f"hlo::u{8 * SIDE * self.size}"

    @property
    def held(self) -> int:
        """Words of a row that a block reads."""
        return self.spare + self.wide

    @property
    def line(self) -> int:
        """Words from row to row in shared memory: odd, so that columns part banks."""
        return self.held + 1 | 1

    @property
    def group(self) -> int:
        """Lanes of a row: one more than it has words."""
        return self.high + 1

    @property
    def groups(self) -> int:
        """Rows that a block reads at once."""
        return WARP // self.group * (THREADS // WARP)

    @property
    def columns(self) -> int:
        """Tiles along the result; a few may lie past its end."""
        tiles = self._tiles
        return self.strip * -(-tiles // self.strip)

    @property
    def strip(self) -> int:
        """Tiles side by side that follow each other."""
        return -(-self._tiles // -(-self._tiles // STRIP))

    @property
    def rows(self) -> int:
        """Tiles along the argument."""
        return -(-self.across // (SIDE * self.high))

    @property
    def together(self) -> int:
        """Words of a row that a thread takes on the way out."""
        found = TOGETHER
        while found > 1 and self.wide % (found * FEWEST_LANES):
            found //= 2
        return found

    @property
    def _tiles(self) -> int:
        before = max(0, self.spare - 1)
        return -(-(-(-self.along // SIDE) + before) // self.wide)


def word_tile_of(what: Across, computation: Computation, signature: Signature) -> WordTile | None:
    """Return the tiles of a loop that moves narrow elements of ragged rows, if it does no more."""
    if len(signature.results) != 1 or signature.misaligned or not what.is_moved(computation):
        return None
    (name,) = what.cuts
    while computation[name].opcode in KEEPS_INDICES:
        name = computation[name].operands[0]
    size = signature.results[0].dtype.size
    is_ragged = any(what.dims[run[-1]] % SIDE for run in (what.along, what.across))
    if computation[name].opcode != "parameter" or size not in SIZES or not is_ragged:
        return None
    along, across, batches = (prod(what.sizes(run)) for run in (what.along, what.across, what.rest))
    spare = SECTOR // (SIDE * size) if along * size % SECTOR else 0
    most = WRITTEN_BYTES // (SIDE * size)
    high = _fitted(-(-across // SIDE), WARP - 1)
    wide = _fitted(-(-along // SIDE) + max(0, spare - 1), most)
    wide = min(WIDEST, wide * power_below(max(1, (WARP - 1) // high)))
    unit = 2 * FEWEST_LANES
    return WordTile(along, across, batches, size, -(-wide // unit) * unit, high, spare)


def _fitted(count: int, most: int) -> int:
    """Return how many each has of as few tiles as have at most `most`."""
    return -(-count // -(-count // most))


def word_tile_kernel(
    what: Across, tile: WordTile, computation: Computation, signature: Signature
) -> KernelSource:
    """Return the kernel."""
    writer = _Writer(what, tile, computation, ElementEmitter({}, signature.index_type), signature)
    writer.write()
    text = signature.declare(writer.emit.needed_lines(), THREADS)
    blocks = blocks_for(tile.batches * tile.columns * tile.rows, 1)
    shared = SIDE * tile.high * tile.line * SIDE * tile.size
    return KernelSource(signature.name, text, blocks, THREADS, shared)


@dataclass(slots=True)
class _Writer:
    """Writes the body."""

    what: Across
    tile: WordTile
    computation: Computation
    emit: ElementEmitter
    signature: Signature
    batch: Index = ()

    @property
    def result(self) -> Shape:
        return self.signature.results[0]

    def write(self) -> None:
        """Write all lines."""
        emit, tile, index = self.emit, self.tile, self.emit.index_type
        strip = tile.strip * tile.rows
        block = emit.integer(emit.block_index)
        emit.line(f"const {index} top = {block} / {tile.strip} % {tile.rows} * {tile.high};")
        left = f"{block} / {strip} % {tile.columns // tile.strip} * {tile.strip}"
        emit.line(f"const {index} left = ({left} + {block} % {tile.strip}) * {tile.wide};")
        number = emit.integer(f"{block} / {tile.rows * tile.columns}")
        self.batch = emit.split(number, self.what.sizes(self.what.rest))
        emit.line(f"{tile.word}* const tile = ({tile.word}*)hlo::dynamic_shared();")
        go_through_tile(emit, self.computation, self._read, self._store)

    def _read(self) -> None:
        emit, tile = self.emit, self.tile
        emit.line(f"const int lane = threadIdx.x % {WARP} % {tile.group};")
        per = WARP // tile.group
        group = f"threadIdx.x % {WARP} / {tile.group}"
        emit.line(f"const int group = threadIdx.x / {WARP} * {per} + {group};")
        y = emit.split(emit.integer(f"top * {SIDE}"), self.what.sizes(self.what.across))
        rounds = -(-tile.held // tile.groups)
        columns = [emit.integer(f"group + {n * tile.groups}") for n in range(rounds)]
        words = [[self._low(column, k, y) for k in range(SIDE)] for column in columns]
        for column, square in zip(columns, words, strict=True):
            found = []
            for low, bits in square:
                word, high = emit.fresh("w"), f"hlo::shuffle_down({low}, 1)"
                emit.line(f"const auto {word} = hlo::word_between({low}, {high}, {bits});")
                found.append(word)
            tests = [f"lane < {tile.high}", f"{column} < {tile.held}"]
            if WARP % tile.group:
                tests.append(f"{group} < {per}")
            with emit.block(f"if ({' && '.join(tests)})"):
                to = f"tile + lane * {tile.line} + {column}, {tile.high * tile.line}"
                emit.line(f"hlo::turn_square({', '.join(found)}, {to});")

    def _low(self, column: Expr, further: int, y: Index) -> tuple[Expr, Expr]:
        """Read a lane's word of one row; return it, and at which of its bits the row begins."""
        emit, tile = self.emit, self.tile
        at = emit.integer(f"(left + {column} - {tile.spare}) * {SIDE} + {further}")
        at = emit.integer(f"{at} < {tile.along} ? {at} : {tile.along - 1}")
        x = emit.split(emit.integer(f"{at} < 0 ? 0 : {at}"), self.what.sizes(self.what.along))
        value = emit.leaf(self.what.cuts[0], 0, self.what.index(x, y, self.batch))
        parameter, source, index = emit.origins[value]
        begin, last = emit.integer(emit.offset(source, index)), (source.elements - 1) // SIDE
        number = emit.integer(f"{begin} / {SIDE} + lane")
        number = emit.integer(f"{number} < {last} ? {number} : {last}")
        word = emit.fresh("w")
        emit.line(f"const {tile.word} {word} = ((const {tile.word}*)p{parameter})[{number}];")
        bits = emit.fresh("w")
        emit.line(f"const unsigned {bits} = (unsigned){begin} % {SIDE} * {8 * tile.size};")
        return word, bits

    def _store(self) -> None:
        emit, tile = self.emit, self.tile
        lanes = tile.wide // tile.together
        emit.line(f"const int lane = threadIdx.x % {lanes}, rank = threadIdx.x / {lanes};")
        step, rows = THREADS // lanes, tile.high * SIDE
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int row = rank; row < {rows}; row += {step})"):
            below = emit.integer(f"(top + row % {tile.high}) * {SIDE} + row / {tile.high}")
            test = f"{below} < {tile.across}"
            if THREADS % lanes:
                test += f" && rank < {step}"
            with emit.block(f"if ({test})"):
                self._store_row(emit.split(below, self.what.sizes(self.what.across)), lanes)

    def _store_row(self, y: Index, lanes: int) -> None:
        emit, tile = self.emit, self.tile
        zeros, sector = tuple("0" for _ in self.what.along), tile.spare * SIDE
        begin = emit.integer(emit.offset(self.result, self.what.index(zeros, y, self.batch)))
        before = emit.integer(f"{begin} & {sector - 1}") if sector else "0"
        behind = emit.integer(f"{sector} - {before}") if sector else "0"
        line = f"row * {tile.line} + lane + {behind} / {SIDE}"
        emit.line(f"const {tile.word}* const from = tile + ({line});")
        to = f"({tile.word}*)(r0 + ({begin} - {before})) + left + lane"
        emit.line(f"{tile.word}* const to = {to};")
        start = emit.integer(f"(left + lane) * {SIDE} - {before}")
        found = f"hlo::word_at<{SIDE}>(from + k * {lanes}, (unsigned){behind} % {SIDE})"
        last = tile.along - SIDE - (tile.together - 1) * lanes * SIDE
        every = f"for (int k = 0; k < {tile.together}; ++k)"
        with emit.block(f"if ({start} >= 0 && {start} <= {last})"):
            emit.line(f"{tile.word} held[{tile.together}];")
            for move in (f"held[k] = {found};", f"to[k * {lanes}] = held[k];"):
                emit.line("#pragma unroll")
                with emit.block(every):
                    emit.line(move)
        with emit.block("else"):
            emit.line("#pragma unroll 1")
            with emit.block(every):
                emit.line(f"const {tile.word} held = {found};")
                at = emit.integer(f"{start} + k * {lanes * SIDE}")
                with emit.block(f"if ({at} >= 0 && {at} <= {tile.along - SIDE})"):
                    emit.line(f"to[k * {lanes}] = held;")
                with emit.block("else"):
                    self._store_elements(at, begin)

    def _store_elements(self, at: Expr, begin: Expr) -> None:
        """Write those elements of a word that its row has."""
        emit, kind = self.emit, storage_type(self.result.dtype)
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int part = 0; part < {SIDE}; ++part)"):
            place = emit.integer(f"{at} + part")
            with emit.block(f"if ({place} >= 0 && {place} < {self.tile.along})"):
                emit.line(f"r0[{begin} + {place}] = hlo::element_of<{kind}>(held, part);")
