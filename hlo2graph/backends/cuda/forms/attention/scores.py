"""The first product of attention: warps compute scores, each those of chunks of keys.

On tensor cores; where f32 may not be rounded each thread adds the products of a key and all rows;
where there are few rows, threads share out the sum as in other products of few vectors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.attention.shared import ScoreProduct, Shared, tiled_rows
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_few import FewWriter
from hlo2graph.backends.cuda.forms.products.dot_parts import CHUNK, ROWS, Held, Part
from hlo2graph.backends.cuda.forms.products.dot_tensor import TensorWriter
from hlo2graph.backends.cuda.forms.products.dot_tile import TileWriter
from hlo2graph.backends.cuda.forms.products.product import Side
from hlo2graph.ops.device import Expr, Index


class KeyChunks(TileWriter):
    """Writes a loop over a warp's chunks of keys."""

    shared: Shared

    def begin(self, batch: Index, top: Expr) -> None:
        """Take where the block is: its rows begin at `top`."""
        self.batch, self.top = batch, top

    def write(self, warps: int) -> None:
        """Write all lines."""
        chunks = -(-self.shared.keys // CHUNK)
        with self.emit.block(f"for (int chunk = warp; chunk < {chunks}; chunk += {warps})"):
            self.move_to(self.emit.integer(f"chunk * {CHUNK}"))
            self.place_thread()
            self.score(self.parts[0])

    def move_to(self, key: Expr) -> None:
        """Take the first key of a chunk."""
        self.left = key

    def score(self, part: Part) -> None:
        """Write how the scores of a chunk are computed."""
        self.declare()
        self.emit.line("#pragma unroll")
        with self.emit.block(f"for (int deep = 0; deep < {part.chunks}; ++deep)"):
            self.multiply(part, self._steps_from(part, self._first_step("deep")), Held())
        self.share(self.place_of)

    def place_of(self, row: Expr, key: Expr) -> Expr:
        """Return where the score of a row of the tile and a key of the chunk is."""
        return f"scores[({row}) * {self.shared.stride} + {self.left} + {key}]"


class Scores(KeyChunks, TensorWriter):
    """A thread has pairs of rows and columns of tensor cores' products."""

    def __init__(
        self, form: Form, product: ScoreProduct, keys: int, shared: Shared, emit: ElementEmitter
    ) -> None:
        """Take the form of the first product, and which of its sides has the keys."""
        rows, columns = tiled_rows(product.sides[1 - keys]), product.sides[keys].cut(CHUNK)
        super().__init__([Part.of(form, product, rows, columns)], rows, columns, emit=emit)
        self.shared = shared


class FewScores(KeyChunks, FewWriter):
    """A thread has some keys, all rows, and a quarter of the steps."""

    def __init__(
        self, form: Form, product: ScoreProduct, keys: int, shared: Shared, emit: ElementEmitter
    ) -> None:
        """Take the form of the first product, and which of its sides has the keys."""
        rows, columns = product.sides[keys].cut(CHUNK), product.sides[1 - keys]
        columns = columns.cut(columns.extent)
        super().__init__([Part.of(form, product, rows, columns)], rows, columns, emit=emit)
        self.shared = shared

    def move_to(self, key: Expr) -> None:
        """Take the first key of a chunk."""
        self.top = key

    def place_of(self, row: Expr, key: Expr) -> Expr:
        """Return where the score of a key of the chunk, the tile's row here, and of a query is."""
        return f"scores[{key} * {self.shared.stride} + {self.top} + {row}]"


class PlainScores(Scores):
    """A thread has a key and all rows."""

    def score(self, part: Part) -> None:
        """Write how the scores of a chunk are computed."""
        emit, side = self.emit, self.columns
        key = emit.integer(f"{self.left} + lane")
        if side.extent % CHUNK:
            key = emit.integer(f"{key} < {side.extent} ? {key} : {side.extent - 1}")
        emit.line(f"{self.type} total[{ROWS}] = {{}};")
        with emit.block(f"for (int step = 0; step < {part.steps}; ++step)"):
            at = emit.split("step", self.product.steps)
            found = self._element(part, side, emit.split(key, side.sizes), at)
            with self._each_row():
                query = emit.integer(f"{self.top} + row")
                if self.rows.extent % ROWS:
                    last = self.rows.extent - 1
                    query = emit.integer(f"{query} < {last} ? {query} : {last}")
                given = self._element(part, self.rows, emit.split(query, self.rows.sizes), at)
                emit.line(f"total[row] = hlo::plus_product(total[row], {given}, {found});")
        with self._each_row():
            emit.line(f"{self.place_of('row', 'lane')} = total[row];")

    def _each_row(self) -> AbstractContextManager[None]:
        self.emit.line("#pragma unroll")
        return self.emit.block(f"for (int row = 0; row < {ROWS}; ++row)")

    def _element(self, part: Part, side: Side, free: Index, step: Index) -> Expr:
        index, _ = self.product.locate(self.emit, side.number, self.batch, free, step)
        return self.emit.leaf(part.operands[side.number], 0, index)
