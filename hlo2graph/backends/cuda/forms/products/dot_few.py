"""The dot form for a matrix and few vectors: each product is added as its types say, none dropped.

Memory bounds it, so that tensor cores would gain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import EACH, Elements, Held, Part
from hlo2graph.backends.cuda.forms.products.dot_tile import TileWriter
from hlo2graph.backends.cuda.forms.products.product import DotProduct, Side, by_size
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import written
from hlo2graph.ops.own_dot import FEW_VECTORS

MOST_ROWS, FEWEST_ROWS = 32, 8  # of a tile


def suits_few_columns(form: Form) -> bool:
    """It is a matrix times few vectors, and so is all that it goes with."""
    return all(map(_has_few_columns, form.each))


def _has_few_columns(form: Form) -> bool:
    product = DotProduct(form)
    rows, columns = by_size(product)
    return (
        columns.extent <= FEW_VECTORS
        and rows.extent >= FEWEST_ROWS
        and prod(product.steps) >= EACH
        and written(form.instr).elements > 0
    )


def dot_few_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot and of the elementwise work on both sides of it."""
    products = [(each, DotProduct(each)) for each in form.each]
    product = products[0][1]
    rows, columns = by_size(product)
    batches = prod(product.batches)
    rows = rows.cut(MOST_ROWS)
    wanted = form.signature.device.multiprocessors
    while rows.tile > FEWEST_ROWS and batches * rows.tiles * 2 <= wanted:
        rows = rows.cut(rows.tile // 2)
    columns = columns.cut(columns.extent)
    parts = [Part.of(each, product, rows, columns) for each, product in products]
    return FewWriter(parts, rows, columns).kernel()


class FewWriter(TileWriter):
    """A thread has some rows, all columns, and a quarter of the steps."""

    @property
    def each(self) -> int:
        """Rows of a thread."""
        return self.rows.tile // 8

    def declare(self) -> None:
        """Write a sum for each row and column."""
        self.emit.line(f"{self.type} total[{self.each}][{self.columns.tile}] = {{}};")

    def place_thread(self) -> None:
        """Write where the rows are."""
        emit, rows, columns = self.emit, self.rows, self.columns
        first = emit.integer(f"{self.top} + group * {self.each}")
        run = self.run(first, self.each, rows.extent, whole=rows.extent % rows.tile == 0)
        self.places = [emit.split(at, rows.sizes) for at, _ in run]
        self.vectors = [emit.split(str(k), columns.sizes) for k in range(columns.extent)]

    def multiply(self, part: Part, steps: Sequence[tuple[Index, Expr | None]], held: Held) -> None:
        """Write one product after the other."""
        a, b = (
            self._of_held(side, held.names[0], part)
            if side == held.side
            else self._widened(self.elements(part, side, self._places_of(side), steps))
            for side in (part.rows, part.columns)
        )
        for n in range(len(steps)):
            for k in range(self.each):
                for j in range(self.columns.extent):
                    total = f"total[{k}][{j}]"
                    factors = f"{a[k, n]}, {b[j, n]}"
                    self.emit.line(f"{total} = hlo::plus_product({total}, {factors});")

    def hold(self, side: Side, dtype: DType, name: str) -> int:
        """Write an array of elements as they lie, or of the type of the sums."""
        held = dtype if _is_widened(dtype) else self.wide
        count = len(self._places_of(side))
        self.emit.line(f"{storage_type(held)} {name}[{count}][{EACH}];")
        return -(-count * EACH * held.size // 4)

    def fill(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> None:
        """Write the elements into such an array."""
        found = self.elements(part, side, self._places_of(side), steps)
        for (k, n), value in found.values.items():
            self.emit.line(f"{name}[{k}][{n}] = {value};")

    def _of_held(self, side: Side, name: str, part: Part) -> dict[tuple[int, int], Expr]:
        dtype = part.form.shape(side.number).dtype
        values = {
            (k, n): f"{name}[{k}][{n}]"
            for k in range(len(self._places_of(side)))
            for n in range(EACH)
        }
        return self._widened(Elements(values, dtype if _is_widened(dtype) else self.wide))

    def _places_of(self, side: Side) -> Sequence[Index]:
        return self.places if side.number == self.rows.number else self.vectors

    def _widened(self, found: Elements) -> dict[tuple[int, int], Expr]:
        """Return the elements of an operand, each converted once to the type of the sums."""
        if found.dtype is self.wide:
            return found.values
        return {
            at: self.emit.bind(self.wide, f"hlo::convert<hlo::{self.wide}>(hlo::widened({value}))")
            for at, value in found.values.items()
        }

    def share(self, place: Callable[[Expr, Expr], Expr]) -> None:
        """Add up what the members of a group hold."""
        emit = self.emit
        for k in range(self.each):
            for j in range(self.columns.extent):
                total = f"total[{k}][{j}]"
                for delta in (2, 1):
                    other = f"hlo::shuffle_down({total}, {delta})"
                    emit.line(f"{total} = hlo::add({total}, {other});")
                at = place(f"group * {self.each} + {k}", str(j))
                emit.line(f"if (member == 0) {at} = {total};")


def _is_widened(dtype: DType) -> bool:
    """Tell whether locals widen the type, so that what comes as it lies stays so."""
    return compute_type(dtype) != storage_type(dtype)
