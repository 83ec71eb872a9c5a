"""The scatter form, in three ways that give the same bits each time.

- Where no order matters (indices are unique, or integers are folded by what may be done in any
  order) and the results lie where the operands do, each thread takes an element of the updates.
- Where the updates come in the order of what they update, and each is a row or an element, each
  thread, or warp, looks for the updates of its element of the result (sorted_updates.py).
- Else each block owns a slab of the result and applies all updates to it, in order. A batch of
  update positions is worked out together, and those that meet the slab are kept, in order. Their
  windows are folded in one after the other by all threads. In place, the slab is not copied first.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorted_updates import sorted_kernel
from hlo2graph.backends.cuda.forms.updates import Updates
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr
from hlo2graph.ops.free_scatter import folds_freely, is_of_rows
from hlo2graph.ops.scalar_region import binary_reducer

THREADS = 256
MOST_BLOCKS = 1024
FEWEST_SORTED = 256  # updates that are worth looking for


def scatter_kernel(form: Form) -> KernelSource:
    """Return the kernel of a scatter."""
    updates = Updates(form, form.emitter())
    if updates.all_inplace and updates.updates and folds_freely(form.instr, form.computations):
        return _by_update(updates)
    if (
        form.instr.attrs.get("indices_are_sorted") is True
        and updates.updates >= FEWEST_SORTED
        and is_of_rows(form.instr, updates.operand, updates.update)
    ):
        return sorted_kernel(updates)
    elements = form.results[0].elements
    slab = max(THREADS, -(-elements // MOST_BLOCKS))
    _Slabs(updates, slab).write()
    return form.source(updates.emit, max(1, -(-elements // slab)), THREADS)


def _by_update(updates: Updates) -> KernelSource:
    """Let each thread take an element of the updates, in any order."""
    emit, instr, form = updates.emit, updates.form.instr, updates.form
    elements = updates.updates * updates.window
    number = emit.integer(f"{emit.block_index} * {THREADS} + threadIdx.x")
    with emit.block(f"if ({number} < {elements})"):
        split = emit.split(number, (*updates.batch, *updates.sizes))
        batch, inner = split[: len(updates.batch)], split[len(updates.batch) :]
        tests, start = updates.place_of(list(batch))
        with emit.block(f"if ({' && '.join(tests) or 'true'})"):
            place = emit.integer(" + ".join([start, *updates.inner_terms(inner)]))
            places = updates.places(place)
            given = updates.given(batch, inner)
            if instr.attrs.get("unique_indices") is True:
                updates.store(places, updates.folded(updates.held(places), given))
            else:
                _fold_atomically(updates, places[0], given)
    return form.source(emit, blocks_for(elements, THREADS)[0], THREADS)


def _fold_atomically(updates: Updates, place: Expr, given: list[Expr]) -> None:
    emit, form = updates.emit, updates.form
    if binary_reducer(form.computations, str(form.instr.attrs["to_apply"])) == "add":
        emit.line(f"hlo::add_atomically(r0 + {place}, {given[0]});")
        return
    kind = compute_type(form.results[0].dtype)
    with emit.block(f"const auto fold = [&]({kind} held) -> {kind}", ";"):
        (found,) = updates.folded(["held"], given)
        emit.line(f"return {found};")
    emit.line(f"hlo::fold_atomically(r0 + {place}, fold);")


class _Slabs:
    """Writes the form of slabs."""

    def __init__(self, updates: Updates, slab: int) -> None:
        self.of, self.slab = updates, slab
        self.emit, self.form = updates.emit, updates.form

    def write(self) -> None:
        emit, index = self.emit, self.emit.index_type
        elements = self.of.operand.elements
        emit.line(f"const {index} low = {emit.block_index} * {self.slab};")
        end = f"low + {self.slab} < {elements} ? low + {self.slab} : {elements}"
        emit.line(f"const {index} high = {end};")
        emit.line(f"__shared__ {index} starts[{THREADS}], numbers[{THREADS}];")
        self._copy_slab()
        updates = self.of.updates
        with emit.block(f"for ({index} first = 0; first < {updates}; first += {THREADS})"):
            self._find_starts(updates)
            emit.line("int count;")
            emit.line(f"const int rank = hlo::rank_of_chosen<{THREADS}>(mine >= 0, count);")
            emit.line("if (mine >= 0) starts[rank] = mine, numbers[rank] = number;")
            emit.line("__syncthreads();")
            with emit.block("for (int which = 0; which < count; ++which)"):
                emit.line(f"const {index} start = starts[which];")
                self._apply()
            emit.line("__syncthreads();")

    def _copy_slab(self) -> None:
        """Copy the operands into this block's part of the results, but for those in place."""
        emit = self.emit
        copied = [k for k in range(self.of.count) if not self.of.is_inplace(k)]
        if copied:
            head = f"for ({emit.index_type} at = low + threadIdx.x; at < high; at += {THREADS})"
            with emit.block(head):
                index = emit.element_at("at", self.of.result)
                for k in copied:
                    value = emit.leaf(self.form.instr.operands[k], 0, index)
                    place = emit.offset(self.form.results[k], index)
                    emit.line(f"r{k}[{place}] = {stored(self.form.results[k].dtype, value)};")
            emit.line("__syncthreads();")

    def _find_starts(self, updates: int) -> None:
        """Find where this thread's update starts in memory; -1 where it misses the slab."""
        emit = self.emit
        emit.line(f"{emit.index_type} mine = -1;")
        emit.line(f"const {emit.index_type} number = first + threadIdx.x;")
        with emit.block(f"if (number < {updates})"):
            tests, start = self.of.place_of(list(emit.split("number", self.of.batch)))
            extent = self.of.extent()
            span = sum((extent[d] - 1) * self.of.strides[d] for d in extent)
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                emit.line(f"const {emit.index_type} place = {start};")
                emit.line(f"if (place < high && place + {span} >= low) mine = place;")

    def _apply(self) -> None:
        """Fold one update's window into the slab."""
        emit, window = self.emit, self.of.window
        if window == 1:  # each element has one thread, which meets its updates in order
            with emit.block(f"if (start % {THREADS} == threadIdx.x)"):
                self._fold_element("start", "0")
            return
        if window > self.slab:
            self._apply_to_slab()
        else:
            self._apply_window(window)
        if not self.form.instr.attrs.get("unique_indices", False):
            emit.line("__syncthreads();")

    def _apply_window(self, window: int) -> None:
        """Fold in the part of the window that lies in the slab, looking at all of the window."""
        emit = self.emit
        head = f"for ({emit.index_type} part = threadIdx.x; part < {window}; part += {THREADS})"
        with emit.block(head):
            inner = emit.split("part", self.of.sizes)
            place = emit.integer(" + ".join(["start", *self.of.inner_terms(inner)]))
            with emit.block(f"if ({place} >= low && {place} < high)"):
                self._fold_element(place, "part")

    def _apply_to_slab(self) -> None:
        """The same for windows larger than a slab: look at all of the slab instead."""
        emit = self.emit
        head = f"for ({emit.index_type} at = low + threadIdx.x; at < high; at += {THREADS})"
        with emit.block(head):
            here = emit.element_at("at", self.of.result)
            start = emit.element_at("start", self.of.result)
            inside: list[str] = []
            terms, stride = [], 1
            extent = dict(zip(self.of.kept, self.of.sizes, strict=True))
            for dim in reversed(range(self.of.operand.rank)):
                step = emit.integer(f"{here[dim]} - {start[dim]}")
                inside.append(f"{step} >= 0 && {step} < {extent.get(dim, 1)}")
                if dim in extent:
                    terms.append(f"{step} * {stride}")
                    stride *= extent[dim]
            with emit.block(f"if ({' && '.join(inside)})"):
                part = emit.integer(" + ".join(reversed(terms)))
                self._fold_element("at", part)

    def _fold_element(self, place: Expr, part: Expr) -> None:
        emit, of = self.emit, self.of
        batch = emit.split(emit.integer("numbers[which]"), of.batch)
        places = of.places(place)
        held = of.held(places)
        given = of.given(batch, emit.split(part, of.sizes))
        of.store(places, of.folded(held, given))
