"""What a block of attention keeps in shared memory, and how its two products name one row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import CHUNK, ROWS, power
from hlo2graph.backends.cuda.forms.products.product import DotProduct, Side
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.region_attention import FEW_ROWS
from hlo2graph.ops.region_masks import Places

GAP = 17  # words from the end of a row's scores to the next, so that accesses meet other banks
WEIGHTS_GAP = 8  # the same of weights that are narrower than a word


@dataclass(frozen=True, slots=True)
class Shared:
    """Scores and weights of `rows` rows and `keys` keys, `per` weights to a word.

    Where a word has one weight, it takes the place of its score.
    """

    rows: int
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
        return 4 * self.rows * (self.stride + (self.weight_stride if self.per > 1 else 0))

    def declare(self, emit: ElementEmitter) -> None:
        """Write pointers to both."""
        emit.line("float* const scores = (float*)hlo::dynamic_shared();")
        weights = f"scores + {self.rows * self.stride}" if self.per > 1 else "scores"
        emit.line(f"hlo::u32* const weights = (hlo::u32*)({weights});")


def tiled_rows(side: Side) -> Side:
    """Return the side of queries with tiles: as many as tensor cores take, or all of a few."""
    return side.cut(power(side.extent) if side.extent <= FEW_ROWS else ROWS)


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
