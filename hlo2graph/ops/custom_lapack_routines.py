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


def geqrf(given: Sequence[Array], _: Options) -> Results:
    """Factor into Q, as Householder vectors below the diagonal, and R."""
    (a,) = given
    reflectors, tau = np.linalg.qr(a, mode="raw")
    return reflectors.T, tau


def orgqr(given: Sequence[Array], _: Options) -> Results:
    """Multiply out the first columns of a product of Householder reflections."""
    a, tau = given
    product = np.eye(*a.shape, dtype=a.dtype)
    for k in reversed(range(len(tau))):
        vector = np.concatenate([np.ones(1, a.dtype), a[k + 1 :, k]])
        product[k:] -= tau[k] * np.outer(vector, vector.conj() @ product[k:])
    return (product,)


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
    """Return singular values and, unless mode is N, the vectors of both sides."""
    (a,) = given
    rows, columns = a.shape
    least = min(rows, columns)
    left, right = (least, least) if options["mode"] == "S" else (rows, columns)
    u, vt = np.zeros((rows, left), a.dtype), np.zeros((right, columns), a.dtype)

    def solve() -> Results:
        if options["mode"] == "N":
            return a, np.linalg.svd(a, compute_uv=False), u, vt
        found = np.linalg.svd(a, full_matrices=options["mode"] == "A")
        return a, found.S, found.U, found.Vh

    return _converged(a, solve, (a, np.full(least, np.nan), u, vt))


def geev(given: Sequence[Array], options: Options) -> Results:
    """Return eigenvalues, for real matrices as two arrays of parts, and right eigenvectors."""
    (a,) = given
    none = np.zeros(a.shape, np.result_type(a.dtype, np.complex64))

    def solve() -> Results:
        values, vectors = np.linalg.eig(a)
        right = vectors if options["compute_right"] == "V" else none
        return *_split(values, a), none, right

    return _converged(a, solve, (*_split(np.full(len(a), np.nan), a), none, none))


def _split(values: Array, like: Array) -> Results:
    return (values,) if np.iscomplexobj(like) else (values.real, values.imag)


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
