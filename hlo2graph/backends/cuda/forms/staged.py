"""A product on tensor cores whose operands meet in shared memory: large tiles, long sums.

A block computes a tile of the result. Its warps make teams, each of which takes every so many
chunks of the sum. The threads of a team read a chunk of both operands, through whatever is fused
in front of the product, while they multiply the one before: what is read waits in registers, and
goes to shared memory as tensor cores take it. A thread reads neighbours, whichever way an operand
lies; steps that lie side by side are kept row by row, rows that do are kept step by step. The
teams' sums meet in shared memory too, and go through what is fused behind the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TypeAlias

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.product import Product, Side
from hlo2graph.backends.cuda.forms.staged_operand import FOUR, Operand
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import narrowed
from hlo2graph.ops.expect import written

WARP = 32
SPAN = 32  # rows, and columns, that a warp computes: of each eight a thread has one
CHUNK = 32  # steps that a team takes at once
MOST_ROWS, MOST_COLUMNS = 128, 64  # of a tile
MOST_WARPS = 16  # of a multiprocessor, each thread with 128 registers
MOST_SHARED = 96 * 1024
BUSY = 0.5  # part of a device that at least has work, where the results are enough

_Step: TypeAlias = tuple[Index, list[Expr]]  # of the sum, and tests that it is one


def staged_kernel(form: Form, product: Product) -> KernelSource:
    """Return the kernel of a product and of the elementwise work on both sides of it."""
    return _Writer(form, product, *_tiled(form, product)).kernel()


def _tiled(form: Form, product: Product) -> tuple[Side, Side]:
    """Return both sides: tiles get smaller while too few multiprocessors have one."""
    rows, columns = (
        side.cut(min(most, max(SPAN, 1 << (side.extent - 1).bit_length())))
        for side, most in zip(product.sides, (MOST_ROWS, MOST_COLUMNS), strict=True)
    )
    batches = prod(product.batches)
    wanted = form.signature.device.multiprocessors * BUSY
    while batches * rows.tiles * columns.tiles < wanted and max(rows.tile, columns.tile) > SPAN:
        if rows.tile >= columns.tile:
            rows = rows.cut(rows.tile // 2)
        else:
            columns = columns.cut(columns.tile // 2)
    return rows, columns


class _Writer:
    def __init__(self, form: Form, product: Product, rows: Side, columns: Side) -> None:
        self.form, self.emit, self.product = form, form.emitter(), product
        self.rows, self.columns = rows, columns
        self.dtype, self.wide = form.shape(0).dtype, product.wide
        self.steps = prod(product.steps)
        self.blocks = prod(product.batches) * rows.tiles * columns.tiles
        self.team = rows.tile // SPAN * (columns.tile // SPAN) * WARP
        per = 4 // self.dtype.size
        self.sides = [
            Operand(side, name, CHUNK // per, per, self.team)
            for side, name in ((rows, "a"), (columns, "b"))
        ]
        self.teams = self._count_teams()
        self.rounds = -(-self.steps // (CHUNK * self.teams))
        result = written(form.instr)
        minor = next((d for d in result.minor_to_major if result.dims[d] > 1), result.rank)
        self.along_columns = not product.is_of_lhs(minor)
        self.runs: dict[str, list[tuple[Index, ...]]] = {}
        self.flags: dict[tuple[str, int, int], Expr] = {}

    def _count_teams(self) -> int:
        """Return how many teams share a sum, so that a multiprocessor has warps enough."""
        resident = -(-self.blocks // self.form.signature.device.multiprocessors)
        chunks = -(-self.steps // CHUNK)
        teams = 1
        while (
            2 * teams * self.team * resident <= MOST_WARPS * WARP
            and 4 * teams <= chunks
            and 2 * teams * self._held() <= MOST_SHARED
        ):
            teams *= 2
        return teams

    def _held(self) -> int:
        """Return the bytes of shared memory of one team: the operands, later its sums."""
        across, along = sorted((self.rows.tile, self.columns.tile))
        return 4 * max(sum(side.size for side in self.sides), across * (along + 1) + across)

    def kernel(self) -> KernelSource:
        """Return the kernel."""
        self._write()
        threads, signature = self.team * self.teams, self.form.signature
        most = max(1, MOST_WARPS * WARP // threads)
        resident = min(-(-self.blocks // signature.device.multiprocessors), most)
        lines = self.emit.needed_lines()
        text = signature.declare(lines, threads, wide=True, resident=resident)
        return KernelSource(
            signature.name,
            text,
            (self.blocks, 1, 1),
            threads,
            shared_bytes=self.teams * self._held(),
            tf32=self.dtype.name == "f32",
        )

    def _write(self) -> None:
        emit, rows, columns = self.emit, self.rows, self.columns
        block = emit.integer(emit.block_index)
        tiles = rows.tiles * columns.tiles
        self.batch = emit.split(emit.integer(f"{block} / {tiles}"), self.product.batches)
        tile = emit.integer(f"{block} % {tiles}")
        self.starts = {
            "a": emit.integer(f"{tile} / {columns.tiles} * {rows.tile}"),
            "b": emit.integer(f"{tile} % {columns.tiles} * {columns.tile}"),
        }
        emit.line(f"const int team = threadIdx.x / {self.team}, slot = threadIdx.x % {self.team};")
        emit.line(f"const int lane = threadIdx.x % {WARP}, group = lane / 4, member = lane % 4;")
        emit.line(f"const int span_a = slot / {WARP} / {columns.tile // SPAN} * {SPAN};")
        emit.line(f"const int span_b = slot / {WARP} % {columns.tile // SPAN} * {SPAN};")
        self._declare_shared()
        for operand in self.sides:
            self._place(operand)
        emit.line("float total[2][4][4] = {};")
        with emit.block("for (int round = 0;; ++round)"):
            with emit.block(f"if (round < {self.rounds})"):
                chunk = emit.integer(f"(round * {self.teams} + team) * {CHUNK}")
                for operand in self.sides:
                    self._fetch(operand, chunk)
            with emit.block("if (round > 0)"):
                self._multiply()
            emit.line("__syncthreads();")
            emit.line(f"if (round == {self.rounds}) break;")
            for operand in self.sides:
                self._put(operand)
            emit.line("__syncthreads();")
        across, along = (rows, columns) if self.along_columns else (columns, rows)
        self._share(along)
        emit.line("__syncthreads();")
        self._store(across, along)

    def _declare_shared(self) -> None:
        emit, (a, b) = self.emit, self.sides
        words = self._held() // 4
        emit.line("hlo::u32* const held = (hlo::u32*)hlo::dynamic_shared();")
        emit.line(f"hlo::u32 *const a = held + team * {words}, *const b = a + {a.size};")
        for operand in (a, b):
            kind = storage_type(self.dtype)
            count = f"[{operand.runs}][{operand.elements}]"
            emit.line(f"{kind} next_{operand.name}{count};")
            emit.line(f"bool inside_{operand.name}{count};")

    def _place(self, operand: Operand) -> None:
        """Write where the rows are that a thread reads, the same in all chunks."""
        emit, side, name = self.emit, operand.side, operand.name
        names = (f"word_{name}", f"row_{name}")
        first, then = names if side.is_deep else names[::-1]
        emit.line(f"const int {first} = slot % {operand.abreast} * {FOUR};")
        emit.line(f"const int {then} = slot / {operand.abreast};")
        start = self.starts[name]
        if side.is_deep:
            turn = operand.team // operand.abreast
            rows = [
                self._along(emit.integer(f"{start} + {then} + {k * turn}"), 1, side)
                for k in range(operand.runs)
            ]
        else:
            rows = [self._along(emit.integer(f"{start} + {first}"), FOUR, side)] * operand.runs
        self.runs[name] = rows

    def _along(self, first: Expr, count: int, side: Side) -> tuple[Index, ...]:
        """Return the places of rows from `first` on; any place for those past the last."""
        emit, past = self.emit, side.extent % side.tile
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
        *outer, last = self.emit.split(first, sizes)
        along = [last, *(self.emit.integer(f"{last} + {k}") for k in range(1, count))]
        return tuple((*outer, at) for at in along)

    def _steps(self, first: Expr, count: int) -> list[_Step]:
        """Return steps from `first` on, with a test of those that may be past the last."""
        emit, sizes = self.emit, self.product.steps
        past = self.steps % (CHUNK * self.teams)
        tests: list[Expr] = []
        if past and self.steps % count == 0:
            tests = [f"{first} < {self.steps}"]
            first = emit.integer(f"{tests[0]} ? {first} : {self.steps - count}")
        if count == 1 or sizes[-1] % count == 0:
            return [(step, tests) for step in self._neighbours(first, count, sizes)]
        found = []
        for k in range(count):
            at = emit.integer(f"{first} + {k}")
            if past and self.steps % count:
                tests = [f"{at} < {self.steps}"]
                at = emit.integer(f"{tests[0]} ? {at} : {self.steps - 1}")
            found.append((emit.split(at, sizes), tests))
        return found

    def _fetch(self, operand: Operand, chunk: Expr) -> None:
        """Write how a thread reads its elements of a chunk, in the order in which they lie."""
        emit, name, per = self.emit, operand.name, operand.per
        steps: list[_Step] = []
        for run in range(operand.runs):
            if operand.side.is_deep:
                if not steps:
                    first = emit.integer(f"{chunk} + word_{name} * {per}")
                    steps = self._steps(first, operand.elements)
                order = [(0, n, n) for n in range(operand.elements)]
            else:
                word = f"word_{name} + {run * (operand.team // operand.abreast)}"
                steps = self._steps(emit.integer(f"{chunk} + ({word}) * {per}"), per)
                order = [(k, n, k * per + n) for n in range(per) for k in range(FOUR)]
            self._read(operand, run, [(k, steps[n], at) for k, n, at in order])

    def _read(self, operand: Operand, run: int, order: Sequence[tuple[int, _Step, int]]) -> None:
        emit, name = self.emit, operand.name
        stores: list[str] = []
        flags: dict[Expr, Expr] = {}
        for k, (step, tests), at in order:
            place = self.runs[name][run][k]
            number = operand.side.number
            index, more = self.product.locate(emit, number, self.batch, place, step)
            value = emit.leaf(self.form.instr.operands[number], 0, index)
            narrow = emit.is_narrow_still(self.dtype, value)
            value = emit.stored(self.dtype, value) if narrow else stored(self.dtype, value)
            stores.append(f"next_{name}[{run}][{at}] = {value};")
            if test := " && ".join([*tests, *more]):
                flag = flags.setdefault(test, f"inside_{name}[{run}][{at}]")
                self.flags[name, run, at] = flag
        for test, flag in flags.items():
            emit.line(f"{flag} = {test};")
        for store in stores:
            emit.line(store)

    def _put(self, operand: Operand) -> None:
        """Write how what was read goes to shared memory."""
        name, per = operand.name, operand.per
        how = "tf32_bits" if per == 1 else "joined_bits"
        turn = operand.team // operand.abreast
        for run in range(operand.runs):
            words = []
            for first in range(0, operand.elements, per):
                values = [self._checked(name, run, first + n) for n in range(per)]
                words.append(f"hlo::{how}({', '.join(values)})")
            row, word = f"row_{name}", f"word_{name}"
            if operand.side.is_deep:
                row += f" + {run * turn}"
            else:
                word += f" + {run * turn}"
            place = operand.place_of(row, word)
            self.emit.line(f"*(hlo::Four*)&{name}[{place}] = hlo::Four{{{{{', '.join(words)}}}}};")

    def _checked(self, name: str, run: int, at: int) -> Expr:
        value, flag = f"next_{name}[{run}][{at}]", self.flags.get((name, run, at))
        return f"{flag} ? {value} : {storage_type(self.dtype)}{{}}" if flag else value

    def _multiply(self) -> None:
        """Write the products of a chunk: four words of four rows and columns at a time."""
        emit, words = self.emit, self.sides[0].words
        with self._unrolled("h", words // 4 // FOUR):
            for operand in self.sides:
                name = operand.name
                emit.line(f"hlo::Four four_{name}[{FOUR}];")
                word = f"member * {words // 4} + {FOUR} * h"
                row = f"span_{name} + " + operand.row_of(
                    "group", "k" if operand.side.is_deep else "0"
                )
                if not operand.side.is_deep:
                    word += " + k"
                with self._unrolled("k", FOUR):
                    place = operand.place_of(row, word)
                    emit.line(f"four_{name}[k] = *(const hlo::Four*)&{name}[{place}];")
            with self._unrolled("s", 2), self._unrolled("i", 2), self._unrolled("j", FOUR):
                a, b = self.sides
                registers = [a.word(f"2 * i + {n % 2}", f"2 * s + {n // 2}") for n in range(4)]
                registers += [b.word("j", f"2 * s + {n}") for n in range(2)]
                emit.line(f"hlo::mma<hlo::{self.dtype}>(total[i][j], {', '.join(registers)});")

    @contextmanager
    def _unrolled(self, name: str, count: int) -> Iterator[None]:
        self.emit.line("#pragma unroll")
        with self.emit.block(f"for (int {name} = 0; {name} < {count}; ++{name})"):
            yield

    def _share(self, along: Side) -> None:
        """Write how a team's sums get to shared memory."""
        emit, (a, b) = self.emit, self.sides
        # One more than a row has, so that a warp's accesses fall into different banks.
        emit.line(f"float (*const sums)[{along.tile + 1}] = (float (*)[{along.tile + 1}])a;")
        row = "span_a + " + a.row_of("group", "(2 * i + n / 2)")
        column = "span_b + " + b.row_of("(2 * member + n % 2)", "j")
        place = f"[{row}][{column}]" if self.along_columns else f"[{column}][{row}]"
        with self._unrolled("i", 2), self._unrolled("j", FOUR), self._unrolled("n", 4):
            emit.line(f"sums{place} = total[i][j][n];")

    def _store(self, across: Side, along: Side) -> None:
        emit = self.emit
        starts = [self.starts["b" if side is self.columns else "a"] for side in (across, along)]
        width = FOUR if along.extent % FOUR == 0 else 1
        slots, threads = across.tile * along.tile // width, self.team * self.teams
        with emit.block(f"for (int at = threadIdx.x; at < {slots}; at += {threads})"):
            emit.line(f"const int across = at / {along.tile // width};")
            emit.line(f"const int along = at % {along.tile // width} * {width};")
            at = [emit.integer(f"{starts[0]} + across"), emit.integer(f"{starts[1]} + along")]
            tests = [
                f"{place} < {side.extent}"
                for place, side in zip(at, (across, along), strict=True)
                if side.extent % side.tile
            ]
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                self._results(across, along, at, width)

    def _results(self, across: Side, along: Side, at: Sequence[Expr], width: int) -> None:
        """Write the results at so many places side by side, all stores behind all else."""
        emit, form = self.emit, self.form
        stores = []
        places = {across.number: emit.split(at[0], across.sizes)}
        for k, place in enumerate(self._along_results(at[1], along, width)):
            places[along.number] = place
            total = emit.variable(self.wide, "{}")
            team = f"((float (*)[{along.tile + 1}])(held + t * {self._held() // 4}))"
            emit.line("#pragma unroll")
            head = f"for (int t = 0; t < {self.teams}; ++t)"
            emit.line(f"{head} {total} = hlo::add({total}, {team}[across][along + {k}]);")
            index = self.product.result(self.batch, places[0], places[1])
            value = narrowed(
                emit.operands_of(form.instr), total, self.wide, written(form.instr).dtype
            )
            emit.assume(form.instr.name, index, (value,))
            for number, leaf in enumerate(form.results):
                found = emit.leaf(form.computation.root, number, index)
                kept = emit.fresh("w")
                emit.line(f"const {storage_type(leaf.dtype)} {kept} = {stored(leaf.dtype, found)};")
                stores.append((number, f"r{number}[{emit.offset(leaf, index)}] = {kept};"))
        for _, store in sorted(stores, key=lambda each: each[0]):
            emit.line(store)

    def _along_results(self, first: Expr, side: Side, count: int) -> Sequence[Index]:
        if side.sizes[-1] % count == 0:
            return self._neighbours(first, count, side.sizes)
        at = (self.emit.integer(f"{first} + {k}") for k in range(count))
        return [self.emit.split(place, side.sizes) for place in at]
