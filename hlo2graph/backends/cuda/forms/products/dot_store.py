"""How results get from the sums that a block's warps left in shared memory to where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import Part
from hlo2graph.backends.cuda.forms.products.product import Product, Side, neighbours, tests_inside
from hlo2graph.backends.cuda.forms.products.results import Results
from hlo2graph.backends.cuda.forms.read_ahead import read_ahead
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import narrowed
from hlo2graph.ops.expect import written

WIDTH = 4  # results side by side that a thread stores


@dataclass(frozen=True, slots=True)
class TileStore:
    """Writes a block's results: of the tile that begins at row `top` and column `left`.

    along_columns: whether threads side by side have columns, and rows of shared memory do.
    terms: how many sums a result has, where that is not one of each warp that had chunks.
    """

    emit: ElementEmitter
    results: Results
    product: Product
    parts: Sequence[Part]
    rows: Side
    columns: Side
    along_columns: bool
    warps: int
    batch: Index
    top: Expr
    left: Expr
    thread: Expr = "threadIdx.x"  # its number among those of the tile
    terms: int | None = None

    def write(self, mark: int) -> None:
        """Write the results; where each has a thread, what they read is read at line `mark`."""
        emit, threads = self.emit, self.warps * WARP
        across, along = (
            (self.rows, self.columns) if self.along_columns else (self.columns, self.rows)
        )
        count = across.tile * along.tile
        if count <= threads and self.results.read_more():
            self._store_at_once(across, along, mark)
            return
        width = WIDTH if along.extent % WIDTH == along.tile % WIDTH == 0 else 1
        if count <= threads:
            width = 1
        slots = count // width
        with emit.block(f"for (int slot = {self.thread}; slot < {slots}; slot += {threads})"):
            at, tests = self._slot(across, along, width)
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                begin = len(emit.lines)
                self._results(across, along, at, width)
                if width > 1:  # what lies side by side is then read by one access
                    ahead, left = read_ahead(emit.lines[begin:])
                    emit.lines[begin:] = ahead + left

    def _store_at_once(self, across: Side, along: Side, mark: int) -> None:
        emit, count = self.emit, across.tile * along.tile
        begin = len(emit.lines)
        emit.line(f"const int slot = {self.thread};")
        at, tests = self._slot(across, along, 1)
        tests = [*([f"slot < {count}"] if count < self.warps * WARP else []), *tests]
        emit.line(f"const bool stores = {' && '.join(tests) or 'true'};")
        body = len(emit.lines)
        with emit.block("if (stores)"):
            self._results(across, along, at, 1)
        ahead, left = read_ahead(emit.lines[body + 1 : -1], "stores")
        left = [emit.lines[body], *left, emit.lines[-1]]
        emit.lines[mark:] = emit.lines[begin:body] + ahead + emit.lines[mark:begin] + left

    def _slot(self, across: Side, along: Side, width: int) -> tuple[list[Expr], list[Expr]]:
        """Write where a slot of so many results is; return its place, and what holds inside."""
        emit = self.emit
        starts = (self.top, self.left) if self.along_columns else (self.left, self.top)
        emit.line(f"const int across = slot / {along.tile // width};")
        emit.line(f"const int along = slot % {along.tile // width} * {width};")
        at = [emit.integer(f"{starts[0]} + across"), emit.integer(f"{starts[1]} + along")]
        return at, tests_inside(at, (across, along))

    def _results(self, across: Side, along: Side, at: Sequence[Expr], width: int) -> None:
        """Write the results at so many places side by side, all stores behind all else."""
        emit = self.emit
        stores: list[tuple[int, str]] = []
        beyond = emit.split(at[0], across.sizes)
        run = [emit.integer(f"{at[1]} + {k}") for k in range(width)]
        for k, place in enumerate(neighbours(emit, run, along.sizes)):
            split = {across.number: beyond, along.number: place}
            index = self.product.result(self.batch, split[0], split[1])
            for part in self.parts:
                for number, form in enumerate(part.dots):
                    beside = [f"{number * self.columns.tile} + ", ""] if number else ["", ""]
                    first, second = beside[:: -1 if self.along_columns else 1]
                    self._whole(part, form, f"[{first}across][{second}along + {k}]", index)
            stores += self.results.at(index)
        for _, store in sorted(stores, key=lambda held: held[0]):
            emit.line(store)

    def _whole(self, part: Part, form: Form, place: Expr, index: Index) -> None:
        """Write how a result of a product is added up of what the warps have of it."""
        emit, instr = self.emit, form.instr
        total = emit.variable(self.product.wide, "{}")
        emit.line("#pragma unroll")
        head = f"for (int w = 0; w < {self.terms or part.sharing(self.warps)}; ++w)"
        emit.line(f"{head} {total} = hlo::add({total}, {part.sums}[w]{place});")
        value = narrowed(emit.operands_of(instr), total, self.product.wide, written(instr).dtype)
        emit.assume(instr.name, index, (value,))
