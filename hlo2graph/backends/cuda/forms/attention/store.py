"""How a warp that has rows for itself stores their results, from the registers that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.forms.attention.product import RowsProduct
from hlo2graph.backends.cuda.forms.products.product import neighbours, tests_inside
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import narrowed
from hlo2graph.ops.expect import written


@dataclass(frozen=True, slots=True)
class Store:
    """Writes the results: sums of `values`, of a thread's rows at `queries`, kept in `own`.

    weights: the number of the product's operand that the rows come from.
    """

    values: RowsProduct
    queries: Sequence[Index]
    weights: int

    def write(self) -> None:
        """Write all stores, of results side by side where whole runs of them are."""
        emit, rows, columns = self.values.emit, self.values.rows, self.values.columns
        each = self.values.each[1]
        width = each if columns.extent % each == 0 else 1
        for row in range(len(self.queries)):
            at = emit.integer(f"{self.values.top} + group * {len(self.queries)} + {row}")
            for number in range(0, 2 * each * columns.tiles, width):
                tile, first = divmod(number, 2 * each)
                left = emit.integer(f"2 * member * {each} + {tile * columns.tile + first}")
                inside = " && ".join((f"{at} < {rows.extent}", *tests_inside([left], [columns])))
                with emit.block(f"if ({inside})"):
                    run = [emit.integer(f"{left} + {k}") for k in range(width)]
                    self._run(row, tile, first, run)

    def _run(self, row: int, tile: int, first: int, columns: Sequence[Expr]) -> None:
        """Write results side by side, which a thread has from number `first` of a tile on."""
        values, stores = self.values, list[tuple[int, str]]()
        emit, instr = values.emit, values.form.instr
        for k, place in enumerate(neighbours(emit, columns, values.columns.sizes)):
            sides = [place, place]
            sides[self.weights] = self.queries[row]
            index = values.product.result(values.batch, *sides)
            total = f"own[{tile}]{sum_of(row, first + k, values.each[1])}"
            value = narrowed(emit.operands_of(instr), total, values.wide, written(instr).dtype)
            emit.assume(instr.name, index, (value,))
            stores += values.results.at(index)
        for _, store in sorted(stores, key=lambda held: held[0]):
            emit.line(store)


def sum_of(row: int, number: int, each: int) -> str:
    """Return where the sum of a thread's row and column of these numbers is in a tensor's."""
    return f"[{row // 2}][{number % each}][{row % 2 * 2 + number // each}]"
