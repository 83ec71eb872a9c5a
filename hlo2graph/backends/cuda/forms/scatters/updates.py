"""What all forms of a scatter write: where updates start, and how an element takes one in."""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.ctypes import stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.hlo import Kind, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import integer, integers

INT_BITS = 32


class Updates:
    """A scatter's dimensions by their roles, and lines about single updates."""

    def __init__(self, form: Form, emit: ElementEmitter) -> None:
        self.form, self.emit = form, emit
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
        self.updates = prod(self.batch)
        self.window = prod(self.sizes)

    @property
    def all_inplace(self) -> bool:
        """Every result lies where its operand does."""
        return all(map(self.is_inplace, range(self.count)))

    @property
    def is_in_one_piece(self) -> bool:
        """The elements of a window follow each other in memory, as they do in the window."""
        step = 1
        for dim, size in zip(reversed(self.kept), reversed(self.sizes), strict=True):
            if size != 1 and self.strides[dim] != step:
                return False
            step *= size
        return True

    def is_inplace(self, number: int) -> bool:
        """Tell whether a result lies where its operand does."""
        source = self.form.computation[self.form.instr.operands[number]]
        while source.opcode == "bitcast":
            source = self.form.computation[source.operands[0]]
        return source.opcode == "parameter" and (source.payload, number) in self.form.inplace

    @property
    def start_type(self) -> str:
        """The type of start indices: one that has all numbers that these may be."""
        bits = self.indices.dtype.bits + (self.indices.dtype.kind is not Kind.SIGNED)
        return "int" if bits <= INT_BITS else "hlo::s64"

    def starts(self, batch: list[Expr]) -> dict[int, Expr]:
        """Return the start index along each dimension that has one."""
        found: dict[int, Expr] = {}
        for k, dim in enumerate(self.mapped):
            at = [*batch[: self.vector], str(k), *batch[self.vector :]]
            place = tuple(at if self.vector < self.indices.rank else batch)
            value = self.emit.leaf(self.form.instr.operands[self.count], 0, place)
            if self.indices.dtype.name == "u64":  # the largest may not become the least
                value = f"hlo::minimum({value}, (hlo::u64)(-1) / 2)"
            name = self.emit.fresh("start")
            self.emit.line(f"const {self.start_type} {name} = ({self.start_type}){value};")
            found[dim] = name
        for dim, source in zip(self.batching, self.paired, strict=True):
            found[dim] = batch[source - (source > self.vector)]
        return found

    def place_of(self, batch: list[Expr]) -> tuple[list[Expr], Expr]:
        """Return what holds where an update's window is inside, and where the window starts."""
        starts = self.starts(batch)
        extent = self.extent()
        tests, terms = [], []
        for dim, start in starts.items():
            tests += [f"{start} >= 0", f"{start} <= {self.operand.dims[dim] - extent[dim]}"]
            terms.append(f"({self.emit.index_type}){start} * {self.strides[dim]}")
        return tests, " + ".join(terms) or "0"

    def extent(self) -> dict[int, int]:
        """Return the size of a window along each dimension of the operand."""
        ones = dict.fromkeys(range(self.operand.rank), 1)
        return ones | dict(zip(self.kept, self.sizes, strict=True))

    def inner_terms(self, inner: Index) -> list[Expr]:
        """Return how far an element of a window lies from its start, as terms of a sum."""
        return [
            f"{i} * {self.strides[d]}" for i, d in zip(inner, self.kept, strict=True) if i != "0"
        ]

    def given(self, batch: Index, inner: Index) -> list[Expr]:
        """Return the elements of the updates, one a result."""
        parts, wholes = iter(inner), iter(batch)
        index = tuple(
            next(parts if d in self.window_dims else wholes) for d in range(self.update.rank)
        )
        updates = self.form.instr.operands[self.count + 1 :]
        return [self.emit.leaf(name, 0, index) for name in updates]

    def held(self, places: list[Expr]) -> list[Expr]:
        """Return what the results have at some places."""
        return [
            self.emit.bind(leaf.dtype, f"hlo::load(r{k}[{at}])")
            for k, (leaf, at) in enumerate(zip(self.form.results, places, strict=True))
        ]

    def folded(self, held: list[Expr], given: list[Expr]) -> tuple[Expr, ...]:
        """Return what becomes of elements that take in an update."""
        return self.emit.call(str(self.form.instr.attrs["to_apply"]), (*held, *given))

    def store(self, places: list[Expr], values: tuple[Expr, ...] | list[Expr]) -> None:
        """Write elements of the results."""
        for k, (leaf, value) in enumerate(zip(self.form.results, values, strict=True)):
            self.emit.line(f"r{k}[{places[k]}] = {stored(leaf.dtype, value)};")

    def places(self, place: Expr) -> list[Expr]:
        """Return where each result has the element that lies at `place` in the first one."""
        return [self.place_in(leaf, place) for leaf in self.form.results]

    def place_in(self, leaf: Shape, place: Expr) -> Expr:
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
