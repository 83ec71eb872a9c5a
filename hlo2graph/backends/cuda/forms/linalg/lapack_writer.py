"""Writes kernels of linear algebra calls: their results by name, what fills them, and routines."""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.linalg.square import Square
from hlo2graph.hlo import Shape
from hlo2graph.ops.custom_lapack import Call
from hlo2graph.ops.device import Expr

FEWEST_THREADS, MOST_THREADS = 64, 512


class Writer:
    """Writes a kernel's lines; names results and their parts as C++."""

    def __init__(self, form: Form, emit: ElementEmitter, call: Call) -> None:
        self.form, self.emit, self.options = form, emit, call.options
        self.ranks = call.routine.ranks
        self.shape = form.shape(0)
        self.batch_rank = self.shape.rank - self.ranks[0]
        self.batch = emit.split(emit.integer(emit.block_index), self.shape.dims[: self.batch_rank])
        self.type = compute_type(self.shape.dtype)
        longest = max(n for leaf in form.results for n in (1, *leaf.dims[self.batch_rank :]))
        self.threads = min(max(FEWEST_THREADS, 2 << (longest - 1).bit_length()), MOST_THREADS)
        self.resident = 0

    @property
    def rows(self) -> int:
        """Of the first operand, a matrix."""
        return self.shape.dims[-2]

    @property
    def columns(self) -> int:
        """Of the first operand, a matrix."""
        return self.shape.dims[-1]

    def square(self) -> Square:
        """Return how a block keeps the first operand at hand."""
        batches = prod(self.shape.dims[: self.batch_rank])
        many = batches > self.form.signature.device.multiprocessors
        return Square(self.type, self.rows, self.shape.dtype.size, many)

    def matrix(self, name: str, result: int) -> str:
        """Declare the matrix that a result holds for this block."""
        shape = self.form.results[result]
        kind = f"hlo::Matrix<{storage_type(shape.dtype)}>"
        row, column = _strides(shape)[-2:]
        sizes = f"{shape.dims[-2]}, {shape.dims[-1]}"
        self.emit.line(
            f"const {kind} {name} = {{{self._start(result, 2)}, {row}, {column}, {sizes}}};"
        )
        return name

    def vector(self, result: int) -> Expr:
        """Return the vector that a result holds for this block."""
        shape = self.form.results[result]
        step = _strides(shape)[-1]
        return f"hlo::Vector<{storage_type(shape.dtype)}>{{{self._start(result, 1)}, {step}}}"

    def number(self, result: int) -> Expr:
        """Return where a result, of one number a matrix, lies."""
        return self._start(result, 0)

    def _start(self, result: int, rank: int) -> Expr:
        shape = self.form.results[result]
        index = (*self.batch, *["0"] * rank) if shape.rank else ()
        return f"r{result} + ({self.emit.offset(shape, index)})"

    def fill(self, result: int, operand: int, value: str = "{0}", *, turned: bool = False) -> None:
        """Fill a result with an operand, as far as that reaches, for all threads to see.

        value: of {0}, the operand's element, and its {row} and {column}.
        turned: take the element of the transposed operand.
        """
        emit, source, target = self.emit, self.form.shape(operand), self.form.results[result]
        dims = source.dims[self.batch_rank :]
        dims = tuple(reversed(dims)) if turned else dims
        at = emit.fresh("at")
        step, count = self.threads, prod(dims)
        head = f"for ({emit.index_type} {at} = threadIdx.x; {at} < {count}; {at} += {step})"
        with emit.block(head):
            place = emit.split(at, dims)
            found = self.element(operand, tuple(reversed(place)) if turned else place)
            held = value.format(found, row=place[0], column=place[-1])
            emit.line(f"r{result}[{emit.offset(target, (*self.batch, *place))}] = {held};")
        emit.line("__syncthreads();")

    def element(self, operand: int, place: tuple[Expr, ...]) -> Expr:
        """Return an element of this block's part of an operand."""
        return self.emit.leaf(self.form.instr.operands[operand], 0, (*self.batch, *place))

    def reader(self, name: str, operand: int, *places: Expr) -> str:
        """Declare a function of an operand's row and column that returns the element."""
        arguments = ", ".join(f"int {place}" for place in places)
        with self.emit.block(f"const auto {name} = [&]({arguments}) -> {self.type}", ";"):
            self.emit.line(f"return {self.element(operand, places)};")
        return name

    def spread(self, result: int, value: Expr) -> None:
        """Write one value to all of a result's elements of this block."""
        shape = self.form.results[result]
        dims = shape.dims[self.batch_rank :] if shape.rank else ()
        at = self.emit.fresh("at")
        head = f"for (int {at} = threadIdx.x; {at} < {prod(dims)}; {at} += {self.threads})"
        with self.emit.block(head):
            place = (*self.batch, *self.emit.split(at, dims)) if shape.rank else ()
            self.emit.line(f"r{result}[{self.emit.offset(shape, place)}] = {value};")
        self.emit.line("__syncthreads();")

    def call(self, name: str, *arguments: object, size: int = 0) -> Expr:
        """Return a call of a routine by all threads; `size` is a second template argument."""
        template = f"{self.threads}, {size}" if size else f"{self.threads}"
        return f"hlo::{name}<{template}>({', '.join(map(str, arguments))})"

    def do(self, name: str, *arguments: object, size: int = 0) -> None:
        """Write a call of a routine by all threads."""
        self.emit.line(f"{self.call(name, *arguments, size=size)};")

    def inform(self, result: int, value: Expr) -> None:
        """Write info, which is one number a matrix."""
        self.emit.line(f"if (threadIdx.x == 0) *({self.number(result)}) = {value};")


def _strides(shape: Shape) -> tuple[int, ...]:
    """Return how many elements apart neighbours are, for each dimension."""
    found, stride = [0] * shape.rank, 1
    for dim in shape.minor_to_major:
        found[dim] = stride
        stride *= shape.dims[dim]
    return tuple(found)
