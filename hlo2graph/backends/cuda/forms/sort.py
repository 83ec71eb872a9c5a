"""The sort form: one block a row, by a network that keeps any comparator's result a permutation.

A window of elements lies in shared memory, with an array of their order beside it; equal elements
keep their places by comparing these too, so the sort is stable. A row longer than a window is cut
into tiles of half a window. Sorted tiles meet their left and right neighbours in turn and keep the
lower and the upper half, as many times as there are tiles: all in place, with no scratch memory.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import integers

WIDEST = 2048  # elements of a window
SHARED_BYTES = 40 * 1024
ORDER_BYTES = 2
FEWEST = 64


def window_size(length: int, bytes_each: int) -> int:
    """Return a window for rows of `length`: a power of two that fits into shared memory."""
    size = WIDEST
    while size > FEWEST and size * (bytes_each + ORDER_BYTES) > SHARED_BYTES:
        size //= 2
    return min(size, max(2, 1 << (length - 1).bit_length()))


def too_wide(shapes: tuple[Shape, ...]) -> bool:
    """Not even the smallest window of these operands fits into shared memory."""
    return FEWEST * (sum(s.dtype.size for s in shapes) + ORDER_BYTES) > SHARED_BYTES


def threads_for(window: int) -> int:
    """Return one thread for two elements, whole warps."""
    return min(512, max(32, window // 2))


def sort_kernel(form: Form) -> KernelSource:
    """Return the kernel of a sort."""
    shape, (along,) = form.shape(0), integers(form.instr, "dimensions")
    length = shape.dims[along]
    window = window_size(length, sum(s.dtype.size for s in form.results))
    threads = threads_for(window)
    writer = _Writer(form, form.emitter(), along, window, threads)
    writer.write(length)
    rows = shape.elements // length if length else 0
    return form.source(writer.emit, max(1, rows), threads)


class _Writer:
    def __init__(
        self, form: Form, emit: ElementEmitter, along: int, window: int, threads: int
    ) -> None:
        self.form, self.emit, self.along = form, emit, along
        self.window, self.threads = window, threads
        self.shared = [emit.fresh("s") for _ in form.results]

    def write(self, length: int) -> None:
        emit, window, tile = self.emit, self.window, self.window // 2
        emit.line(f"__shared__ hlo::u16 order[{window}];")
        for leaf, name in zip(self.form.results, self.shared, strict=True):
            emit.line(f"__shared__ {storage_type(leaf.dtype)} {name}[{window}];")
        kept = [d for d in range(self.form.shape(0).rank) if d != self.along]
        row = emit.integer(emit.block_index)
        at = emit.split(row, [self.form.shape(0).dims[d] for d in kept])
        self.row = dict(zip(kept, at, strict=True))
        self._comparator()
        index = emit.index_type
        with emit.block(f"for ({index} first = 0; first < {length}; first += {window})"):
            count = f"const int count = first + {window} < {length} ? {window} : {length} - first;"
            emit.line(count)
            self._each(self._load_operands)
            emit.line(f"hlo::sort_window<{window}, {self.threads}>(order, count, before);")
            self._each(self._store)
        if length <= window:
            return
        phases = -(-length // tile)
        with emit.block(f"for (int phase = 1; phase < {phases}; ++phase)"):
            head = f"{index} first = phase % 2 ? {tile} : 0; first + {tile} < {length}"
            with emit.block(f"for ({head}; first += {window})"):
                emit.line(count)
                self._each(self._load_results)
                with emit.block(f"if (before({tile}, {tile - 1}))"):
                    merge = f"hlo::merge_window<{window}, {self.threads}>"
                    emit.line(f"{merge}(order, count, before);")
                    self._each(self._store)
                # Or a thread ahead loads the next window over what others still compare.
                emit.line("else __syncthreads();")

    def _comparator(self) -> None:
        """Write `before(a, b)`: whether slot a of the window sorts before slot b."""
        emit = self.emit
        with emit.block("const auto before = [&](int a, int b) -> bool", ";"):
            values = [
                emit.bind(leaf.dtype, f"hlo::load({name}[{slot}])")
                for leaf, name in zip(self.form.results, self.shared, strict=True)
                for slot in ("a", "b")
            ]
            (found,) = emit.call(str(self.form.instr.attrs["to_apply"]), values)
            emit.line(f"return {found};")

    def _each(self, write: object) -> None:
        """Write a loop over the window's slots, and a barrier behind it."""
        assert callable(write)
        head = f"for (int slot = threadIdx.x; slot < count; slot += {self.threads})"
        with self.emit.block(head):
            write(self._index(self.emit.integer("first + slot")))
        self.emit.line("__syncthreads();")

    def _index(self, position: Expr) -> Index:
        place = self.row | {self.along: position}
        return tuple(place[d] for d in range(len(place)))

    def _load_operands(self, index: Index) -> None:
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            value = self.emit.leaf(self.form.instr.operands[number], 0, index)
            self.emit.line(f"{name}[slot] = {stored(leaf.dtype, value)};")

    def _load_results(self, index: Index) -> None:
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            self.emit.line(f"{name}[slot] = r{number}[{self.emit.offset(leaf, index)}];")

    def _store(self, index: Index) -> None:
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            place = self.emit.offset(leaf, index)
            self.emit.line(f"r{number}[{place}] = {name}[order[slot]];")
