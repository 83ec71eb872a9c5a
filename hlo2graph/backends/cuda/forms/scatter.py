"""The scatter form: each block owns a slab of the result and applies all updates to it, in order.

A batch of update positions is worked out together, and those that meet the slab are kept, in order.
Their windows are folded in one after the other by all threads, so that updates of one element keep
the order of their indices. Nothing is atomic, and equal inputs give equal bits. In place, the slab
is not copied first.
"""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.ctypes import stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.expect import integer, integers

THREADS = 256
MOST_BLOCKS = 1024


def scatter_kernel(form: Form) -> KernelSource:
    """Return the kernel of a scatter."""
    elements = form.results[0].elements
    slab = max(THREADS, -(-elements // MOST_BLOCKS))
    writer = _Writer(form, form.emitter(), slab)
    writer.write()
    return form.source(writer.emit, max(1, -(-elements // slab)), THREADS)


class _Writer:
    def __init__(self, form: Form, emit: ElementEmitter, slab: int) -> None:
        self.form, self.emit, self.slab = form, emit, slab
        instr = form.instr
        self.count = len(instr.operands) // 2
        self.operand, self.indices = form.shape(0), form.shape(self.count)
        self.update = form.shape(self.count + 1)
        self.window_dims = integers(instr, "update_window_dims", ())
        self.mapped = integers(instr, "scatter_dims_to_operand_dims", ())
        dropped = integers(instr, "inserted_window_dims", ())
        self.batching = integers(instr, "input_batching_dims", ())
        self.paired = integers(instr, "scatter_indices_batching_dims", ())
        self.vector = integer(instr, "index_vector_dim")
        gone = {*dropped, *self.batching}
        self.kept = tuple(d for d in range(self.operand.rank) if d not in gone)
        self.sizes = [self.update.dims[d] for d in self.window_dims]
        self.batch = [n for d, n in enumerate(self.update.dims) if d not in self.window_dims]
        self.result = form.results[0]  # whose order in memory numbers the elements
        self.strides = _strides(self.result)

    def write(self) -> None:
        emit, index = self.emit, self.emit.index_type
        elements = self.operand.elements
        emit.line(f"const {index} low = {emit.block_index} * {self.slab};")
        end = f"low + {self.slab} < {elements} ? low + {self.slab} : {elements}"
        emit.line(f"const {index} high = {end};")
        emit.line(f"__shared__ {index} starts[{THREADS}], numbers[{THREADS}];")
        self._copy_slab()
        updates = prod(self.batch)
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
        copied = [k for k in range(self.count) if not self._is_inplace(k)]
        if copied:
            head = f"for ({emit.index_type} at = low + threadIdx.x; at < high; at += {THREADS})"
            with emit.block(head):
                index = emit.element_at("at", self.result)
                for k in copied:
                    value = emit.leaf(self.form.instr.operands[k], 0, index)
                    place = emit.offset(self.form.results[k], index)
                    emit.line(f"r{k}[{place}] = {stored(self.form.results[k].dtype, value)};")
            emit.line("__syncthreads();")

    def _is_inplace(self, number: int) -> bool:
        source = self.form.computation[self.form.instr.operands[number]]
        while source.opcode == "bitcast":
            source = self.form.computation[source.operands[0]]
        return source.opcode == "parameter" and (source.payload, number) in self.form.inplace

    def _find_starts(self, updates: int) -> None:
        """Find where this thread's update starts in memory; -1 where it misses the slab."""
        emit = self.emit
        emit.line(f"{emit.index_type} mine = -1;")
        emit.line(f"const {emit.index_type} number = first + threadIdx.x;")
        with emit.block(f"if (number < {updates})"):
            batch = emit.split("number", self.batch)
            starts = self._starts(list(batch))
            extent = dict.fromkeys(range(self.operand.rank), 1)
            extent |= dict(zip(self.kept, self.sizes, strict=True))
            tests, terms = [], []
            for dim, start in starts.items():
                last = self.operand.dims[dim] - extent[dim]
                tests += [f"{start} >= 0", f"{start} <= {last}"]
                terms.append(f"({emit.index_type}){start} * {self.strides[dim]}")
            span = sum((extent[d] - 1) * self.strides[d] for d in extent)
            with emit.block(f"if ({' && '.join(tests) or 'true'})"):
                emit.line(f"const {emit.index_type} place = {' + '.join(terms) or '0'};")
                emit.line(f"if (place < high && place + {span} >= low) mine = place;")

    def _starts(self, batch: list[Expr]) -> dict[int, Expr]:
        """Return the start index along each dimension that has one, as 64-bit integers."""
        found: dict[int, Expr] = {}
        for k, dim in enumerate(self.mapped):
            at = [*batch[: self.vector], str(k), *batch[self.vector :]]
            place = tuple(at if self.vector < self.indices.rank else batch)
            value = self.emit.leaf(self.form.instr.operands[self.count], 0, place)
            name = self.emit.fresh("start")
            self.emit.line(f"const hlo::s64 {name} = (hlo::s64){value};")
            found[dim] = name
        for dim, source in zip(self.batching, self.paired, strict=True):
            found[dim] = batch[source - (source > self.vector)]
        return found

    def _apply(self) -> None:
        """Fold one update's window into the slab."""
        emit, window = self.emit, prod(self.sizes)
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
            inner = emit.split("part", self.sizes)
            terms = [
                f"{i} * {self.strides[d]}"
                for i, d in zip(inner, self.kept, strict=True)
                if i != "0"
            ]
            place = emit.integer(" + ".join(["start", *terms]))
            with emit.block(f"if ({place} >= low && {place} < high)"):
                self._fold_element(place, "part")

    def _apply_to_slab(self) -> None:
        """The same for windows larger than a slab: look at all of the slab instead."""
        emit = self.emit
        head = f"for ({emit.index_type} at = low + threadIdx.x; at < high; at += {THREADS})"
        with emit.block(head):
            here = emit.element_at("at", self.result)
            start = emit.element_at("start", self.result)
            inside: list[str] = []
            terms, stride = [], 1
            extent = dict(zip(self.kept, self.sizes, strict=True))
            for dim in reversed(range(self.operand.rank)):
                step = emit.integer(f"{here[dim]} - {start[dim]}")
                inside.append(f"{step} >= 0 && {step} < {extent.get(dim, 1)}")
                if dim in extent:
                    terms.append(f"{step} * {stride}")
                    stride *= extent[dim]
            with emit.block(f"if ({' && '.join(inside)})"):
                part = emit.integer(" + ".join(reversed(terms)))
                self._fold_element("at", part)

    def _fold_element(self, place: Expr, part: Expr) -> None:
        emit, instr = self.emit, self.form.instr
        batch = iter(emit.split(emit.integer("numbers[which]"), self.batch))
        inner = iter(emit.split(part, self.sizes))
        index = tuple(
            next(inner if d in self.window_dims else batch) for d in range(self.update.rank)
        )
        results = self.form.results
        places = [self._place_in(leaf, place) for leaf in results]
        held = [
            emit.bind(s.dtype, f"hlo::load(r{k}[{at}])")
            for k, (s, at) in enumerate(zip(results, places, strict=True))
        ]
        given = [emit.leaf(o, 0, index) for o in instr.operands[self.count + 1 :]]
        found = emit.call(str(instr.attrs["to_apply"]), (*held, *given))
        for k, (leaf, value) in enumerate(zip(results, found, strict=True)):
            emit.line(f"r{k}[{places[k]}] = {stored(leaf.dtype, value)};")

    def _place_in(self, leaf: Shape, place: Expr) -> Expr:
        """Return where a result leaf has the element that lies at `place` in the first one."""
        if leaf.minor_to_major == self.result.minor_to_major:
            return place
        return self.emit.offset(leaf, self.emit.element_at(place, self.result))


def _strides(shape: Shape) -> dict[int, int]:
    """Return each dimension's distance in memory, in elements."""
    found, stride = {}, 1
    for dim in shape.minor_to_major:
        found[dim] = stride
        stride *= shape.dims[dim]
    return found
