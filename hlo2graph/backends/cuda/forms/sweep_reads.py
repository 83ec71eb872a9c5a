"""What an element of a stencil's part is computed of: registers, shared memory, and arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Shape
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.device_shaping import padded
from hlo2graph.ops.expect import integers, written
from hlo2graph.ops.stencil import Stencil
from hlo2graph.ops.sweeps import Part

_MOVED = re.compile(r"(\w+) ([+-]) (\d+)")


class PartEmitter(ElementEmitter):
    """Reads the states from shared memory, a known way off the place of the element there.

    What is chosen by where an element lies is chosen among values, all of which are computed:
    those of no place that exists are never chosen, and are read all the same.
    """

    def __init__(
        self,
        computations: Mapping[str, Computation],
        index_type: str,
        stencil: Stencil,
        part: Part,
        states: int,
    ) -> None:
        super().__init__(computations, index_type, {"concatenate": _concatenate, "pad": _pad})
        self._stencil, self._part, self._states = stencil, part, states
        self._held = Shape(DTYPES["f32"], part.room)  # as elements lie there, of whatever type
        self._own: Index = ()
        self._row = 0
        self._off: dict[Expr, int] = {}  # how far off the element's index integers are
        self._places: dict[tuple[int, ...], Expr] = {}  # by how far off they are
        self._states_read: dict[str, Expr] = {}

    def at(self, index: Index, own: Index, row: int) -> None:
        """Compute the element at `index`, which lies at `own` in the part, from now on.

        It is in that row of a patch, whose elements the thread has in registers.
        """
        self._own, self._row, self._off = own, row, dict.fromkeys(index, 0)
        self._places.clear()
        self._states_read.clear()

    def integer(self, expression: str) -> Expr:
        """Declare a constant local; remember how far off the element's index it is."""
        name = super().integer(expression)
        if (moved := _MOVED.fullmatch(expression)) and moved[1] in self._off:
            self._off[name] = self._off[moved[1]] + int(moved[2] + moved[3])
        return name

    def read(self, dtype: DType, place: str) -> Expr:
        """Declare a constant local for an element; for one of a state but once."""
        if place.startswith("kept"):
            return place
        if not place.startswith("from"):
            return super().read(dtype, place)
        if place not in self._states_read:
            self._states_read[place] = super().read(dtype, place)
        return self._states_read[place]

    def place_of(self, number: int, shape: Shape, index: Index) -> Expr:
        """Return where an element of a state lies in shared memory, and any other in its array."""
        if number >= self._states:
            sizes = zip(index, shape.dims, strict=True)
            near = [self.integer(f"hlo::clamped_index({i}, {n - 1})") for i, n in sizes]
            return super().place_of(number, shape, tuple(near))
        off = tuple(self._shorter(dim, self._off.get(at, 0)) for dim, at in enumerate(index))
        if (row := self._kept_row(off)) is not None:
            return kept(number, row)
        if off not in self._places:
            self._places[off] = self.place([self._moved(dim, by) for dim, by in enumerate(off)])
        return f"from{number}[{self._places[off]}]"

    def _kept_row(self, off: tuple[int, ...]) -> int | None:
        """Return which row of the thread's patch an element is in, if it is in that."""
        down = self._part.down
        row = self._row + (off[down] if len(off) > 1 else 0)
        far = any(by for dim, by in enumerate(off) if dim != down or len(off) == 1)
        turns = off[down] and self._stencil.around[down] and self._part.is_whole(down)
        return None if far or turns or row not in range(self._part.rows) else row

    def place(self, own: Sequence[Expr]) -> Expr:
        """Return the number of an element of the part."""
        return self.offset(self._held, tuple(own))

    def _shorter(self, dim: int, off: int) -> int:
        size = self._stencil.dims[dim]
        if size == 1:  # any other place is none that exists
            return 0
        if not self._stencil.around[dim]:
            return off
        return off - size * ((off > size // 2) - (off < -(size // 2)))

    def _moved(self, dim: int, by: int) -> Expr:
        if not by:
            return self._own[dim]
        at = self.integer(f"{self._own[dim]} {'-' if by < 0 else '+'} {abs(by)}")
        if not self._stencil.around[dim] or not self._part.is_whole(dim):
            return at
        size = self._stencil.dims[dim]
        return self.integer(f"{at} < 0 ? {at} + {size} : {at} >= {size} ? {at} - {size} : {at}")


def kept(number: int, row: int) -> Expr:
    """Return what holds an element of a state of a thread's patch."""
    return f"kept{number}[n][{row}]"


def _concatenate(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose among the elements that each operand has, or would have, there."""
    [along], end = integers(instr, "dimensions"), 0
    found: list[tuple[Expr, int]] = []
    for number in range(len(instr.operands)):
        place = element.integer(f"{index[along]} - {end}") if end else index[along]
        end += element.shape(number).dims[along]
        value = element.operand(number, (*index[:along], place, *index[along + 1 :]))
        found.append((value, end))
    if len({value for value, _ in found}) == 1:
        return found[0][0]
    *tested, (last, _) = found
    chosen = "".join(f"{index[along]} < {end} ? {value} : " for value, end in tested)
    return element.bind(written(instr).dtype, chosen + last)


def _pad(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose between the padding value and the element that lies, or would lie, there."""
    tests, source = padded(element, instr, index)
    value = element.operand(0, source)
    if not tests:
        return value
    return element.bind(
        written(instr).dtype, f"{' && '.join(tests)} ? {value} : {element.operand(1)}"
    )
