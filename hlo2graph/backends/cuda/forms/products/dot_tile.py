"""What the dot forms that keep nothing in shared memory but sums have in common.

A block computes a tile of the result, its warps share out the sum. Each warp takes every so many
chunks of the contracting dimension and reads its part of both operands straight into registers,
through whatever is fused in front of the dot; nothing is staged. A thread's steps of a chunk lie
side by side, and so do its rows and columns, so that whichever way an operand lies its loads are
wide. The warps' sums then meet in shared memory, are added in their order, and go through what is
fused behind the dot. Several products of equally large results, to be looked at together, are
computed by one block each after the other, each chunk of any of them by the next warp.

What a thread needs first of an operand that nothing in the graph writes, a weight, it reads before
it waits for the kernels in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.line_order import loads_first
from hlo2graph.backends.cuda.forms.products.dot_parts import (
    CHUNK,
    EACH,
    MOST_WARPS,
    Elements,
    Held,
    Part,
)
from hlo2graph.backends.cuda.forms.products.dot_store import TileStore
from hlo2graph.backends.cuda.forms.products.product import Side
from hlo2graph.backends.cuda.forms.products.results import Results
from hlo2graph.backends.cuda.source import FOLLOW, KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import written

MOST_SHARED = 40 * 1024
FULL = 4  # warps of a block, of which it may give each to a tile
MANY = 16  # blocks of a multiprocessor: more of few warps take longer to start than to compute
REGISTERS = 1 << 16  # of a multiprocessor
WARPS_AT_ONCE = 32  # of a multiprocessor, with 64 registers a thread
MOST_RESIDENT = 512  # threads of a multiprocessor, each with 128 registers for loads under way
EARLY = 2  # chunks of a warp that are read before the kernels in front are done
MOST_EARLY = 0.5  # of the registers for that

_SEEN = frozenset({"bitcast", "reshape", "slice", "transpose"})  # only show what is there


class TileWriter:
    """Writes such a kernel; what a warp does with a chunk is for subclasses to say."""

    def __init__(
        self,
        parts: Sequence[Part],
        rows: Side,
        columns: Side,
        width: int | None = None,
        emit: ElementEmitter | None = None,
    ) -> None:
        """Begin a kernel of `parts`, of whose sums a block keeps `width` columns.

        emit: what to write with, where they are only a part of a kernel.
        """
        self.parts: list[Part] = []
        chunks = 0
        for number, part in enumerate(parts):
            name = f"sums{number}" if number else "sums"
            self.parts.append(replace(part, first=chunks, sums=name))
            chunks += part.chunks
        self.form, self.product = parts[0].form, parts[0].product
        self.emit = emit or self.form.emitter()
        self.emit.parts.aligned = self.form.signature.aligned
        self.results = Results(self.form, self.emit)
        self.rows, self.columns, self.width = rows, columns, width or columns.tile
        self.wide = self.product.wide
        self.type = compute_type(self.wide)
        self.blocks = prod(self.product.batches) * rows.tiles * columns.tiles
        most = MOST_SHARED // (rows.tile * self.width * self.wide.size)  # warps' sums
        self.warps = 1 << (max(1, min(MOST_WARPS, chunks)).bit_length() - 1)
        while self.warps > 1 and sum(p.sharing(self.warps) for p in self.parts) > most:
            self.warps //= 2
        if chunks >= 4 * self.warps and self._ends_late():
            self.warps //= 2
        self.teams = 1 if emit else self._teams()
        # A thread stores along the side that has the results' most minor dimension.
        result = written(self.form.instr)
        minor = next((d for d in result.minor_to_major if result.dims[d] > 1), result.rank)
        self.along_columns = self.product.is_of_lhs(minor) == (columns.number == 0)

    def kernel(self, *, tf32: bool = False) -> KernelSource:
        """Return the kernel."""
        self._write()
        threads = self.teams * self.warps * WARP
        signature = self.form.signature
        lines = self.emit.needed_lines()
        # What reads early shares a multiprocessor with the kernel in front.
        kernels = 1 + any(line.endswith(FOLLOW) for line in lines)
        resident = self._resident(kernels)
        text = signature.declare(lines, threads, wide=True, resident=resident)
        grid = (self.blocks // self.teams, 1, 1)
        return KernelSource(signature.name, text, grid, threads, tf32=tf32)

    def _ends_late(self) -> bool:
        """Tell whether a few blocks would begin when all others are done: half as large, none."""
        room = self.form.signature.device.multiprocessors * WARPS_AT_ONCE
        return self.warps > 1 and room < self.blocks * self.warps <= 2 * room

    def _teams(self) -> int:
        """Return how many tiles a block computes, each with its own warps: more for many of few."""
        device, teams = self.form.signature.device, FULL // self.warps
        shared = sum(p.sharing(self.warps) for p in self.parts) * self.rows.tile * self.width
        while teams > 1 and (
            self.blocks % teams
            or self.blocks < device.multiprocessors * MANY * teams
            or teams * shared * self.wide.size > MOST_SHARED
        ):
            teams //= 2
        return max(1, teams)

    def _resident(self, kernels: int) -> int:
        """Return how many blocks of so many kernels like this a multiprocessor has at once.

        It is 0 where that is more than leaves each thread the registers it needs.
        """
        found = -(-self.blocks * kernels // self.form.signature.device.multiprocessors)
        return found if found * self.warps * WARP <= MOST_RESIDENT * kernels else 0

    def place_thread(self) -> None:
        """Write where a thread's rows and columns are."""
        raise NotImplementedError

    def declare(self) -> None:
        """Write the variables that hold a thread's sums of a product."""
        raise NotImplementedError

    def hold(self, side: Side, dtype: DType, name: str) -> int:
        """Write an array for a thread's elements of a side; return how many registers it takes."""
        raise NotImplementedError

    def fill(
        self, part: Part, side: Side, name: str, steps: Sequence[tuple[Index, Expr | None]]
    ) -> None:
        """Write how such an array gets the elements of a thread's steps.

        A step is its index, and what tells whether it is one, where some are not.
        """
        raise NotImplementedError

    def multiply(self, part: Part, steps: Sequence[tuple[Index, Expr | None]], held: Held) -> None:
        """Write how the products of a thread's steps are added to its sums.

        `held` names an array that has been filled with one side's elements of these steps.
        """
        raise NotImplementedError

    def share(self, place: Callable[[str, str], Expr]) -> None:
        """Write how the sums of a warp get to the `place` of a row and a column."""
        raise NotImplementedError

    def _write(self) -> None:
        emit, rows, columns = self.emit, self.rows, self.columns
        block = emit.integer(self._tile_number())
        tiles = rows.tiles * columns.tiles
        self.batch = emit.split(emit.integer(f"{block} / {tiles}"), self.product.batches)
        tile = emit.integer(f"{block} % {tiles}")
        self.top = emit.integer(f"{tile} / {columns.tiles} * {rows.tile}")
        self.left = emit.integer(f"{tile} % {columns.tiles} * {columns.tile}")
        warp = f"threadIdx.x / {WARP}" + (f" % {self.warps}" if self.teams > 1 else "")
        emit.line(f"const int warp = {warp}, lane = threadIdx.x % {WARP};")
        emit.line("const int group = lane / 4, member = lane % 4;")
        self.place_thread()
        across, along = self.kept
        for part in self.parts:
            sizes = f"[{part.sharing(self.warps)}][{across}][{along}]"
            if self.teams == 1:
                emit.line(f"__shared__ {self.type} {part.sums}{sizes};")
            else:
                emit.line(f"__shared__ {self.type} all_{part.sums}[{self.teams}]{sizes};")
                emit.line(f"auto& {part.sums} = all_{part.sums}[team];")
        turns = [self._turn(part) for part in self.parts]
        early = self._early(turns)
        if any(held.names for held in early):
            emit.line(FOLLOW)
        mark = len(emit.lines)
        for part, turn, held in zip(self.parts, turns, early, strict=True):
            self._sum(part, turn, held)
        emit.line("__syncthreads();")
        thread = "threadIdx.x" + (f" % {self.warps * WARP}" if self.teams > 1 else "")
        replace(self.tile_store(self.left), thread=thread).write(mark)
        self.results.beside(self.blocks // self.teams, self.teams * self.warps * WARP)

    @property
    def kept(self) -> tuple[int, int]:
        """What one warp's sums take: one more than a row has, so that accesses part banks."""
        sides = self.rows.tile, self.width
        across, along = sides if self.along_columns else sides[::-1]
        return across, along + 1

    def place_of(self, row: Expr, column: Expr) -> Expr:
        """Return where a warp's sum of a row and a column is, of the only product."""
        across, along = (row, column) if self.along_columns else (column, row)
        return f"{self.parts[0].sums}[warp][{across}][{along}]"

    def tile_store(self, left: Expr) -> TileStore:
        """Return what stores the results of the tile that begins at column `left`."""
        return TileStore(
            self.emit,
            self.results,
            self.product,
            self.parts,
            rows=self.rows,
            columns=self.columns,
            along_columns=self.along_columns,
            warps=self.warps,
            batch=self.batch,
            top=self.top,
            left=left,
        )

    def _tile_number(self) -> Expr:
        """Write which of a block's teams a thread is in; return the number of its tile."""
        if self.teams == 1:
            return self.emit.block_index
        self.emit.line(f"const int team = threadIdx.x / {self.warps * WARP};")
        return f"{self.emit.block_index} * {self.teams} + team"

    def _turn(self, part: Part) -> Expr:
        """Return a warp's first chunk of a product, so that chunks of all go to warps in turn."""
        offset = part.first % self.warps
        if not offset:
            return "warp"
        found = self.emit.fresh("turn")
        self.emit.line(f"const int {found} = (warp + {self.warps - offset}) % {self.warps};")
        return found

    def _early(self, turns: Sequence[Expr]) -> list[Held]:
        """Write what is read of the products before the kernels in front are done."""
        resident = self._resident(kernels=2)
        left = int(MOST_EARLY * REGISTERS / (max(1, resident) * self.warps * WARP))
        found: list[Held] = []
        for part, turn in zip(self.parts, turns, strict=True):
            sides = [s for s in (part.rows, part.columns) if self._is_still(part, s)]
            names: list[str] = []
            for number in range(min(EARLY, -(-part.chunks // self.warps)) if sides else 0):
                name = self.emit.fresh("early")
                mark = len(self.emit.lines)
                left -= self.hold(sides[0], part.form.shape(sides[0].number).dtype, name)
                if left < 0:
                    del self.emit.lines[mark:]
                    break
                with self._chunk(part, turn, number) as steps:
                    self.fill(part, sides[0], name, steps)
                names.append(name)
            found.append(Held(sides[0] if names else None, tuple(names)))
        return found

    def _is_still(self, part: Part, side: Side) -> bool:
        """Tell whether an operand shows an array that no node of the graph writes."""
        form = part.form
        source = form.computation[part.operands[side.number]]
        while source.opcode in _SEEN:
            source = form.computation[source.operands[0]]
        return source.opcode == "parameter" and f"p{source.payload}" in form.signature.still

    @contextmanager
    def _chunk(
        self, part: Part, turn: Expr, number: int
    ) -> Iterator[list[tuple[Index, Expr | None]]]:
        """Write lines on a warp's chunk of this number, if it has one; gives a thread's steps."""
        emit, chunk = self.emit, f"({turn} + {number * self.warps})" if number else turn
        whole = part.chunks >= (number + 1) * self.warps
        with emit.block("" if whole else f"if ({chunk} < {part.chunks})"):
            yield self._steps_from(part, self._first_step(chunk))

    def _sum(self, part: Part, turn: Expr, early: Held) -> None:
        """Write how the warps sum one product."""
        emit = self.emit
        scope = emit.block("") if len(self.parts) > 1 else nullcontext()
        with scope:
            self.declare()
            for number, name in enumerate(early.names):
                with self._chunk(part, turn, number) as steps:
                    self.multiply(part, steps, Held(early.side, (name,)))
            done = len(early.names) * self.warps
            if part.chunks > done:
                self._loop(part, f"{turn} + {done}" if done else turn, part.chunks - done)
            self._share_out(part, turn)

    def _loop(self, part: Part, first: Expr, chunks: int) -> None:
        """Write a loop over a warp's chunks of a product from `first` on."""
        emit = self.emit
        if chunks >= 2 * self.warps:
            emit.line("#pragma unroll 2")  # so that the loads of two chunks are under way at once
        head = f"for (int chunk = {first}; chunk < {part.chunks}; chunk += {self.warps})"
        with emit.block(head):
            self.multiply(part, self._steps_from(part, self._first_step("chunk")), Held())

    def _share_out(self, part: Part, turn: Expr) -> None:
        def place(row: Expr, column: Expr) -> Expr:
            across, along = (row, column) if self.along_columns else (column, row)
            return f"{part.sums}[{turn}][{across}][{along}]"

        sharing = part.sharing(self.warps)
        scope = (
            self.emit.block(f"if ({turn} < {sharing})") if sharing < self.warps else nullcontext()
        )
        with scope:
            self.share(place)

    def _first_step(self, chunk: Expr) -> Expr:
        """Return the first of a thread's steps of a chunk."""
        return self.emit.integer(f"{chunk} * {CHUNK} + member * {EACH}")

    def _steps_from(self, part: Part, first: Expr) -> list[tuple[Index, Expr | None]]:
        """Return a thread's steps: neighbours along the last dimension where it has whole runs."""
        emit, sizes = self.emit, part.product.steps
        run = self.run(first, EACH, part.steps, whole=part.steps % CHUNK == 0)
        if len(sizes) < 2 or sizes[-1] % EACH:
            return [(emit.split(at, sizes), inside) for at, inside in run]
        *outer, last = emit.split(run[0][0], sizes)
        along = [emit.integer(f"{last} + {k}") for k in range(EACH)]
        return [((*outer, at), inside) for at, (_, inside) in zip(along, run, strict=True)]

    def run(
        self, first: Expr, count: int, extent: int, *, whole: bool
    ) -> list[tuple[Expr, Expr | None]]:
        """Return `count` numbers from `first` on, kept below `extent`, and what tells if they were.

        Where `extent` is a multiple of `count`, all are inside or none is: they stay neighbours.
        """
        emit = self.emit
        inside: Expr | None = None if whole else f"{first} < {extent}"
        if inside and extent % count == 0:
            first = emit.integer(f"{inside} ? {first} : {extent - count}")
        found = []
        for k in range(count):
            at = emit.integer(f"{first} + {k}")
            if inside and extent % count:
                inside = f"{at} < {extent}"
                at = emit.integer(f"{inside} ? {at} : {extent - 1}")
            found.append((at, inside))
        return found

    def elements(
        self,
        part: Part,
        side: Side,
        places: Sequence[Index],
        steps: Sequence[tuple[Index, Expr | None]],
    ) -> Elements:
        """Return a thread's elements of an operand; 0 where there is no step.

        They are read in the order in which they lie in memory. Of a type that locals widen, those
        that come as they lie stay so, until all are read: conversions would keep loads apart.
        """
        emit = self.emit
        order = [(k, n) for k in range(len(places)) for n in range(len(steps))]
        if not side.is_deep:
            order.sort(key=lambda at: at[1])
        found: dict[tuple[int, int], tuple[Expr, list[Expr]]] = {}
        mark = len(emit.lines)
        for k, n in order:
            step, inside = steps[n]
            index, tests = part.product.locate(emit, side.number, self.batch, places[k], step)
            value = emit.leaf(part.operands[side.number], 0, index)
            found[k, n] = value, [*([inside] if inside else []), *tests]
        if any(value not in emit.origins for value, _ in found.values()):
            loads_first(emit, mark)  # what is made of one read would keep it apart from the next
        dtype = part.form.shape(side.number).dtype
        narrow = all(emit.is_narrow_still(dtype, value) for value, _ in found.values())
        zero = f"{storage_type(dtype) if narrow else self.type}{{}}"
        values: dict[tuple[int, int], Expr] = {}
        for at, (value, tests) in found.items():
            if narrow:
                value = emit.stored(dtype, value)
            elif dtype is not self.wide:
                value = f"hlo::convert<hlo::{self.wide}>({value})"
            values[at] = f"({' && '.join(tests)} ? {value} : {zero})" if tests else value
        return Elements(values, dtype if narrow else self.wide)
