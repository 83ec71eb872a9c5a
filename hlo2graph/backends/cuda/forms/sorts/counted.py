"""The form of sorts by one key where pairs are few: each element counts those before it.

A block keeps all keys of a window, and finds the places of a warp's number of its elements.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.window import Window
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.sort_key import SortKey

_MOST_WARPS = 8


def counted_kernel(form: Form, along: int, window: int, key: SortKey) -> KernelSource:
    """Return the kernel that sorts windows of each row, of which the last one may be shorter."""
    shape = form.shape(0)
    length = shape.dims[along]
    windows, pieces = -(-length // window), -(-min(window, length) // WARP)
    warps = min(_MOST_WARPS, pieces)
    threads = warps * WARP
    writer = Window(form, form.emitter(), along, window, threads)
    emit, index = writer.emit, writer.index
    row, number, piece = emit.split(emit.integer(emit.block_index), (-1, windows, pieces))
    writer.find_row(row)
    emit.line(f"const {index} first = ({index}){number} * {window};")
    writer.count(length)
    emit.line(f"const int mine = (int){piece} * {WARP} + threadIdx.x % {WARP};")
    emit.line("const int here = mine < count ? mine : count - 1;")
    place = writer.place(emit.integer("first + here"))
    held = [emit.leaf(name, 0, place) for name in form.instr.operands]
    writer.declare_key(key)
    look = "[&](int slot) { return key(first + slot); }"
    counted = f"hlo::count_before<{pieces * WARP}, {warps}>((int){piece}, count, {look})"
    emit.line(f"const {index} place = first + {counted};")
    emit.line(f"if (threadIdx.x >= {WARP} || mine >= count) return;")
    for at, (leaf, x) in enumerate(zip(form.results, held, strict=True)):
        emit.line(
            f"r{at}[{emit.offset(leaf, writer.place('place'))}] = {emit.stored(leaf.dtype, x)};"
        )
    rows = shape.elements // length if length else 0
    return form.source(emit, max(1, rows * windows * pieces), threads)
