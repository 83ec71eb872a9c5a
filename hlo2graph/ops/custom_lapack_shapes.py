"""The result shapes of linear algebra routines: None where operands do not fit together.

Matrices are the last two dimensions, vectors the last one; those before are the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.hlo.dtype import S32

Options: TypeAlias = Mapping[str, str]
Shapes: TypeAlias = "tuple[Shape, ...] | None"


def _square(shape: Shape) -> bool:
    return shape.dims[-1] == shape.dims[-2]


def batch(shape: Shape, *dims: int, rank: int = 2) -> Shape:
    """Return the shape with other dimensions after the batch dimensions."""
    return Shape(shape.dtype, (*shape.dims[: shape.rank - rank], *dims))


def _info(shape: Shape) -> Shape:
    return Shape(S32, shape.dims[:-2])


def _real(shape: Shape) -> Shape:
    bits = shape.dtype.bits // 2 if shape.dtype.is_complex else shape.dtype.bits
    return Shape(DTYPES[f"f{bits}"], shape.dims)


def _complex(shape: Shape) -> Shape:
    bits = shape.dtype.bits if shape.dtype.is_complex else shape.dtype.bits * 2
    return Shape(DTYPES[f"c{bits}"], shape.dims)


def potrf(given: Sequence[Shape], _: Options) -> Shapes:
    """The factor and info."""
    (a,) = given
    return (a, _info(a)) if _square(a) else None


def getrf(given: Sequence[Shape], _: Options) -> Shapes:
    """L and U, pivots, info."""
    (a,) = given
    pivots = Shape(S32, batch(a, min(a.dims[-2:])).dims)
    return a, pivots, _info(a)


def lu(given: Sequence[Shape], _: Options) -> Shapes:
    """L and U, pivots, the order of the rows."""
    (a,) = given
    pivots, order = (Shape(S32, batch(a, n).dims) for n in (min(a.dims[-2:]), a.dims[-2]))
    return a, pivots, order


def geqrf(given: Sequence[Shape], _: Options) -> Shapes:
    """Reflectors and R, their factors."""
    (a,) = given
    return a, batch(a, min(a.dims[-2:]))


def geqp3(given: Sequence[Shape], _: Options) -> Shapes:
    """Reflectors and R, pivots, factors."""
    a, pivots = given
    fits = pivots.dims[-1] == a.dims[-1]
    return (a, pivots, batch(a, min(a.dims[-2:]))) if fits else None


def orgqr(given: Sequence[Shape], _: Options) -> Shapes:
    """The product."""
    a, tau = given
    rows, columns = a.dims[-2:]
    return (a,) if rows >= columns >= tau.dims[-1] else None


def ormqr(given: Sequence[Shape], options: Options) -> Shapes:
    """What the reflections make of the last operand."""
    a, tau, c = given
    fits = c.dims[-2 if options["left"] == "true" else -1] == a.dims[-2]
    return (c,) if fits and tau.dims[-1] <= min(a.dims[-2:]) else None


def trsm(given: Sequence[Shape], options: Options) -> Shapes:
    """The solution."""
    a, b = given
    shared = b.dims[-2 if options["side"] == "L" else -1]
    return (b,) if _square(a) and shared == a.dims[-1] else None


def syevd(given: Sequence[Shape], _: Options) -> Shapes:
    """Eigenvectors, eigenvalues, info."""
    (a,) = given
    return (a, _real(batch(a, a.dims[-1])), _info(a)) if _square(a) else None


def eigh(given: Sequence[Shape], _: Options) -> Shapes:
    """Eigenvectors, eigenvalues."""
    (a,) = given
    return (a, _real(batch(a, a.dims[-1]))) if _square(a) else None


def gesdd(given: Sequence[Shape], options: Options) -> Shapes:
    """What became of A, singular values, U, the adjoint of V, info.

    With layout=V, V itself; with layout=T, U after the adjoint of V; with room=none, scalars where
    the vectors would be.
    """
    (a,) = given
    rows, columns = a.dims[-2:]
    least = min(rows, columns)
    thin = options.get("size", options["mode"]) == "S"
    left, right = (least, least) if thin else (rows, columns)
    u, vt = batch(a, rows, left), batch(a, right, columns)
    if options.get("layout") == "V":
        vt = batch(a, columns, right)
    if options.get("room") == "none":
        u = vt = Shape(a.dtype)
    vectors = (vt, u) if options.get("layout") == "T" else (u, vt)
    return a, _real(batch(a, least)), *vectors, _info(a)


def geev(given: Sequence[Shape], _: Options) -> Shapes:
    """Eigenvalues (for real matrices as two arrays), left and right eigenvectors, info."""
    (a,) = given
    values, vectors = batch(a, a.dims[-1]), _complex(a)
    split = (values,) if a.dtype.is_complex else (values, values)
    return (*split, vectors, vectors, _info(a)) if _square(a) else None


def packed_geev(given: Sequence[Shape], _: Options) -> Shapes:
    """What became of A, complex eigenvalues, left and right eigenvectors in A's type, info."""
    (a,) = given
    return (a, _complex(batch(a, a.dims[-1])), a, a, _info(a)) if _square(a) else None


def gees(given: Sequence[Shape], _: Options) -> Shapes:
    """The Schur form, its vectors, eigenvalues as geev has them, how many were sorted, info."""
    (a,) = given
    values = batch(a, a.dims[-1])
    split = (values,) if a.dtype.is_complex else (values, values)
    return (a, a, *split, _info(a), _info(a)) if _square(a) else None


def gehrd(given: Sequence[Shape], _: Options) -> Shapes:
    """The Hessenberg form above its reflectors, their factors, info."""
    (a,) = given
    fits = _square(a) and a.dims[-1] > 0
    return (a, batch(a, a.dims[-1] - 1), _info(a)) if fits else None


def sytrd(given: Sequence[Shape], _: Options) -> Shapes:
    """Reflectors, the diagonal, what is next to it, the reflectors' factors, info."""
    (a,) = given
    if not _square(a) or not a.dims[-1]:
        return None
    size = a.dims[-1]
    return (
        a,
        _real(batch(a, size)),
        _real(batch(a, size - 1)),
        batch(a, size - 1),
        _info(a),
    )


def gtsv(given: Sequence[Shape], _: Options) -> Shapes:
    """What became of the diagonals, the solution, info."""
    *diagonals, b = given
    same = all(d.dims == (*b.dims[:-2], b.dims[-2]) for d in diagonals)
    return (*diagonals, b, _info(b)) if same else None


def gtsv2(given: Sequence[Shape], options: Options) -> Shapes:
    """The solution alone."""
    found = gtsv(given, options)
    return found and (found[3],)


def syrk(given: Sequence[Shape], options: Options) -> Shapes:
    """A symmetric matrix."""
    a, c, *_ = given
    size = a.dims[-1 if options["transpose"] == "true" else -2]
    return (c,) if c.dims[-2:] == (size, size) else None


def cholesky_update(given: Sequence[Shape], _: Options) -> Shapes:
    """The factor and what became of the vector."""
    r, w = given
    return (r, w) if _square(r) and w.dims[-1] == r.dims[-1] else None
