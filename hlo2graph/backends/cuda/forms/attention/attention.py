"""The attention form: scores, what is made of them row by row, and the values so weighed, at once.

A block has a tile of rows, of queries, and all their keys. Its warps compute the scores of a chunk
of keys each, which meet in shared memory; teams of threads fold the rows there, and leave weights
as the second product takes them; then each warp sums the values of its chunks of keys, and what the
warps have is added up as in any product.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.forms.attention.scores import FewScores, PlainScores, Scores
from hlo2graph.backends.cuda.forms.attention.shared import ScoreProduct, Shared, placed, tiled_rows
from hlo2graph.backends.cuda.forms.attention.sharing import sharing_of
from hlo2graph.backends.cuda.forms.attention.values import FewValues, PlainValues, Values
from hlo2graph.backends.cuda.forms.attention.warps import warps_attention_kernel
from hlo2graph.backends.cuda.forms.folds.fold_places import Place, Run
from hlo2graph.backends.cuda.forms.folds.folding import FoldWriter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.line_order import divide_together
from hlo2graph.backends.cuda.forms.products.dot_tile import MOST_RESIDENT
from hlo2graph.backends.cuda.forms.products.product import DotProduct
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP, Team
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_products import narrowed
from hlo2graph.ops.expect import written
from hlo2graph.ops.region import Attention
from hlo2graph.ops.region_attention import FEW_ROWS


def attention_kernel(form: Form, region: Attention) -> KernelSource:
    """Return the kernel of attention; the form's instruction is the product with the values."""
    if sharing := sharing_of(form, region):
        return warps_attention_kernel(form, region, sharing)
    return _Writer(form, region).kernel()


class _Writer:
    def __init__(self, form: Form, region: Attention) -> None:
        self.form, self.region, self.emit = form, region, form.emitter()
        weighing, computation = region.weighing, form.computation
        self.weights = computation[form.instr.operands[weighing.weights]]
        dtype = written(self.weights).dtype
        product = DotProduct(form)
        self.rows = tiled_rows(product.sides[weighing.weights])
        is_few = self.rows.extent <= FEW_ROWS
        is_f32 = dtype.name == "f32"
        self.tf32 = is_f32 and not is_few and not form.signature.precise
        scored = replace(form, instr=computation[weighing.scores])
        keys = written(scored.instr).dims[weighing.key]
        self.shared = Shared(self.rows.tile, keys, 1 if is_few else 4 // dtype.size)
        ways: tuple[type[Scores | FewScores], type[Values | FewValues]] = (Scores, Values)
        if is_few:
            ways = (FewScores, FewValues)
        elif is_f32 and not self.tf32:
            ways = (PlainScores, PlainValues)
        self.values = ways[1](form, weighing.weights, self.shared, self.emit)
        while self.values.warps * WARP > self.rows.tile * keys:
            self.values.warps //= 2  # so that each thread of a row has a score
        self.warps = self.values.warps
        scores = ScoreProduct(scored, weighing.side, weighing.rows, self.rows.sizes)
        self.scores = ways[0](scored, scores, weighing.side, self.shared, self.emit)
        self.blocks = prod(self.values.product.batches) * self.rows.tiles

    def kernel(self) -> KernelSource:
        """Return the kernel."""
        self._write()
        threads, signature = self.warps * WARP, self.form.signature
        resident = -(-self.blocks // signature.device.multiprocessors)
        most = max(1, MOST_RESIDENT // threads)
        lines = self.emit.needed_lines()
        text = signature.declare(lines, threads, wide=True, resident=min(resident, most))
        grid, size = (self.blocks, 1, 1), self.shared.bytes + self.values.bytes
        return KernelSource(signature.name, text, grid, threads, shared_bytes=size, tf32=self.tf32)

    def _write(self) -> None:
        emit, tiles = self.emit, self.rows.tiles
        block = emit.integer(emit.block_index)
        batch = emit.split(emit.integer(f"{block} / {tiles}"), self.values.product.batches)
        top = emit.integer(f"{block} % {tiles} * {self.rows.tile}")
        emit.line(f"const int warp = threadIdx.x / {WARP}, lane = threadIdx.x % {WARP};")
        emit.line("const int group = lane / 4, member = lane % 4;")
        self.shared.declare(emit)
        self.values.begin(batch, top)
        first = placed(self.region.weighing.batch, batch)
        self.scores.begin(first, top)
        self.scores.write(self.warps)
        emit.line("__syncthreads();")
        with emit.block(""):
            self._weigh(first, top)
        emit.line("__syncthreads();")
        self.values.write()

    # ---- rows -----------------------------------------------------------------------------

    def _weigh(self, batch: Index, top: Expr) -> None:
        """Write how the threads of a row make weights of its scores."""
        emit, team = self.emit, Team(self.rows.tile, self.warps * WARP // self.rows.tile)
        emit.line(f"const int lane = threadIdx.x / {team.slices};")  # as the team calls its row
        emit.line(f"const int slice = threadIdx.x % {team.slices};")
        query = emit.integer(f"{top} + lane")
        if self.rows.extent % self.rows.tile:
            last = self.rows.extent - 1
            query = emit.integer(f"{query} < {last} ? {query} : {last}")
        free = emit.split(query, self.rows.sizes)
        start = len(emit.lines)
        several = -(-self.shared.padded // team.slices)
        runs = [self._run(batch, free, k, team) for k in range(several)]
        fold = FoldWriter(emit, self.region.rows, self.form.computation)
        space = self.region.rows.space
        index = placed(self.region.weighing.folded, self._index(batch, free, "0"))
        live = [index[d] for d in space.kept if space.shape.dims[d] != 1]
        row = Place(emit, space, live, None)
        for stage in self.region.rows.stages:
            reduces = fold.reduces(stage)
            fold.fold_round(reduces, runs, None)
            divide_together(emit, start)
            held = [(reduce, fold.partial[reduce.name][0]) for reduce in reduces]
            parts = [fold.part(reduce, own) for reduce, own in held]
            team.combine(emit, parts, all_threads=True)
            for reduce, own in held:
                fold.settle(reduce, own, row)
        self._keep(fold, runs, team)

    def _run(self, batch: Index, free: Index, number: int, team: Team) -> Run:
        """Write how a thread takes one of its scores; return where it is."""
        emit, keys, scores = self.emit, self.shared.keys, self.scores
        key = emit.integer(f"slice + {number * team.slices}")
        inside = f"{key} < {keys}" if (number + 1) * team.slices > keys else None
        if inside:
            key = emit.integer(f"{inside} ? {key} : {keys - 1}")
        index = self._index(batch, free, key)
        instr = scores.form.instr
        total = emit.bind(scores.wide, f"scores[lane * {self.shared.stride} + {key}]")
        given = emit.operands_of(instr)
        value = narrowed(given, total, scores.wide, written(instr).dtype)
        emit.assume(instr.name, index, (value,))
        for view in self.region.weighing.views:
            shown = emit.leaf(view.source, 0, placed(view.shown, index))
            emit.assume(view.name, placed(view.places, index), (shown,))
        space = self.region.rows.space
        folded = placed(self.region.weighing.folded, index)
        live = [at for at, n in zip(folded, space.shape.dims, strict=True) if n != 1]
        return Run((Place(emit, space, live, None),), inside)

    def _index(self, batch: Index, free: Index, key: Expr) -> Index:
        """Return the index of a score."""
        side = self.region.weighing.side
        keys = self.emit.split(key, self.scores.product.sides[side].sizes)
        sides = [free, keys] if side else [keys, free]
        return self.scores.product.result(batch, *sides)

    def _keep(self, fold: FoldWriter, runs: list[Run], team: Team) -> None:
        """Write the weights to shared memory; they are 0 where there is no key."""
        emit, dtype = self.emit, written(self.weights).dtype
        start = len(emit.lines)
        values = [fold.at(self.weights.name, 0, run.places[0]) for run in runs]
        divide_together(emit, start)
        row = f"lane * {self.shared.weight_stride * self.shared.per}"
        emit.line(f"{self._kind}* const kept = ({self._kind}*)weights + {row};")
        for number, (run, value) in enumerate(zip(runs, values, strict=True)):
            held = value
            if self.tf32:
                held = f"hlo::tf32_bits({value})"
            elif self.shared.per > 1:
                held = emit.stored(dtype, value)
            if run.inside:
                held = f"{run.inside} ? {held} : {self._kind}{{}}"
            at, padded = f"slice + {number * team.slices}", self.shared.padded
            is_over = (number + 1) * team.slices > padded
            emit.line(f"{f'if ({at} < {padded}) ' if is_over else ''}kept[{at}] = {held};")

    @property
    def _kind(self) -> str:
        """The C++ type of a weight in shared memory."""
        if self.shared.per > 1:
            return storage_type(written(self.weights).dtype)
        return "hlo::u32" if self.tf32 else "float"
