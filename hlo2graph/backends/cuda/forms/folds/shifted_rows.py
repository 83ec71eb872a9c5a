"""Rows that begin anywhere in a word: threads take them by words all the same.

Words of `vector` elements are counted from the array's begin. Those that lie inside a row as a
whole make its runs. What is left at its ends, less than two words, goes to as many threads, an
element each.

What has an element a column begins on a word, so that a run's columns lie across two of its words.
A row has no run whose second word would end behind the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run
from hlo2graph.backends.cuda.source import ACCESS_BYTES
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.region import Rows

WORD = 4  # bytes, below which an access takes as long as one of these


def may_shift(region: Rows) -> bool:
    """Tell whether rows lie one behind the other, so that words go on from row to row."""
    space = region.space
    reduced = [d for d in space.reduced if space.shape.dims[d] > 1]
    return space.shape.is_row_major and region.is_contiguous and len(reduced) == 1


def side_by_side(region: Rows, size: int) -> int:
    """Return how many elements of `size` bytes a thread takes by one access of whole words."""
    found = ACCESS_BYTES // min(size, ACCESS_BYTES)
    run = region.steps if region.is_contiguous else region.minor
    while run % found:
        found //= 2
    return found


def whole_runs(steps: int, vector: int) -> int:
    """Return how many runs each row of `steps` elements has; some have one more."""
    return steps // vector - (steps % vector > 0)


def asked_beside(
    region: Rows, computation: Computation, leaves: Sequence[int], is_held: bool
) -> list[Instruction]:
    """Return the parameters with an element a column that some results ask for behind all stages.

    Where all of a row is held, what a stage has asked for is known.
    """
    stages, root = {name for stage in region.stages for name in stage}, computation.result
    late = [root.operands[k] if root.opcode == "tuple" else root.name for k in leaves]
    found = _reached(computation, late, stages)
    if is_held:
        found -= _reached(computation, stages, set())
    return [p for p in of_columns(region, computation) if p.name in found]


def of_columns(region: Rows, computation: Computation) -> list[Instruction]:
    """Return the parameters with an element a column."""
    return [
        p
        for p in computation.parameters
        if isinstance(p.shape, Shape) and p.shape.dims == (region.steps,)
    ]


def _reached(computation: Computation, names: Iterable[str], without: Set[str]) -> set[str]:
    """Return what some values are made of, with no way through others, and these themselves."""
    waiting, found = [*names], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found and name not in without:
            found.add(name)
            waiting += computation[name].operands
    return found


@dataclass(slots=True)
class ShiftedRow:
    """A row, whose index is `kept`, of which `head` elements lie before the first whole word."""

    emit: ElementEmitter
    region: Rows
    vector: int
    kept: Mapping[int, Expr]
    begin: Expr  # number of the row's first element
    word: Expr  # number of its first whole word
    head: Expr
    runs: Expr  # how many whole words make its runs

    @classmethod
    def of(
        cls, emit: ElementEmitter, region: Rows, vector: int, kept: Mapping[int, Expr], row: Expr
    ) -> ShiftedRow:
        """Declare what places are reckoned from, of row number `row`."""
        steps, wide = region.steps, emit.places.wide
        begin = emit.integer(f"{row} * {steps}{wide}") if row != "0" else row
        word = emit.integer(f"({begin} + {vector - 1}) / {vector}")
        head = emit.integer(f"{word} * {vector} - {begin}")
        runs = emit.integer(f"{steps // vector} - ({head} > 0)")
        return cls(emit, region, vector, kept, begin, word, head, runs)

    def run(self, at: Expr, *, is_open: bool) -> Run:
        """Return run number `at`; where it `is_open`, there may be none."""
        emit = self.emit
        inside = f"{at} < {self.runs}" if is_open else None
        if inside:
            at = emit.integer(f"{inside} ? {at} : 0")
        column = emit.integer(f"{self.head} + {at} * {self.vector}")
        number = emit.integer(f"({self.word} + {at}) * {self.vector}")
        return Run(tuple(self._places(column, number, self.vector)), inside)

    def read_beside(self, parameters: Sequence[Instruction], run: Run) -> None:
        """Read parameters that have an element a column, by two accesses for 16 bytes."""
        emit, space = self.emit, self.region.space
        (along,) = (d for d in space.reduced if space.shape.dims[d] > 1)
        columns = [place.index(space.shape.dims)[along] for place in run.places]
        for parameter in parameters:
            assert isinstance(parameter.shape, Shape)
            dtype = parameter.shape.dtype
            each = min(len(columns), ACCESS_BYTES // dtype.size)
            if each == 1 or each * dtype.size < WORD:
                continue
            places = self._askew(f"p{parameter.payload}", columns, each)
            for column, place in zip(columns, places, strict=True):
                emit.assume(parameter.name, (column,), (emit.read(dtype, place),))

    def _askew(self, array: Expr, columns: Sequence[Expr], each: int) -> list[Expr]:
        """Read what an array has in columns side by side, `each` of them by two accesses."""
        emit, found = self.emit, list[Expr]()
        shift = emit.integer(f"{self.head} % {each}")
        for column in columns[::each]:
            name = emit.fresh("a")
            read = f"hlo::askew<{each}>({array}, {column} - {shift}, {shift})"
            emit.line(f"const auto {name} = {read};")
            found += [f"{name}.x[{k}]" for k in range(each)]
        return found

    @property
    def has_end(self) -> Expr:
        """Tell whether a thread has an element at the row's ends."""
        rest = self.emit.integer(f"{self.runs} * {self.vector}")
        return f"slice < {self.region.steps} - {rest}"

    def end(self) -> Run:
        """Return the element at the row's ends of a thread that has one."""
        return self._end(None)

    def ends(self) -> Run:
        """Return the element at the row's ends that a thread has, if it has one."""
        return self._end(self.has_end)

    def _end(self, inside: Expr | None) -> Run:
        emit = self.emit
        rest = emit.integer(f"{self.runs} * {self.vector}")
        column = f"slice < {self.head} ? slice : slice + {rest}"
        column = emit.integer(f"{inside} ? ({column}) : 0" if inside else column)
        number = emit.integer(f"{self.begin} + {column}")
        return Run(tuple(self._places(column, number, 1)), inside)

    def _places(self, column: Expr, number: Expr, count: int) -> Iterator[Place]:
        emit, space = self.emit, self.region.space
        (along,) = (d for d in space.reduced if space.shape.dims[d] > 1)
        for k in range(count):
            at, place = (emit.integer(f"{x} + {k}") if k else x for x in (column, number))
            found = {**self.kept, along: at}
            live = [found[d] for d, n in enumerate(space.shape.dims) if n != 1]
            yield Place(emit, space, live, place)
