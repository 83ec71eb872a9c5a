"""Eigenvectors by Jacobi's method: XLA's own `Eigh`, which it writes out for all its backends.

A rotation makes one element off the diagonal zero. Half as many as there are rows go at once, of
pairs that have no row in common; a round meets all pairs once. The order of the pairs decides which
sign each vector gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo2graph.ops.spec import Array


def eigh(given: Sequence[Array], options: Mapping[str, str]) -> tuple[Array, ...]:
    """Return eigenvectors and eigenvalues of a Hermitian matrix of which one triangle is read."""
    (a,) = given
    size, bound = len(a), float(options["tolerance"]) ** 2
    order = np.arange(size + size % 2)  # the last row of an odd number has a partner of zeros
    held = np.zeros((len(order), len(order)), a.dtype)
    held[:size, :size] = _whole(a if options["uplo"] == "L" else a.T.conj())
    vectors = np.eye(len(order), dtype=a.dtype)
    for _ in range(int(options["rounds"]) if size > 1 else 0):
        squares = np.abs(held) ** 2
        whole = squares.sum()
        np.fill_diagonal(squares, 0)
        if not squares.sum() > bound * whole:
            break
        for _ in range(len(order) - 1):
            _rotate(held, vectors, *np.split(order, 2))
            order = _next(order)
    values, vectors = held.diagonal().real[:size], vectors[:size, :size]
    if options["sort"] == "N":
        return vectors, values
    rising = np.argsort(values, kind="stable")
    return vectors[:, rising], values[rising]


def _whole(a: Array) -> Array:
    """Return the Hermitian matrix whose lower triangle is that of `a`."""
    below = np.tril(a, -1)
    return below + below.T.conj() + np.diag(a.diagonal().real)


def _next(order: Array) -> Array:
    """Return the next pairs: all rows but the first move on by one place, round both lines."""
    top, bottom = np.split(order, 2)
    return np.concatenate([top[:1], bottom[:1], top[1:-1], bottom[1:], top[1:][-1:]])


def _rotate(held: Array, vectors: Array, p: Array, q: Array) -> None:
    """Make held[p, q] zero, pair by pair, by the smaller of the two turns that do."""
    cross, x, y = held[p, q], held[p, p].real, held[q, q].real
    size = np.abs(cross)
    small = np.finfo(x.dtype).eps * np.minimum(np.abs(x), np.abs(y)) / 10
    with np.errstate(all="ignore"):
        tau = (y - x) / (2 * size)
        tangent = np.copysign(1 / (np.abs(tau) + np.sqrt(1 + tau * tau)), np.where(tau < 0, -1, 1))
        phase = cross / size
    turns = ~(size <= small)
    tangent = np.where(turns, tangent, 0).astype(x.dtype)
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    sine = (tangent * cosine * np.where(turns, phase, 1)).astype(held.dtype)
    for columns in (held, vectors):
        _turn(columns, p, q, cosine, sine)
    _turn(held.T, p, q, cosine, sine.conj())
    held[p, q] = held[q, p] = 0


def _turn(columns: Array, p: Array, q: Array, cosine: Array, sine: Array) -> None:
    left, right = columns[:, p], columns[:, q]
    columns[:, p] = cosine * left - sine.conj() * right
    columns[:, q] = sine * left + cosine * right
