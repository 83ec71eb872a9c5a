"""The two products of attention: scores of queries by keys, and sums of weighed values.

Tensor cores compute both, but where f32 may not be rounded: there each thread adds products as they
are, for one key, or one element of a value, and all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.dot_parts import CHUNK, COLUMNS, ROWS, WARP, Held, Part, power
from hlo2graph.backends.cuda.forms.dot_store import TileStore
from hlo2graph.backends.cuda.forms.dot_tensor import TensorWriter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.product import DotProduct, Side
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.region_attention import Places

MOST_COLUMNS = 64  # of the values, that a block sums at once
GAP = 17  # words from the end of a row's scores to the next, so that accesses meet other banks
WEIGHTS_GAP = 8  # the same of weights that are narrower than a word


@dataclass(frozen=True, slots=True)
class Shared:
    """A block's scores and weights in shared memory, of `keys` keys, `per` weights to a word.

    Where a word has one weight, it takes the place of its score.
    """

    keys: int
    per: int

    @property
    def padded(self) -> int:
        """Keys in whole chunks."""
        return -(-self.keys // CHUNK) * CHUNK

    @property
    def stride(self) -> int:
        """Words from a row's scores to the next one's."""
        return self.padded + GAP

    @property
    def weight_stride(self) -> int:
        """Words from a row's weights to the next one's."""
        return self.stride if self.per == 1 else self.padded // self.per + WEIGHTS_GAP

    @property
    def bytes(self) -> int:
        """Of all."""
        return 4 * ROWS * (self.stride + (self.weight_stride if self.per > 1 else 0))

    def declare(self, emit: ElementEmitter) -> None:
        """Write pointers to both."""
        emit.line("float* const scores = (float*)hlo::dynamic_shared();")
        weights = f"scores + {ROWS * self.stride}" if self.per > 1 else "scores"
        emit.line(f"hlo::u32* const weights = (hlo::u32*)({weights});")


class ScoreProduct(DotProduct):
    """The first product, whose rows are numbered as the second one's are.

    order: for each dimension of its own rows, which of the second one's it is; None for size 1.
    """

    def __init__(self, form: Form, side: int, order: Places, sizes: tuple[int, ...]) -> None:
        """Take which side has the keys, and the sizes of the second product's rows."""
        super().__init__(form)
        self._order, self._rows = order, 1 - side
        sides = list(self.sides)
        sides[self._rows] = replace(sides[self._rows], sizes=sizes)
        self.sides = (sides[0], sides[1])

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Put batch, free and contracting dimensions in the operand's order."""
        if operand == self._rows:
            free = placed(self._order, free)
        return super().locate(emit, operand, batch, free, step)

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a score."""
        found = [lhs, rhs]
        found[self._rows] = placed(self._order, found[self._rows])
        return super().result(batch, *found)


def placed(places: Places, index: Index) -> Index:
    """Return the index whose dimensions are at these places of another one."""
    return tuple("0" if place is None else index[place] for place in places)


class Scores(TensorWriter):
    """Writes how warps compute scores, each those of a chunk of keys."""

    def __init__(
        self, form: Form, product: ScoreProduct, keys: int, shared: Shared, emit: ElementEmitter
    ) -> None:
        """Take the form of the first product, and which of its sides has the keys."""
        rows, columns = product.sides[1 - keys].cut(ROWS), product.sides[keys].cut(CHUNK)
        super().__init__([Part.of(form, product, rows, columns)], rows, columns, emit=emit)
        self.shared = shared

    def write(self, batch: Index, top: Expr, warps: int) -> None:
        """Write all lines, for rows from `top` on."""
        self.batch, self.top = batch, top
        chunks = self.columns.tiles
        with self.emit.block(f"for (int chunk = warp; chunk < {chunks}; chunk += {warps})"):
            self.left = self.emit.integer(f"chunk * {CHUNK}")
            self._of_chunk(self.parts[0])

    def _of_chunk(self, part: Part) -> None:
        self.place_thread()
        self.declare()
        self.emit.line("#pragma unroll")
        with self.emit.block(f"for (int deep = 0; deep < {part.chunks}; ++deep)"):
            self.multiply(part, self._steps_from(part, self._first_step("deep")), Held())
        self.share(self.place_of)

    def place_of(self, row: Expr, key: Expr) -> Expr:
        """Return where the score of a row of the tile and a key of the chunk is."""
        return f"scores[({row}) * {self.shared.stride} + {self.left} + {key}]"


class Values(TensorWriter):
    """Writes how warps sum values by weights, and what becomes of the sums."""

    def __init__(self, form: Form, weights: int, shared: Shared, emit: ElementEmitter) -> None:
        """Take the form of the second product, and which of its operands the weights are."""
        product = DotProduct(form)
        values = product.sides[1 - weights]
        width = min(MOST_COLUMNS, COLUMNS * power(-(-values.extent // COLUMNS)))
        rows, columns = product.sides[weights].cut(ROWS), values.cut(width)
        super().__init__([Part.of(form, product, rows, columns)], rows, columns, emit=emit)
        self.shared, self._ahead, self._first = shared, Held(), ""

    def begin(self, batch: Index, top: Expr) -> None:
        """Write what may be read before there are weights: the values of a warp's first chunk."""
        self.batch, self.top, self.left = batch, top, "0"
        [part] = self.parts
        if self.columns.tiles > 1:
            return
        self.place_thread()
        name = self.emit.fresh("early")
        self.hold(part.columns, self.form.shape(self.columns.number).dtype, name)
        with self._chunk(part, "warp", 0) as steps:
            self.fill(part, part.columns, name, steps)
        self._ahead = Held(part.columns, (name,))

    def write(self) -> None:
        """Write the sums, and how results are stored."""
        emit, [part] = self.emit, self.parts
        across, along = self.rows.tile, self.columns.tile
        kept = (across, along) if self.along_columns else (along, across)
        emit.line(f"__shared__ {self.type} {part.sums}[{self.warps}][{kept[0]}][{kept[1] + 1}];")
        with self._columns():
            self.place_thread()
            self._sum_values(part)
            emit.line("__syncthreads();")
            sides = self.rows, self.columns, self.along_columns
            where = self.batch, self.top, self.left
            store = TileStore(
                emit, self.results, self.product, self.parts, *sides, self.warps, *where
            )
            store.write(len(emit.lines))
            if self.columns.tiles > 1:
                emit.line("__syncthreads();")

    def _columns(self) -> AbstractContextManager[None]:
        """Write a loop over the tiles of columns, where there are several."""
        if self.columns.tiles == 1:
            return nullcontext()
        self.left = self.emit.fresh("left")
        head = f"for (int {self.left} = 0; {self.left} < {self.columns.extent}; "
        return self.emit.block(f"{head}{self.left} += {self.columns.tile})")

    def _sum_values(self, part: Part) -> None:
        self.declare()
        done = len(self._ahead.names)
        if done:
            with self._chunk(part, "warp", 0) as steps:
                self.multiply(part, steps, self._ahead)
        if part.chunks > done * self.warps:
            first = f"warp + {self.warps}" if done else "warp"
            head = f"for (int chunk = {first}; chunk < {part.chunks}; chunk += {self.warps})"
            with self.emit.block(head):
                self.multiply(part, self._steps_from(part, self._first_step("chunk")), Held())
        self.share(self.place_of)

    def place_of(self, row: Expr, column: Expr) -> Expr:
        """Return where a warp's sum of a row and a column of the tile is."""
        across, along = (row, column) if self.along_columns else (column, row)
        return f"{self.parts[0].sums}[warp][{across}][{along}]"

    def _steps_from(self, part: Part, first: Expr) -> list[tuple[Index, Expr | None]]:
        self._first = first
        return super()._steps_from(part, first)

    def fill(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> None:
        """Write the elements into registers; weights come from shared memory."""
        if side.number != self.rows.number:
            super().fill(part, side, name, steps)
            return
        per, stride = self.shared.per, self.shared.weight_stride
        start = f"{self._first} / {per}" if per > 1 else self._first
        for k in range(self.each[0]):
            row = f"(group * {self.each[0]} + {k}) * {stride}"
            for register in range(self.registers):
                self.emit.line(f"{name}[{k}][{register}] = weights[{row} + {start} + {register}];")


class PlainScores(Scores):
    """A thread has a key and all rows."""

    def _of_chunk(self, part: Part) -> None:
        emit, side = self.emit, self.columns
        key, inside = emit.integer(f"{self.left} + lane"), side.extent % CHUNK == 0
        if not inside:
            key = emit.integer(f"{key} < {side.extent} ? {key} : {side.extent - 1}")
        emit.line(f"{self.type} total[{ROWS}] = {{}};")
        with emit.block(f"for (int step = 0; step < {part.steps}; ++step)"):
            at = emit.split("step", self.product.steps)
            found = self._element(part, side, emit.split(key, side.sizes), at)
            emit.line("#pragma unroll")
            with emit.block(f"for (int row = 0; row < {ROWS}; ++row)"):
                query = emit.integer(f"{self.top} + row")
                if self.rows.extent % ROWS:
                    last = self.rows.extent - 1
                    query = emit.integer(f"{query} < {last} ? {query} : {last}")
                given = self._element(part, self.rows, emit.split(query, self.rows.sizes), at)
                emit.line(f"total[row] = hlo::add(total[row], hlo::multiply({given}, {found}));")
        emit.line("#pragma unroll")
        head = f"for (int row = 0; row < {ROWS}; ++row)"
        emit.line(f"{head} {self.place_of('row', 'lane')} = total[row];")

    def _element(self, part: Part, side: Side, free: Index, step: Index) -> Expr:
        index, _ = self.product.locate(self.emit, side.number, self.batch, free, step)
        return self.emit.leaf(part.operands[side.number], 0, index)


class PlainValues(Values):
    """A thread has an element of the values, or two, and all rows."""

    def begin(self, batch: Index, top: Expr) -> None:
        """Take where the block is; nothing is read before there are weights."""
        self.batch, self.top, self.left = batch, top, "0"

    def _sum_values(self, part: Part) -> None:
        emit, side = self.emit, self.columns
        with emit.block(f"for (int own = lane; own < {side.tile}; own += {WARP})"):
            column = emit.integer(f"{self.left} + own")
            if side.extent % side.tile:
                column = emit.integer(f"{column} < {side.extent} ? {column} : {side.extent - 1}")
            emit.line(f"{self.type} total[{ROWS}] = {{}};")
            with emit.block(f"for (int key = warp; key < {part.steps}; key += {self.warps})"):
                index, _ = self.product.locate(
                    emit,
                    side.number,
                    self.batch,
                    emit.split(column, side.sizes),
                    emit.split("key", self.product.steps),
                )
                found = emit.leaf(part.operands[side.number], 0, index)
                weight = f"scores[row * {self.shared.stride} + key]"
                emit.line("#pragma unroll")
                head = f"for (int row = 0; row < {ROWS}; ++row)"
                emit.line(
                    f"{head} total[row] = hlo::add(total[row], hlo::multiply({weight}, {found}));"
                )
            emit.line("#pragma unroll")
            head = f"for (int row = 0; row < {ROWS}; ++row)"
            emit.line(f"{head} {self.place_of('row', 'own')} = total[row];")
