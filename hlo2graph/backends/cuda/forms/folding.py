"""What the rows and the columns form share: where the values of a region are looked at, and folds.

A `Place` is one element of all full-size values at once, or of all row-size ones. Whatever a
region's instruction has computed at a place stays known there, so that what waits for a reduce
finds what was computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.cuda.team import Part
from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.region import Folding
from hlo2graph.ops.region_spaces import Size, Space

Values = tuple[Expr, ...]  # an element of each leaf

MOST_LINES = 4000  # about, of one kernel: the compiler takes seconds for more
FUNCTION_LINES = 10  # that a call of one of FUNCTIONS counts for
FUNCTIONS = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf"}
    | {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"}
    | {"divide", "remainder", "sine", "sinh", "tan", "tanh"}
)


class Place:
    """One element, by the index of its dimensions larger than 1, and, if known, its number.

    The number counts elements as the region's input lies in memory.
    """

    def __init__(
        self, emit: ElementEmitter, space: Space, live: Sequence[Expr], number: Expr | None
    ) -> None:
        """Take the index in logical order."""
        self._emit = emit
        self._space = space
        self._live = tuple(live)
        self._number = number
        self._known: dict[tuple[int, ...], Index] = {}

    def index(self, dims: tuple[int, ...]) -> Index:
        """Return the index of the element in a value of `dims`."""
        if dims not in self._known:
            self._known[dims] = self._found(dims)
        return self._known[dims]

    def _found(self, dims: tuple[int, ...]) -> Index:
        if self._space.is_plain(dims):
            live = iter(self._live)
            index = tuple("0" if n == 1 else next(live) for n in dims)
        else:
            assert self._number is not None
            index = self._emit.split(self._number, dims)
        if self._number is not None and any(n > 1 for n in dims):
            shape = self._space.shape
            if dims == shape.dims:
                self._emit.places.know(index, shape, self._number)
            elif shape.is_row_major:
                self._emit.places.know(index, Shape(shape.dtype, dims), self._number)
        return index


class FoldWriter:
    """Writes the reduces of a region: their values, folds and totals, and the results."""

    def __init__(self, emit: ElementEmitter, region: Folding, computation: Computation) -> None:
        """Take an emitter that walks `computation`."""
        self.emit = emit
        self.region = region
        self.computation = computation
        self.leaves: tuple[Shape, ...] = tuple(computation.result.shape.leaves())

    def reduces(self, stage: Sequence[str]) -> tuple[Instruction, ...]:
        """Return the reduces of a stage."""
        return tuple(self.computation[name] for name in stage)

    def values(self, reduce: Instruction, place: Place) -> Values:
        """Return what `reduce` folds at `place`."""
        count = len(reduce.operands) // 2
        return tuple(self.at(name, 0, place) for name in reduce.operands[:count])

    def at(self, name: str, number: int, place: Place) -> Expr:
        """Return an element of a leaf of an instruction."""
        leaf = tuple(self.computation[name].shape.leaves())[number]
        return self.emit.leaf(name, number, place.index(leaf.dims))

    def folded(self, reduce: Instruction, values: Sequence[Values]) -> Values:
        """Return the fold of one or more elements, neighbours first."""
        found = list(values)
        while len(found) > 1:
            odd = [found.pop()] if len(found) % 2 else []
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [self._called(reduce, a, b) for a, b in pairs] + odd
        return found[0]

    def fold(self, reduce: Instruction, into: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Fold `values` into the variables `into`."""
        self.assign(reduce, into, self._called(reduce, into, values))

    def assign(self, reduce: Instruction, into: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Give the variables `into` their new values."""
        if len(into) > 1:  # all results before any of them changes
            types = dtypes_of(reduce)
            values = [self.emit.bind(t, v) for t, v in zip(types, values, strict=True)]
        for name, value in zip(into, values, strict=True):
            self.emit.line(f"{name} = {value};")

    def part(self, reduce: Instruction, held: Sequence[Expr]) -> Part:
        """Return the variables `held` as a part that threads fold together."""

        def fold(into: Sequence[Expr], values: Sequence[Expr]) -> None:
            self.fold(reduce, into, values)

        return Part(dtypes_of(reduce), held, fold)

    def settle(self, reduce: Instruction, partial: Sequence[Expr], row: Place) -> None:
        """Fold in the init values: what `partial` then holds is the element of `reduce`."""
        inits = [self.emit.leaf(o, 0, ()) for o in reduce.operands[len(reduce.operands) // 2 :]]
        totals = self._called(reduce, inits, partial)
        first = next(reduce.shape.leaves())
        self.emit.assume(reduce.name, row.index(first.dims), totals)

    def bridge(self, size: Size, place: Place) -> None:
        """Make known what lies behind reshapes to other dimensions."""
        for name in self.region.bridges:
            instr = self.computation[name]
            assert isinstance(instr.shape, Shape)
            if self.region.space.size_of(instr.shape.dims) is size:
                value = self.at(instr.operands[0], 0, place)
                self.emit.assume(name, place.index(instr.shape.dims), (value,))

    def results(self, size: Size) -> list[int]:
        """Return the numbers of the result leaves of a size."""
        space = self.region.space
        return [k for k, leaf in enumerate(self.leaves) if space.size_of(leaf.dims) is size]

    def result(self, number: int, place: Place) -> Expr:
        """Return an element of a result leaf."""
        return self.at(self.computation.root, number, place)

    def store(
        self, number: int, places: Sequence[Place], values: Sequence[Expr], test: str = ""
    ) -> None:
        """Write elements of a result leaf, if `test` holds: what lies in memory first, then all."""
        emit, leaf = self.emit, self.leaves[number]
        raw = self._raw(leaf.dtype, values)
        with emit.block(f"if ({test})") if test else nullcontext():
            for place, name in zip(places, raw, strict=True):
                emit.line(f"r{number}[{emit.offset(leaf, place.index(leaf.dims))}] = {name};")

    def _raw(self, dtype: DType, values: Sequence[Expr]) -> list[Expr]:
        """Return values as they lie in memory, of 16 bits two by two."""
        emit, kind = self.emit, storage_type(dtype)
        moved = any(emit.is_narrow_still(dtype, value) for value in values)
        if dtype.name not in ("bf16", "f16") or len(values) % 2 or moved:
            found = [emit.fresh("w") for _ in values]
            for name, value in zip(found, values, strict=True):
                emit.line(f"const auto {name} = {emit.stored(dtype, value)};")
            return found
        found = []
        for low, high in zip(values[::2], values[1::2], strict=True):
            word = emit.fresh("w")
            emit.line(f"const hlo::u32 {word} = hlo::pair<{kind}>({low}, {high});")
            for k in (0, 1):
                found.append(emit.fresh("w"))
                emit.line(f"const auto {found[-1]} = hlo::half<{kind}>({word}, {k});")
        return found

    def _called(self, reduce: Instruction, a: Sequence[Expr], b: Sequence[Expr]) -> Values:
        return self.emit.call(str(reduce.attrs["to_apply"]), (*a, *b))


def indices(
    emit: ElementEmitter, region: Folding, dims: Sequence[int], run: Expr, count: int
) -> list[dict[int, Expr]]:
    """Return the index along `dims` of each element of run number `run` of `count` elements.

    Elements are counted as the input lies.
    """
    shape = region.space.shape
    order = [d for d in reversed(shape.minor_to_major) if d in dims and shape.dims[d] > 1]
    sizes = [shape.dims[d] for d in order]
    if not order or sizes[-1] % count:
        first = emit.integer(f"{run} * {count}") if count > 1 else run
        numbers = [emit.integer(f"{first} + {k}") if k else first for k in range(count)]
        return [dict(zip(order, emit.split(n, sizes), strict=True)) for n in numbers]
    # In whole runs, so that the compiler sees that a run begins at a multiple of `count`.
    index = dict(zip(order, emit.split(run, [*sizes[:-1], sizes[-1] // count]), strict=True))
    minor = index[order[-1]]
    first = emit.integer(f"{minor} * {count}") if count > 1 and minor != "0" else minor
    return [
        index | {order[-1]: emit.integer(f"{first} + {k}" if k else first)} for k in range(count)
    ]


def dtypes_of(reduce: Instruction) -> list[DType]:
    """Return the element types of a reduce's results."""
    return [leaf.dtype for leaf in reduce.shape.leaves()]


def large_sizes(region: Folding, signature: Signature) -> tuple[list[int], list[int]]:
    """Return the bytes of an element of each about full-size array that is read, and is written."""
    count = region.space.shape.elements
    return (
        [s.dtype.size for s in signature.parameters if 2 * s.elements >= count],
        [s.dtype.size for s in signature.results if s.elements == count],
    )


def lines_each(computation: Computation) -> int:
    """Return about how many lines a kernel has for each element that a thread computes."""
    long = sum(instr.opcode in FUNCTIONS for instr in computation.instructions)
    return len(computation.instructions) + (FUNCTION_LINES - 1) * long


def power_below(number: int) -> int:
    """Return the largest power of two that is at most `number`, which is at least 1."""
    return 1 << (number.bit_length() - 1)
