"""The sort form: one block a row, but where counting is best (counted.py, short_rows.py).

Where the comparator compares one key of each element, words of a key and a place are sorted, by
warps in registers, then by merging in shared memory; elements are fetched where the places say.

Else a window of elements lies in shared memory, with an array of their order beside it. Runs are
merged where the comparator orders all numbers; where it may have no place for NaNs, a network keeps
the result a permutation: equal elements keep their places by comparing these too, so it is stable.

A row longer than a window is cut into tiles of half a window. Sorted tiles meet their left and
right neighbours in turn and keep the lower and the upper half, as many times as there are tiles:
all in place, with no scratch memory.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.counted import counted_kernel
from hlo2graph.backends.cuda.forms.sorts.short_rows import short_rows_kernel, suits_short_rows
from hlo2graph.backends.cuda.forms.sorts.window import Window, key_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.expect import integers
from hlo2graph.ops.sort_key import SortKey
from hlo2graph.ops.sort_runs import counts, window_for

MOST_THREADS = 512


def sort_kernel(form: Form) -> KernelSource:
    """Return the kernel of a sort."""
    shape, (along,) = form.shape(0), integers(form.instr, "dimensions")
    length = shape.dims[along]
    rows = shape.elements // length if length else 0
    window, key = window_for(form.instr.shape, length), key_of(form)
    if key and rows and counts(rows, length):
        return counted_kernel(form, along, length, key)
    if key and rows and suits_short_rows(form, along):
        return short_rows_kernel(form, along, key)
    key = key if length <= window else None
    writer = Window(form, form.emitter(), along, window, threads_for(window, key))
    writer.find_row(writer.emit.integer(writer.emit.block_index))
    if key:
        writer.emit.line(f"const {writer.index} first = 0;")
        writer.sort_by_key(key, length)
    else:
        writer.stage()
        _write_row(writer, length)
    return form.source(writer.emit, max(1, rows), writer.threads)


def threads_for(window: int, key: SortKey | None = None) -> int:
    """Return one thread for two elements, or four where they have a key; whole warps."""
    return min(MOST_THREADS, max(WARP, window // (4 if key else 2)))


def _write_row(writer: Window, length: int) -> None:
    """Sort a row window by window, then exchange what lies in the wrong one."""
    emit, window, tile, index = writer.emit, writer.window, writer.window // 2, writer.index
    with emit.block(f"for ({index} first = 0; first < {length}; first += {window})"):
        writer.sort_window(length)
    if length <= window:
        return
    phases = -(-length // tile)
    with emit.block(f"for (int phase = 1; phase < {phases}; ++phase)"):
        head = f"{index} first = phase % 2 ? {tile} : 0; first + {tile} < {length}"
        with emit.block(f"for ({head}; first += {window})"):
            writer.count(length)
            writer.each(writer.load_results)
            with emit.block(f"if (before({tile}, {tile - 1}))"):
                merge = f"hlo::merge_window<{window}, {writer.threads}>"
                emit.line(f"{merge}(order, count, before);")
                writer.each(writer.store)
            # Or a thread ahead loads the next window over what others still compare.
            emit.line("else __syncthreads();")
