"""In which order a computation's operands lie in memory, in terms of its result's dimensions.

Where an operand's most minor dimension is not the result's, neighbouring threads would read far
apart: across the grain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import Index
from hlo2graph.ops.expect import integers

Order: TypeAlias = tuple[int, ...]  # dimensions, from the most major in memory to the most minor

MOVING = frozenset({"bitcast", "copy", "reshape", "transpose"})
FEWEST = 16  # elements of a side that threads share
_KEEPS_ORDER = frozenset({"concatenate", "dynamic-slice", "pad", "reverse", "slice"})


@dataclass(frozen=True, slots=True)
class Across:
    """What of a loop reads across the grain: `cuts`, instructions of the result's `dims`.

    `along` are the dimensions that are minor in the result, `across` those minor in the cuts, both
    in the order in which the result and the cuts have them; the result has `rest` around them. It
    is thin where one side has few elements.
    """

    cuts: tuple[str, ...]
    dims: tuple[int, ...]
    along: Order
    across: Order
    rest: Order
    is_thin: bool

    def sizes(self, run: Order) -> list[int]:
        """Return the sizes of a run of dimensions."""
        return [self.dims[d] for d in run]

    def index(self, x: Index, y: Index, batch: Index) -> Index:
        """Return the index of an element, given where it is along, across and around."""
        found = dict.fromkeys(range(len(self.dims)), "0")
        for run, index in ((self.along, x), (self.across, y), (self.rest, batch)):
            found.update(zip(run, index, strict=True))
        return tuple(found[d] for d in sorted(found))

    def is_moved(self, computation: Computation) -> bool:
        """Tell whether the loop's one result is its one cut, moved as it lies in memory."""
        name = computation.root
        while name not in self.cuts and computation[name].opcode in MOVING:
            name = computation[name].operands[0]
        return self.cuts == (name,)


def across_of(computation: Computation, results: Sequence[Shape]) -> Across | None:
    """Return what reads across the grain in a loop with these result leaves, if something does."""
    first = results[0]
    if any((s.dims, _order(s)) != (first.dims, _order(first)) for s in results):
        return None
    result, orders = _order(first), _Orders(computation)
    found: dict[Order, list[str]] = {}
    for instr in _sources(computation, first.dims):
        order = orders.of(instr.name)
        order = None if order is None else tuple(d for d in order if first.dims[d] > 1)
        if order and sorted(order) == sorted(result) and order[-1] != result[-1]:
            found.setdefault(order, []).append(instr.name)
    if not found:
        return None
    cut = max(found, key=lambda order: len(found[order]))
    along, across = _run(result, cut), _run(cut, result)
    rest = tuple(d for d in result if d not in along and d not in across)
    is_thin = min(prod(first.dims[d] for d in run) for run in (along, across)) < FEWEST
    return Across(tuple(found[cut]), first.dims, along, across, rest, is_thin)


def _order(shape: Shape) -> Order:
    return tuple(d for d in reversed(shape.minor_to_major) if shape.dims[d] > 1)


def _run(order: Order, other: Order) -> Order:
    """Return the longest end of `order` whose dimensions stand together in `other` too."""
    start = len(order) - 1
    while start and (at := other.index(order[start])) and other[at - 1] == order[start - 1]:
        start -= 1
    return order[start:]


def _sources(computation: Computation, dims: tuple[int, ...]) -> list[Instruction]:
    """Return the instructions of `dims` behind which the results' index goes elsewhere."""
    reached, found = {computation.root}, []
    for instr in reversed(computation.instructions):
        if instr.name not in reached:
            continue
        shape = instr.shape
        passed = instr.opcode == "tuple" and instr.name == computation.root
        if passed or (OPS[instr.opcode].elementwise and _has(shape, dims)):
            reached.update(instr.operands)
        elif _has(shape, dims):
            found.append(instr)
    return found


def _has(shape: object, dims: tuple[int, ...]) -> bool:
    return isinstance(shape, Shape) and shape.dims == dims


class _Orders:
    """The order in which what is read lies under each instruction; None where none is known."""

    def __init__(self, computation: Computation) -> None:
        self._found: dict[str, Order | None] = {}
        for instr in computation.instructions:
            operands = [computation[name] for name in instr.operands]
            self._found[instr.name] = self._of(instr, operands)

    def of(self, name: str) -> Order | None:
        """Return the dimensions of an instruction as the memory under it has them."""
        return self._found[name]

    def _of(self, instr: Instruction, operands: Sequence[Instruction]) -> Order | None:
        shape = instr.shape
        if not isinstance(shape, Shape):
            return None
        if instr.opcode == "parameter":
            return tuple(reversed(shape.minor_to_major))
        if OPS[instr.opcode].elementwise:
            orders = [self._found[o.name] for o in operands if _has(o.shape, shape.dims)]
            return next((order for order in orders if order), None)
        order = self._found[operands[0].name] if operands else None
        source = operands[0].shape if operands else None
        if order is None or not isinstance(source, Shape):
            return None
        return _behind(instr, shape, source, order)


def _behind(instr: Instruction, shape: Shape, source: Shape, order: Order) -> Order | None:
    """Return an instruction's order, given its first operand's."""
    if instr.opcode in _KEEPS_ORDER:
        return order
    if instr.opcode == "transpose":
        came_from = integers(instr, "dimensions", ())
        return tuple(came_from.index(d) for d in order)
    if instr.opcode == "broadcast":
        goes_to = integers(instr, "dimensions", ())
        added = tuple(d for d in range(shape.rank) if d not in goes_to)
        is_whole = source.elements == shape.elements
        return (*added, *(goes_to[d] for d in order)) if is_whole else None
    if instr.opcode in ("reshape", "bitcast") and order == tuple(range(source.rank)):
        is_plain = shape.minor_to_major == tuple(reversed(range(shape.rank)))
        return tuple(range(shape.rank)) if instr.opcode == "reshape" or is_plain else None
    return None
