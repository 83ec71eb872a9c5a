"""The scatter form, in three ways that give the same bits each time.

- Where no order matters (indices are unique, integers are folded by what may be done in any order,
  or the largest or least of floats is wanted) and the results lie where the operands do, each
  thread takes an element of the updates. Where very many are of few elements, blocks fold theirs in
  shared memory first (shared_updates.py).
- Where the updates come in the order of what they update, and each is a row or an element, each
  thread, or warp, looks for the updates of its element of the result (sorted_updates.py).
- Else each block owns a slab of the result and applies all updates to it, in order. A batch of
  update positions is worked out together, and those that meet the slab are kept, in order. Their
  windows are folded in one after the other by all threads, which read several ahead where they have
  the slab in registers. In place, the slab is not copied first.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.scatters.shared_updates import fold_update, shared_kernel, shares
from hlo2graph.backends.cuda.forms.scatters.sorted_updates import sorted_kernel
from hlo2graph.backends.cuda.forms.scatters.updates import Updates
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr
from hlo2graph.ops.free_scatter import folds_freely, is_of_rows

THREADS = 256
MOST_BLOCKS = 1024
HELD_BLOCKS = 512  # where slabs are held: each block looks at all updates
AT_ONCE = 8  # positions that a thread works out
MOST_EACH = 8  # elements of a slab that a thread has in registers
READ_AHEAD, FEWEST_AHEAD = 8, 4  # elements of updates that a thread reads at once, and updates
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
    held = min(-(-elements // HELD_BLOCKS), MOST_EACH * THREADS)
    slab = max(THREADS, -(-elements // MOST_BLOCKS), held)
    _Slabs(updates, slab).write()
    return form.source(updates.emit, max(1, -(-elements // slab)), THREADS)


def _by_update(updates: Updates) -> KernelSource:
    """Let each thread take an element of the updates, in any order."""
    if shares(updates):
        return shared_kernel(updates)
    emit, elements = updates.emit, updates.updates * updates.window
    number = emit.integer(f"{emit.block_index} * {THREADS} + threadIdx.x")
    with emit.block(f"if ({number} < {elements})"):
        fold_update(updates, number, "r0")
    return updates.form.source(emit, blocks_for(elements, THREADS)[0], THREADS)


class _Slabs:
    """Writes the form of slabs."""

    def __init__(self, updates: Updates, slab: int) -> None:
        self.of, self.slab = updates, slab
        self.emit, self.form = updates.emit, updates.form
        self.at_once = max(1, min(AT_ONCE, -(-updates.updates // THREADS)))
        self.is_held = updates.is_in_one_piece and slab <= MOST_EACH * THREADS

    def write(self) -> None:
        emit, index = self.emit, self.emit.index_type
        elements = self.of.operand.elements
        emit.line(f"const {index} low = {emit.block_index} * {self.slab};")
        end = f"low + {self.slab} < {elements} ? low + {self.slab} : {elements}"
        emit.line(f"const {index} high = {end};")
        batch = THREADS * self.at_once
        emit.line(f"__shared__ {index} starts[{batch}], numbers[{batch}];")
        held = self._held() if self.is_held else None
        if held is None:
            self._copy_slab()
        updates = self.of.updates
        with emit.block(f"for ({index} first = 0; first < {updates}; first += {batch})"):
            self._find_starts(updates)
            if held is not None and self.of.all_inplace:
                with emit.block("if (count && !is_held)"):
                    self._load(held)
            if held is None:
                self._apply_each()
            else:
                self._apply_to_held(held)
            emit.line("__syncthreads();")
        if held is not None:
            self._store(held)

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
        """Find the updates that meet the slab: how many, where they start, and their numbers."""
        emit, index = self.emit, self.emit.index_type
        each, only = self.at_once, self._only_start()
        emit.line(f"{index} mine[{each}];")
        warp = f"threadIdx.x / 32 * {32 * each} + threadIdx.x % 32"
        emit.line(f"const {index} own = first + {warp};")
        emit.line("hlo::u32 chosen = 0;")
        emit.line("#pragma unroll")
        with emit.block(f"for (int k = 0; k < {each}; ++k)"):
            # No branch is between one position and the next, so that all are read together.
            wanted = emit.integer("own + k * 32")
            number = emit.integer(f"{wanted} < {updates} ? {wanted} : {updates - 1}")
            meets = "" if updates % (THREADS * each) == 0 else f" && {wanted} < {updates}"
            batch = list(emit.split(number, self.of.batch))
            if only is None:
                tests, start = self.of.place_of(batch)
                emit.line(f"const bool is_inside = {' && '.join(tests) or 'true'}{meets};")
                emit.line(f"mine[k] = is_inside ? {start} : 0;")
                meets = f"is_inside && mine[k] < high && mine[k] + {self._span()} >= low"
            else:
                start = self.of.starts(batch)[only]
                emit.line(f"mine[k] = ({index}){start};")
                wide = "hlo::u32" if self.of.start_type == index == "int" else "hlo::u64"
                meets = f"({wide}){start} - ({wide})earliest < ({wide})near{meets}"
            emit.line(f"chosen |= ({meets} ? 1u : 0u) << k;")
        emit.line(f"int rank[{each}], count;")
        emit.line(f"hlo::rank_chosen<{THREADS}>(chosen, rank, count);")
        emit.line("#pragma unroll")
        with emit.block(f"for (int k = 0; k < {each}; ++k)"), emit.block("if (chosen >> k & 1)"):
            stride = "" if only is None else f" * {self.of.strides[only]}"
            emit.line(f"starts[rank[k]] = mine[k]{stride};")
            emit.line("numbers[rank[k]] = own + k * 32;")
        emit.line("__syncthreads();")

    def _span(self) -> int:
        """Return how far the last element of a window lies from its start."""
        extent = self.of.extent()
        return sum((extent[d] - 1) * self.of.strides[d] for d in extent)

    def _only_start(self) -> int | None:
        """Return the dimension along which windows start, if it is but one.

        Then it is known beforehand which starts there are whose windows meet the slab: declare the
        `earliest`, and how many are `near`.
        """
        of, index = self.of, self.emit.index_type
        if len(of.mapped) != 1 or of.batching:
            return None
        (only,) = of.mapped
        stride, span = of.strides[only], self._span()
        last = of.operand.dims[only] - of.extent()[only]
        first = f"low > {span} ? (low - {span + 1}) / {stride} + 1 : 0"
        self.emit.line(f"const {index} earliest = {first}, latest = (high - 1) / {stride};")
        behind = f"(latest < {last} ? latest : {last}) + 1"
        self.emit.line(f"const {index} near = {behind} > earliest ? {behind} - earliest : 0;")
        return only

    # ---- the slab in registers ------------------------------------------------------------------

    def _held(self) -> list[str]:
        """Declare what a thread has of each result."""
        emit, each = self.emit, -(-self.slab // THREADS)
        held = [emit.fresh("held") for _ in self.form.results]
        for leaf, name in zip(self.form.results, held, strict=True):
            emit.line(f"{compute_type(leaf.dtype)} {name}[{each}] = {{}};")
        if self.of.all_inplace:
            emit.line("bool is_held = false;")
        else:
            self._load(held)
        return held

    def _each(self) -> str:
        return f"for (int e = 0; e < {-(-self.slab // THREADS)}; ++e)"

    def _load(self, held: list[str]) -> None:
        emit = self.emit
        emit.line("#pragma unroll")
        with emit.block(self._each()):
            at = emit.integer(f"low + threadIdx.x + e * {THREADS}")
            with emit.block(f"if ({at} < high)"):
                index = emit.element_at(at, self.of.result)
                for name, operand in zip(held, self.form.instr.operands, strict=False):
                    emit.line(f"{name}[e] = {emit.leaf(operand, 0, index)};")
        if self.of.all_inplace:
            emit.line("is_held = true;")

    def _apply_to_held(self, held: list[str]) -> None:
        """Fold in the updates, several at once: all are read before the first of them is folded."""
        emit, of = self.emit, self.of
        index, each = emit.index_type, -(-self.slab // THREADS)
        ahead = min(of.updates, max(FEWEST_AHEAD, READ_AHEAD // (each * of.count)))
        with emit.block(f"for (int tile = 0; tile < count; tile += {ahead})"):
            given = [emit.fresh("given") for _ in held]
            for leaf, name in zip(self.form.results, given, strict=True):
                emit.line(f"{compute_type(leaf.dtype)} {name}[{ahead}][{each}];")
            emit.line(f"bool meets[{ahead}][{each}];")
            emit.line("#pragma unroll")
            with emit.block(f"for (int k = 0; k < {ahead}; ++k)"):
                # No branch is between one update and the next, so that all are read together.
                emit.line("const int which = tile + k < count ? tile + k : count - 1;")
                emit.line(f"const {index} start = starts[which], number = numbers[which];")
                batch = emit.split("number", of.batch)
                emit.line("#pragma unroll")
                with emit.block(self._each()):
                    part = emit.integer(f"low + threadIdx.x + e * {THREADS} - start")
                    inside = f"tile + k < count && {part} >= 0 && {part} < {of.window}"
                    emit.line(f"meets[k][e] = {inside};")
                    there = emit.split(emit.integer(f"meets[k][e] ? {part} : 0"), of.sizes)
                    for name, value in zip(given, of.given(batch, there), strict=True):
                        emit.line(f"{name}[k][e] = {value};")
            emit.line("#pragma unroll")
            with emit.block(f"for (int k = 0; k < {ahead}; ++k)"):
                emit.line("#pragma unroll")
                with emit.block(self._each()), emit.block("if (meets[k][e])"):
                    before = [f"{name}[e]" for name in held]
                    found = of.folded(before, [f"{name}[k][e]" for name in given])
                    values = [
                        emit.bind(s.dtype, v) for s, v in zip(self.form.results, found, strict=True)
                    ]
                    for name, value in zip(before, values, strict=True):
                        emit.line(f"{name} = {value};")

    def _store(self, held: list[str]) -> None:
        emit = self.emit
        with emit.block("if (is_held)" if self.of.all_inplace else ""):
            emit.line("#pragma unroll")
            with emit.block(self._each()):
                at = emit.integer(f"low + threadIdx.x + e * {THREADS}")
                with emit.block(f"if ({at} < high)"):
                    self.of.store(self.of.places(at), [f"{name}[e]" for name in held])

    # ---- the slab in memory ---------------------------------------------------------------------

    def _apply_each(self) -> None:
        """Fold the updates' windows into the slab."""
        emit = self.emit
        emit.line("#pragma unroll 4")
        with emit.block("for (int which = 0; which < count; ++which)"):
            emit.line(f"const {emit.index_type} start = starts[which];")
            self._apply()

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
