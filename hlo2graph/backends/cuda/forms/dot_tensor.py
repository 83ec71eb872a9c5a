"""The dot form on tensor cores: a block computes a tile, its warps share out the sum.

Each warp takes every so many chunks of the contracting dimension and reads its part of both
operands straight into registers, through whatever is fused in front of the dot; nothing is staged.
A thread's steps of a chunk lie side by side, and so do its rows and columns, so that whichever way
an operand lies its loads are wide. The warps' sums then meet in shared memory, are added in their
order, and go through what is fused behind the dot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import DotParts, narrowed
from hlo2graph.ops.expect import written
from hlo2graph.ops.own_dot import takes_tensor_cores

WARP = 32
ROWS, COLUMNS = 16, 8  # of a tensor core's product
CHUNK = 32  # steps that a warp takes at once
EACH = CHUNK // 4  # of them in each thread
MOST_WARPS = 16
MOST_SHARED = 40 * 1024
FEWEST_ROWS = 16  # of the larger side, below which most of a tile would be empty
WIDTH = 4  # results side by side that a thread stores


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand: its dimensions' parts, and its rows or columns as products of a tile."""

    number: int
    shape: Shape
    batch: tuple[int, ...]
    free: tuple[int, ...]
    contract: tuple[int, ...]
    per_product: int
    products: int = 1

    @property
    def extent(self) -> int:
        """Rows or columns in all."""
        return prod(self.shape.dims[d] for d in self.free)

    @property
    def tile(self) -> int:
        """Rows or columns of a tile."""
        return self.per_product * self.products

    @property
    def tiles(self) -> int:
        """Tiles along this side."""
        return -(-self.extent // self.tile)

    @property
    def each(self) -> int:
        """Rows or columns of a tile in each thread."""
        return self.tile // 8

    @property
    def is_deep(self) -> bool:
        """What lies side by side in memory is one of the contracting dimensions."""
        minor = next((d for d in self.shape.minor_to_major if self.shape.dims[d] > 1), None)
        return minor in self.contract

    def cut(self, products: int) -> _Side:
        """Return the side with tiles of so many products."""
        return replace(self, products=products)


def suits_tensor_cores(form: Form) -> bool:
    """Tensor cores may compute it, and it fills their products."""
    parts = DotParts(form.emitter().operands_of(form.instr), form.instr)
    lhs, rhs = parts.shapes
    extents = [prod(parts.shapes[k].dims[d] for d in parts.free[k]) for k in (0, 1)]
    return (
        not form.signature.precise
        and takes_tensor_cores(form.instr, lhs, rhs)
        and max(extents) >= FEWEST_ROWS
        and prod(parts.steps) >= EACH
        and written(form.instr).elements > 0
    )


def dot_tensor_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot and of the elementwise work on both sides of it."""
    writer = _Writer(form, form.emitter())
    writer.write()
    threads = writer.warps * WARP
    text = form.signature.declare(writer.emit.needed_lines(), threads, wide=True)
    tf32 = writer.type == "f32"
    return KernelSource(form.signature.name, text, (writer.blocks, 1, 1), threads, tf32=tf32)


class _Writer:
    def __init__(self, form: Form, emit: ElementEmitter) -> None:
        self.form, self.emit = form, emit
        self.parts = DotParts(emit.operands_of(form.instr), form.instr)
        self.type = self.parts.shapes[0].dtype.name
        self.steps = prod(self.parts.steps)
        self.chunks = -(-self.steps // CHUNK)
        self.rows, self.columns = self._tiled()
        self.batches = [self.rows.shape.dims[d] for d in self.rows.batch]
        self.blocks = prod(self.batches) * self.rows.tiles * self.columns.tiles
        held = self.rows.tile * self.columns.tile * 4
        most = min(MOST_WARPS, self.chunks, MOST_SHARED // held)
        self.warps = 1 << (most.bit_length() - 1)
        self.registers = EACH * DTYPES[self.type].size // 4
        # What a thread stores side by side runs along the side that the results' minor dimension is
        # of.
        minor = next((d for d in written(form.instr).minor_to_major if self._is_long(d)), None)
        lhs_free = len(self.batches) + len(self.parts.free[0])
        self.along_columns = (minor is None or minor < lhs_free) == (self.columns.number == 0)

    def _is_long(self, dim: int) -> bool:
        return written(self.form.instr).dims[dim] > 1

    def _tiled(self) -> tuple[_Side, _Side]:
        """Return the operand with more rows or columns as rows, the other one as columns.

        Tiles get smaller while there is not one for each multiprocessor.
        """
        parts = self.parts
        extents = [prod(parts.shapes[k].dims[d] for d in parts.free[k]) for k in (0, 1)]
        order = (0, 1) if extents[0] >= extents[1] else (1, 0)
        rows, columns = (
            _Side(k, parts.shapes[k], parts.batch[k], parts.free[k], parts.contract[k], size)
            for k, size in zip(order, (ROWS, COLUMNS), strict=True)
        )
        rows = rows.cut(min(2, _power(-(-rows.extent // ROWS))))
        columns = columns.cut(min(4, _power(-(-columns.extent // COLUMNS))))
        batches = prod(rows.shape.dims[d] for d in rows.batch)
        wanted = self.form.signature.device.multiprocessors
        while batches * rows.tiles * columns.tiles * 2 <= wanted:
            if rows.products > 1:
                rows = rows.cut(rows.products // 2)
            elif columns.products > 1:
                columns = columns.cut(columns.products // 2)
            else:
                break
        return rows, columns

    def write(self) -> None:
        emit, rows, columns = self.emit, self.rows, self.columns
        block = emit.integer(emit.block_index)
        tiles = rows.tiles * columns.tiles
        self.batch = emit.split(emit.integer(f"{block} / {tiles}"), self.batches)
        tile = emit.integer(f"{block} % {tiles}")
        self.top = emit.integer(f"{tile} / {columns.tiles} * {rows.tile}")
        self.left = emit.integer(f"{tile} % {columns.tiles} * {columns.tile}")
        emit.line(f"const int warp = threadIdx.x / {WARP}, lane = threadIdx.x % {WARP};")
        emit.line("const int group = lane / 4, member = lane % 4;")
        emit.line(f"float total[{rows.products}][{columns.products}][4] = {{}};")
        at = [self._places(rows, self.top), self._places(columns, self.left)]
        if self.chunks >= 4 * self.warps:
            emit.line("#pragma unroll 2")
        head = f"for (int chunk = warp; chunk < {self.chunks}; chunk += {self.warps})"
        with emit.block(head):
            steps = self._steps()
            for side, name, places in ((rows, "a", at[0]), (columns, "b", at[1])):
                self._load(side, name, places, steps)
            self._multiply()
        self._share()
        self._store()

    def _places(self, side: _Side, start: Expr) -> list[Index]:
        """Return the index in the free dimensions of each of a thread's rows or columns."""
        first = self.emit.integer(f"{start} + group * {side.each}")
        whole = side.extent % side.tile == 0
        found = self._run(first, side.each, side.extent, whole=whole)
        dims = [side.shape.dims[d] for d in side.free]
        return [self.emit.split(at, dims) for at, _ in found]

    def _steps(self) -> list[tuple[Index, Expr | None]]:
        """Return each of a thread's steps: its index, and what tells whether it is one."""
        first = self.emit.integer(f"chunk * {CHUNK} + member * {EACH}")
        found = self._run(first, EACH, self.steps, whole=self.steps % CHUNK == 0)
        return [(self.emit.split(at, self.parts.steps), inside) for at, inside in found]

    def _run(
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

    def _load(
        self,
        side: _Side,
        name: str,
        places: Sequence[Index],
        steps: Sequence[tuple[Index, Expr | None]],
    ) -> None:
        """Write how a thread gets its elements of one operand, as tensor cores take them."""
        emit = self.emit
        emit.line(f"hlo::u32 {name}[{side.each}][{self.registers}];")
        batch = dict(zip(side.batch, self.batch, strict=True))
        order = [(k, n) for k in range(side.each) for n in range(EACH)]
        if not side.is_deep:
            order.sort(key=lambda at: at[1])
        values: dict[tuple[int, int], Expr] = {}
        for k, n in order:  # along what lies side by side in memory
            step, inside = steps[n]
            place = batch | dict(zip(side.free, places[k], strict=True))
            place |= dict(zip(side.contract, step, strict=True))
            index = tuple(place[d] for d in range(side.shape.rank))
            value = emit.leaf(self.form.instr.operands[side.number], 0, index)
            values[k, n] = f"({inside} ? {value} : 0.0f)" if inside else value
        per = EACH // self.registers
        for k in range(side.each):
            for register in range(self.registers):
                held = [values[k, per * register + n] for n in range(per)]
                how = "tf32_bits" if per == 1 else f"pair_bits<hlo::{self.type}>"
                emit.line(f"{name}[{k}][{register}] = hlo::{how}({', '.join(held)});")

    def _multiply(self) -> None:
        emit = self.emit
        loops = (
            ("s", self.registers // 2),
            ("i", self.rows.products),
            ("j", self.columns.products),
        )
        for name, count in loops:
            emit.line("#pragma unroll")
            emit.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
        registers = "a[2 * i][2 * s], a[2 * i + 1][2 * s]"
        registers += ", a[2 * i][2 * s + 1], a[2 * i + 1][2 * s + 1], b[j][2 * s], b[j][2 * s + 1]"
        emit.line(f"  hlo::mma<hlo::{self.type}>(total[i][j], {registers});")

    def _share(self) -> None:
        """Write the warps' sums where all can read them, and wait for them."""
        emit, rows, columns = self.emit, self.rows, self.columns
        across, along = (rows, columns) if self.along_columns else (columns, rows)
        # One more than a row has, so that a warp's accesses fall into different banks.
        emit.line(f"__shared__ float sums[{self.warps}][{across.tile}][{along.tile + 1}];")
        for name, count in (("i", rows.products), ("j", columns.products), ("n", 4)):
            emit.line("#pragma unroll")
            emit.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
        row = f"group * {rows.each} + 2 * i + n / 2"
        column = f"(2 * member + n % 2) * {columns.each} + j"
        place = f"[{row}][{column}]" if self.along_columns else f"[{column}][{row}]"
        emit.line(f"  sums[warp]{place} = total[i][j][n];")
        emit.line("__syncthreads();")

    def _store(self) -> None:
        emit, rows, columns = self.emit, self.rows, self.columns
        across, along = (rows, columns) if self.along_columns else (columns, rows)
        starts = (self.top, self.left) if self.along_columns else (self.left, self.top)
        width = WIDTH if along.extent % WIDTH == 0 else 1
        slots, threads = across.tile * along.tile // width, self.warps * WARP
        with emit.block(f"for (int slot = threadIdx.x; slot < {slots}; slot += {threads})"):
            emit.line(f"const int across = slot / {along.tile // width};")
            emit.line(f"const int along = slot % {along.tile // width} * {width};")
            at = [emit.integer(f"{starts[0]} + across"), emit.integer(f"{starts[1]} + along")]
            tests = [
                f"{place} < {side.extent}"
                for place, side in zip(at, (across, along), strict=True)
                if side.extent % side.tile
            ]
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                self._results(across, along, at, width)

    def _results(self, across: _Side, along: _Side, at: Sequence[Expr], width: int) -> None:
        """Write the results at so many places side by side, all stores behind all else."""
        emit, form = self.emit, self.form
        stores = []
        for k in range(width):
            total = emit.variable(DTYPES["f32"], "0.0f")
            emit.line("#pragma unroll")
            head = f"for (int w = 0; w < {self.warps}; ++w)"
            emit.line(f"{head} {total} += sums[w][across][along + {k}];")
            places = {
                across.number: (across, at[0]),
                along.number: (along, emit.integer(f"{at[1]} + {k}") if k else at[1]),
            }
            free = [
                emit.split(place, [side.shape.dims[d] for d in side.free])
                for side, place in (places[0], places[1])
            ]
            index = (*self.batch, *free[0], *free[1])
            value = narrowed(emit.operands_of(form.instr), total, written(form.instr).dtype)
            emit.assume(form.instr.name, index, (value,))
            for number, leaf in enumerate(form.results):
                found = emit.leaf(form.computation.root, number, index)
                place = emit.offset(leaf, index)
                held = emit.fresh("w")
                emit.line(f"const {storage_type(leaf.dtype)} {held} = {stored(leaf.dtype, found)};")
                stores.append(f"r{number}[{place}] = {held};")
        for store in sorted(stores, key=lambda line: line.partition("[")[0]):
            emit.line(store)


def _power(count: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << (count - 1).bit_length()
