"""What LAPACK routines compute, for one matrix each, through numpy.linalg or by their definition.

Where a routine fails (a matrix that is not positive definite, an iteration that does not converge)
`info` is not 0, and JAX makes the results NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hlo2graph.ops.linalg import lower_factor, substitute
from hlo2graph.ops.spec import Array

Options: TypeAlias = Mapping[str, str]
Results: TypeAlias = tuple[Array, ...]


def _info(number: int) -> Array:
    return np.asarray(number, np.int32)


def _converged(matrix: Array, solve: Callable[[], Results], failed: Sequence[Array]) -> Results:
    """Return what `solve` gives, or `failed` and an `info` that is not 0."""
    try:
        if np.isfinite(matrix).all():
            return *solve(), _info(0)
    except np.linalg.LinAlgError:
        pass
    return *failed, _info(1)


def potrf(given: Sequence[Array], options: Options) -> Results:
    """Factor a positive definite matrix; the other triangle stays as it is."""
    (a,) = given
    lower = options["uplo"] == "L"
    with np.errstate(all="ignore"):
        factor = lower_factor(a if lower else a.conj().T)
    if np.isnan(factor).any():
        return a, _info(_first_not_definite(a if lower else a.conj().T))
    part = np.tril(factor) + np.triu(a, 1) if lower else np.triu(factor.conj().T) + np.tril(a, -1)
    return part, _info(0)


def _first_not_definite(matrix: Array) -> int:
    """Return the order of the first leading minor that is not positive definite."""
    for size in range(1, len(matrix)):
        if np.isnan(lower_factor(matrix[:size, :size])).any():
            return size
    return len(matrix)


def getrf(given: Sequence[Array], _: Options) -> Results:
    """Factor into L and U with partial pivoting; pivots count from 1."""
    a = given[0].copy()
    rows, columns = a.shape
    pivots = np.zeros(min(rows, columns), np.int32)
    singular = 0
    for j in range(len(pivots)):
        size = np.abs(a[j:, j].real) + np.abs(a[j:, j].imag)
        at = j + int(np.argmax(np.where(np.isnan(size), -1, size)))
        pivots[j] = at + 1
        a[[j, at]] = a[[at, j]]
        if a[j, j] == 0:
            singular = singular or j + 1
            continue
        a[j + 1 :, j] /= a[j, j]
        a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])
    return a, pivots, _info(singular)


def lu(given: Sequence[Array], options: Options) -> Results:
    """Factor into L and U with partial pivoting; pivots count from 0, the rows' order follows."""
    factors, pivots, _ = getrf(given, options)
    pivots, order = pivots - 1, np.arange(len(factors), dtype=np.int32)
    for row, other in enumerate(pivots):
        order[[row, other]] = order[[other, row]]
    return factors, pivots, order


def trsm(given: Sequence[Array], options: Options) -> Results:
    """Solve op(A) X = B, or X op(A) = B, with A a triangle."""
    a, b = given
    lower, left = options["uplo"] == "L", options["side"] == "L"
    if options["trans_x"] == "C":
        a = a.conj()
    # X op(A) = B is op(A)^T X^T = B^T, so the two transpositions may cancel.
    if (options["trans_x"] != "N") == left:
        a, lower = a.T, not lower
    solved = substitute(a, b if left else b.T, lower, options["diag"] == "U")
    return (solved if left else solved.T,)


def syevd(given: Sequence[Array], options: Options) -> Results:
    """Return eigenvectors and eigenvalues of a symmetric matrix of which one triangle is read."""
    (a,) = given
    lower = options["uplo"] == "L"

    def solve() -> Results:
        values, vectors = np.linalg.eigh(a, "L" if lower else "U")
        return vectors if options["mode"] == "V" else a, values

    read = np.tril(a) if lower else np.triu(a)
    return _converged(read, solve, (a, np.full(len(a), np.nan)))


def gesdd(given: Sequence[Array], options: Options) -> Results:
    """Return singular values and, unless mode is N, the vectors of both sides.

    For layout and room, see the shapes.
    """
    (a,) = given
    rows, columns = a.shape
    least = min(rows, columns)
    thin = options.get("size", options["mode"]) == "S"
    left, right = (least, least) if thin else (rows, columns)
    u, vt = np.zeros((rows, left), a.dtype), np.zeros((right, columns), a.dtype)

    def solve() -> Results:
        if options["mode"] == "N":
            return a, np.linalg.svd(a, compute_uv=False), u, vt
        found = np.linalg.svd(a, full_matrices=options["mode"] == "A")
        return a, found.S, found.U, found.Vh

    _, values, u, vt, info = _converged(a, solve, (a, np.full(least, np.nan), u, vt))
    if options.get("room") == "none":
        u = vt = np.zeros((), a.dtype)
    elif options.get("layout") == "V":
        vt = vt.conj().T
    elif options.get("layout") == "T":
        u, vt = vt, u
    return a, values, u, vt, info


def geev(given: Sequence[Array], options: Options) -> Results:
    """Return eigenvalues, for real matrices as two arrays of parts, and eigenvectors."""
    (a,) = given
    none = np.zeros(a.shape, np.result_type(a.dtype, np.complex64))

    def solve() -> Results:
        values, vectors = np.linalg.eig(a)
        right = vectors if options["compute_right"] == "V" else none
        left = _left_vectors(a, values) if options["compute_left"] == "V" else none
        return *split(values, a), left, right

    return _converged(a, solve, (*split(np.full(len(a), np.nan), a), none, none))


def _left_vectors(a: Array, values: Array) -> Array:
    """Return u with u^H a = value u^H, a column for each of the eigenvalues."""
    found, vectors = np.linalg.eig(a.conj().T)
    far = np.abs(found.conj()[None] - values[:, None])
    order = []
    for row in far:
        order.append(int(np.argmin(row)))
        far[:, order[-1]] = np.inf
    return vectors[:, order]


def split(values: Array, like: Array) -> Results:
    """Return eigenvalues as one complex array or, for a real matrix, as two arrays of parts."""
    return (values,) if np.iscomplexobj(like) else (values.real, values.imag)


def packed_geev(given: Sequence[Array], options: Options) -> Results:
    """Return complex eigenvalues, and eigenvectors in the matrix's own type.

    Of two conjugate vectors a real matrix has the real part, then the imaginary part.
    """
    (a,) = given
    *parts, left, right, info = geev(given, options)
    values = parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]
    if np.iscomplexobj(a):
        return a, values, left, right, info
    second = np.zeros(len(a), bool)
    for j in range(1, len(a)):
        second[j] = values[j].imag < 0 and not second[j - 1]
    packed = [
        np.where(second, np.roll(vectors, 1, axis=1).imag, vectors.real)
        for vectors in (left, right)
    ]
    return a, values, *packed, info


def gtsv(given: Sequence[Array], _: Options) -> Results:
    """Solve a tridiagonal system by elimination, exchanging neighbouring rows for larger pivots.

    All diagonals have as many elements as rows; the first below and the last above do not count.
    """
    below, main, above, b = (x.copy() for x in given)
    lower, n = below[1:], len(main)
    second = np.zeros_like(main)  # of U, after exchanges
    for i in range(n - 1):
        if _size(main[i]) >= _size(lower[i]):
            if main[i] == 0:
                return below, main, above, b, _info(i + 1)
            factor = lower[i] / main[i]
            main[i + 1] -= factor * above[i]
            b[i + 1] -= factor * b[i]
            continue
        factor = main[i] / lower[i]
        main[i], above[i], main[i + 1] = lower[i], main[i + 1], above[i] - factor * main[i + 1]
        if i < n - 2:
            second[i], above[i + 1] = above[i + 1], -factor * above[i + 1]
        b[i], b[i + 1] = b[i + 1].copy(), b[i] - factor * b[i + 1]
    if n and main[-1] == 0:
        return below, main, above, b, _info(n)
    for i in reversed(range(n)):
        rest = b[i]
        if i + 1 < n:
            rest = rest - above[i] * b[i + 1]
        if i + 2 < n:
            rest = rest - second[i] * b[i + 2]
        b[i] = rest / main[i]
    lower[:-1] = second[: max(n - 2, 0)]
    return below, main, above, b, _info(0)


def _size(number: Array) -> float:
    return abs(float(number.real)) + abs(float(number.imag))


def gtsv2(given: Sequence[Array], options: Options) -> Results:
    """Solve a tridiagonal system, giving the solution alone."""
    return (gtsv(given, options)[3],)


def syrk(given: Sequence[Array], options: Options) -> Results:
    """Return alpha a a^T + beta c, or a^T a, in the lower triangle, and c in the upper one."""
    a, c, alpha, beta = given
    a = a.T if options["transpose"] == "true" else a
    return (np.where(np.tri(len(c), dtype=bool), alpha * (a @ a.T) + beta * c, c),)


def cholesky_update(given: Sequence[Array], _: Options) -> Results:
    """Return the upper factor of r^T r + w w^T, by rotations that make w zero."""
    r, w = (x.copy() for x in given)
    for k in range(len(w)):
        size = np.hypot(r[k, k], w[k])
        if size == 0 or w[k] == 0:
            continue
        c, s = r[k, k] / size, w[k] / size
        r[k, k:], w[k:] = c * r[k, k:] + s * w[k:], c * w[k:] - s * r[k, k:]
    return r, w
