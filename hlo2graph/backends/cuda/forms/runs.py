"""The form of a step of a long sort: each block makes as much of the result as a window holds.

The first step sorts windows. Each other one merges neighbouring runs: a warp finds, by the elements
that are compared there, how much of either run lies before the block's part of the merged one, a
second warp how much lies before its end. What is between is merged in shared memory, where each
thread finds its own part in the same way. Equal elements of the first run come first.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sort import Window, threads_for
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.device import Expr
from hlo2graph.ops.sort_runs import Runs, runs_of, window_for

EACH = 8  # elements that a thread merges
FEWEST_THREADS = 64  # two warps, which look for the block's part


def runs_kernel(form: Form) -> KernelSource:
    """Return the kernel of one step."""
    runs = runs_of(form.instr)
    assert runs is not None
    shape = form.shape(0)
    length = shape.dims[runs.dimension]
    window = window_for(form.instr.shape, runs.length)
    sorts = runs.sorted == 1
    threads = threads_for(window) if sorts else max(FEWEST_THREADS, window // EACH)
    writer = Window(form, form.emitter(), runs.dimension, window, threads)
    emit = writer.emit
    pieces = max(1, -(-length // window))
    row, piece = emit.split(emit.integer(emit.block_index), (-1, pieces))
    writer.find_row(row)
    emit.line(f"const {writer.index} first = ({writer.index}){piece} * {window};")
    if sorts:
        writer.sort_window(length)
    else:
        _merge(writer, runs, length)
    rows = shape.elements // length if length else 0
    return form.source(emit, max(1, rows * pieces) if rows else 1, threads)


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
