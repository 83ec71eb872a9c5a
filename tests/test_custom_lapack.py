"""LAPACK calls that JAX makes on the CPU, against JAX's own results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
import numpy as np
import pytest
from agreement import arguments_of, leaves, module, refused
from jax.lax import linalg as lax_linalg
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from tests.emulation import EmulatedExecutable, Kernels

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def matrix(dtype: str, *dims: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *dims])
    drawn = rng.standard_normal(dims)
    held = drawn + 1j * rng.standard_normal(dims) if dtype[0] == "c" else drawn
    return held.astype(TYPES[dtype])


def definite(dtype: str) -> np.ndarray:
    a = matrix(dtype, 4, 4)
    return np.stack([a @ a.conj().T + 4 * np.eye(4, dtype=a.dtype)] * 2)


def results_of(function, *arguments) -> list[np.ndarray]:
    """Return what a JAX function's program gives here."""
    lowered = jax.jit(function).lower(*arguments).compiler_ir("hlo").as_hlo_text()
    got = hlo2graph.compile(hlo2graph.parse(lowered), backend="host")(*arguments)
    return leaves(tuple(got) if isinstance(got, tuple | list) else got)


BAD = np.diag([1.0, 2.0, -1.0, 3.0])
PROGRAMS = {
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
    "svd-nan": lambda t: (jnp.linalg.svd, matrix(t, 4, 3) * np.float32(np.nan)),
    "tridiagonal": lambda t: (
        lax_linalg.tridiagonal_solve,
        *(matrix(t, 6, seed=k) for k in range(3)),
        matrix(t, 6, 2),
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


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_linear_algebra_is_jaxs(name, dtype):
    """Eigenvectors and singular vectors are given up to a factor of size 1."""
    tolerance = 5e-3 if dtype in ("f32", "c64") else 1e-8
    shown = np.abs if name.startswith(("eig", "svd")) else np.asarray
    with jax.enable_x64(True):
        function, *arguments = PROGRAMS[name](dtype)
        got, want = results_of(function, *arguments), jax.jit(function)(*arguments)
    for ours, theirs in zip(got, jax.tree.leaves(want), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(shown(ours), shown(theirs), rtol=tolerance, atol=tolerance)


def test_factors_multiply_to_the_matrix():
    a, symmetric = matrix("c64", 5, 3), definite("c64")[0]
    values, vectors = results_of(jnp.linalg.eigh, symmetric)
    np.testing.assert_allclose(symmetric @ vectors, vectors * values, atol=1e-4)
    u, s, vh = results_of(lambda a: jnp.linalg.svd(a, full_matrices=False), a)
    np.testing.assert_allclose(u * s @ vh, a, atol=1e-4)
    square = matrix("f32", 4, 4)
    values, vectors = results_of(jnp.linalg.eig, square)
    np.testing.assert_allclose(square @ vectors, vectors * values, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1, atol=1e-5)


def lapack(name: str, shapes: str, result: str, config: str) -> str:
    listed = shapes.split(" ")
    parameters = " ".join(f"p{k} = {s} parameter({k})" for k, s in enumerate(listed))
    names = ", ".join(f"p{k}" for k in range(len(listed)))
    call = f'custom-call({names}), custom_call_target="lapack_{name}_ffi"'
    return module(f"{parameters} ROOT r = {result} {call}, backend_config={config}")


def test_lapack_calls_that_do_not_fit_are_refused():
    refused(lapack("spotrf", "f32[3,4]", "(f32[3,4], s32[])", "{uplo = 76 : ui8}"), "fit together")
    refused(lapack("spotrf", "f64[3,3]", "(f64[3,3], s32[])", "{uplo = 76 : ui8}"), "f32 matrices")
    refused(lapack("spotrf", "f32[3]", "(f32[3], s32[])", "{uplo = 76 : ui8}"), "f32 matrices")
    refused(lapack("sgeqrf", "f32[3,3]", "f32[3,3]", "{}"), "gives 2 arrays")
    refused(lapack("sgeqrf", "f32[3,2]", "(f32[3,2], f32[3])", "{}"), "result 1")


def test_lapack_options_out_of_range_are_refused_by_name():
    text = lapack("spotrf", "f32[3,3]", "(f32[3,3], s32[])", "{uplo = 7 : ui8}")
    with pytest.raises(UnsupportedError, match="needs uplo"):
        hlo2graph.compile(hlo2graph.parse(text), backend="host")


@pytest.mark.parametrize("function", [scipy_linalg.schur, lax_linalg.hessenberg])
def test_other_routines_are_refused_by_name(function):
    text = jax.jit(function).lower(matrix("f32", 3, 3)).compiler_ir("hlo").as_hlo_text()
    with pytest.raises(UnsupportedError, match=r"lapack_sge(es|hrd)_ffi"):
        hlo2graph.compile(hlo2graph.parse(text), backend="host")


@pytest.mark.slow
@needs_gxx
def test_a_triangle_is_solved_on_the_device_too():
    text = lapack(
        "ctrsm",
        "c64[2,4,4] c64[2,3,4]",
        "c64[2,3,4]",
        "{diag = 85 : ui8, side = 82 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8}",
    )
    plan, arguments = hlo2graph.plan(text, target="sm_90"), arguments_of(text)
    (got,) = EmulatedExecutable(plan, Kernels([plan]))(*arguments)
    (want,) = HostExecutable(plan)(*arguments)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_runs_on_the_host_only_is_refused_by_name():
    text = lapack("spotrf", "f32[3,3]", "(f32[3,3], s32[])", "{uplo = 76 : ui8}")
    with pytest.raises(UnsupportedError, match="LAPACK is a library of the CPU"):
        check_support(hlo2graph.plan(text, target="sm_90"))
