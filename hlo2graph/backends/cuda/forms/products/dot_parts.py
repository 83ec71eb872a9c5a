"""What a kernel of products is made of: its parts, and what a thread holds of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.product import Product, Side
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr

ROWS, COLUMNS = 16, 8  # of a tensor core's product, of which tiles are made
CHUNK = 32  # steps that a warp takes at once
EACH = CHUNK // 4  # of them in each thread
MOST_WARPS = 16  # of a block


def power(count: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << (count - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Elements:
    """A thread's elements of an operand, by number of row or column and of step.

    `dtype` is that of the operand where they are still as they lie there, else that of the sums.
    """

    values: dict[tuple[int, int], Expr]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Part:
    """One product of a kernel: its operands by name, and its sides with their tiles.

    dots: the forms of the instructions whose results it holds, one beside the other in a tile.
    first: the chunks of the products before it; sums: the name of what its warps add up to.
    """

    dots: tuple[Form, ...]
    product: Product
    operands: tuple[str, ...]
    rows: Side
    columns: Side
    first: int = 0
    sums: str = "sums"

    @staticmethod
    def of(form: Form, product: Product, rows: Side, columns: Side) -> Part:
        """Return one instruction's product, with tiles like those of `rows` and `columns`."""
        rows, columns = (product.sides[s.number].cut(s.tile) for s in (rows, columns))
        return Part((form,), product, form.instr.operands, rows, columns)

    @property
    def form(self) -> Form:
        """The form of its first instruction."""
        return self.dots[0]

    def sharing(self, warps: int) -> int:
        """Return how many of a block's warps have chunks of it."""
        return min(self.chunks, warps)

    @property
    def steps(self) -> int:
        """Products to be summed for one result."""
        return prod(self.product.steps)

    @property
    def chunks(self) -> int:
        """Chunks of the sum."""
        return -(-self.steps // CHUNK)


@dataclass(frozen=True, slots=True)
class Held:
    """The names of arrays that hold a thread's elements of a side, one a chunk."""

    side: Side | None = None
    names: tuple[str, ...] = ()
