"""A product on tensor cores whose operands meet in shared memory: large tiles, long sums.

A block computes a tile of the result. Its warps make teams, each of which takes every so many
chunks of the sum. While the threads of a team multiply one chunk, later ones are on their way: to
shared memory, where operands come as they lie; else into registers, through whatever is fused in
front of the product, and from there to shared memory as tensor cores take it. A thread reads
neighbours, whichever way an operand lies; steps that lie side by side are kept row by row, rows
that do are kept step by step. The teams' sums meet in shared memory too, and go through what is
fused behind the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.convolution_product import ConvolutionProduct
from hlo2graph.backends.cuda.forms.products.partners import Partners, SharedSums, cluster_of
from hlo2graph.backends.cuda.forms.products.product import Side, tests_inside
from hlo2graph.backends.cuda.forms.products.results import Results
from hlo2graph.backends.cuda.forms.products.staged_operand import CHUNK, FOUR, Operand
from hlo2graph.backends.cuda.forms.products.staged_reader import Reader, neighbours
from hlo2graph.backends.cuda.forms.products.staged_tile import MOST_SPAN, SPAN, staged_tile
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import narrowed
from hlo2graph.ops.expect import written

MOST_WARPS = {SPAN: 16, MOST_SPAN: 12}  # of a multiprocessor: a thread has 128 registers, or 168
STAGES = 3  # chunks that are on the way, or are multiplied, where operands come as they lie
STEPS = 8  # words of a row's steps that a product takes
AT_ONCE = 4  # products that are written out: more take the compiler long, and gain nothing
FEW_BLOCKS = 2  # of a multiprocessor
CACHE = 48 << 10  # of a multiprocessor's shared memory, left for what several rows read


def staged_kernel(form: Form) -> KernelSource:
    """Return the kernel of a convolution and of the elementwise work on both sides of it."""
    writer = StagedWriter(form, ConvolutionProduct(form))
    in_turn = writer.kernel()
    if not all(reader.is_plain for reader in writer.readers):
        return in_turn
    stages = STAGES if writer.resident <= FEW_BLOCKS else 2  # others multiply meanwhile
    writer = StagedWriter(form, ConvolutionProduct(form, clamps=False), stages)
    found = writer.kernel()
    if all(reader.is_sum for reader in writer.readers):
        return found
    return StagedWriter(form, ConvolutionProduct(form), stages).kernel()


class StagedWriter:
    """With several `stages`, operands are copied to shared memory; else they go by registers."""

    def __init__(self, form: Form, product: ConvolutionProduct, stages: int = 1) -> None:
        """Settle how large tiles are, who computes them, and what is held of both operands."""
        self.form, self.emit, self.product, self.stages = form, form.emitter(), product, stages
        self.dtype, self.wide = form.shape(0).dtype, product.wide
        self.results = Results(form, self.emit)
        self.rows, self.columns = self._tiled()
        self.tiles = prod(product.batches) * self.rows.tiles * self.columns.tiles
        self.span = self._span()
        self.most = MOST_WARPS[self.span] * WARP
        self.team = self.rows.tile // self.span * (self.columns.tile // SPAN) * WARP
        self.sides = self._operands(4 // self.dtype.size)
        self.chunks = self._count_chunks()
        self.cluster = cluster_of(form.signature.device, self.tiles, self.chunks)
        self.blocks = self.tiles * self.cluster
        self.resident = -(-self.blocks // form.signature.device.multiprocessors)
        self.teams = self._count_teams()
        self.partners = Partners(self.cluster, self.teams)
        self.rounds = -(-self.chunks // self.partners.all)
        self.readers = self._readers()
        result = written(form.instr)
        minor = next((d for d in result.minor_to_major if result.dims[d] > 1), result.rank)
        self.along_columns = not product.is_of_lhs(minor)

    def _tiled(self) -> tuple[Side, Side]:
        """Return both sides, with their tiles."""
        return staged_tile(self.product, self.form.signature.device.multiprocessors)

    def _span(self) -> int:
        """Return how many rows a warp computes."""
        is_busy = self.tiles >= self.form.signature.device.multiprocessors
        return MOST_SPAN if is_busy and self.rows.tile >= MOST_SPAN else SPAN

    def _operands(self, per: int) -> tuple[Operand, Operand]:
        sides = ((self.rows, "a"), (self.columns, "b"))
        a, b = (Operand(side, name, per, self.team, CHUNK * per) for side, name in sides)
        return a, b

    def _count_chunks(self) -> int:
        return -(-prod(self.product.steps) // self.sides[0].steps)

    def _readers(self) -> tuple[Reader, Reader]:
        at_once, copies = self.sides[0].steps * self.partners.all, self.stages > 1
        a, b = (
            Reader(self.form, self.emit, self.product, operand, at_once, copies)
            for operand in self.sides
        )
        return a, b

    def _count_teams(self) -> int:
        """Return how many teams share a sum, so that a multiprocessor has warps enough."""
        blocks, teams = min(self.resident, 2), 1
        shared = self.form.signature.device.shared - CACHE
        while (
            2 * teams * self.team * self.resident <= self.most
            and 4 * teams * self.cluster <= self.chunks
            and 2 * teams * 4 * self._words * blocks <= shared
        ):
            teams *= 2
        return teams

    @property
    def _products(self) -> int:
        """Products one behind the other in a chunk."""
        return self.sides[1].steps // (STEPS * self.sides[1].per)

    @property
    def _chunk(self) -> int:
        """Words of both operands' part of a chunk."""
        return sum(side.size for side in self.sides)

    @property
    def _words(self) -> int:
        """Words of shared memory of one team: for the operands, and later for its sums."""
        return max(self.stages * self._chunk, self._sums)

    @property
    def _met(self) -> SharedSums:
        sides = (self.rows.tile, self.columns.tile)
        return SharedSums(
            self.partners, self._words, *(sides if self.along_columns else sides[::-1])
        )

    @property
    def _sums(self) -> int:
        """Words of a team's sums."""
        rows, columns = self.rows.tile, self.columns.tile
        return rows * columns + max(rows, columns)

    def kernel(self) -> KernelSource:
        """Return the kernel."""
        self._write()
        threads, signature = self.team * self.teams, self.form.signature
        shared = 4 * self._met.held
        most = max(1, min(self.most // threads, signature.device.shared // shared))
        text = signature.declare(
            self.emit.needed_lines(),
            threads,
            wide=True,
            resident=min(self.resident, most),
            cluster=self.cluster,
        )
        return KernelSource(
            signature.name,
            text,
            (self.blocks, 1, 1),
            threads,
            shared_bytes=shared,
            tf32=self.dtype.name == "f32",
        )

    def _write(self) -> None:
        emit, rows, columns = self.emit, self.rows, self.columns
        block = emit.integer(emit.block_index)
        if self.cluster > 1:
            emit.line("hlo::cluster_begins();")
            emit.line(f"const int rank = {block} % {self.cluster};")
            block = emit.integer(f"{block} / {self.cluster}")
        tiles = rows.tiles * columns.tiles
        self.batch = emit.split(emit.integer(f"{block} / {tiles}"), self.product.batches)
        tile = emit.integer(f"{block} % {tiles}")
        self.starts = (
            emit.integer(f"{tile} / {columns.tiles} * {rows.tile}"),
            emit.integer(f"{tile} % {columns.tiles} * {columns.tile}"),
        )
        team = f"threadIdx.x / {self.team}" if self.teams > 1 else "0"
        emit.line(f"const int team = {team}, slot = threadIdx.x % {self.team};")
        emit.line(f"const int lane = threadIdx.x % {WARP}, group = lane / 4, member = lane % 4;")
        emit.line(f"const int span_a = slot / {WARP} / {columns.tile // SPAN} * {self.span};")
        emit.line(f"const int span_b = slot / {WARP} % {columns.tile // SPAN} * {SPAN};")
        emit.line("hlo::u32* const held = (hlo::u32*)hlo::dynamic_shared();")
        emit.line(f"hlo::u32* const own = held + team * {self._words};")
        self._place_readers()
        emit.line(f"float total[{self.span // 16}][{SPAN // 8}][4] = {{}};")
        (self._multiply_behind_copies if self.stages > 1 else self._multiply_in_turn)()
        across, along = (rows, columns) if self.along_columns else (columns, rows)
        self._share(along)
        self._met.meet(emit, self.team * self.teams)
        self._store(across, along)

    def _place_readers(self) -> None:
        for reader, start in zip(self.readers, self.starts, strict=True):
            reader.declare()
            reader.place(self.batch, start)

    def _multiply_in_turn(self) -> None:
        """Write rounds in which threads read a chunk, multiply the last, and put what they read."""
        emit = self.emit
        self._point("a", "b", "own")
        with emit.block("for (int round = 0;; ++round)"):
            with emit.block(f"if (round < {self.rounds})"):
                self._fetch("round")
            with emit.block("if (round > 0)"):
                self._multiply()
            self._meet()
            emit.line(f"if (round == {self.rounds}) break;")
            for reader in self.readers:
                reader.put()
            self._meet()

    def _multiply_behind_copies(self) -> None:
        """Write rounds in which one chunk is multiplied while others are copied."""
        emit, ahead = self.emit, self.stages - 1
        with emit.block(f"for (int round = {-ahead}; round < {self.rounds}; ++round)"):
            with emit.block("if (round >= 0)"):
                emit.line(f"hlo::copies_arrive<{ahead - 1}>();")
                self._meet()
            emit.line(f"const int next = round + {ahead};")
            with emit.block(f"if (next < {self.rounds})"):
                self._copy_next(ahead)
            emit.line("hlo::copies_sent();")
            with emit.block("if (round >= 0)"):
                self._point_to_round()
                self._multiply()
        emit.line("__syncthreads();")

    def _copy_next(self, ahead: int) -> None:
        """Write the copies of chunk `next`, so many rounds ahead."""
        del ahead
        self._point("to_a", "to_b", f"own + next % {self.stages} * {self._chunk}")
        self.emit.binds_reads = False
        self._fetch("next")
        self.emit.binds_reads = True

    def _point_to_round(self) -> None:
        """Write pointers to both operands' parts of what `round` multiplies."""
        self._point("a", "b", f"own + round % {self.stages} * {self._chunk}")

    def _meet(self) -> None:
        """Write a barrier of a team, which has what it multiplies for itself."""
        meets = "__syncthreads();"
        if self.teams > 1:
            meets = f"hlo::team_meets<{self.team}>(team);" if self.team > WARP else "__syncwarp();"
        self.emit.line(meets)

    def _point(self, first: str, second: str, start: Expr) -> None:
        """Write pointers to both operands' parts of a chunk."""
        size = self.sides[0].size
        self.emit.line(f"hlo::u32 *const {first} = {start}, *const {second} = {first} + {size};")

    def _fetch(self, number: str) -> None:
        before = f"{number} * {self.partners.all} + {self.partners.first(self.teams)}"
        chunk = self._chunk_at(f"({before}team)")
        for reader in self.readers:
            reader.fetch(self.batch, chunk)

    def _chunk_at(self, number: Expr) -> Expr:
        """Return where a chunk begins, as readers take it."""
        return self.emit.integer(f"{number} * {self.sides[0].steps}")

    def _begins(self) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """Return the row, and the column, and the steps in a chunk that a warp begins at."""
        steps = f"{STEPS * self.sides[0].per} * s"
        return ("span_a", steps), ("span_b", steps)

    def _multiply(self) -> None:
        """Write the products of a chunk, eight words of every row and column at a time."""
        emit, (a, b), high, wide = self.emit, self.sides, self.span // 16, SPAN // 8
        (top, first), (left, second) = self._begins()
        with self._unrolled("s", self._products, AT_ONCE):
            emit.line(f"hlo::u32 rows[{high}][4], columns[{wide // 2}][4];")
            if a.comes_whole:
                with self._unrolled("i", high):
                    self._load_whole(a, "rows[i]", self._piece_of_rows(f"{top} + 16 * i", first))
            else:
                with self._unrolled("i", high), self._unrolled("n", 4):
                    row, step = (
                        f"{top} + 16 * i + group + n % 2 * 8",
                        f"{first} + member + n / 2 * 4",
                    )
                    emit.line(f"rows[i][n] = {a.name}[{a.place_of(step, row)}];")
            if b.comes_whole:
                with self._unrolled("j", wide // 2):
                    self._load_whole(
                        b, "columns[j]", b.of_warp(f"{left} + 16 * j", second, turns=True)
                    )
            else:
                with self._unrolled("j", wide), self._unrolled("n", 2):
                    column, word = "span_b + 8 * j + group", "8 * s + member + n * 4"
                    emit.line(
                        f"columns[j / 2][j % 2 * 2 + n] = {b.name}[{b.place_of(word, column)}];"
                    )
            if self.stages > 1 and a.per == 1:
                self._round("rows", high)
                self._round("columns", wide // 2)
            with self._unrolled("i", high), self._unrolled("j", wide):
                registers = [f"rows[i][{n}]" for n in range(4)]
                registers += [f"columns[j / 2][j % 2 * 2 + {n}]" for n in range(2)]
                emit.line(f"hlo::mma<hlo::{self.dtype}>(total[i][j], {', '.join(registers)});")

    def _piece_of_rows(self, row: Expr, step: Expr) -> Expr:
        return self.sides[0].of_warp(row, step, turns=False)

    def _load_whole(self, operand: Operand, registers: str, place: Expr) -> None:
        turned = "false" if operand.side.is_deep else "true"
        self.emit.line(f"hlo::load_pieces<{turned}>({registers}, &{operand.name}[{place}]);")

    def _round(self, registers: str, count: int) -> None:
        """Write how what was copied as it lay becomes what tensor cores take."""
        with self._unrolled("i", count), self._unrolled("n", 4):
            value = f"hlo::bits_as<hlo::f32>({registers}[i][n])"
            self.emit.line(f"{registers}[i][n] = hlo::tf32_bits({value});")

    @contextmanager
    def _unrolled(self, name: str, count: int, most: int | None = None) -> Iterator[None]:
        self.emit.line("#pragma unroll" + (f" {most}" if most else ""))
        with self.emit.block(f"for (int {name} = 0; {name} < {count}; ++{name})"):
            yield

    def _share(self, along: Side) -> None:
        """Write how a team's sums get to shared memory."""
        emit = self.emit
        # One more than a row has, so that a warp's accesses fall into different banks.
        emit.line(f"float (*const sums)[{along.tile + 1}] = (float (*)[{along.tile + 1}])own;")
        row, column = "span_a + 16 * i + group + n / 2 * 8", "span_b + 8 * j + 2 * member + n % 2"
        place = f"[{row}][{column}]" if self.along_columns else f"[{column}][{row}]"
        with (
            self._unrolled("i", self.span // 16),
            self._unrolled("j", SPAN // 8),
            self._unrolled("n", 4),
        ):
            emit.line(f"sums{place} = total[i][j][n];")

    def _store(self, across: Side, along: Side) -> None:
        emit = self.emit
        starts = self.starts if self.along_columns else self.starts[::-1]
        width = FOUR if along.extent % FOUR == 0 else 1
        slots = across.tile * along.tile // (width * self.cluster)
        first, threads = self.partners.first(slots), self.team * self.teams
        head = f"for (int at = {first}threadIdx.x; at < {first}{slots}; at += {threads})"
        with emit.block(head):
            emit.line(f"const int across = at / {along.tile // width};")
            emit.line(f"const int along = at % {along.tile // width} * {width};")
            at = [emit.integer(f"{starts[0]} + across"), emit.integer(f"{starts[1]} + along")]
            tests = self._tests(at, (across, along))
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                self._results(across, along, at, width)
        self.results.beside(self.blocks, threads)

    def _tests(self, at: Sequence[Expr], sides: Sequence[Side]) -> list[Expr]:
        """Return what holds of a place that is one of the result's."""
        return tests_inside(at, sides)

    def _results(self, across: Side, along: Side, at: Sequence[Expr], width: int) -> None:
        """Write the results at so many places side by side, all stores behind all else."""
        emit, form = self.emit, self.form
        stores: list[tuple[int, str]] = []
        places = {across.number: emit.split(at[0], across.sizes)}
        for k, place in enumerate(self._along_results(at[1], along, width)):
            places[along.number] = place
            total = emit.variable(self.wide, "{}")
            self._met.sum_up(emit, total, width, k)
            index = self.product.result(self.batch, places[0], places[1])
            value = narrowed(
                emit.operands_of(form.instr), total, self.wide, written(form.instr).dtype
            )
            emit.assume(form.instr.name, index, (value,))
            stores += self.results.at(index)
        for _, store in sorted(stores, key=lambda each: each[0]):
            emit.line(store)

    def _along_results(self, first: Expr, side: Side, count: int) -> Sequence[Index]:
        if side.sizes[-1] % count == 0:
            return neighbours(self.emit, first, count, side.sizes)
        at = (self.emit.integer(f"{first} + {k}") for k in range(count))
        return [self.emit.split(place, side.sizes) for place in at]
