"""The Schur form of a matrix, A = Z T Z^H, by splitting off one eigenvalue after the other.

Each eigenvector, of what is left, begins an orthonormal basis in which the rest of its column is
zero. A real matrix keeps two conjugate eigenvalues together, as a block of two rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hlo2graph.ops.custom_lapack_routines import split
from hlo2graph.ops.spec import Array

Options: TypeAlias = Mapping[str, str]


def gees(given: Sequence[Array], options: Options) -> tuple[Array, ...]:
    """Return the Schur form, its vectors unless mode is N, and the eigenvalues, none sorted."""
    (a,) = given
    none, failed = np.zeros((), np.int32), np.ones((), np.int32)
    blank = np.zeros_like(a)
    try:
        if not np.isfinite(a).all():
            raise np.linalg.LinAlgError
        form, vectors = _schur(a)
    except np.linalg.LinAlgError:
        values = np.full(len(a), np.nan)
        return a, blank, *split(values, a), none, failed
    values = _eigenvalues(form)
    return form, vectors if options["mode"] == "V" else blank, *split(values, a), none, none


def _schur(a: Array) -> tuple[Array, Array]:
    """Return T and Z; the eigenvalues on T's diagonal come as numpy.linalg.eig finds them."""
    wanted = np.linalg.eigvals(a)
    form, vectors = a.copy(), np.eye(len(a), dtype=a.dtype)
    at = 0
    while at < len(a) - 1:
        values, found = np.linalg.eig(form[at:, at:])
        first = int(np.argmin(np.abs(values - wanted[at])))
        basis = found[:, first : first + 1]
        if not np.iscomplexobj(a) and values[first].imag:
            basis = np.concatenate([basis.real, basis.imag], axis=1)
        basis = basis if np.iscomplexobj(a) else basis.real
        width = basis.shape[1]
        turn = np.linalg.qr(basis.astype(a.dtype), mode="complete").Q
        _turn(form, vectors, at, turn)
        form[at + width :, at : at + width] = 0
        if width == 2:
            _standardize(form, vectors, at)
        at += width
    return form, vectors


def _turn(form: Array, vectors: Array, at: int, turn: Array) -> None:
    """Change the basis of the rows and columns from `at` on."""
    part = slice(at, at + len(turn))
    form[:, part] = form[:, part] @ turn
    form[part] = turn.conj().T @ form[part]
    vectors[:, part] = vectors[:, part] @ turn


def _standardize(form: Array, vectors: Array, at: int) -> None:
    """Make the diagonal of a block of two conjugate eigenvalues equal, as LAPACK has it."""
    (a, b), (c, d) = form[at : at + 2, at : at + 2]
    angle = np.arctan2(d - a, b + c) / 2
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, -sine], [sine, cosine]], form.dtype)
    _turn(form, vectors, at, turn)
    middle = (form[at, at] + form[at + 1, at + 1]) / 2
    form[at, at] = form[at + 1, at + 1] = middle


def _eigenvalues(form: Array) -> Array:
    """Return the eigenvalues of a Schur form, in their order."""
    values = np.diag(form).astype(np.result_type(form.dtype, np.complex64))
    for at in range(len(form) - 1):
        if form[at + 1, at]:
            spread = np.sqrt(complex(form[at, at + 1] * form[at + 1, at]))
            values[at], values[at + 1] = values[at] + spread, values[at] - spread
    return values
