"""The form of a step of a long sort: each block makes as much of the result as a window holds.

The first step sorts windows. Where a step makes one run of many, each element looks in all of them
for how many go before it, and goes to its place; a block takes a warp's number of neighbours, and
its warps the runs in turn. Other steps merge two neighbouring runs: a warp finds, by the elements
that are compared there, how much of either run lies before the block's part of the merged one, a
second warp how much lies before its end. What is between is merged in shared memory, where each
thread finds its own part in the same way. Equal elements of the first run come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.counted import counted_kernel
from hlo2graph.backends.cuda.forms.sorts.sort import threads_for
from hlo2graph.backends.cuda.forms.sorts.window import Window, key_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr
from hlo2graph.ops.sort_runs import Runs, counts, runs_of, window_for

EACH = 8  # elements that a thread merges
RANKING_WARPS, RANKED_TOGETHER = 8, 4  # most warps, and runs that each looks at together
FEWEST_THREADS = 64  # two warps, which look for the block's part


def runs_kernel(form: Form) -> KernelSource:
    """Return the kernel of one step."""
    runs = runs_of(form.instr)
    assert runs is not None
    shape = form.shape(0)
    length = shape.dims[runs.dimension]
    if runs.length > 2 * runs.sorted > 2:
        return _ranked(form, runs, length)
    window = window_for(form.instr.shape, runs.length)
    sorts = runs.sorted == 1
    key = key_of(form) if sorts else None
    if key and length and counts(shape.elements // runs.length, runs.length):
        return counted_kernel(form, runs.dimension, runs.length, key)
    threads = threads_for(window, key) if sorts else max(FEWEST_THREADS, window // EACH)
    writer = Window(form, form.emitter(), runs.dimension, window, threads)
    emit = writer.emit
    pieces = max(1, -(-length // window))
    row, piece = emit.split(emit.integer(emit.block_index), (-1, pieces))
    writer.find_row(row)
    emit.line(f"const {writer.index} first = ({writer.index}){piece} * {window};")
    if key:
        writer.sort_by_key(key, length)
    elif sorts:
        writer.stage()
        writer.sort_window(length)
    else:
        writer.stage()
        _merge(writer, runs, length)
    rows = shape.elements // length if length else 0
    return form.source(emit, max(1, rows * pieces) if rows else 1, threads)


def _ranked(form: Form, runs: Runs, length: int) -> KernelSource:
    """Let each element find its place among those of all runs."""
    count = runs.length // runs.sorted
    warps = min(RANKING_WARPS, count)
    writer = Window(form, form.emitter(), runs.dimension, WARP, warps * WARP)
    emit, index = writer.emit, writer.index
    pieces = max(1, -(-length // WARP))
    row, piece = emit.split(emit.integer(emit.block_index), (-1, pieces))
    writer.find_row(row)
    emit.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
    emit.line(f"const {index} mine = {piece} * {WARP} + lane;")
    emit.line(f"const {index} here = mine < {length} ? mine : {length - 1};")
    emit.line(f"const {index} start = here / {runs.length} * {runs.length};")
    end = f"start + {runs.length} < {length} ? start + {runs.length} : {length}"
    emit.line(f"const {index} end = {end}, own = here / {runs.sorted} * {runs.sorted};")
    operands = form.instr.operands
    held = [emit.leaf(name, 0, writer.place("here")) for name in operands]
    key = key_of(form)
    if key:
        writer.declare_key(key)
        emit.line("const hlo::u32 known = key(here);")
    emit.line(f"__shared__ {index} parts[{warps}][{WARP}];")
    together = min(RANKED_TOGETHER, count // warps)
    among = f"start + warp * {runs.sorted}, {warps * runs.sorted}, end, own, here - own"
    if key and runs.sorted >= WARP:  # a warp's elements rise
        ways = f"{runs.sorted}, {warps}, {together}, {index}"
        emit.line(f"parts[warp][lane] = hlo::count_lesser<{ways}>({among}, known, key);")
    else:
        _write_goes(writer, held, has_key=key is not None)
        whole = "true" if length % runs.length == 0 else "false"
        ways = f"{runs.sorted}, {whole}, {together}, {index}"
        emit.line(f"parts[warp][lane] = hlo::count_leading<{ways}>({among}, goes);")
    emit.line("__syncthreads();")
    emit.line(f"if (warp > 0 || mine >= {length}) return;")
    emit.line(f"{index} place = start;")
    emit.line(f"for (int w = 0; w < {warps}; ++w) place += parts[w][lane];")
    for number, (leaf, x) in enumerate(zip(form.results, held, strict=True)):
        at = emit.offset(leaf, writer.place("place"))
        emit.line(f"r{number}[{at}] = {emit.stored(leaf.dtype, x)};")
    rows = form.shape(0).elements // length if length else 0
    return form.source(emit, max(1, rows * pieces), writer.threads)


def _write_goes(writer: Window, held: Sequence[Expr], *, has_key: bool) -> None:
    """Write `goes(run, at)`: whether an element of a run goes before the one that is held."""
    emit, index = writer.emit, writer.index
    with emit.block(f"const auto goes = [&]({index} run, {index} at) -> bool", ";"):
        if has_key:  # equal ones of earlier runs go before
            emit.line("const hlo::u32 other = key(at);")
            emit.line("return (other < known) | ((other == known) & (run < own));")
        else:
            _compare(writer, held)


def _compare(writer: Window, held: Sequence[Expr]) -> None:
    """Return whether an element of a run goes before one of another, which is held."""
    emit, instr = writer.emit, writer.form.instr
    emit.line("const bool is_later = run > own;")
    values: list[Expr] = []
    for leaf, name, x in zip(writer.form.results, instr.operands, held, strict=True):
        other = emit.leaf(name, 0, writer.place("at"))
        for one, two in ((other, x), (x, other)):
            values.append(emit.bind(leaf.dtype, f"is_later ? {one} : {two}"))
    (before,) = emit.call(str(instr.attrs["to_apply"]), values)
    emit.line(f"return {before} == is_later;")


def _merge(writer: Window, runs: Runs, length: int) -> None:
    """Merge this block's part of two runs, of which the second may be short, or none."""
    emit, index = writer.emit, writer.index
    writer.count(length)
    emit.line(f"const {index} start = first / {runs.length} * {runs.length};")
    half = runs.sorted
    emit.line(f"const {index} middle = start + {half} < {length} ? start + {half} : {length};")
    end = f"start + {runs.length} < {length} ? start + {runs.length} : {length}"
    emit.line(f"const {index} end = {end};")
    emit.line(f"__shared__ {index} parts[2];")
    with emit.block(f"const auto other_first = [&]({index} a, {index} b) -> bool", ";"):
        writer.compare([x for k in range(len(writer.shared)) for x in _pair(writer, k)])
    with emit.block("if (threadIdx.x < 64)"):
        emit.line(f"const {index} before_it = first - start + (threadIdx.x < 32 ? 0 : count);")
        split = "hlo::merge_split(before_it, middle - start, end - middle, other_first)"
        emit.line(f"const {index} part = {split};")
        emit.line("if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;")
    emit.line("__syncthreads();")
    emit.line(f"const {index} low = start + parts[0];")
    emit.line("const int mine = hlo::within<int>((int)(parts[1] - parts[0]), 0, count);")
    other = f"hlo::within<{index}>(middle + (first - low), middle, end - (count - mine))"
    emit.line(f"const {index} high = {other};")
    writer.each(writer.load_operands, "slot < mine ? low + slot : high + (slot - mine)")
    emit.line(f"hlo::merge_parts<{EACH}>(order, mine, count, before);")
    emit.line("__syncthreads();")
    writer.each(writer.store)


def _pair(writer: Window, number: int) -> tuple[Expr, Expr]:
    """Return where an operand has element b of the second run, and element a of the first."""
    emit = writer.emit
    places = (emit.integer("middle + b"), emit.integer("start + a"))
    name = writer.form.instr.operands[number]
    found = [emit.leaf(name, 0, writer.place(place)) for place in places]
    return found[0], found[1]
