"""What an element of a stencil's patch is made of: registers, shuffles, shared memory, arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.device_shaping import padded
from hlo2graph.ops.expect import integers, written
from hlo2graph.ops.stencil import Stencil
from hlo2graph.ops.sweeps import Part, exchanged

_MOVED = re.compile(r"(\w+) ([+-]) (\d+)")


@dataclass(frozen=True, slots=True)
class Patch:
    """Where a thread's patch lies among the others, in the dimensions before that of rows."""

    outer: Index
    group: Expr  # of those below each other
    lane: Expr  # of those side by side
    line: Expr  # of all rows of patches


class PartEmitter(ElementEmitter):
    """Reads the states where they are, a known way off the place of the element.

    In the thread's own patch; in that of another thread of the warp, which hands it over; in
    shared memory, of whose rows each thread reads those of its own columns. What is chosen by where
    an element lies is chosen among values, all of which are computed: those of no place that exists
    are never chosen, and are read all the same.
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
        self._exchanged = [exchanged(stencil, part, number) for number in range(states)]
        self._patch = Patch((), "", "", "")
        self._row = self._column = 0
        self._off: dict[Expr, int] = {}  # how far off the element's index integers are
        self._made: dict[str, Expr] = {}  # what the patch's elements read, by what it is
        self._integers: dict[str, Expr] = {}  # of the patch

    def begin(self, patch: Patch) -> None:
        """Compute the elements of a patch from now on."""
        self._patch = patch

    def at(self, index: Index, row: int, column: int) -> None:
        """Compute the element at `index`, which lies there in the patch, from now on."""
        self._row, self._column, self._off = row, column, dict.fromkeys(index, 0)

    def integer(self, expression: str) -> Expr:
        """Declare a constant local; remember how far off the element's index it is."""
        name = super().integer(expression)
        if (moved := _MOVED.fullmatch(expression)) and moved[1] in self._off:
            self._off[name] = self._off[moved[1]] + int(moved[2] + moved[3])
        return name

    def read(self, dtype: DType, place: str) -> Expr:
        """Declare a constant local for an element of an array."""
        return place if place in self._made.values() else super().read(dtype, place)

    def place_of(self, number: int, shape: Shape, index: Index) -> Expr:
        """Return a state's element, and where any other lies in its array."""
        if number >= self._states:
            sizes = zip(index, shape.dims, strict=True)
            near = [self.integer(f"hlo::clamped_index({i}, {n - 1})") for i, n in sizes]
            return super().place_of(number, shape, tuple(near))
        off = tuple(self._shorter(dim, self._off.get(at, 0)) for dim, at in enumerate(index))
        row = self._row + (off[-2] if len(off) > 1 else 0)
        lanes, column = divmod(self._column + off[-1], self._part.columns)
        found = self._of_lane(number, shape.dtype, (*off[:-2], row), column)
        return self._once(f"{found} {lanes}", lambda: self._handed(shape.dtype, found, lanes))

    def stored_at(self, number: int, row: int) -> Expr | None:
        """Return where the first element of a row of the patch is for others, if it is."""
        rows = self._exchanged[number]
        return self._place(number, (0,) * len(self._patch.outer), row) if row in rows else None

    def _once(self, what: str, make: Callable[[], Expr]) -> Expr:
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]

    def _of_lane(self, number: int, dtype: DType, at: tuple[int, ...], column: int) -> Expr:
        """Return an element of the thread's own columns, of a row so far off the patch's first."""
        *outer, row = at
        if not any(outer) and row in range(self._part.rows):
            return kept(number, row, column)
        place = f"{self._place(number, outer, row)} + {column}"
        array = f"from{number}[{place}]"
        return self._once(array, lambda: super(PartEmitter, self).read(dtype, array))

    def _handed(self, dtype: DType, value: Expr, lanes: int) -> Expr:
        """Return what the thread so many lanes further on has."""
        if not lanes:
            return value
        last = self._part.dims[-1]
        if not (self._stencil.around[-1] and last.whole):
            way, far = ("up", -lanes) if lanes < 0 else ("down", lanes)
            return self.bind(dtype, f"hlo::shuffle_{way}({value}, {far})")
        used, lane = last.held // self._part.columns, self._patch.lane
        source = f"({lane} + {lanes % used}) % {used}"
        if self._part.lanes < WARP:
            source = f"threadIdx.x % {WARP} - {lane} + {source}"
        return self.bind(dtype, f"hlo::shuffle_from({value}, {self._integer(source)})")

    def _place(self, number: int, outer: Sequence[int], row: int) -> Expr:
        """Return where the thread's columns of a row begin in shared memory."""
        part, rows = self._part, self._exchanged[number]
        group, within = divmod(row, part.rows)
        width, stride = part.room[-1], part.groups
        moved = [self._turned(len(outer), self._patch.group, group, part.groups, 1)]
        for dim in reversed(range(len(outer))):
            held = part.dims[dim].held
            moved.append(self._turned(dim, self._patch.outer[dim], outer[dim], held, stride))
            stride *= held
        known = sum(m for m in moved if isinstance(m, int)) * len(rows) + rows.index(within)
        lines = [self._patch.line, *(m for m in moved if isinstance(m, str))]
        begin = f"({' + '.join(lines)}) * {len(rows) * width} + {self._patch.lane} * {part.columns}"
        return f"{self._integer(begin)} + {known * width}"

    def _turned(self, dim: int, at: Expr, by: int, size: int, stride: int) -> int | Expr:
        """Return how many rows of patches on that is, around the ends where they meet."""
        along = self._part.dims[dim] if len(self._part.dims) > 1 else None
        if not by or along is None or not (along.whole and self._stencil.around[dim]):
            return by * stride
        far = (by % size) * stride
        return self._integer(f"{at} + {by % size} < {size} ? {far} : {far - size * stride}")

    def _integer(self, expression: str) -> Expr:
        """Declare a constant local of the patch, but once."""
        if expression not in self._integers:
            self._integers[expression] = super().integer(expression)
        return self._integers[expression]

    def _shorter(self, dim: int, off: int) -> int:
        size = self._stencil.dims[dim]
        if size == 1:  # any other place is none that exists
            return 0
        if not self._stencil.around[dim]:
            return off
        return off - size * ((off > size // 2) - (off < -(size // 2)))


def kept(number: int, row: int, column: int) -> Expr:
    """Return what holds an element of a state of a thread's patch."""
    return f"kept{number}_{row}_{column}"


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
