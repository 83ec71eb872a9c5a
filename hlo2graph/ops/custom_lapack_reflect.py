"""LAPACK routines that work by Householder reflections H = I - tau v v^H, with v[0] = 1.

A reflection's v stands, without its 1, below the entry that it makes zero the rest of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hlo2graph.ops.spec import Array

Options: TypeAlias = Mapping[str, str]
Results: TypeAlias = tuple[Array, ...]


def reflect(x: Array) -> tuple[Array, Array]:
    """Return (beta, v[1], v[2], ...) and tau with H^H x = beta e1, beta real."""
    rest = np.linalg.norm(x[1:])
    if rest == 0 and x[0].imag == 0:
        return x, np.zeros((), x.dtype)
    beta = -np.copysign(np.hypot(abs(x[0]), rest), x[0].real)
    v = np.concatenate([np.full(1, beta, x.dtype), x[1:] / (x[0] - beta)])
    return v, (beta - x[0]) / beta


def vector(column: Array) -> Array:
    """Return v of a column that `reflect` gave."""
    return np.concatenate([np.ones(1, column.dtype), column[1:]])


def geqrf(given: Sequence[Array], _: Options) -> Results:
    """Factor into Q, as Householder vectors below the diagonal, and R."""
    (a,) = given
    reflectors, tau = np.linalg.qr(a, mode="raw")
    return reflectors.T, tau


def geqp3(given: Sequence[Array], _: Options) -> Results:
    """Factor with the column of largest rest first; pivots count from 1.

    Columns whose pivot is not 0 come first, in their order.
    """
    a, pivots = (x.copy() for x in given)
    columns = a.shape[1]
    fixed = 0
    for j in range(columns):
        is_fixed = pivots[j] != 0
        pivots[j] = j + 1
        if is_fixed:
            _exchange(a, pivots, fixed, j)
            fixed += 1
    tau = np.zeros(min(a.shape), a.dtype)
    for k in range(len(tau)):
        if k >= fixed:
            rest = np.linalg.norm(a[k:, k:], axis=0)
            _exchange(a, pivots, k, k + int(np.argmax(rest)))
        a[k:, k], tau[k] = reflect(a[k:, k])
        _apply_left(a[k:, k + 1 :], vector(a[k:, k]), tau[k].conj())
    return a, pivots, tau


def _exchange(a: Array, pivots: Array, j: int, k: int) -> None:
    a[:, [j, k]], pivots[[j, k]] = a[:, [k, j]], pivots[[k, j]]


def _apply_left(target: Array, v: Array, tau: Array) -> None:
    target -= tau * np.outer(v, v.conj() @ target)


def _apply_right(target: Array, v: Array, tau: Array) -> None:
    target -= tau * np.outer(target @ v, v.conj())


def orgqr(given: Sequence[Array], _: Options) -> Results:
    """Multiply out the first columns of a product of reflections."""
    a, tau = given
    product = np.eye(*a.shape, dtype=a.dtype)
    for k in reversed(range(len(tau))):
        _apply_left(product[k:], vector(a[k:, k]), tau[k])
    return (product,)


def ormqr(given: Sequence[Array], options: Options) -> Results:
    """Multiply by a product of reflections, or its adjoint, from the left or the right."""
    a, tau, c = given
    c = c.copy()
    left, adjoint = options["left"] == "true", options["transpose"] == "true"
    steps = range(len(tau))
    for k in reversed(steps) if left != adjoint else steps:
        v, factor = vector(a[k:, k]), tau[k].conj() if adjoint else tau[k]
        if left:
            _apply_left(c[k:], v, factor)
        else:
            _apply_right(c[:, k:], v, factor)
    return (c,)


def gehrd(given: Sequence[Array], _: Options) -> Results:
    """Make all below the first subdiagonal zero, keeping the eigenvalues."""
    a = given[0].copy()
    tau = np.zeros(len(a) - 1, a.dtype)
    for k in range(len(tau)):
        a[k + 1 :, k], tau[k] = reflect(a[k + 1 :, k])
        v = vector(a[k + 1 :, k])
        _apply_right(a[:, k + 1 :], v, tau[k])
        _apply_left(a[k + 1 :, k + 1 :], v, tau[k].conj())
    return a, tau, np.zeros((), np.int32)


def sytrd(given: Sequence[Array], options: Options) -> Results:
    """Make a Hermitian matrix, of which one triangle is read, tridiagonal."""
    a = given[0].copy()
    # What is done to the upper triangle is what is done to the lower one seen from the other end.
    work = a if options["uplo"] == "L" else a[::-1, ::-1]
    size = len(a)
    tau, beside = np.zeros(size - 1, a.dtype), np.zeros(size - 1, a.real.dtype)
    for k in range(size - 1):
        work[k + 1 :, k], tau[k] = reflect(work[k + 1 :, k])
        beside[k] = work[k + 1, k].real
        v, rest = vector(work[k + 1 :, k]), work[k + 1 :, k + 1 :]
        lower = np.tril(rest, -1)
        whole = lower + lower.conj().T + np.diag(np.diag(rest).real)
        x = tau[k] * (whole @ v)
        w = x - tau[k] / 2 * (x.conj() @ v) * v
        changed = whole - np.outer(v, w.conj()) - np.outer(w, v.conj())
        rest[:] = np.where(np.tri(len(v), dtype=bool), changed, rest)
    diagonal = np.diag(a).real.copy()
    if options["uplo"] == "U":
        tau, beside = tau[::-1], beside[::-1]
    return a, diagonal, beside, tau, np.zeros((), np.int32)
