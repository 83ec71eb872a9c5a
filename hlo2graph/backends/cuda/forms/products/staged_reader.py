"""How the threads of a team bring a chunk of a product's operand to shared memory.

Where four words lie together in memory as they will in shared memory, they are copied there while
the threads do something else. Else a thread reads its elements through whatever is fused in front
of the product, holds them, and later puts them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.convolution_product import ConvolutionProduct
from hlo2graph.backends.cuda.forms.products.product import minor_dim
from hlo2graph.backends.cuda.forms.products.staged_operand import FOUR, Operand
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index

Step: TypeAlias = tuple[Index, list[Expr]]  # of the sum, and tests that it is one


@dataclass(slots=True)
class Reader:
    """Writes what one operand takes.

    at_once: steps that all teams take in a round. copies: whether words are copied. is_plain:
    whether they may be, as far as was seen. is_sum: whether all that was copied lies at a sum of
    what the row and what the step says.
    """

    form: Form
    emit: ElementEmitter
    product: ConvolutionProduct
    operand: Operand
    at_once: int
    copies: bool
    is_plain: bool = True
    is_sum: bool = True
    _rows: list[tuple[Index, ...]] = field(default_factory=list)
    _flags: dict[tuple[int, int], Expr] = field(default_factory=dict)
    _beside: dict[Expr, tuple[Expr, int]] = field(default_factory=dict)
    _fixed: set[Expr] = field(default_factory=set)  # numbers that are the same in all chunks
    _moving: set[Expr] = field(default_factory=set)  # those of steps
    _numbers: dict[Index, tuple[Expr, tuple[int, ...]]] = field(default_factory=dict)  # and sizes

    def declare(self) -> None:
        """Write the variables that hold what was read."""
        if self.copies:
            return
        name, count = self.operand.name, f"[{self.operand.runs}][{self.operand.elements}]"
        self.emit.line(f"{storage_type(self.form.shape(0).dtype)} next_{name}{count};")
        self.emit.line(f"bool inside_{name}{count};")

    def place(self, batch: Index, start: Expr) -> None:
        """Write where the rows are that a thread reads, the same in all chunks."""
        emit, operand, name = self.emit, self.operand, self.operand.name
        across = f"{'row' if operand.side.is_deep else 'step'}_{name}"
        emit.line(f"const int word_{name} = slot % {operand.abreast} * {FOUR};")
        emit.line(f"const int {across} = slot / {operand.abreast};")
        if operand.side.is_deep:
            self._rows = [
                self._along(emit.integer(f"{start} + {across} + {k * operand.turn}"), 1)
                for k in range(operand.runs)
            ]
        else:
            first = emit.integer(f"{start} + word_{name} * {operand.per}")
            self._rows = [self._along(first, operand.elements)] * operand.runs
        self._rows = [tuple(self._whole(index) for index in row) for row in self._rows]
        self._fixed = {"0", *batch, *(at for row in self._rows for index in row for at in index)}
        if self.copies:
            self._begin(batch)

    def _whole(self, index: Index) -> Index:
        """Return the place of a row in the product, given that in the side that is read."""
        return index

    def _begin(self, batch: Index) -> None:
        """Write where each row's first step lies, from where all others are found."""
        emit, operand = self.emit, self.operand
        zero = ("0",) * len(self.product.steps)
        emit.binds_reads = False
        rows = self._rows if operand.side.is_deep else self._rows[:1]
        for k, row in enumerate(rows):
            index, _ = self.product.locate(emit, operand.side.number, batch, row[0], zero)
            value = emit.leaf(self.form.instr.operands[operand.side.number], 0, index)
            parameter, shape, found = emit.origins[value]
            dtype = storage_type(shape.dtype)
            place = f"p{parameter} + ({emit.offset(shape, found)})"
            emit.line(f"const {dtype}* const from_{operand.name}{k} = {place};")
        emit.binds_reads = True

    def _along(self, first: Expr, count: int) -> tuple[Index, ...]:
        """Return the places of rows from `first` on; any place for those past the last."""
        emit, side = self.emit, self.operand.side
        past = side.extent % side.tile
        if past and side.extent % count == 0:
            first = emit.integer(f"{first} < {side.extent} ? {first} : {side.extent - count}")
        if count == 1 or side.sizes[-1] % count == 0:
            return self._neighbours(first, count, side.sizes)
        found = []
        for k in range(count):
            at = emit.integer(f"{first} + {k}")
            if past and side.extent % count:
                at = emit.integer(f"{at} < {side.extent} ? {at} : {side.extent - 1}")
            found.append(emit.split(at, side.sizes))
        return tuple(found)

    def _neighbours(self, first: Expr, count: int, sizes: Sequence[int]) -> tuple[Index, ...]:
        found = neighbours(self.emit, first, count, sizes)
        self._beside |= {index[-1]: (found[0][-1], k) for k, index in enumerate(found)}
        return found

    def _steps(self, chunk: Expr, word: Expr, count: int) -> list[Step]:
        """Return steps of a chunk from a word on, with tests where they may be past the last."""
        found = self._steps_of(chunk, word, count)
        self._moving.update(at for step, _ in found for at in step)
        return found

    def _steps_of(self, chunk: Expr, word: Expr, count: int) -> list[Step]:
        emit, sizes = self.emit, self.product.steps
        total, steps = prod(sizes), self.operand.steps
        past = total % self.at_once
        tests: list[Expr] = []
        if sizes[-1] % steps == 0:
            if past:
                tests = [f"{chunk} < {total}"]
                chunk = emit.integer(f"{tests[0]} ? {chunk} : 0")
            runs = emit.integer(f"{chunk} / {steps}")
            *outer, at = emit.split(runs, (*sizes[:-1], sizes[-1] // steps))
            first = emit.integer(f"{at} * {steps} + {word}")
            along = [first, *(emit.integer(f"{first} + {k}") for k in range(1, count))]
            self._beside |= {last: (first, k) for k, last in enumerate(along)}
            self._number((*outer, first), emit.integer(f"{chunk} + {word}"))
            return [((*outer, last), tests) for last in along]
        first = emit.integer(f"{chunk} + {word}")
        if past and total % count == 0:
            tests = [f"{first} < {total}"]
            first = emit.integer(f"{tests[0]} ? {first} : {total - count}")
        if count == 1 or sizes[-1] % count == 0:
            near = self._neighbours(first, count, sizes)
            self._number(near[0], first)
            return [(step, tests) for step in near]
        found = []
        for k in range(count):
            at = emit.integer(f"{first} + {k}")
            if past and total % count:
                tests = [f"{at} < {total}"]
                at = emit.integer(f"{tests[0]} ? {at} : {total - 1}")
            found.append((emit.split(at, sizes), tests))
        return found

    def _number(self, step: Index, number: Expr) -> None:
        """Keep the number of a step."""
        sizes = self.product.steps
        live = [d for d, n in enumerate(sizes) if n > 1]
        self._numbers[tuple(step[d] for d in live)] = number, tuple(sizes[d] for d in live)

    def fetch(self, batch: Index, chunk: Expr) -> None:
        """Write how a thread reads its elements of a chunk, in the order in which they lie."""
        operand, per = self.operand, self.operand.per
        steps: list[Step] = []
        for run in range(operand.runs):
            if operand.side.is_deep:
                if not steps:
                    steps = self._steps(chunk, f"word_{operand.name} * {per}", operand.elements)
                order = [(0, n, n) for n in range(operand.elements)]
            else:
                steps = self._steps(chunk, f"step_{operand.name} + {run * operand.turn}", 1)
                order = [(n, 0, n) for n in range(operand.elements)]
            self._read(batch, run, [(k, steps[n], at) for k, n, at in order])

    def _read(self, batch: Index, run: int, order: Sequence[tuple[int, Step, int]]) -> None:
        number = self.operand.side.number
        values: dict[int, Expr] = {}
        inside: dict[int, Expr] = {}
        for k, (step, tests), at in order:
            place = self._rows[run][k]
            index, more = self.product.locate(self.emit, number, batch, place, step)
            values[at] = self.emit.leaf(self.form.instr.operands[number], 0, index)
            inside[at] = " && ".join([*tests, *more])
        self.is_plain = self.is_plain and self._lie_together(values, inside)
        if self.copies:
            self._copy(run, values[0], inside[0])
        else:
            self._hold(run, values, inside)

    def _lie_together(self, values: dict[int, Expr], inside: dict[int, Expr]) -> bool:
        """Tell whether values, in the order of their numbers, are 16 aligned bytes of an array."""
        origins = self.emit.origins
        if len(set(inside.values())) > 1 or any(v not in origins for v in values.values()):
            return False
        parameter, shape, first = origins[values[0]]
        minor = minor_dim(shape)
        if f"p{parameter}" in self.form.signature.misaligned or minor is None:
            return False
        begins, size = self._in_group(first[minor], shape.dims[minor])
        if size % len(values):
            return False
        for at, value in values.items():
            other, _, index = origins[value]
            beside = self._beside.get(self._in_group(index[minor], size)[0])
            same = all(
                a == b for d, (a, b) in enumerate(zip(first, index, strict=True)) if d != minor
            )
            if other != parameter or not same or beside != (begins, at):
                return False
        return True

    def _in_group(self, place: Expr, size: int) -> tuple[Expr, int]:
        """Return a place without the number of its group, and how many such there are."""
        return self.product.of_group.get(place, (place, size))

    def _copy(self, run: int, value: Expr, inside: Expr) -> None:
        parameter, shape, index = self.emit.origins[value]
        moved = self._moved(shape, index)
        self.is_sum = self.is_sum and moved is not None
        if moved is None:
            source = f"&p{parameter}[{self.emit.offset(shape, index)}]"
        else:
            first = run if self.operand.side.is_deep else 0
            source = f"from_{self.operand.name}{first} + ({moved})"
        to = f"&to_{self.operand.name}[{self.operand.place_of(*self._target(run))}]"
        self.emit.line(f"hlo::copy_four({to}, {source}, {inside or 'true'});")

    def _moved(self, shape: Shape, index: Index) -> Expr | None:
        """Return how far from its row's first step a place is, where that is the sum of parts."""
        parts: list[Expr] = []
        for place in index:
            at, _ = self._in_group(place, 0)
            if place in self.product.step_parts:
                parts.append(self.product.step_parts[place])
            elif at in self._moving or at in self._fixed:
                parts.append(at if at in self._moving else "0")
            else:
                return None
        return self._offset(shape, parts)

    def _offset(self, shape: Shape, parts: Sequence[Expr]) -> Expr:
        """Return how far a place is; by the step's number, where steps lie in their order."""
        order = [d for d in reversed(shape.minor_to_major) if shape.dims[d] > 1]
        live = [n for n, d in enumerate(order) if parts[d] != "0"]
        spanned = order[live[0] : live[-1] + 1] if live else []
        number, sizes = self._numbers.get(tuple(parts[d] for d in spanned), ("", ()))
        if not number or sizes[1:] != tuple(shape.dims[d] for d in spanned[1:]):
            return self.emit.offset(shape, tuple(parts))
        stride = prod(shape.dims[d] for d in order[live[-1] + 1 :])
        return f"{number} * {stride}{self.emit.places.wide}"

    def _hold(self, run: int, values: dict[int, Expr], inside: dict[int, Expr]) -> None:
        """Hold values until they are put to shared memory, each with the test that it counts."""
        emit, name, dtype = self.emit, self.operand.name, self.form.shape(0).dtype
        held = {
            at: emit.stored(dtype, value)
            if emit.is_narrow_still(dtype, value)
            else stored(dtype, value)
            for at, value in values.items()
        }
        flags: dict[Expr, Expr] = {}
        for at, test in inside.items():
            if test:
                flag = flags.setdefault(test, f"inside_{name}[{run}][{at}]")
                self._flags[run, at] = flag
        for test, flag in flags.items():
            emit.line(f"{flag} = {test};")
        for at, value in held.items():
            emit.line(f"next_{name}[{run}][{at}] = {value};")

    def put(self) -> None:
        """Write how what was read goes to shared memory."""
        operand, per = self.operand, self.operand.per
        how = "tf32_bits" if per == 1 else "joined_bits"
        for run in range(operand.runs):
            words = []
            for first in range(0, operand.elements, per):
                values = ", ".join(self._checked(run, first + n) for n in range(per))
                words.append(f"hlo::{how}({values})")
            to = f"*(hlo::Four*)&{operand.name}[{operand.place_of(*self._target(run))}]"
            self.emit.line(f"{to} = hlo::Four{{{{{', '.join(words)}}}}};")

    def _target(self, run: int) -> tuple[Expr, Expr]:
        """Return row, or step, and word of one of the thread's accesses."""
        name, across = self.operand.name, "row" if self.operand.side.is_deep else "step"
        return f"{across}_{name} + {run * self.operand.turn}", f"word_{name}"

    def _checked(self, run: int, at: int) -> Expr:
        value, flag = f"next_{self.operand.name}[{run}][{at}]", self._flags.get((run, at))
        zero = f"{storage_type(self.form.shape(0).dtype)}{{}}"
        return f"{flag} ? {value} : {zero}" if flag else value


def neighbours(
    emit: ElementEmitter, first: Expr, count: int, sizes: Sequence[int]
) -> tuple[Index, ...]:
    """Return the index of element number `first` and of those behind it in its row."""
    *outer, last = emit.split(first, sizes)
    along = [last, *(emit.integer(f"{last} + {k}") for k in range(1, count))]
    return tuple((*outer, at) for at in along)
