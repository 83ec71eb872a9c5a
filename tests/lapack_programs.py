"""Programs of linear algebra, for each element type, and what may differ between libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
import numpy as np
from jax.lax import linalg as lax_linalg

from hlo2graph.hlo import Module
from hlo2graph.ops.linalg import panel_columns

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def matrix(dtype: str, *dims: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *dims])
    drawn = rng.standard_normal(dims)
    held = drawn + 1j * rng.standard_normal(dims) if dtype[0] == "c" else drawn
    return held.astype(TYPES[dtype])


def definite(dtype: str) -> np.ndarray:
    a = matrix(dtype, 4, 4)
    return np.stack([a @ a.conj().T + 4 * np.eye(4, dtype=a.dtype)] * 2)


BAD = np.diag([1.0, 2.0, -1.0, 3.0])
PROGRAMS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "cholesky": lambda t: (jnp.linalg.cholesky, definite(t)),
    "cholesky-upper": lambda t: (lambda a: jnp.linalg.cholesky(a, upper=True), definite(t)),
    "cholesky-indefinite": lambda t: (jnp.linalg.cholesky, BAD.astype(TYPES[t])),
    "solve": lambda t: (jnp.linalg.solve, definite(t), matrix(t, 2, 4, 3)),
    "inv": lambda t: (jnp.linalg.inv, matrix(t, 4, 4)),
    "inv-singular": lambda t: (jnp.linalg.inv, np.zeros((3, 3), TYPES[t])),
    "slogdet": lambda t: (jnp.linalg.slogdet, matrix(t, 5, 5)),
    "lu-tall": lambda t: (lax_linalg.lu, matrix(t, 2, 5, 3)),
    "lu-wide": lambda t: (lax_linalg.lu, matrix(t, 3, 5)),
    "expm": lambda t: (scipy_linalg.expm, matrix(t, 3, 3)),
    "qr": lambda t: (jnp.linalg.qr, matrix(t, 2, 5, 3)),
    "qr-complete": lambda t: (lambda a: jnp.linalg.qr(a, "complete"), matrix(t, 5, 3)),
    "qr-wide": lambda t: (jnp.linalg.qr, matrix(t, 3, 5)),
    "eigh": lambda t: (jnp.linalg.eigh, definite(t)[0]),
    "eigh-upper": lambda t: (lambda a: lax_linalg.eigh(a, lower=False), definite(t)[0]),
    "eigvalsh-nan": lambda t: (jnp.linalg.eigvalsh, definite(t) * np.float32(np.nan)),
    "svd": lambda t: (lambda a: jnp.linalg.svd(a, full_matrices=False), matrix(t, 2, 5, 3)),
    "svd-full": lambda t: (jnp.linalg.svd, matrix(t, 3, 4)),
    "svd-values": lambda t: (lambda a: jnp.linalg.svd(a, compute_uv=False), matrix(t, 4, 3)),
    "svd-values-thin": lambda t: (jnp.linalg.matrix_rank, matrix(t, 2, 5, 3)),
    "svd-values-thin-wide": lambda t: (jnp.linalg.matrix_rank, matrix(t, 3, 5)),
    "svd-nan": lambda t: (jnp.linalg.svd, matrix(t, 4, 3) * np.float32(np.nan)),
    "tridiagonal": lambda t: (
        lax_linalg.tridiagonal_solve,
        *(matrix(t, 6, seed=k) for k in range(3)),
        matrix(t, 6, 2),
    ),
    "hessenberg": lambda t: (lax_linalg.hessenberg, matrix(t, 2, 5, 5)),
    "tridiagonal-lower": lambda t: (lax_linalg.tridiagonal, definite(t)[0]),
    "tridiagonal-upper": lambda t: (
        lambda a: lax_linalg.tridiagonal(a, lower=False),
        definite(t)[0],
    ),
    "qr-pivots": lambda t: (
        lambda a: scipy_linalg.qr(a, pivoting=True, mode="economic"),
        matrix(t, 6, 4),
    ),
    "qr-multiply": lambda t: (scipy_linalg.qr_multiply, matrix(t, 6, 4), matrix(t, 3, 6)),
    "qr-multiply-left": lambda t: (
        lambda a, c: scipy_linalg.qr_multiply(a, c, mode="left"),
        matrix(t, 6, 4),
        matrix(t, 4, 3),
    ),
    "eigh-larger": lambda t: (jnp.linalg.eigh, matrix(t, 9, 9) + matrix(t, 9, 9).conj().T),
    "eigh-one": lambda t: (jnp.linalg.eigh, matrix(t, 1, 1) + matrix(t, 1, 1).conj()),
    "svd-wide": lambda t: (lambda a: jnp.linalg.svd(a, full_matrices=False), matrix(t, 3, 7)),
    "svd-zero": lambda t: (
        lambda a: jnp.linalg.svd(a, full_matrices=False)[1],
        np.zeros((4, 3), TYPES[t]),
    ),
    "svd-iterated": lambda t: (
        lambda a: lax_linalg.svd(a, full_matrices=False, algorithm=lax_linalg.SvdAlgorithm.QR),
        matrix(t, 2, 3, 5),
    ),
    "triangular": lambda t: (
        lambda a, b: lax_linalg.triangular_solve(a, b, conjugate_a=True, transpose_a=True),
        definite(t)[0],
        matrix(t, 2, 4),
    ),
    "triangular-unit": lambda t: (
        lambda a, b: lax_linalg.triangular_solve(a, b, left_side=True, unit_diagonal=True),
        definite(t)[0],
        matrix(t, 4, 2),
    ),
}


def lowered(function: Callable[..., Any], arguments: tuple[Any, ...], platform: str) -> str:
    """Return the HLO text that JAX makes for a platform, which need not be here."""
    traced = jax.jit(function).trace(*arguments)
    return traced.lower(lowering_platforms=(platform,)).compiler_ir("hlo").as_hlo_text()


def same_up_to_phase(name: str, dtype: str, got: Any, want: Any) -> None:
    """Require equal results; eigenvectors and singular vectors up to factors of size 1."""
    tolerance = 5e-3 if dtype in ("f32", "c64") else 1e-8
    shown = np.abs if name.startswith(("eig", "svd")) else np.asarray
    for ours, theirs in zip(got, jax.tree.leaves(want), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(shown(ours), shown(theirs), rtol=tolerance, atol=tolerance)


def all_in_registers(module: Module) -> bool:
    """Tell whether a block keeps in registers what each call of a module factors."""
    calls = [i for c in module.computations.values() for i in c.instructions]
    shapes = [next(i.shape.leaves()) for i in calls if i.opcode == "custom-call"]
    return all(s.dims[-1] <= panel_columns(s.dtype, s.dims[-2]) for s in shapes)
