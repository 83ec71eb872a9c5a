"""What dots and convolutions are to the forms that compute tiles: sums of products of two sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.hlo import DType, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import DotParts


@dataclass(frozen=True, slots=True)
class Side:
    """The rows or columns of the result that come from one operand, and those of a tile.

    `is_deep` says that what lies side by side in the operand are steps of the sum.
    """

    number: int
    sizes: tuple[int, ...]
    is_deep: bool
    tile: int = 0

    @property
    def extent(self) -> int:
        """Rows or columns in all."""
        return prod(self.sizes)

    @property
    def tiles(self) -> int:
        """Tiles along this side."""
        return -(-self.extent // self.tile)

    def cut(self, tile: int) -> Side:
        """Return the side with tiles of so many rows or columns."""
        return replace(self, tile=tile)


def tests_inside(at: Sequence[Expr], sides: Sequence[Side]) -> list[Expr]:
    """Return what holds of a place on some sides that lies within them, where tiles stand over."""
    return [
        f"{place} < {side.extent}"
        for place, side in zip(at, sides, strict=True)
        if side.extent % side.tile
    ]


def neighbours(emit: ElementEmitter, numbers: Sequence[Expr], sizes: Sequence[int]) -> list[Index]:
    """Return the places of numbers one behind the other, the first a multiple of their count.

    Where they lie along the last dimension, the compiler sees that they do.
    """
    count = len(numbers)
    if count == 1 or len(sizes) < 2 or sizes[-1] % count:
        return [emit.split(number, sizes) for number in numbers]
    run = emit.integer(f"{numbers[0]} / {count}")
    *outer, at = emit.split(run, (*sizes[:-1], sizes[-1] // count))
    first = emit.integer(f"{at} * {count}")
    return [(*outer, emit.integer(f"{first} + {k}")) for k in range(count)]


class Product(Protocol):
    """A sum of products: result[b, m, n] = sum over s of lhs[b, m, s] * rhs[b, s, n]."""

    wide: DType  # that the sums are kept in
    batches: Sequence[int]
    steps: Sequence[int]
    sides: tuple[Side, Side]

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Return where an element of an operand is; it counts as 0 where a test fails."""
        ...

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a result."""
        ...

    def is_of_lhs(self, dim: int) -> bool:
        """Tell whether dimension `dim` of the result comes from lhs."""
        ...


def by_size(product: Product) -> tuple[Side, Side]:
    """Return the side of more rows or columns, then the other one."""
    lhs, rhs = product.sides
    return (lhs, rhs) if lhs.extent >= rhs.extent else (rhs, lhs)


def minor_dim(shape: Shape) -> int | None:
    """Return the dimension along which elements lie side by side."""
    return next((d for d in shape.minor_to_major if shape.dims[d] > 1), None)


class DotProduct:
    """A dot."""

    def __init__(self, form: Form) -> None:
        self._parts = DotParts(form.emitter().operands_of(form.instr), form.instr)
        parts = self._parts
        self.free = parts.free  # dimensions of each operand
        self.wide = parts.wide
        self.steps: Sequence[int] = parts.steps
        self.batches: Sequence[int] = [parts.shapes[0].dims[d] for d in parts.batch[0]]
        lhs, rhs = (
            Side(
                k,
                tuple(parts.shapes[k].dims[d] for d in parts.free[k]),
                minor_dim(parts.shapes[k]) in parts.contract[k],
            )
            for k in (0, 1)
        )
        self.sides = (lhs, rhs)

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Put batch, free and contracting dimensions in the operand's order."""
        del emit
        parts = self._parts
        place = dict(zip(parts.batch[operand], batch, strict=True))
        place |= dict(zip(parts.free[operand], free, strict=True))
        place |= dict(zip(parts.contract[operand], step, strict=True))
        return tuple(place[d] for d in range(len(place))), []

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index: batch, then what lhs has, then rhs."""
        return (*batch, *lhs, *rhs)

    def is_of_lhs(self, dim: int) -> bool:
        """Tell whether the dimension stands before those of rhs."""
        return dim < len(self.batches) + len(self.sides[0].sizes)
