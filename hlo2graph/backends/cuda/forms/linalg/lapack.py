"""The form of linear algebra calls: a block takes a matrix, and works where the results lie.

The routines are in include/linear_algebra.cuh, spectra.cuh and panels.cuh. Each result that starts
as an operand is filled with it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.linalg.lapack_writer import Writer
from hlo2graph.backends.cuda.forms.linalg.lower_triangle import LowerTriangle
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.custom_lapack import Call, factors_block, factors_panel, lapack_call
from hlo2graph.ops.device import Expr
from hlo2graph.ops.linalg import panel_threads


def lapack_kernel(form: Form) -> KernelSource:
    """Return the kernel of a linear algebra call."""
    call = lapack_call(form.instr)
    assert isinstance(call, Call)
    writer = Writer(form, form.emitter(), call)
    _BODIES[call.name](writer)
    blocks = max(1, prod(form.shape(0).dims[: writer.batch_rank]))
    source = form.source(writer.emit, blocks, writer.threads, resident=writer.resident)
    if factors_block(form.instr):
        return replace(source, shared_bytes=writer.square().bytes)
    return source


def _potrf(w: Writer) -> None:
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


def _small_potrf(w: Writer) -> None:
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
        triangle = LowerTriangle(emit, w.type, size, w.threads)
        triangle.move(lambda row, column: load(column, row), keep, by_columns=other)
        with emit.block(head):
            major, minor = emit.split("at", (size, size))
            row, column = (major, minor) if by_rows == lower else (minor, major)
            with emit.block(f"if ({row} >= {column})"):
                put(row, column, f"a.at[{row}][{column}]")
    w.inform(1, "bad")


def _getrf(w: Writer) -> None:
    if factors_panel(w.form.instr):
        w.inform(2, _panel(w, base=1, order=False))
        return
    w.fill(0, 0)
    w.do("getrf", w.matrix("a", 0), w.vector(1), w.number(2))


def _lu(w: Writer) -> None:
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


def _panel(w: Writer, *, base: int, order: bool) -> Expr:
    """Return the call that factors a matrix in registers, with the order of its rows or without."""
    load = _in_registers(w)
    numbers = [w.threads, w.rows, w.columns, base, "true" if order else "false"]
    places = w.vector(2) if order else "hlo::Vector<hlo::s32>{}"
    arguments = f"{load}, {w.matrix('a', 0)}, {w.vector(1)}, {places}"
    w.emit.line(f"const int bad = hlo::factor_panel<{', '.join(map(str, numbers))}>({arguments});")
    return "bad"


def _in_registers(w: Writer) -> str:
    """Let a block keep the first operand in registers; return the function that loads it."""
    w.threads, w.resident = panel_threads(w.rows), 1
    return w.reader("load", 0, "row", "column")


def _geqrf(w: Writer) -> None:
    if factors_panel(w.form.instr):
        load = _in_registers(w)
        numbers = f"{w.threads}, {w.rows}, {w.columns}"
        arguments = f"{load}, {w.matrix('a', 0)}, {w.vector(1)}"
        w.emit.line(f"hlo::reflect_panel<{numbers}>({arguments});")
        return
    w.fill(0, 0)
    w.do("geqrf", w.matrix("a", 0), w.vector(1))


def _geqp3(w: Writer) -> None:
    w.fill(0, 0)
    w.fill(1, 1)
    w.do("geqp3", w.matrix("a", 0), w.vector(1), w.vector(2))


def _orgqr(w: Writer) -> None:
    w.fill(0, 0)
    tau = w.reader("tau", 1, "k")
    w.do("orgqr", w.matrix("a", 0), tau, w.form.shape(1).dims[-1])


def _ormqr(w: Writer) -> None:
    w.fill(0, 2)
    a, tau = w.reader("a", 0, "row", "column"), w.reader("tau", 1, "k")
    count, rows = w.form.shape(1).dims[-1], w.rows
    c = w.matrix("c", 0)
    w.do("ormqr", a, tau, count, c, w.options["left"], w.options["transpose"], size=rows)


def _gehrd(w: Writer) -> None:
    w.fill(0, 0)
    w.do("gehrd", w.matrix("a", 0), w.vector(1))
    w.inform(2, "0")


def _sytrd(w: Writer) -> None:
    """What is done to the upper triangle is what is done to the lower one from the other end."""
    w.fill(0, 0)
    results = [w.matrix("a", 0), *(w.vector(k) for k in (1, 2, 3))]
    if w.options["uplo"] == "U":
        sizes = ("", w.rows, w.rows - 1, w.rows - 1)
        results = [f"{r}.turned_round({n})" for r, n in zip(results, sizes, strict=True)]
    w.do("sytrd", *results)
    w.inform(4, "0")


def _syevd(w: Writer) -> None:
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


def _gesdd(w: Writer) -> None:
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


def _vectors(w: Writer, left: int, right: int, *, tall: bool, least: int) -> None:
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


def _gtsv(w: Writer) -> None:
    for number in range(4):
        w.fill(number, number)
    diagonals = [w.vector(k) for k in range(3)]
    w.emit.line(f"const int bad = {w.call('gtsv', *diagonals, w.matrix('b', 3))};")
    w.inform(4, "bad")


def _gtsv2(w: Writer) -> None:
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


def _cholesky_update(w: Writer) -> None:
    w.fill(0, 0)
    w.fill(1, 1)
    w.do("cholesky_update", w.matrix("r", 0), w.vector(1))


_BODIES: dict[str, Callable[[Writer], None]] = {
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
