"""The second product of attention: warps sum values by weights, each over chunks of keys.

As the first one is computed (scores.py), so is this; weights come from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.attention.shared import Shared, tiled_rows
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_few import FewWriter
from hlo2graph.backends.cuda.forms.products.dot_parts import (
    COLUMNS,
    ROWS,
    Elements,
    Held,
    Part,
    power,
)
from hlo2graph.backends.cuda.forms.products.dot_tensor import TensorWriter
from hlo2graph.backends.cuda.forms.products.dot_tile import TileWriter
from hlo2graph.backends.cuda.forms.products.product import DotProduct, Side
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr, Index

MOST_COLUMNS = 64  # of the values, that a block sums at once


class Sums(TileWriter):
    """Writes sums of one tile of the values after the other, and what becomes of them.

    values: the side of the values. ahead: what was read before there were weights.
    """

    shared: Shared
    values: Side
    ahead: Held

    def begin(self, batch: Index, top: Expr) -> None:
        """Take where the block is; write what may be read before there are weights.

        That is what a warp needs first, where it needs values of one tile only.
        """
        self.batch, self.ahead = batch, Held()
        self.stand(top, "0")
        if self.values.tiles == 1:
            self.place_thread()
            self.ahead = Held(self.values, self._read_early())

    def _read_early(self) -> tuple[str, ...]:
        [part], name = self.parts, self.emit.fresh("early")
        self.hold(self.values, self.form.shape(self.values.number).dtype, name)
        with self._chunk(part, "warp", 0) as steps:
            self.fill(part, self.values, name, steps)
        return (name,)

    def stand(self, top: Expr | None, at: Expr) -> None:
        """Take the block's first row, if it is given, and the first of the values' columns."""
        raise NotImplementedError

    def write(self) -> None:
        """Write the sums, and how results are stored."""
        emit, [part] = self.emit, self.parts
        across, along = self.kept
        kind = f"{self.type} (*)[{across}][{along}]"
        sums = f"{self.type} (*const {part.sums})[{across}][{along}]"
        emit.line(f"{sums} = ({kind})((char*)scores + {self.shared.bytes});")
        with self._tiles():
            self.place_thread()
            self.sum_values(part)
            emit.line("__syncthreads();")
            self.tile_store(self.left).write(len(emit.lines))
            if self.values.tiles > 1:
                emit.line("__syncthreads();")

    @property
    def bytes(self) -> int:
        """Of the warps' sums in shared memory, behind scores and weights."""
        return self.warps * prod(self.kept) * self.wide.size

    def _tiles(self) -> AbstractContextManager[None]:
        """Write a loop over the tiles of values, where there are several."""
        if self.values.tiles == 1:
            return nullcontext()
        at = self.emit.fresh("at")
        self.stand(None, at)
        head = f"for (int {at} = 0; {at} < {self.values.extent}; {at} += {self.values.tile})"
        return self.emit.block(head)

    def sum_values(self, part: Part) -> None:
        """Write how a warp sums, and where it leaves the sums."""
        self.declare()
        done = len(self.ahead.names)
        if done:
            with self._chunk(part, "warp", 0) as steps:
                self.multiply(part, steps, self.ahead)
        if part.chunks > done * self.warps:
            first = f"warp + {self.warps}" if done else "warp"
            head = f"for (int chunk = {first}; chunk < {part.chunks}; chunk += {self.warps})"
            with self.emit.block(head):
                self.multiply(part, self._steps_from(part, self._first_step("chunk")), Held())
        self.share(self.place_of)

    def _steps_from(self, part: Part, first: Expr) -> list[tuple[Index, Expr | None]]:
        self.first = first
        return super()._steps_from(part, first)


class Values(Sums, TensorWriter):
    """A thread has pairs of rows and columns of tensor cores' products."""

    def __init__(self, form: Form, weights: int, shared: Shared, emit: ElementEmitter) -> None:
        """Take the form of the second product, and which of its operands the weights are."""
        product = DotProduct(form)
        values = product.sides[1 - weights]
        self.values = values.cut(min(MOST_COLUMNS, COLUMNS * power(-(-values.extent // COLUMNS))))
        rows = tiled_rows(product.sides[weights])
        parts = [Part.of(form, product, rows, self.values)]
        super().__init__(parts, rows, self.values, emit=emit)
        self.shared = shared

    def stand(self, top: Expr | None, at: Expr) -> None:
        """Take the block's first row, if it is given, and the first of the values' columns."""
        self.top, self.left = top or self.top, at

    def fill(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> None:
        """Write the elements into registers; weights come from shared memory."""
        if side.number == self.values.number:
            super().fill(part, side, name, steps)
            return
        per, stride = self.shared.per, self.shared.weight_stride
        start = f"{self.first} / {per}" if per > 1 else self.first
        for k in range(self.each[0]):
            row = f"(group * {self.each[0]} + {k}) * {stride}"
            for register in range(self.registers):
                self.emit.line(f"{name}[{k}][{register}] = weights[{row} + {start} + {register}];")


class FewValues(Sums, FewWriter):
    """A thread has some elements of the values, all rows, and a quarter of the keys."""

    def __init__(self, form: Form, weights: int, shared: Shared, emit: ElementEmitter) -> None:
        """Take the form of the second product, and which of its operands the weights are."""
        product = DotProduct(form)
        values = product.sides[1 - weights]
        self.values = values.cut(min(MOST_COLUMNS, COLUMNS * power(-(-values.extent // COLUMNS))))
        columns = product.sides[weights]
        columns = columns.cut(columns.extent)
        parts = [Part.of(form, product, self.values, columns)]
        super().__init__(parts, self.values, columns, emit=emit)
        self.shared = shared

    def stand(self, top: Expr | None, at: Expr) -> None:
        """Take the block's first row, if it is given, and the first of the values' columns."""
        self.left, self.top = top or self.left, at

    def elements(
        self,
        part: Part,
        side: Side,
        places: Sequence[Index],
        steps: Sequence[tuple[Index, Expr | None]],
    ) -> Elements:
        """Return a thread's elements of an operand; weights come from shared memory."""
        if side.number == self.values.number:
            return super().elements(part, side, places, steps)
        found = {
            (row, n): f"scores[{row * self.shared.stride} + {self.first} + {n}]"
            for row in range(len(places))
            for n in range(len(steps))
        }
        return Elements(found, self.wide)


class PlainValues(Values):
    """A thread has an element of the values, or two, and all rows."""

    def _read_early(self) -> tuple[str, ...]:
        return ()

    def sum_values(self, part: Part) -> None:
        """Write how a warp sums, and where it leaves the sums."""
        emit, side = self.emit, self.values
        with emit.block(f"for (int own = lane; own < {side.tile}; own += {WARP})"):
            column = emit.integer(f"{self.left} + own")
            if side.extent % side.tile:
                column = emit.integer(f"{column} < {side.extent} ? {column} : {side.extent - 1}")
            place, each = emit.split(column, side.sizes), f"for (int row = 0; row < {ROWS}; ++row)"
            emit.line(f"{self.type} total[{ROWS}] = {{}};")
            with emit.block(f"for (int key = warp; key < {part.steps}; key += {self.warps})"):
                step = emit.split("key", self.product.steps)
                index, _ = self.product.locate(emit, side.number, self.batch, place, step)
                found = emit.leaf(part.operands[side.number], 0, index)
                weight = f"scores[row * {self.shared.stride} + key]"
                emit.line("#pragma unroll")
                product = f"{weight}, {found}"
                emit.line(f"{each} total[row] = hlo::plus_product(total[row], {product});")
            emit.line("#pragma unroll")
            emit.line(f"{each} {self.place_of('row', 'own')} = total[row];")
