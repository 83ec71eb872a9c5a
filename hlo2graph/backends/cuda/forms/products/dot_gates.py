"""The dot form for parts of products, such as the gates of an LSTM, that have few tiles each.

Parts that are cut out of one operand side by side, and multiplied by the same one, share the
columns of a tensor core's product: of eight columns each of four parts has two. So a block has all
parts of a few places of the result, its warps one stretch of code, and there are many blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import COLUMNS, ROWS, Part
from hlo2graph.backends.cuda.forms.products.dot_tensor import (
    MOST_ROWS,
    TensorWriter,
    count,
    suits_tensor_cores,
    tiled,
    tiles_wanted,
)
from hlo2graph.backends.cuda.forms.products.product import DotProduct, Side
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape, SliceDim
from hlo2graph.ops.device import Expr, Index


@dataclass(frozen=True, slots=True)
class _Cut:
    """An operand as a slice of `source`: from `start` on along dimension `dim`."""

    side: int
    source: str
    dim: int
    start: int


@dataclass(frozen=True, slots=True)
class _Gates:
    """Dots of one operand and of neighbouring parts of another: of `source`, `step` apart."""

    dots: tuple[Form, ...]
    first: _Cut
    step: int


def suits_gates(form: Form) -> bool:
    """It is parts of products on tensor cores, which have too few tiles each."""
    if not form.others or not suits_tensor_cores(form) or not _gates_of(form):
        return False
    product = DotProduct(form)
    return count(tiled(form, product)) < tiles_wanted(form, product)


def dot_gates_kernel(form: Form) -> KernelSource:
    """Return the kernel of all parts, and of the elementwise work on both sides of them."""
    gates, product = _gates_of(form), DotProduct(form)

    def fills(rows: Side) -> bool:
        return count((rows, columns)) >= tiles_wanted(form, product)

    side = gates[0].first.side
    columns = product.sides[side].cut(COLUMNS // len(gates[0].dots))
    rows = product.sides[1 - side].cut(ROWS)
    while rows.tile < min(MOST_ROWS, rows.extent) and fills(rows.cut(2 * rows.tile)):
        rows = rows.cut(2 * rows.tile)
    tf32 = form.shape(0).dtype.name == "f32"
    return _Writer(gates, rows, columns).kernel(tf32=tf32)


def _gates_of(form: Form) -> list[_Gates]:
    """Return the dots as gates, all of as many parts; nothing where they are not."""
    found: dict[tuple[str, str, int, int], list[tuple[int, Form, _Cut]]] = {}
    for each in form.each:
        cuts = [taken for side in (1, 0) if (taken := _cut_of(each, side)) is not None]
        if not cuts:
            return []
        other = each.instr.operands[1 - cuts[0].side]
        key = other, cuts[0].source, cuts[0].side, cuts[0].dim
        found.setdefault(key, []).append((cuts[0].start, each, cuts[0]))
    made = []
    for parts in found.values():
        parts.sort(key=lambda part: part[0])
        steps = {b[0] - a[0] for a, b in pairwise(parts)}
        if len(steps) != 1:
            return []
        made.append(_Gates(tuple(each for _, each, _ in parts), parts[0][2], steps.pop()))
    alike = {(len(gates.dots), gates.first.side) for gates in made}
    return made if len(alike) == 1 and len(made[0].dots) <= COLUMNS else []


def _cut_of(form: Form, side: int) -> _Cut | None:
    """Return what an operand is a part of, if it is a slice along one of its free dimensions."""
    instr = form.computation[form.instr.operands[side]]
    if instr.opcode != "slice":
        return None
    held, whole = instr.attrs["slice"], form.computation[instr.operands[0]].shape
    assert isinstance(held, tuple)
    assert isinstance(whole, Shape)
    ranges = [part for part in held if isinstance(part, SliceDim)]
    dims = [d for d, n in enumerate(whole.dims) if ranges[d] != SliceDim(0, n)]
    if len(dims) != 1 or ranges[dims[0]].stride != 1 or dims[0] not in DotProduct(form).free[side]:
        return None
    return _Cut(side, instr.operands[0], dims[0], ranges[dims[0]].start)


class _Gated(DotProduct):
    """The product of gates: what is read of their operand is `shift` further on."""

    def __init__(self, gates: _Gates) -> None:
        super().__init__(gates.dots[0])
        self.gates = gates
        self.shift: Expr = "0"

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Return the place in what the gates are cut out of."""
        place, tests = super().locate(emit, operand, batch, free, step)
        cut = self.gates.first
        if operand != cut.side:
            return place, tests
        moved = emit.integer(f"{place[cut.dim]} + {self.shift}")
        return (*place[: cut.dim], moved, *place[cut.dim + 1 :]), tests


class _Writer(TensorWriter):
    """A thread's column is that of a gate."""

    def __init__(self, gates: Sequence[_Gates], rows: Side, columns: Side) -> None:
        self.products = [_Gated(each) for each in gates]
        parts = []
        for product in self.products:
            operands = list(product.gates.dots[0].instr.operands)
            operands[columns.number] = product.gates.first.source
            part = Part.of(product.gates.dots[0], product, rows, columns)
            parts.append(replace(part, dots=product.gates.dots, operands=tuple(operands)))
        super().__init__(parts, rows, columns, COLUMNS)

    def place_thread(self) -> None:
        """Write where the thread's rows are, and its gate and column."""
        emit, columns = self.emit, self.columns
        rows = self.places_of_side(self.rows, self.top, self.each[0])
        count = len(self.products[0].gates.dots)
        gate = emit.integer(f"group / {columns.tile}")
        if count * columns.tile < COLUMNS:
            gate = emit.integer(f"{gate} < {count} ? {gate} : {count - 1}")
        for product in self.products:
            first, step = product.gates.first.start, product.gates.step
            product.shift = emit.integer(f"{first} + {gate} * {step}")
        at = emit.integer(f"{self.left} + group % {columns.tile}")
        whole = columns.extent % columns.tile == 0
        [(place, _)] = self.run(at, 1, columns.extent, whole=whole)
        self.places = [rows, [emit.split(place, columns.sizes)]]
