"""Attention a chunk of keys at a time, with scores and weights in registers.

That is as tensor cores want them: of a chunk's scores a thread has those keys of its rows whose
weights it gives to the second product. Where rows are many each warp has rows of its own, and looks
at all their keys; warps of a block read the same keys at about the same time, so that most come
from the cache that they share. Where rows are few they are shared (sharing.py, meeting.py). A
softmax takes one look at the keys; other folds take one for each of their stages, and one for the
product with the values: scores are computed again each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.forms.attention.hidden import hidden_from, is_odd
from hlo2graph.backends.cuda.forms.attention.meeting import meet, meeting_bytes
from hlo2graph.backends.cuda.forms.attention.online_softmax import OnlineSoftmax
from hlo2graph.backends.cuda.forms.attention.product import RowsProduct
from hlo2graph.backends.cuda.forms.attention.shared import ScoreProduct, placed
from hlo2graph.backends.cuda.forms.attention.sharing import Sharing, shared_softmax, threads_of
from hlo2graph.backends.cuda.forms.attention.store import Store, sum_of
from hlo2graph.backends.cuda.forms.folds.fold_places import Place
from hlo2graph.backends.cuda.forms.folds.folding import FoldWriter, Values
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.line_order import divide_together
from hlo2graph.backends.cuda.forms.products.dot_parts import (
    CHUNK,
    COLUMNS,
    EACH,
    ROWS,
    Held,
    power,
)
from hlo2graph.backends.cuda.forms.products.product import DotProduct
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP, Team
from hlo2graph.hlo import Instruction
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import written
from hlo2graph.ops.region import Attention
from hlo2graph.ops.region_softmax import Softmax

WARPS = 4  # of a block
TEAM = Team(WARPS * WARP // 4, 4)  # the threads that have keys of one row
MOST_BYTES = 128  # of a value, that a warp reads at once


def warps_attention_kernel(form: Form, region: Attention, sharing: Sharing) -> KernelSource:
    """Return the kernel of attention whose rows are so shared."""
    return _Writer(form, region, sharing).kernel()


class _Writer:
    def __init__(self, form: Form, region: Attention, sharing: Sharing) -> None:
        self.sharing, self.own_rows = sharing, sharing.warps == 1
        self.warps = WARPS if self.own_rows else sharing.warps
        self.form, self.region, self.emit = form, region, form.emitter()
        self.emit.parts.anywhere = True
        weighing, computation = region.weighing, form.computation
        self.weights = computation[form.instr.operands[weighing.weights]]
        product = DotProduct(form)
        self.rows = product.sides[weighing.weights].cut(ROWS)
        values = product.sides[1 - weighing.weights]
        self.dtype = written(self.weights).dtype
        whole = COLUMNS * power(-(-values.extent // COLUMNS))
        values = values.cut(min(MOST_BYTES // self.dtype.size, whole))
        self.values = RowsProduct(form, product, self.rows, values, self.emit)
        scored = replace(form, instr=computation[weighing.scores])
        scores = ScoreProduct(scored, weighing.side, weighing.rows, self.rows.sizes)
        rows, keys = (scores.sides[k] for k in (1 - weighing.side, weighing.side))
        self.keys = keys.extent
        self.scores = RowsProduct(scored, scores, rows.cut(ROWS), keys.cut(CHUNK), self.emit)
        self.own = self.scores.each[0]  # rows of a thread
        self.tiles = -(-self.rows.tiles // WARPS) if self.own_rows else self.rows.tiles
        self.fold = FoldWriter(self.emit, region.rows, computation)
        self.fold.width = self.own

    def kernel(self) -> KernelSource:
        """Return the kernel."""
        self._write()
        threads, signature = self.warps * WARP, self.form.signature
        elements = self.scores.parts[0].steps + self.values.columns.extent
        resident = max(1, threads_of(elements, self.dtype) // threads)
        lines = self.emit.needed_lines()
        text = signature.declare(
            lines, threads, wide=True, resident=resident, cluster=self.sharing.blocks
        )
        blocks = prod(self.values.product.batches) * self.tiles * self.sharing.blocks
        size = 0 if self.own_rows else meeting_bytes(self.values, self.warps)
        grid, tf32 = (blocks, 1, 1), self.dtype.name == "f32"
        return KernelSource(signature.name, text, grid, threads, shared_bytes=size, tf32=tf32)

    def _write(self) -> None:
        emit, values = self.emit, self.values
        block = emit.integer(emit.block_index)
        if self.sharing.blocks > 1:
            emit.line(f"const int rank = {block} % {self.sharing.blocks};")
            block = emit.integer(f"{block} / {self.sharing.blocks}")
        batch = emit.split(emit.integer(f"{block} / {self.tiles}"), values.product.batches)
        emit.line(f"const int warp = threadIdx.x / {WARP}, slice = threadIdx.x % 4;")
        emit.line(f"const int group = threadIdx.x % {WARP} / 4, member = slice;")
        top = emit.integer(f"{self._tile(block)} * {ROWS}")
        self.batch = placed(self.region.weighing.batch, batch)
        self.queries = [self._query(top, k) for k in range(self.own)]
        self.scores.begin(self.batch, top)
        held = self.scores.held_rows()
        values.begin(batch, top)
        count = f"[{values.columns.tiles}][1][{values.columns.tile // COLUMNS}][4]"
        emit.line(f"float own{count} = {{}};")
        softmax = shared_softmax(self.form, self.region)
        if softmax:
            online = self._sum_at_once(softmax, held)
            if not self.own_rows:
                meet(values, online, self.sharing)
                return
            self._divide(online)
        else:
            for stage in self.region.rows.stages:
                self._fold(self.fold.reduces(stage), held)
            self._sum(held)
        Store(values, self.queries, self.region.weighing.weights).write()

    def _tile(self, block: Expr) -> Expr:
        """Return the number of a warp's rows."""
        number = f"{block} % {self.tiles}"
        return f"({number} * {WARPS} + warp)" if self.own_rows else number

    def _query(self, top: Expr, number: int) -> Index:
        """Write which row a thread's row of this number is; return its place."""
        query = self.emit.integer(f"{top} + group * {self.own} + {number}")
        if self.rows.extent % ROWS:
            last = self.rows.extent - 1
            query = self.emit.integer(f"{query} < {last} ? {query} : {last}")
        return self.emit.split(query, self.rows.sizes)

    # ---- scores ---------------------------------------------------------------------------

    def _score(self, held: Sequence[Held]) -> list[tuple[list[Place], Expr | None]]:
        """Write the scores of a chunk; return a thread's places by key, and if there is a key."""
        emit, scores = self.emit, self.scores
        left = emit.integer(f"chunk * {CHUNK}")
        scores.declare()
        for number, rows in enumerate(held):
            scores.add(left, str(number), rows)
        found = []
        for number in range(EACH):
            key = emit.integer(f"{left} + member * {EACH} + {number}")
            inside = f"{key} < {self.keys}" if self.keys % CHUNK else None
            if inside:
                key = emit.integer(f"{inside} ? {key} : {self.keys - 1}")
            found.append(([self._place(key, number, k) for k in range(self.own)], inside))
        return found

    def _place(self, key: Expr, number: int, row: int) -> Place:
        """Make a score known, that of a thread's key and row of these numbers."""
        emit, instr, weighing = self.emit, self.scores.form.instr, self.region.weighing
        index = self._index(self.queries[row], key)
        total = f"total{sum_of(row, number, self.scores.each[1])}"
        value, dtype = total, written(instr).dtype
        if dtype is not self.scores.wide:  # a NaN's bits never show
            value = emit.bind(dtype, f"hlo::narrowed<hlo::{dtype}>({total})")
        emit.assume(instr.name, index, (value,))
        for view in weighing.views:
            shown = emit.leaf(view.source, 0, placed(view.shown, index))
            emit.assume(view.name, placed(view.places, index), (shown,))
        space, folded = self.region.rows.space, placed(weighing.folded, index)
        live = [at for at, n in zip(folded, space.shape.dims, strict=True) if n != 1]
        return Place(emit, space, live, None)

    def _index(self, free: Index, key: Expr) -> Index:
        """Return the index of a score."""
        side = self.region.weighing.side
        keys = self.emit.split(key, self.scores.product.sides[side].sizes)
        sides = [free, keys] if side else [keys, free]
        return self.scores.product.result(self.batch, *sides)

    # ---- folds ----------------------------------------------------------------------------

    def _fold(self, reduces: Sequence[Instruction], held: Sequence[Held]) -> None:
        """Write how a warp folds all keys of its rows."""
        emit, fold = self.emit, self.fold
        fold.begin(reduces)
        with self._chunks():
            found = self._score(held)
            values = {
                reduce.name: [[fold.values(reduce, p) for p in places] for places, _ in found]
                for reduce in reduces
            }
            with emit.block("if (chunk == 0)"):  # which is whole
                for reduce in reduces:
                    for row, into in enumerate(fold.partial[reduce.name]):
                        each = [of_key[row] for of_key in values[reduce.name]]
                        fold.assign(reduce, into, fold.folded(reduce, each))
            with emit.block("else"):
                for reduce in reduces:
                    self._fold_on(reduce, values[reduce.name], [inside for _, inside in found])
        for reduce in reduces:
            parts = [fold.part(reduce, own) for own in fold.partial[reduce.name]]
            TEAM.combine(emit, parts, all_threads=True)
            for row, own in enumerate(fold.partial[reduce.name]):
                fold.settle(reduce, own, self._row(row))

    def _fold_on(
        self, reduce: Instruction, values: Sequence[Sequence[Values]], tests: Sequence[Expr | None]
    ) -> None:
        """Fold a chunk's values, by key and row, into what there is; `tests` tell of keys."""
        fold = self.fold
        for row, into in enumerate(fold.partial[reduce.name]):
            each = [of_key[row] for of_key in values]
            if tests[0] is None:
                fold.fold(reduce, into, fold.folded(reduce, each))
                continue
            for value, inside in zip(each, tests, strict=True):
                with self.emit.block(f"if ({inside})"):
                    fold.fold(reduce, into, value)

    def _chunks(self) -> AbstractContextManager[None]:
        """Write a loop over a warp's chunks of keys."""
        first, count = "0" if self.own_rows else "warp", -(-self.keys // CHUNK)
        if self.sharing.blocks > 1:
            first = f"rank * {self.warps} + warp"
        head = f"for (int chunk = {first}; chunk < {count}; chunk += {self.sharing.all})"
        return self.emit.block(head)

    def _row(self, number: int) -> Place:
        space = self.region.rows.space
        index = placed(self.region.weighing.folded, self._index(self.queries[number], "0"))
        live = [index[d] for d in space.kept if space.shape.dims[d] != 1]
        return Place(self.emit, space, live, None)

    # ---- values ---------------------------------------------------------------------------

    def _sum_at_once(self, softmax: Softmax, held: Sequence[Held]) -> OnlineSoftmax:
        """Write how a warp sums values by a softmax's exponentials, in one look at the keys.

        They are divided by the sum of these in the end, not each weight before.
        """
        emit, values = self.emit, self.values
        online = OnlineSoftmax(emit, self.fold, softmax)
        with self._chunks():
            self._pass_by(softmax, [most for most, _ in online.found])
            emit.line(f"hlo::u32 kept[{self.own}][{values.registers}];")
            emit.line(f"float scale[{self.own}];")
            with emit.block(""):
                found = self._score(held)
                tests = [inside for _, inside in found]
                for row in range(self.own):
                    read = [self.fold.values(softmax.largest, p[row])[0] for p, _ in found]
                    scale, grown = online.add(row, read, tests, TEAM)
                    emit.line(f"scale[{row}] = {scale};")
                    self._pack(row, grown)
            self._add_values("scale")
        online.end(TEAM)
        return online

    def _divide(self, online: OnlineSoftmax) -> None:
        """Write how a warp divides its rows' sums by what their exponentials make together."""
        emit, values = self.emit, self.values
        emit.line(f"float share[{self.own}];")
        for row, total in enumerate(online.totals()):
            emit.line(f"share[{row}] = __frcp_rn({total});")
        for tile in range(values.columns.tiles):
            with emit.block(""):
                emit.line(f"auto& total = own[{tile}];")
                values.scale("share")

    def _pass_by(self, softmax: Softmax, largest: Sequence[Expr]) -> None:
        """Write how a warp passes by a chunk of keys that none of its rows sees."""
        emit = self.emit
        masks = {mask.chosen: mask for mask in self.region.weighing.masks}
        mask = masks.get(softmax.folded.name)
        if mask is None:
            return
        key = emit.integer(
            f"chunk * {CHUNK}" if mask.is_first else f"chunk * {CHUNK} + {CHUNK - 1}"
        )
        if not mask.is_first and self.keys % CHUNK:
            key = emit.integer(f"{key} < {self.keys} ? {key} : {self.keys - 1}")
        places = [placed(mask.places, self._index(query, key)) for query in self.queries]
        seen = [emit.leaf(mask.predicate, 0, place) for place in places]
        value = emit.leaf(mask.hidden, 0, places[0])
        seen = [f"{test} == {'true' if mask.seen else 'false'}" for test in seen]
        with emit.block(f"if ({hidden_from(seen, value, largest)})"):
            emit.line("hlo::u32 odd = 0;")
            for tile in range(self.values.columns.tiles):
                self.values.look_for_odd(str(tile * self.values.columns.tile))
            emit.line(f"if (!{is_odd()}) continue;")

    def _sum(self, held: Sequence[Held]) -> None:
        """Write how a warp sums values by their weights."""
        emit, values = self.emit, self.values
        with self._chunks():
            emit.line(f"hlo::u32 kept[{self.own}][{values.registers}];")
            with emit.block(""):
                self._keep(self._score(held))
            self._add_values()

    def _add_values(self, scale: str = "") -> None:
        """Write how a chunk's weights and values are added to the sums, first multiplied."""
        values = self.values
        for tile in range(values.columns.tiles):
            with self.emit.block(""):
                self.emit.line(f"auto& total = own[{tile}];")
                if scale:
                    values.scale(scale)
                rows = Held(values.parts[0].rows, ("kept",))
                values.add(str(tile * values.columns.tile), "chunk", rows)

    def _keep(self, found: Sequence[tuple[Sequence[Place], Expr | None]]) -> None:
        """Write the weights of a chunk; they are 0 where there is no key."""
        start = len(self.emit.lines)
        made = [[self.fold.at(self.weights.name, 0, p) for p in places] for places, _ in found]
        divide_together(self.emit, start)
        for row in range(self.own):
            kept = [
                f"({inside} ? {of_key[row]} : 0.0f)" if inside else of_key[row]
                for of_key, (_, inside) in zip(made, found, strict=True)
            ]
            self._pack(row, kept)

    def _pack(self, row: int, kept: Sequence[Expr]) -> None:
        """Write a row's weights as tensor cores take them."""
        per = EACH // self.values.registers
        how = "tf32_bits" if per == 1 else f"pair_bits<hlo::{self.dtype}>"
        for register in range(self.values.registers):
            held = ", ".join(kept[per * register : per * (register + 1)])
            self.emit.line(f"kept[{row}][{register}] = hlo::{how}({held});")
