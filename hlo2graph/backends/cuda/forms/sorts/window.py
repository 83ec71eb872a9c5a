"""A window of a row that a block sorts: what the forms of sorts write of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.sort_key import SortKey, sort_key
from hlo2graph.ops.sort_runs import orders_all

AT_ONCE = 8  # elements that a thread loads together


def key_of(form: Form) -> SortKey | None:
    """Return the key by which a form's comparator orders, if that is all that it does."""
    return sort_key(form.computations, str(form.instr.attrs["to_apply"]))


class Window:
    """Writes what is done with a window of a row, which begins at `first` and has `count` slots."""

    def __init__(
        self, form: Form, emit: ElementEmitter, along: int, window: int, threads: int
    ) -> None:
        self.form, self.emit, self.along = form, emit, along
        self.window, self.threads = window, threads
        self.index = emit.index_type
        self.row: dict[int, Expr] = {}
        self.shared = [emit.fresh("s") for _ in form.results]

    def stage(self) -> None:
        """Declare where the elements of a window and their order lie, and what compares two."""
        self.emit.line(f"__shared__ hlo::u16 order[{self.window}];")
        for leaf, name in zip(self.form.results, self.shared, strict=True):
            self.emit.line(f"__shared__ {storage_type(leaf.dtype)} {name}[{self.window}];")
        self._comparator()

    def find_row(self, number: Expr) -> None:
        """Declare the index of a row."""
        shape = self.form.shape(0)
        kept = [d for d in range(shape.rank) if d != self.along]
        at = self.emit.split(number, [shape.dims[d] for d in kept])
        self.row = dict(zip(kept, at, strict=True))

    def count(self, end: Expr | int) -> None:
        """Declare how many slots there are, up to `end` of the row."""
        window = self.window
        self.emit.line(f"const int count = first + {window} < {end} ? {window} : {end} - first;")

    def sort_window(self, end: Expr | int) -> None:
        """Load, sort and store a window of operands."""
        self.count(end)
        self.each(self.load_operands)
        numbers = f"{self.window}, {self.threads}"
        if orders_all(self.form.computations, str(self.form.instr.attrs["to_apply"])):
            self.emit.line(f"__shared__ hlo::u16 spare[{self.window}];")
            call = f"merge_sort_window<{numbers}>(order, spare, count, before)"
        else:
            call = f"sort_window<{numbers}>(order, count, before)"
        self.emit.line(f"hlo::{call};")
        self.each(self.store)

    def sort_by_key(self, key: SortKey, end: Expr | int) -> None:
        """Sort a window of operands, whose comparator compares a key."""
        emit = self.emit
        self.count(end)
        emit.line(f"__shared__ hlo::u64 words[{self.window}];")
        self.declare_key(key)
        look = "[&](int slot) { return key(first + slot); }"
        emit.line(f"hlo::sort_by_key<{self.window}, {self.threads}>(words, count, {look});")
        self.each(self._fetch)

    def declare_key(self, key: SortKey) -> None:
        """Declare `key(at)`, the key of an element of the row."""
        emit = self.emit
        with emit.block(f"const auto key = [&]({self.index} at) -> hlo::u32", ";"):
            index = self.place("at")
            elements = [emit.leaf(name, 0, index) for name in self.form.instr.operands]
            emit.enter(key.computation, tuple(x for x in elements for _ in range(2)))
            (found,) = emit.leaves(key.computation.root, ())
            emit.leave()
            emit.line(f"return {'' if key.rises else '~'}hlo::order_key({found});")

    def _fetch(self, index: Index) -> None:
        """Store the element that belongs into a slot, from where it is among the operands."""
        source = self.place(self.emit.integer("first + (int)(hlo::u32)words[slot]"))
        operands = self.form.instr.operands
        for number, (leaf, name) in enumerate(zip(self.form.results, operands, strict=True)):
            value = self.emit.stored(leaf.dtype, self.emit.leaf(name, 0, source))
            self.emit.line(f"r{number}[{self.emit.offset(leaf, index)}] = {value};")

    def _comparator(self) -> None:
        """Write `before(a, b)`: whether slot a of the window sorts before slot b."""
        emit = self.emit
        with emit.block("const auto before = [&](int a, int b) -> bool", ";"):
            values = [
                emit.bind(leaf.dtype, f"hlo::load({name}[{slot}])")
                for leaf, name in zip(self.form.results, self.shared, strict=True)
                for slot in ("a", "b")
            ]
            self.compare(values)

    def compare(self, values: Sequence[Expr]) -> None:
        """Write what returns whether one element sorts before another."""
        (found,) = self.emit.call(str(self.form.instr.attrs["to_apply"]), values)
        self.emit.line(f"return {found};")

    def each(self, write: Callable[[Index], None], start: Expr = "first + slot") -> None:
        """Write a loop over the window's slots, and a barrier behind it."""
        head = f"for (int slot = threadIdx.x; slot < count; slot += {self.threads})"
        self.emit.line(f"#pragma unroll {AT_ONCE}")
        with self.emit.block(head):
            write(self.place(self.emit.integer(start)))
        self.emit.line("__syncthreads();")

    def place(self, position: Expr) -> Index:
        """Return the index of a row's element."""
        place = self.row | {self.along: position}
        return tuple(place[d] for d in range(len(place)))

    def load_operands(self, index: Index) -> None:
        """Load a slot from the operands."""
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            value = self.emit.leaf(self.form.instr.operands[number], 0, index)
            self.emit.line(f"{name}[slot] = {stored(leaf.dtype, value)};")

    def load_results(self, index: Index) -> None:
        """Load a slot from where the results lie."""
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            self.emit.line(f"{name}[slot] = r{number}[{self.emit.offset(leaf, index)}];")

    def store(self, index: Index) -> None:
        """Store the element that belongs into a slot."""
        for number, (leaf, name) in enumerate(zip(self.form.results, self.shared, strict=True)):
            place = self.emit.offset(leaf, index)
            self.emit.line(f"r{number}[{place}] = {name}[order[slot]];")
