"""The form of rounds of a stencil: a block does all of them on its part of the arrays.

The part, with as much around it as the rounds reach, lies in the threads' registers: each has a
patch of some rows and columns. What a round reads of the patch beside it comes by a shuffle; what
it reads of those above and below lies in shared memory, twice: each round reads one and writes the
other, so that there is one barrier a round. Warps whose rows the rounds left do not need rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type, stored
from hlo2graph.backends.cuda.forms.sweep_reads import PartEmitter, Patch, kept
from hlo2graph.backends.cuda.source import ACCESS_BYTES, KernelSource, Signature
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.stencil import Stencil, stencil_of
from hlo2graph.ops.sweeps import Part, Sweeps, exchanged, part_of, past_ends

_Place: TypeAlias = tuple[Expr, Expr]  # in the part, and in the arrays
_Line: TypeAlias = list[tuple[Index, Index]]  # the same of the elements of a patch's row


def sweeps_kernel(
    region: Sweeps, computations: Mapping[str, Computation], signature: Signature
) -> KernelSource | None:
    """Return the kernel of all rounds; None where they are no stencil, or no block has room."""
    called = computations[region.called]
    stencil = stencil_of(called, region.states)
    part = part_of(stencil, signature.results, region.rounds) if stencil else None
    if stencil is None or part is None:
        return None
    emit = PartEmitter(computations, signature.index_type, stencil, part, region.states)
    _Writer(emit, called, stencil, part, signature).write()
    resident = int(part.blocks <= signature.device.multiprocessors)
    text = signature.declare(emit.needed_lines(), part.patches, wide=True, resident=resident)
    return KernelSource(signature.name, text, (part.blocks, 1, 1), part.patches)


class _Writer:
    """Writes the kernel's lines."""

    def __init__(
        self,
        emit: PartEmitter,
        called: Computation,
        stencil: Stencil,
        part: Part,
        signature: Signature,
    ) -> None:
        self.emit, self.called, self.stencil, self.part = emit, called, stencil, part
        self.states = signature.results
        self.exchanged = [exchanged(stencil, part, n) for n in range(len(self.states))]
        # Columns of a patch are all inside the arrays, and a block's own, or none is.
        self.in_step = part.dims[-1].size % part.columns == 0

    def write(self) -> None:
        """Write all of them."""
        emit, part = self.emit, self.part
        for number, shape in enumerate(self.states):
            if rows := len(self.exchanged[number]):
                size = part.patches * part.columns * rows
                size += 2 * past_ends(self.stencil, part, rows)
                kind = f"__align__({ACCESS_BYTES}) {storage_type(shape.dtype)}"
                emit.line(f"__shared__ {kind} held{number}[2][{size}];")
            for row, column in self._own():
                emit.line(f"{compute_type(shape.dtype)} {kept(number, row, column)} = {{}};")
        self.begins = self._begins()
        self.patch = self._patch()
        self.lines = self._lines()
        emit.begin(self.patch)
        self._fill()
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int done = 1; done <= {part.rounds}; ++done)"):
            self._halves("from", "const ", "(done + 1) % 2")
            self._halves("to", "", "done % 2")
            with emit.block(f"if ({self._is_needed()})"):
                self._round()
            self._meet()
        self._finish()

    def _own(self) -> Iterator[tuple[int, int]]:
        """Yield the rows and columns of a patch."""
        return ((r, c) for r in range(self.part.rows) for c in range(self.part.columns))

    def _halves(self, name: str, const: str, half: str) -> None:
        """Name the half of what is exchanged that is read, or written."""
        for number, rows in enumerate(self.exchanged):
            if rows:
                kind = storage_type(self.states[number].dtype)
                margin = past_ends(self.stencil, self.part, len(rows))
                begin = f"held{number}[{half}] + {margin}"
                self.emit.line(f"{const}{kind}* const {name}{number} = {begin};")

    def _meet(self) -> None:
        if any(self.exchanged):
            self.emit.line("__syncthreads();")

    def _begins(self) -> list[Expr]:
        """Return where the block's part begins, margins and all, in each dimension."""
        emit, dims = self.emit, self.part.dims
        counts = [along.count for along in dims]
        numbers = emit.split(emit.integer(emit.block_index), counts)
        return [
            emit.integer(f"{number} * {along.side} - {along.before}")
            for number, along in zip(numbers, dims, strict=True)
        ]

    def _patch(self) -> Patch:
        """Return where the thread's patch lies among the others."""
        emit, part = self.emit, self.part
        # The same for all threads of a warp, as the compiler sees, where they lie side by side.
        warp = f"hlo::shuffle_from((int)threadIdx.x / {WARP}, 0)"
        line = warp if part.lanes == WARP else f"(int)threadIdx.x / {part.lanes}"
        line, lane = emit.integer(line), emit.integer(f"(int)threadIdx.x % {part.lanes}")
        outer = [along.held for along in part.dims[:-2]]
        *first, group = emit.split(line, (*outer, part.groups))
        return Patch(tuple(first), group, lane, line)

    def _lines(self) -> list[_Line]:
        """Return where each element of the patch lies in the part, and in the arrays, by row."""
        part, patch, rank = self.part, self.patch, len(self.part.dims)
        columns = self._places(patch.lane, part.columns, rank - 1, together=self.in_step)
        outer = [(at, self._index(dim, at)) for dim, at in enumerate(patch.outer)]
        rows: list[list[_Place]] = [[]]
        if rank > 1:
            rows = [[p] for p in self._places(patch.group, part.rows, rank - 2, together=False)]
        found = []
        for row in rows:
            places = [[*outer, *row, column] for column in columns]
            found.append([(tuple(p for p, _ in at), tuple(i for _, i in at)) for at in places])
        return found

    def _places(self, number: Expr, count: int, dim: int, *, together: bool) -> list[_Place]:
        """Return the places of the patch's rows or columns in the part, and in the arrays."""
        emit = self.emit
        first = emit.integer(f"{number} * {count}") if count > 1 else number
        found = [(first, self._index(dim, first))]
        for k in range(1, count):
            at = emit.integer(f"{first} + {k}")
            index = emit.integer(f"{found[0][1]} + {k}") if together else self._index(dim, at)
            found.append((at, index))
        return found

    def _index(self, dim: int, at: Expr) -> Expr:
        """Return the index in the arrays of what lies at `at` in the part."""
        emit, along = self.emit, self.part.dims[dim]
        if along.whole:
            return at
        place = emit.integer(f"{self.begins[dim]} + {at}")
        if not self.stencil.around[dim]:
            return place
        behind = f"{place} >= {along.size} ? {along.size} : 0"
        return emit.integer(f"{place} - ({place} < 0 ? {-along.size} : {behind})")

    def _exists(self, index: Index) -> str:
        """Return the test whether an index is one."""
        tests = []
        for dim, (at, along) in enumerate(zip(index, self.part.dims, strict=True)):
            if not along.whole and not self.stencil.around[dim]:
                tests.append(f"{at} >= 0 && {at} < {along.size}")
            elif along.whole and self.part.room[dim] > along.size:
                tests.append(f"{at} < {along.size}")
        return " && ".join(tests) or "true"

    def _is_own(self, own: Index) -> str:
        """Return the test whether an element is the block's own, and not of the margins."""
        tests = []
        for dim, (at, along) in enumerate(zip(own, self.part.dims, strict=True)):
            if not along.whole:
                tests.append(f"{at} >= {along.before} && {at} < {along.before + along.side}")
                if self.stencil.around[dim] and along.size % along.side:  # else others' too
                    tests.append(f"{self.begins[dim]} + {at} < {along.size}")
        return " && ".join(tests) or "true"

    def _tested(self) -> Iterator[tuple[int, range]]:
        """Yield the columns of each row of the patch that one test is for."""
        count = self.part.columns
        for row in range(self.part.rows):
            if self.in_step:
                yield row, range(count)
            else:
                yield from ((row, range(k, k + 1)) for k in range(count))

    def _fill(self) -> None:
        """Read the part: all that a thread reads of it is under way at once."""
        emit = self.emit
        self._halves("first", "", "0")
        for row, columns in self._tested():
            line = self.lines[row]
            with emit.block(f"if ({self._exists(line[columns[0]][1])})"):
                for number, shape in enumerate(self.states):
                    values = []
                    for column in columns:
                        values.append(emit.fresh("b"))
                        place = f"p{number}[{emit.offset(shape, line[column][1])}]"
                        kind = storage_type(shape.dtype)
                        emit.line(f"const {kind} {values[-1]} = {place};")
                    for column, value in zip(columns, values, strict=True):
                        emit.line(f"{kept(number, row, column)} = hlo::load({value});")
        self._give("first")
        self._meet()

    def _round(self) -> None:
        """Compute what this round, and those behind it, need of the part."""
        emit = self.emit
        made = [
            (row, column, self._values(self.lines[row][column][1], row, column))
            for row, column in self._own()
        ]
        for row, column, values in made:
            for number, value in enumerate(values):
                emit.line(f"{kept(number, row, column)} = hlo::load({value});")
        self._give("to")

    def _give(self, name: str) -> None:
        """Write the rows that other patches read."""
        for number, rows in enumerate(self.exchanged):
            for row in rows:
                place = self.emit.stored_at(number, row)
                for column in range(self.part.columns):
                    value = self._stored(number, row, column)
                    self.emit.line(f"{name}{number}[{place} + {column}] = {value};")

    def _stored(self, number: int, row: int, column: int) -> Expr:
        return stored(self.states[number].dtype, kept(number, row, column))

    def _is_needed(self) -> str:
        """Return the test whether a warp's patches are needed: all of its threads' lie alike."""
        part, tests = self.part, []
        first, _ = self.lines[0][0]
        for dim, (at, along) in enumerate(zip(first[:-1], part.dims[:-1], strict=True)):
            if part.lanes == WARP and not along.whole:
                more = f" - {part.rows - 1}" if dim == len(first) - 2 and part.rows > 1 else ""
                low = self.emit.integer(f"done * {self.stencil.low[dim]}")
                high = self.emit.integer(f"{along.held} - done * {self.stencil.high[dim]}")
                tests.append(f"{at} >= {low}{more} && {at} < {high}")
        return " && ".join(tests) or "true"

    def _finish(self) -> None:
        """Write the results."""
        emit = self.emit
        for row, columns in self._tested():
            own, index = self.lines[row][columns[0]]
            with emit.block(f"if ({self._is_own(own)} && {self._exists(index)})"):
                for number, shape in enumerate(self.states):
                    for column in columns:
                        place = emit.offset(shape, self.lines[row][column][1])
                        emit.line(f"r{number}[{place}] = {self._stored(number, row, column)};")

    def _values(self, index: Index, row: int, column: int) -> list[Expr]:
        emit = self.emit
        emit.at(index, row, column)
        emit.enter(self.called)
        found = [emit.leaf(self.called.root, n, index) for n in range(len(self.states))]
        emit.leave()
        values = []
        for shape, value in zip(self.states, found, strict=True):
            values.append(emit.fresh("w"))
            kind = storage_type(shape.dtype)
            emit.line(f"const {kind} {values[-1]} = {emit.stored(shape.dtype, value)};")
        return values
