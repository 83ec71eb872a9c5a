"""Sums that a scatter makes of floats, as sums of whole numbers, which no order of updates changes.

Each element's updates are counted in units that their largest makes: a power of two, such that no
sum of as many is more than 62 bits have. What a unit rounds off is far below what a sum of floats
would. So three steps stand for a scatter: the largest exponent of each element's updates; the sum
of what they are in units; and what that is as a float, added to what was there. Where an infinity
or a NaN is among the updates, both kinds of infinities are counted in place of units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.hlo import DTYPES, Attribute, Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integers
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.ops.spec import Computations
from hlo2graph.passes.large.arrays import Arrays

MANY = 1 << 15  # updates, more than which are not worth sorting
MOST = 1 << 30
MOST_EACH = 256  # updates of an element, on average, with more of which they meet too often
FEW = 4096  # elements, so few that blocks fold updates of their own first
_F32, _F64, _S64 = (DTYPES[name] for name in ("f32", "f64", "s64"))
_INFINITE, _NEGATIVE, _NAN = 255, 256, 257  # what stands for an exponent: which is the largest wins
_DOWN = 1 << 31  # a negative infinity in a count of infinities
_BELOW = 126  # a float of exponent field e is below 2 to the e - 126
_BIAS, _FRACTION = 1023, 52  # of doubles


def sums_exactly(instr: Instruction, shapes: list[Shape], computations: Computations) -> bool:
    """Tell whether a scatter of many updates can be taken apart so."""
    if len(instr.operands) != 3 or instr.attrs.get("indices_are_sorted") is True:
        return False
    operand, _, update = shapes
    elements = len(integers(instr, "inserted_window_dims", ())) == operand.rank
    return (
        operand.dtype is _F32
        and elements
        and MANY < update.elements < MOST
        and (operand.elements <= FEW or update.elements < MOST_EACH * operand.elements)
        and binary_reducer(computations, str(instr.attrs["to_apply"])) == "add"
    )


@dataclass(frozen=True, slots=True)
class ExactSums:
    """Writes the steps; `largest` and `added` name regions that fold s32 and s64."""

    to: Arrays
    largest: str
    added: str

    def write(self) -> tuple[str, str]:
        """Put them into the scatter's place; return the names of the two scatters."""
        to = self.to
        operand, _, update = to.like.operands
        bits = to.shape(update).elements.bit_length()
        units = 62 - bits + _BELOW  # less an exponent field: what to scale by
        is_down = to.compare(update, "LT", to.like_filled(update, 0))
        field = self._field(update)
        most = self._scattered(self.largest, self._code(update, field, is_down))
        near = self._near(most)
        wide = to.apply("multiply", to.apply("convert", update, to=_F64), self._power(near, units))
        counted = to.apply("convert", to.apply("round-nearest-even", wide), to=_S64)
        infinite = self._chosen(is_down, self._like(counted, _DOWN), self._like(counted, 1))
        is_special = to.compare(field, "EQ", self._like(field, _INFINITE))
        infinite = self._chosen(is_special, infinite, self._like(counted, 0))
        total = self._scattered(self.added, self._chosen(self._is_special(near), infinite, counted))
        to.end(
            self._chosen(
                self._is_special(most),
                self._infinite(operand, most, total),
                self._finite(operand, most, total, units),
            )
        )
        return most, total

    def _field(self, update: str) -> str:
        to = self.to
        bits = to.apply("bitcast-convert", update, to=S32)
        shifted = to.apply("shift-right-logical", bits, self._like(bits, 23))
        return to.apply("and", shifted, self._like(bits, 255))

    def _code(self, update: str, field: str, is_down: str) -> str:
        """Return the exponents of updates, those of NaNs and negative infinities made larger."""
        to = self.to
        is_infinite = to.compare(field, "EQ", self._like(field, _INFINITE))
        negative = to.apply("and", is_infinite, is_down)
        code = self._chosen(negative, self._like(field, _NEGATIVE), field)
        return self._chosen(to.compare(update, "NE", update), self._like(field, _NAN), code)

    def _scattered(self, region: str, updates: str) -> str:
        """Return what a region folds of the updates of each element, and zero."""
        to, like = self.to, self.to.like
        shape = replace(to.shape(like.operands[0]), dtype=to.shape(updates).dtype)
        names = ("metadata", "control-predecessors", "frontend_attributes", "sharding")
        attrs: dict[str, Attribute] = {n: a for n, a in like.attrs.items() if n not in names}
        operands = (to.filled(shape, 0), like.operands[1], updates)
        return to.add("scatter", shape, operands, **{**attrs, "to_apply": region})

    def _near(self, most: str) -> str:
        """Return, for each update, what its element has."""
        to, attrs = self.to, self.to.like.attrs
        operand, indices, update = to.like.operands
        return to.add(
            "gather",
            replace(to.shape(update), dtype=to.shape(most).dtype),
            (most, indices),
            offset_dims=(),
            collapsed_slice_dims=tuple(range(to.shape(operand).rank)),
            start_index_map=attrs["scatter_dims_to_operand_dims"],
            index_vector_dim=attrs["index_vector_dim"],
            slice_sizes=(1,) * to.shape(operand).rank,
        )

    def _power(self, field: str, units: int, *, back: bool = False) -> str:
        """Return 2 to the `units` less an exponent field, or one over it."""
        to = self.to
        base = self._like(field, _BIAS - units if back else _BIAS + units)
        whole = to.apply("add" if back else "subtract", base, field)
        whole = to.apply("convert", whole, to=_S64)
        bits = to.apply("shift-left", whole, self._like(whole, _FRACTION))
        return to.apply("bitcast-convert", bits, to=_F64)

    def _finite(self, operand: str, most: str, total: str, units: int) -> str:
        """Return the elements with what was counted; where that is nothing, as they were."""
        to = self.to
        sums = to.apply(
            "multiply", to.apply("convert", total, to=_F64), self._power(most, units, back=True)
        )
        added = to.apply("add", to.apply("convert", operand, to=_F64), sums)
        is_none = to.compare(total, "EQ", self._like(total, 0))
        return self._chosen(is_none, operand, to.apply("convert", added, to=_F32))

    def _infinite(self, operand: str, most: str, total: str) -> str:
        """Return the elements with infinities, of which the lower bits count the positive ones."""
        to, zero = self.to, self._like(total, 0)
        ups = to.compare(to.apply("and", total, self._like(total, _DOWN - 1)), "NE", zero)
        downs = to.compare(total, "GE", self._like(total, _DOWN))
        is_nan = to.compare(most, "EQ", self._like(most, _NAN))
        is_nan = to.apply("or", is_nan, to.apply("and", ups, downs))
        infinity = float("inf")
        found = self._chosen(ups, self._like(operand, infinity), self._like(operand, -infinity))
        found = self._chosen(is_nan, self._like(operand, float("nan")), found)
        return to.apply("add", operand, found)

    def _is_special(self, field: str) -> str:
        return self.to.compare(field, "GE", self._like(field, _INFINITE))

    def _chosen(self, test: str, one: str, other: str) -> str:
        return self.to.apply("select", test, one, other)

    def _like(self, name: str, value: float) -> str:
        return self.to.like_filled(name, value)
