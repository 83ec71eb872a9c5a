"""A product of attention whose rows, of queries, a warp has for itself.

Its other side comes a chunk of keys, or a tile of values, after the other; sums stay in registers.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.attention.hidden import note_odd
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import Held, Part
from hlo2graph.backends.cuda.forms.products.dot_tensor import TensorWriter
from hlo2graph.backends.cuda.forms.products.product import Product, Side
from hlo2graph.ops.device import Expr, Index


class RowsProduct(TensorWriter):
    """One of the two products: a warp has its rows, and a chunk of keys or a tile of values."""

    def __init__(
        self, form: Form, product: Product, rows: Side, columns: Side, emit: ElementEmitter
    ) -> None:
        """Take the form of the product, and its sides with the tiles of a warp."""
        super().__init__([Part.of(form, product, rows, columns)], rows, columns, emit=emit)

    def begin(self, batch: Index, top: Expr) -> None:
        """Take where the warp is: its rows begin at `top`."""
        self.batch, self.top = batch, top
        self.places = [self.places_of_side(self.rows, top, self.each[0]), []]

    def held_rows(self) -> list[Held]:
        """Write how all elements of the rows come into registers."""
        [part], found = self.parts, list[Held]()
        for chunk in range(part.chunks):
            name = self.emit.fresh("held")
            self.hold(part.rows, self.dtype, name)
            steps = self._steps_from(part, self._first_step(str(chunk)))
            self.fill(part, part.rows, name, steps)
            found.append(Held(part.rows, (name,)))
        return found

    def add(self, left: Expr, chunk: Expr, held: Held) -> None:
        """Write the products of held rows and of columns from `left` on, of a chunk of steps."""
        [part] = self.parts
        self.places[1] = self.places_of_side(self.columns, left, self.each[1])
        with self.emit.block(""):
            self.multiply(part, self._steps_from(part, self._first_step(chunk)), held)

    def look_for_odd(self, left: Expr) -> None:
        """Write that `odd` tells of a chunk's columns from `left` on that are no finite numbers."""
        [part], name = self.parts, self.emit.fresh("looked")
        self.places[1] = self.places_of_side(self.columns, left, self.each[1])
        with self.emit.block(""):
            self.hold(part.columns, self.dtype, name)
            steps = self._steps_from(part, self._first_step("chunk"))
            self.fill(part, part.columns, name, steps)
            note_odd(self.emit, self.dtype, name, (self.each[1], self.registers))

    def scale(self, factors: str) -> None:
        """Write how each row's sums are multiplied by its factor."""
        self.each_sum(f"total[i][j][n] = hlo::multiply(total[i][j][n], {factors}[2 * i + n / 2]);")
