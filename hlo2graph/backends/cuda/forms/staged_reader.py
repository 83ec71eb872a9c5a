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
from hlo2graph.backends.cuda.forms.product import Product, minor_dim
from hlo2graph.backends.cuda.forms.staged_operand import FOUR, Operand
from hlo2graph.ops.device import Expr, Index

_Step: TypeAlias = tuple[Index, list[Expr]]  # of the sum, and tests that it is one


@dataclass(slots=True)
class Reader:
    """Writes what one operand takes.

    at_once: steps that all teams take in a round. copies: whether words are copied. is_plain:
    whether they may be, as far as was seen.
    """

    form: Form
    emit: ElementEmitter
    product: Product
    operand: Operand
    at_once: int
    copies: bool
    is_plain: bool = True
    _rows: list[tuple[Index, ...]] = field(default_factory=list)
    _flags: dict[tuple[int, int], Expr] = field(default_factory=dict)
    _beside: dict[Expr, tuple[Expr, int]] = field(default_factory=dict)

    def declare(self) -> None:
        """Write the variables that hold what was read."""
        if self.copies:
            return
        name, count = self.operand.name, f"[{self.operand.runs}][{self.operand.elements}]"
        self.emit.line(f"{storage_type(self.form.shape(0).dtype)} next_{name}{count};")
        self.emit.line(f"bool inside_{name}{count};")

    def place(self, start: Expr) -> None:
        """Write where the rows are that a thread reads, the same in all chunks."""
        emit, operand, name = self.emit, self.operand, self.operand.name
        names = (f"word_{name}", f"row_{name}")
        first, then = names if operand.side.is_deep else names[::-1]
        emit.line(f"const int {first} = slot % {operand.abreast} * {FOUR};")
        emit.line(f"const int {then} = slot / {operand.abreast};")
        if operand.side.is_deep:
            self._rows = [
                self._along(emit.integer(f"{start} + {then} + {k * operand.turn}"), 1)
                for k in range(operand.runs)
            ]
        else:
            self._rows = [self._along(emit.integer(f"{start} + {first}"), FOUR)] * operand.runs

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

    def _steps(self, first: Expr, count: int) -> list[_Step]:
        """Return steps from `first` on, with a test of those that may be past the last."""
        emit, sizes = self.emit, self.product.steps
        total = prod(sizes)
        past = total % self.at_once
        tests: list[Expr] = []
        if past and total % count == 0:
            tests = [f"{first} < {total}"]
            first = emit.integer(f"{tests[0]} ? {first} : {total - count}")
        if count == 1 or sizes[-1] % count == 0:
            return [(step, tests) for step in self._neighbours(first, count, sizes)]
        found = []
        for k in range(count):
            at = emit.integer(f"{first} + {k}")
            if past and total % count:
                tests = [f"{at} < {total}"]
                at = emit.integer(f"{tests[0]} ? {at} : {total - 1}")
            found.append((emit.split(at, sizes), tests))
        return found

    def fetch(self, batch: Index, chunk: Expr) -> None:
        """Write how a thread reads its elements of a chunk, in the order in which they lie."""
        emit, operand, per = self.emit, self.operand, self.operand.per
        steps: list[_Step] = []
        for run in range(operand.runs):
            if operand.side.is_deep:
                if not steps:
                    first = emit.integer(f"{chunk} + word_{operand.name} * {per}")
                    steps = self._steps(first, operand.elements)
                order = [(0, n, n) for n in range(operand.elements)]
            else:
                word = f"word_{operand.name} + {run * operand.turn}"
                steps = self._steps(emit.integer(f"{chunk} + ({word}) * {per}"), per)
                order = [(k, n, k * per + n) for n in range(per) for k in range(FOUR)]
            self._read(batch, run, [(k, steps[n], at) for k, n, at in order])

    def _read(self, batch: Index, run: int, order: Sequence[tuple[int, _Step, int]]) -> None:
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
        if shape.dims[minor] % len(values):
            return False
        for at, value in values.items():
            other, _, index = origins[value]
            beside = self._beside.get(index[minor])
            same = all(
                a == b for d, (a, b) in enumerate(zip(first, index, strict=True)) if d != minor
            )
            if other != parameter or not same or beside != (first[minor], at):
                return False
        return True

    def _copy(self, run: int, value: Expr, inside: Expr) -> None:
        parameter, shape, index = self.emit.origins[value]
        source = f"&p{parameter}[{self.emit.offset(shape, index)}]"
        to = f"&to_{self.operand.name}[{self.operand.place_of(*self._target(run))}]"
        self.emit.line(f"hlo::copy_four({to}, {source}, {inside or 'true'});")

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
        """Return row and word of one of the thread's accesses."""
        name, more = self.operand.name, f" + {run * self.operand.turn}"
        if self.operand.side.is_deep:
            return f"row_{name}{more}", f"word_{name}"
        return f"row_{name}", f"word_{name}{more}"

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
