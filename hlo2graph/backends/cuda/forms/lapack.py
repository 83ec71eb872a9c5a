"""The form of linear algebra calls: a block takes a matrix, and works where the results lie.

The routines are in include/linear_algebra.cuh and spectra.cuh. Each result that starts as an
operand is filled with it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.square import Square, fill_lower
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Shape
from hlo2graph.ops.custom_lapack import Call, factors_block, factors_panel, lapack_call
from hlo2graph.ops.device import Expr
from hlo2graph.ops.linalg import panel_threads

FEWEST_THREADS, MOST_THREADS = 64, 512


def lapack_kernel(form: Form) -> KernelSource:
    """Return the kernel of a linear algebra call."""
    call = lapack_call(form.instr)
    assert isinstance(call, Call)
    writer = _Writer(form, form.emitter(), call)
    _BODIES[call.name](writer)
    blocks = max(1, prod(form.shape(0).dims[: writer.batch_rank]))
    source = form.source(writer.emit, blocks, writer.threads, resident=writer.resident)
    if factors_block(form.instr):
        return replace(source, shared_bytes=writer.square().bytes)
    return replace(source, text=f'#include "{writer.header}"\n{source.text}')


class _Writer:
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
        self.header, self.resident = "spectra.cuh", 0

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
        return Square(self.type, self.rows, self.shape.dtype.size)

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


def _potrf(w: _Writer) -> None:
    """Factor the lower triangle, or the adjoint of the upper one, as it lies."""
    if factors_block(w.form.instr):
        _small_potrf(w)
        return
    w.fill(0, 0)
    a = w.matrix("a", 0)
    lower = w.options["uplo"] == "L"
    if not lower:
        w.do("conjugate", a)
    w.emit.line(f"const int bad = {w.call('potrf', a if lower else f'{a}.transposed()')};")
    if not lower:
        w.do("conjugate", a)
    with w.emit.block("if (bad)"):
        w.fill(0, 0)
    w.inform(1, "bad")


def _small_potrf(w: _Writer) -> None:
    """The same in shared memory; the other triangle stays as it is."""
    emit, size, lower = w.emit, w.rows, w.options["uplo"] == "L"
    square = w.square()
    w.threads = square.threads
    head = f"for (int at = threadIdx.x; at < {size * size}; at += {w.threads})"
    by_rows = w.shape.minor_to_major[0] == w.shape.rank - 1
    square.declare(emit)

    def load(row: Expr, column: Expr) -> Expr:
        value = w.element(0, (row, column) if lower else (column, row))
        return value if lower else f"hlo::conj({value})"

    def put(row: Expr, column: Expr, value: Expr) -> None:
        place = (row, column) if lower else (column, row)
        at = emit.offset(w.form.results[0], (*w.batch, *place))
        emit.line(f"r0[{at}] = {value if lower else f'hlo::conj({value})'};")

    def keep(row: Expr, column: Expr, value: Expr) -> None:
        with emit.block(f"if ({row} != {column})"):
            put(column, row, value)

    square.fill(emit, load, by_columns=by_rows != lower)
    emit.line(f"const int bad = {square.factor};")
    with emit.block("if (bad)"):
        w.fill(0, 0)
    with emit.block("else"):
        other = by_rows == lower
        fill_lower(emit, w.type, size, w.threads, lambda r, c: load(c, r), keep, by_columns=other)
        with emit.block(head):
            major, minor = emit.split("at", (size, size))
            row, column = (major, minor) if by_rows == lower else (minor, major)
            with emit.block(f"if ({row} >= {column})"):
                put(row, column, f"a.at[{row}][{column}]")
    w.inform(1, "bad")


def _getrf(w: _Writer) -> None:
    if factors_panel(w.form.instr):
        w.inform(2, _panel(w, base=1, order=False))
        return
    w.fill(0, 0)
    w.do("getrf", w.matrix("a", 0), w.vector(1), w.number(2))


def _lu(w: _Writer) -> None:
    """Factor as getrf does, whose info goes where the order of the rows comes behind it."""
    if factors_panel(w.form.instr):
        _panel(w, base=0, order=True)
        return
    w.fill(0, 0)
    w.emit.line(f"const auto pivots = {w.vector(1)}, order = {w.vector(2)};")
    w.do("getrf", w.matrix("a", 0), "pivots", "&order[0]")
    w.emit.line("__syncthreads();")
    with w.emit.block("if (threadIdx.x == 0)"):
        w.emit.line(f"for (int i = 0; i < {w.rows}; ++i) order[i] = i;")
        with w.emit.block(f"for (int k = 0; k < {min(w.rows, w.columns)}; ++k)"):
            w.emit.line("const int there = --pivots[k], held = order[k];")
            w.emit.line("order[k] = order[there];")
            w.emit.line("order[there] = held;")


def _panel(w: _Writer, *, base: int, order: bool) -> Expr:
    """Return the call that factors a matrix in registers, with the order of its rows or without."""
    w.threads, w.header, w.resident = panel_threads(w.rows), "panels.cuh", 1
    load = w.reader("load", 0, "row", "column")
    numbers = [w.threads, w.rows, w.columns, base, "true" if order else "false"]
    places = w.vector(2) if order else "hlo::Vector<hlo::s32>{}"
    arguments = f"{load}, {w.matrix('a', 0)}, {w.vector(1)}, {places}"
    w.emit.line(f"const int bad = hlo::factor_panel<{', '.join(map(str, numbers))}>({arguments});")
    return "bad"


def _geqrf(w: _Writer) -> None:
    w.fill(0, 0)
    w.do("geqrf", w.matrix("a", 0), w.vector(1))


def _geqp3(w: _Writer) -> None:
    w.fill(0, 0)
    w.fill(1, 1)
    w.do("geqp3", w.matrix("a", 0), w.vector(1), w.vector(2))


def _orgqr(w: _Writer) -> None:
    w.fill(0, 0)
    tau = w.reader("tau", 1, "k")
    w.do("orgqr", w.matrix("a", 0), tau, w.form.shape(1).dims[-1])


def _ormqr(w: _Writer) -> None:
    w.fill(0, 2)
    a, tau = w.reader("a", 0, "row", "column"), w.reader("tau", 1, "k")
    count, rows = w.form.shape(1).dims[-1], w.rows
    c = w.matrix("c", 0)
    w.do("ormqr", a, tau, count, c, w.options["left"], w.options["transpose"], size=rows)


def _gehrd(w: _Writer) -> None:
    w.fill(0, 0)
    w.do("gehrd", w.matrix("a", 0), w.vector(1))
    w.inform(2, "0")


def _sytrd(w: _Writer) -> None:
    """What is done to the upper triangle is what is done to the lower one from the other end."""
    w.fill(0, 0)
    results = [w.matrix("a", 0), *(w.vector(k) for k in (1, 2, 3))]
    if w.options["uplo"] == "U":
        sizes = ("", w.rows, w.rows - 1, w.rows - 1)
        results = [f"{r}.turned_round({n})" for r, n in zip(results, sizes, strict=True)]
    w.do("sytrd", *results)
    w.inform(4, "0")


def _syevd(w: _Writer) -> None:
    """Take the triangle that is named as the lower one."""
    upper = w.options["uplo"] == "U"
    held = "hlo::conj({0})" if upper else "{0}"
    w.fill(0, 0, f"{{row}} >= {{column}} ? {held} : {w.type}{{{{}}}}", turned=upper)
    a = w.matrix("a", 0)
    w.emit.line(f"bool good = {w.call('all_finite', a)};")
    w.emit.line(f"if (good) good = {w.call('syevd', a, w.vector(1), size=w.rows)};")
    with w.emit.block("if (!good)"):
        w.spread(1, f"hlo::nan_like({compute_type(w.form.results[1].dtype)}{{}})")
    with w.emit.block("if (!good)" if w.options["mode"] == "V" else ""):
        w.fill(0, 0)
    if len(w.form.results) > 2:
        w.inform(2, "good ? 0 : 1")


def _gesdd(w: _Writer) -> None:
    """Work on the matrix, or its transpose where that is the tall one, where its vectors go."""
    w.fill(0, 0)
    a = w.matrix("a", 0)
    tall, least = w.rows >= w.columns, min(w.rows, w.columns)
    left, right = (3, 2) if w.options.get("layout") == "T" else (2, 3)
    w.emit.line(f"const bool good = {w.call('all_finite', a)};")
    with w.emit.block("if (good)"):
        if w.options["mode"] == "N":
            part = a if tall else f"{a}.transposed()"
            none = f"hlo::Matrix<{storage_type(w.shape.dtype)}>{{}}"
            w.do("singular", part, none, w.vector(1), least, "false", size=least)
            w.fill(0, 0)
        else:
            _vectors(w, left, right, tall=tall, least=least)
    blank = f"{w.type}{{}}"
    with w.emit.block("if (!good)" if w.options["mode"] != "N" else ""):
        w.spread(left, blank)
        w.spread(right, blank)
    with w.emit.block("if (!good)"):
        w.spread(1, f"hlo::nan_like({compute_type(w.form.results[1].dtype)}{{}})")
    w.inform(4, "good ? 0 : 1")


def _vectors(w: _Writer, left: int, right: int, *, tall: bool, least: int) -> None:
    """Write singular values and vectors.

    A = P S Q^H gives U = P and V = Q; A^T = P S Q^H gives U = conj(Q) and V = conj(P).
    """
    whole = w.options.get("layout") == "V"  # the result is V, and not its adjoint
    w.fill(left if tall else right, 0, turned=not tall and whole)
    u, v = w.matrix("u", left), w.matrix("v", right)
    turned = v if whole else f"{v}.transposed()"
    p, q = (u, turned) if tall else (turned, u)
    w.do("singular", p, q, w.vector(1), least, "true", size=least)
    if not tall:
        w.do("conjugate", u)
    if tall != whole:
        w.do("conjugate", v)


def _gtsv(w: _Writer) -> None:
    for number in range(4):
        w.fill(number, number)
    diagonals = [w.vector(k) for k in range(3)]
    w.emit.line(f"const int bad = {w.call('gtsv', *diagonals, w.matrix('b', 3))};")
    w.inform(4, "bad")


def _gtsv2(w: _Writer) -> None:
    """Keep the diagonals, which are no results, in shared memory."""
    w.fill(0, 3)
    size, kind = w.columns, storage_type(w.shape.dtype)
    names = ("below", "main", "above")
    for name in names:
        w.emit.line(f"__shared__ {kind} {name}[{size}];")
    with w.emit.block(f"for (int at = threadIdx.x; at < {size}; at += {w.threads})"):
        for operand, name in enumerate(names):
            w.emit.line(f"{name}[at] = {w.element(operand, ('at',))};")
    w.emit.line("__syncthreads();")
    diagonals = [f"hlo::Vector<{kind}>{{{name}, 1}}" for name in names]
    w.do("gtsv", *diagonals, w.matrix("b", 0))


def _cholesky_update(w: _Writer) -> None:
    w.fill(0, 0)
    w.fill(1, 1)
    w.do("cholesky_update", w.matrix("r", 0), w.vector(1))


_BODIES: dict[str, Callable[[_Writer], None]] = {
    "cholesky_update": _cholesky_update,
    "eigh": _syevd,
    "gehrd": _gehrd,
    "geqp3": _geqp3,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "getrf": _getrf,
    "gtsv": _gtsv,
    "gtsv2": _gtsv2,
    "heevd": _syevd,
    "hetrd": _sytrd,
    "lu": _lu,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "sytrd": _sytrd,
    "ungqr": _orgqr,
    "unmqr": _ormqr,
}
