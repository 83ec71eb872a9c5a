"""What the rows and the columns form share: how the reduces of a region are folded, and results.

A thread takes elements in rounds of several runs, whose loads are under way at once; what it has
folded of them is its part of each of its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run
from hlo2graph.backends.cuda.forms.line_order import divide_together, loads_first
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.cuda.team import Part
from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Folding
from hlo2graph.ops.region_spaces import Size
from hlo2graph.ops.scalar_region import index_compared

Values = tuple[Expr, ...]  # an element of each leaf

MOST_LINES = 4000  # about, of one kernel: the compiler takes seconds for more
MANY_LINES = 1000  # of an element, from which on it counts that what is moved is written again
MOST_COUNTED = 1 << 14  # indices, of which more make no difference
FUNCTION_LINES = 10  # that a call of one of FUNCTIONS counts for
FUNCTIONS = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf"}
    | {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"}
    | {"divide", "remainder", "sine", "sinh", "tan", "tanh"}
)

_AT_HAND = frozenset({"get-tuple-element", "reduce", "tuple"})
LATER = "false"  # in the place of what tells the first of several rounds: never the first
MOVING = frozenset({"pad", "reverse", "slice"})  # what reads another place than its own


class FoldWriter:
    """Writes the reduces of a region: their values, folds and totals, and the results.

    Element k of a run goes into the k-th of the thread's `width` results, and so on round.
    `partial` has, of each reduce, of each of these results, the variables with the thread's part.
    """

    def __init__(self, emit: ElementEmitter, region: Folding, computation: Computation) -> None:
        """Take an emitter that walks `computation`."""
        self.emit = emit
        self.width = 1
        self.partial: dict[str, list[list[Expr]]] = {}
        self.region = region
        self.computation = computation
        self.leaves: tuple[Shape, ...] = tuple(computation.result.shape.leaves())

    def reduces(self, stage: Sequence[str]) -> tuple[Instruction, ...]:
        """Return the reduces of a stage."""
        return tuple(self.computation[name] for name in stage)

    def begin(self, reduces: Sequence[Instruction]) -> None:
        """Declare the parts, for rounds to come."""
        for reduce in reduces:
            types = dtypes_of(reduce)
            self.partial[reduce.name] = [
                [self.emit.variable(t, "{}") for t in types] for _ in range(self.width)
            ]

    def fold_round(
        self, reduces: Sequence[Instruction], runs: Sequence[Run], is_first: Expr | None
    ) -> None:
        """Fold a round's elements; `is_first` tells the first of several rounds, LATER says no."""
        start = len(self.emit.lines)
        values = [
            [[self.values(reduce, place) for place in run.places] for run in runs]
            for reduce in reduces
        ]
        loads_first(self.emit, start)
        for reduce, found in zip(reduces, values, strict=True):
            self._fold_runs(reduce, runs, found, is_first)

    def _fold_runs(
        self,
        reduce: Instruction,
        runs: Sequence[Run],
        values: Sequence[list[Values]],
        is_first: Expr | None,
    ) -> None:
        """Fold runs that all threads have at once, then the others."""
        emit = self.emit
        whole = [v for run, each in zip(runs, values, strict=True) if not run.inside for v in each]
        totals = self._totals(reduce, whole)
        if is_first is None:
            types = dtypes_of(reduce)
            self.partial[reduce.name] = [
                [emit.variable(t, v) for t, v in zip(types, total, strict=True)] for total in totals
            ]
        elif is_first == LATER:
            self._fold_each(reduce, totals)
        else:
            with emit.block(f"if ({is_first})"):
                for into, total in zip(self.partial[reduce.name], totals, strict=True):
                    self.assign(reduce, into, total)
            with emit.block("else"):
                self._fold_each(reduce, totals)
        for run, each in zip(runs, values, strict=True):
            if run.inside:
                totals = self._totals(reduce, each)
                with emit.block(f"if ({run.inside})"):
                    self._fold_each(reduce, totals)

    def _totals(self, reduce: Instruction, values: Sequence[Values]) -> list[Values]:
        """Return the folds of one or more elements of each of the thread's results."""
        return [self.folded(reduce, values[k :: self.width]) for k in range(self.width)]

    def _fold_each(self, reduce: Instruction, totals: Sequence[Values]) -> None:
        for into, total in zip(self.partial[reduce.name], totals, strict=True):
            self.fold(reduce, into, total)

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
        return Part(dtypes_of(reduce), held, partial(self.join, reduce))

    def join(self, reduce: Instruction, into: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Fold another thread's part into the variables `into`.

        Threads have elements from all over the row. Where one of what they fold is an index, the
        lower one goes to the left: which of several NaNs wins is decided by where each stands.
        """
        index = index_compared(self.emit.computations, str(reduce.attrs["to_apply"]))
        if index is None:
            self.fold(reduce, into, values)
            return
        emit, later = self.emit, self.emit.fresh("later")
        emit.line(f"const bool {later} = {values[index]} < {into[index]};")
        sides: list[list[Expr]] = [[], []]
        for dtype, mine, other in zip(dtypes_of(reduce), into, values, strict=True):
            sides[0].append(emit.bind(dtype, f"{later} ? {other} : {mine}"))
            sides[1].append(emit.bind(dtype, f"{later} ? {mine} : {other}"))
        self.assign(reduce, into, self._called(reduce, *sides))

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

    def store_runs(self, runs: Sequence[Run], leaves: Sequence[int], inside: Expr | None) -> None:
        """Write full-size results, if `inside` holds: all values of a run, then all its stores."""
        for run in runs if leaves else ():
            start = len(self.emit.lines)
            found: dict[int, list[Expr]] = {number: [] for number in leaves}
            for place in run.places:
                if any(self.region.waits[k] for k in leaves):
                    self.bridge(Size.FULL, place)
                for number in leaves:
                    found[number].append(self.result(number, place))
            loads_first(self.emit, start)
            divide_together(self.emit, start)
            test = " && ".join(test for test in (inside, run.inside) if test)
            for number, values in found.items():
                self.store(number, run.places, values, test)

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
        values = [emit.unrounded(dtype, value) for value in values]
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


def dtypes_of(reduce: Instruction) -> list[DType]:
    """Return the element types of a reduce's results."""
    return [leaf.dtype for leaf in reduce.shape.leaves()]


def large_sizes(
    region: Folding, signature: Signature, computation: Computation
) -> tuple[list[int], list[int]]:
    """Return the bytes of an element of each about full-size array that is read, and is written.

    An array comes as often as it is read for one element: for each tap of a window.
    """
    count, times = region.space.shape.elements, _times_read(computation)
    return (
        [
            shape.dtype.size
            for shape, parameter in zip(signature.parameters, computation.parameters, strict=True)
            if 2 * times[parameter.name] * shape.elements >= count
            for _ in range(times[parameter.name])
        ],
        [s.dtype.size for s in signature.results if s.elements == count],
    )


def _times_read(computation: Computation) -> dict[str, int]:
    """Return at how many indices each value is needed for one element of what is made."""
    here = dict.fromkeys((i.name for i in computation.instructions), 1)
    moved = dict.fromkeys(here, 0)
    for instr in reversed(computation.instructions):
        times = max(here[instr.name], moved[instr.name])
        for operand in dict.fromkeys(instr.operands):
            if instr.opcode in MOVING:
                moved[operand] += times
            else:
                here[operand] = max(here[operand], times)
    return {name: max(here[name], moved[name]) for name in here}


def lines_each(computation: Computation) -> int:
    """Return about how many lines a kernel has for each element that a thread computes."""
    long = sum(instr.opcode in FUNCTIONS for instr in computation.instructions)
    repeated = _repeated(computation)
    once = len(computation.instructions) + (FUNCTION_LINES - 1) * long
    return repeated if repeated > MANY_LINES else once


def fewer_for_lines(vector: int, lines: int) -> int:
    """Return how many elements side by side a thread may have, with many lines for each."""
    while vector > 1 and lines > MANY_LINES and vector * lines > MOST_LINES:
        vector //= 2
    return vector


def _repeated(computation: Computation) -> int:
    """Return how many instructions are written for an element, each once for each index."""
    indices: dict[str, set[int]] = {i.name: set() for i in computation.instructions}
    indices[computation.root].add(0)
    numbers = 1
    for instr in reversed(computation.instructions):
        held = indices[instr.name]
        for operand in dict.fromkeys(instr.operands):
            if OPS[instr.opcode].elementwise or instr.opcode in _AT_HAND:
                indices[operand] |= held
            elif numbers < MOST_COUNTED:
                indices[operand].update(range(numbers, numbers + len(held)))
                numbers += len(held)
    return sum(map(len, indices.values()))


def power_below(number: int) -> int:
    """Return the largest power of two that is at most `number`, which is at least 1."""
    return 1 << (number.bit_length() - 1)
