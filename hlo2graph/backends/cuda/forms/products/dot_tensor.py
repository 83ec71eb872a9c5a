"""The dot form on tensor cores, which round f32 to TF32 and drop bits of their sums.

Of bytes they drop none; floats of 8 bits are f16 to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import COLUMNS, EACH, ROWS, Held, Part, power
from hlo2graph.backends.cuda.forms.products.dot_tile import TileWriter
from hlo2graph.backends.cuda.forms.products.product import (
    DotProduct,
    Product,
    Side,
    by_size,
    neighbours,
)
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import DTYPES, DType
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import written
from hlo2graph.ops.own_dot import (
    FEWEST_FLOPS,
    SHORT,
    TENSOR_BYTES,
    is_short,
    takes_tensor_cores,
    tensor_type,
)

MOST_ROWS, MOST_COLUMNS = 2 * ROWS, 4 * COLUMNS  # of a tile
FEWEST_ROWS = 16  # of the larger side, below which most of a tile would be empty
BUSY = 0.75  # part of a device that at least has work, where the results are enough


def suits_tensor_cores(form: Form) -> bool:
    """Tensor cores may compute it, and it fills their products; so with all that it goes with."""
    dots = form.each
    return all(
        _is_of_bytes(each) or fills_products(each, DotProduct(each), together=len(dots))
        for each in dots
    )


def _is_of_bytes(form: Form) -> bool:
    """Tell whether it is a product of integers or floats of 8 bits, and fills tensor cores'."""
    product = DotProduct(form)
    kinds = TENSOR_BYTES if form.signature.precise else (*TENSOR_BYTES, SHORT)
    return (
        tensor_type(form.instr, form.shape(0), form.shape(1)) in kinds
        and by_size(product)[0].extent >= FEWEST_ROWS
        and prod(product.steps) >= EACH
        and written(form.instr).elements > 0
    )


def fills_products(
    form: Form, product: Product, fewest_rows: int = FEWEST_ROWS, together: int = 1
) -> bool:
    """Tell whether tensor cores may compute a product of this size, one of so many alike."""
    larger, _ = by_size(product)
    flops = 2 * written(form.instr).elements * prod(product.steps) * together
    rounds = form.shape(0).dtype.name == "f32"
    return (
        not form.signature.precise
        and takes_tensor_cores(form.instr, form.shape(0), form.shape(1))
        and larger.extent >= fewest_rows
        and prod(product.steps) >= EACH
        and flops >= (FEWEST_FLOPS if rounds else 1)  # small ones gain nothing by rounding
    )


def dot_tensor_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot and of the elementwise work on both sides of it."""
    return tensor_kernel([(each, DotProduct(each)) for each in form.each])


def tensor_kernel(products: Sequence[tuple[Form, Product]]) -> KernelSource:
    """Return the kernel of products."""
    form, product = products[0]
    tf32 = form.shape(0).dtype.name == "f32"
    rows, columns = tiled(form, product)
    parts = [Part.of(each, product, rows, columns) for each, product in products]
    return TensorWriter(parts, rows, columns).kernel(tf32=tf32)


def tiled(form: Form, product: Product) -> tuple[Side, Side]:
    """Return the sides that give a tile its rows and its columns, the larger one its rows.

    Where that leaves multiprocessors without a tile and the other way would not, the other way.
    """
    rows, columns = by_size(product)
    wanted = tiles_wanted(form, product)
    found = cut(rows, columns, wanted)
    turned = cut(columns, rows, wanted)
    few = count(found) < wanted
    return turned if few and count(found) < count(turned) else found


def tiles_wanted(form: Form, product: Product) -> float:
    """Return of how many tiles most multiprocessors have one."""
    return form.signature.device.multiprocessors * BUSY / prod(product.batches)


def count(sides: tuple[Side, Side]) -> int:
    """Return how many tiles there are."""
    return sides[0].tiles * sides[1].tiles


def cut(rows: Side, columns: Side, wanted: float) -> tuple[Side, Side]:
    """Return both sides with tiles, which get smaller while there are fewer than `wanted`.

    The warps of a block share out the sum, but no two blocks do.
    """
    rows = rows.cut(min(MOST_ROWS, ROWS * power(-(-rows.extent // ROWS))))
    columns = columns.cut(min(MOST_COLUMNS, COLUMNS * power(-(-columns.extent // COLUMNS))))
    while count((rows, columns)) < wanted:
        if rows.tile > ROWS:
            rows = rows.cut(rows.tile // 2)
        elif columns.tile > COLUMNS:
            columns = columns.cut(columns.tile // 2)
        else:
            break
    return rows, columns


class TensorWriter(TileWriter):
    """A thread has, of each product, a pair of rows and a column, a quarter of the steps."""

    @property
    def dtype(self) -> DType:
        """The type of the numbers that are multiplied."""
        own = self.form.shape(0).dtype
        return DTYPES["f16"] if is_short(own) else own

    @property
    def registers(self) -> int:
        """Registers of a thread for its steps of a row, or of a column."""
        return EACH * self.dtype.size // 4

    @property
    def each(self) -> tuple[int, int]:
        """Rows, and columns, of a thread."""
        return self.rows.tile // 8, self.width // 8

    def declare(self) -> None:
        """Write the sums of all products of the tile."""
        products = f"[{self.rows.tile // ROWS}][{self.width // COLUMNS}]"
        self.emit.line(f"{self.type} total{products}[4] = {{}};")

    def place_thread(self) -> None:
        """Write where the thread's rows and columns are."""
        sides = ((self.rows, self.top), (self.columns, self.left))
        self.places = [
            self.places_of_side(side, start, count)
            for (side, start), count in zip(sides, self.each, strict=True)
        ]

    def places_of_side(self, side: Side, start: Expr, count: int) -> list[Index]:
        """Write where so many neighbouring rows or columns of a tile are, from `start` on."""
        first = self.emit.integer(f"{start} + group * {count}")
        run = self.run(first, count, side.extent, whole=side.extent % side.tile == 0)
        if side.extent % count:
            return [self.emit.split(at, side.sizes) for at, _ in run]
        return neighbours(self.emit, [at for at, _ in run], side.sizes)

    def multiply(self, part: Part, steps: Sequence[tuple[Index, Expr | None]], held: Held) -> None:
        """Write the elements into registers as tensor cores take them, and the products."""
        a, b = (
            held.names[0] if side == held.side else self._loaded(part, side, name, steps)
            for side, name in ((part.rows, "a"), (part.columns, "b"))
        )
        counts = (
            ("s", self.registers // 2),
            ("i", self.rows.tile // ROWS),
            ("j", self.width // COLUMNS),
        )
        self._loops(counts)
        registers = f"{a}[2 * i][2 * s], {a}[2 * i + 1][2 * s], {a}[2 * i][2 * s + 1]"
        registers += f", {a}[2 * i + 1][2 * s + 1], {b}[j][2 * s], {b}[j][2 * s + 1]"
        self.emit.line(f"  hlo::mma<hlo::{self.dtype}>(total[i][j], {registers});")

    def _loaded(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> str:
        self.hold(side, self.dtype, name)
        self.fill(part, side, name, steps)
        return name

    def hold(self, side: Side, dtype: DType, name: str) -> int:
        """Write an array of registers as tensor cores take them."""
        del dtype
        count = len(self._places_of(side))
        self.emit.line(f"hlo::u32 {name}[{count}][{self.registers}];")
        return count * self.registers

    def fill(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> None:
        """Write the elements into such registers."""
        emit, places = self.emit, self._places_of(side)
        found = self.elements(part, side, places, steps)
        per = EACH // self.registers
        how = {1: "tf32_bits", 2: f"pair_bits<hlo::{self.dtype}>", 4: "joined_bytes"}[per]
        if found.dtype is not self.wide:
            how = "joined_bits" if found.dtype is self.dtype else "halves"
        for k in range(len(places)):
            for register in range(self.registers):
                values = ", ".join(found.values[k, per * register + n] for n in range(per))
                emit.line(f"{name}[{k}][{register}] = hlo::{how}({values});")

    def _places_of(self, side: Side) -> list[Index]:
        return self.places[side.number != self.rows.number]

    def share(self, place: Callable[[Expr, Expr], Expr]) -> None:
        """Write each product's sums to their rows and columns."""
        row = f"group * {self.each[0]} + 2 * i + n / 2"
        column = f"(2 * member + n % 2) * {self.each[1]} + j"
        self.each_sum(f"{place(row, column)} = total[i][j][n];")

    def each_sum(self, statement: str) -> None:
        """Write a statement for each of a thread's sums, `total[i][j][n]`."""
        counts = (("i", self.rows.tile // ROWS), ("j", self.width // COLUMNS), ("n", 4))
        self._loops(counts)
        self.emit.line(f"  {statement}")

    def _loops(self, counts: Sequence[tuple[str, int]]) -> None:
        for name, count in counts:
            self.emit.line("#pragma unroll")
            self.emit.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
