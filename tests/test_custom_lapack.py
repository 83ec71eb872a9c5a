"""Linear algebra calls that JAX makes on the CPU and on the GPU, against JAX's own results."""

from __future__ import annotations

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
import numpy as np
import pytest
from agreement import arguments_of, leaves, misfits, module
from jax.lax import linalg as lax_linalg
from lapack_programs import PROGRAMS, TYPES, definite, lowered, matrix, same_up_to_phase
from needs import needs_gxx
from xla import run_xla

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from hlo2graph.ops.custom_lapack import routine_of
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import both_ways


def results_of(function, *arguments, platform: str = "cpu") -> list[np.ndarray]:
    """Return what a JAX function's program gives here."""
    text = lowered(function, arguments, platform)
    got = hlo2graph.compile(hlo2graph.parse(text), backend="host")(*arguments)
    return leaves(tuple(got) if isinstance(got, tuple | list) else got)


ON_GPU = [name for name in PROGRAMS if name != "hessenberg"]  # JAX has none there


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("platform", "name"),
    [*(("cpu", name) for name in PROGRAMS), *(("cuda", name) for name in ON_GPU)],
)
def test_linear_algebra_is_jaxs(platform, name, dtype):
    with jax.enable_x64(True):
        function, *arguments = PROGRAMS[name](dtype)
        got = results_of(function, *arguments, platform=platform)
        want = jax.jit(function)(*arguments)
    same_up_to_phase(name, dtype, got, want)


@cache
def device_programs(platform: str):
    """Return plans for the device, their kernels in one library, and arguments."""
    found = {}
    with jax.enable_x64(True):
        for dtype, name in product(("f32", "c128"), PROGRAMS if platform == "cpu" else ON_GPU):
            function, *arguments = PROGRAMS[name](dtype)
            plan = hlo2graph.plan(lowered(function, tuple(arguments), platform), target="sm_90")
            check_support(plan)
            found[dtype, name] = plan, arguments
    return found, Kernels([plan for plan, _ in found.values()])


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize(
    ("platform", "name"),
    [*(("cpu", name) for name in PROGRAMS), *(("cuda", name) for name in ON_GPU)],
)
def test_kernels_do_linear_algebra_as_the_host_does(platform, name, dtype):
    found, kernels = device_programs(platform)
    plan, arguments = found[dtype, name]
    got = both_ways(plan, kernels, arguments)
    same_up_to_phase(name, dtype, got, HostExecutable(plan)(*arguments))


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("rows", [4, 7])
def test_kernels_complete_the_vectors_of_a_matrix_of_low_rank(dtype, rows):
    a = np.outer(matrix(dtype, rows), matrix(dtype, 5)).astype(TYPES[dtype])
    text = lowered(jnp.linalg.svd, (a,), "cuda")
    plan = hlo2graph.plan(text, target="sm_90")
    u, s, vh = EmulatedExecutable(plan, Kernels([plan]))(a)
    np.testing.assert_allclose(s[1:], 0, atol=1e-4)
    np.testing.assert_allclose(u[:, : len(s)] * s @ vh[: len(s)], a, atol=1e-4)
    for vectors in (u, vh):
        np.testing.assert_allclose(vectors @ vectors.conj().T, np.eye(len(vectors)), atol=1e-4)


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
    misfits(lapack("spotrf", "f32[3,4]", "(f32[3,4], s32[])", "{uplo = 76 : ui8}"), "fit together")
    misfits(lapack("spotrf", "f64[3,3]", "(f64[3,3], s32[])", "{uplo = 76 : ui8}"), "f32 matrices")
    misfits(lapack("spotrf", "f32[3]", "(f32[3], s32[])", "{uplo = 76 : ui8}"), "f32 matrices")
    misfits(lapack("sgeqrf", "f32[3,3]", "f32[3,3]", "{}"), "gives 2 arrays")
    misfits(lapack("sgeqrf", "f32[3,2]", "(f32[3,2], f32[3])", "{}"), "result 1")


def test_lapack_options_out_of_range_are_refused_by_name():
    text = lapack("spotrf", "f32[3,3]", "(f32[3,3], s32[])", "{uplo = 7 : ui8}")
    with pytest.raises(UnsupportedError, match="needs uplo"):
        hlo2graph.compile(hlo2graph.parse(text), backend="host")


def test_part_of_a_matrix_is_refused_by_name():
    text = lapack(
        "sgehrd", "f32[3,3]", "(f32[3,3], f32[2], s32[])", "{high = 2 : i32, low = 1 : i32}"
    )
    with pytest.raises(UnsupportedError, match="works on part of a matrix"):
        hlo2graph.compile(hlo2graph.parse(text), backend="host")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_schur_form_is_a_form_of_the_matrix(dtype, size):
    """LAPACK may give the eigenvalues in another order, and Schur vectors of other signs."""
    a = matrix(dtype, size, size)
    with jax.enable_x64(True):
        form, vectors = results_of(scipy_linalg.schur, a)
        wanted = np.linalg.eigvals(a)
    bound = 1e-4 if dtype in ("f32", "c64") else 1e-10
    np.testing.assert_allclose(vectors @ form @ vectors.conj().T, a, atol=bound)
    np.testing.assert_allclose(vectors @ vectors.conj().T, np.eye(size), atol=bound)
    np.testing.assert_array_equal(np.tril(form, -1 if dtype[0] == "c" else -2), 0)
    found = np.linalg.eigvals(form)
    assert max(np.abs(found - value).min() for value in wanted) < 10 * bound


def test_schur_blocks_have_equal_diagonals():
    form, _ = results_of(scipy_linalg.schur, np.array([[1, 5], [-2, 3]], np.float32))
    assert form[0, 0] == form[1, 1]
    assert form[0, 1] * form[1, 0] < 0


def test_schur_form_of_nan_is_nan():
    form, _ = results_of(scipy_linalg.schur, np.full((3, 3), np.nan, np.float32))
    assert np.isnan(form).all()


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", TYPES)
def test_eigenvectors_of_both_sides(platform, dtype):
    """Compare with the definition: the eigenvalues' order is LAPACK's own."""
    a = matrix(dtype, 5, 5)

    def eig(x):
        return lax_linalg.eig(x, implementation=None)

    with jax.enable_x64(True):
        values, left, right = results_of(eig, a, platform=platform)
    bound = 1e-3 if dtype in ("f32", "c64") else 1e-10
    np.testing.assert_allclose(a @ right, right * values, atol=bound)
    np.testing.assert_allclose(left.conj().T @ a, values[:, None] * left.conj().T, atol=bound)


PACKED = """HloModule m
ENTRY e {
  a = f32[4,4] parameter(0)
  ROOT r = (f32[4,4], c64[4], f32[4,4], f32[4,4], s32[]) custom-call(a),
    custom_call_target="cusolver_geev_ffi", backend_config={left = false, right = true}
}
"""


def test_conjugate_eigenvectors_come_packed_from_cusolver():
    a = np.array([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 2, 1], [0, 0, 0, 3]], np.float32)
    _, values, _, packed, info = hlo2graph.compile(PACKED, backend="host")(a)
    assert info == 0
    vectors = packed.astype(np.complex64)
    for j in np.flatnonzero(values.imag > 0):
        vectors[:, j] = packed[:, j] + 1j * packed[:, j + 1]
        vectors[:, j + 1] = vectors[:, j].conj()
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rank_one_update_of_a_factor(dtype):
    r, w = np.triu(matrix(dtype, 5, 5)), matrix(dtype, 5)
    with jax.enable_x64(True):
        (got,) = results_of(lax_linalg.cholesky_update, r, w, platform="cuda")
    np.testing.assert_allclose(got.T @ got, r.T @ r + np.outer(w, w), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(np.tril(got, -1), 0)


@pytest.mark.slow
@needs_gxx
def test_updates_on_the_device():
    r, w, c = np.triu(matrix("f32", 5, 5)), matrix("f32", 5), matrix("f32", 4, 4)
    a = matrix("f32", 4, 3)

    def both(r, w, a, c):
        product = lax_linalg.symmetric_product(a, c, alpha=2.0, beta=0.5)
        return lax_linalg.cholesky_update(r, w), product

    plan = hlo2graph.plan(lowered(both, (r, w, a, c), "cuda"), target="sm_90")
    got = EmulatedExecutable(plan, Kernels([plan]))(r, w, a, c)
    want = HostExecutable(plan)(r, w, a, c)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.tril(got[1]), np.tril(2 * a @ a.T + 0.5 * c), rtol=1e-4)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PACKED, "packed_geev has no kernel: it runs on the host only"),
        (
            lapack(
                "ssyevd",
                "f32[600,600]",
                "(f32[600,600], f32[600], s32[])",
                "{mode = 86 : ui8, uplo = 76 : ui8}",
            ),
            "takes matrices of up to 512 rows",
        ),
        (
            lapack("spotrf", "f32[0,3,3]", "(f32[0,3,3], s32[0])", "{uplo = 76 : ui8}"),
            "without elements",
        ),
    ],
)
def test_what_has_no_kernel_is_refused_by_name(text, message):
    with pytest.raises(UnsupportedError, match=message):
        check_support(hlo2graph.plan(text, target="sm_90"))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 3), (2, 4)])
def test_qr_by_the_names_that_xla_writes_out_itself(kind, rows, columns):
    least = min(rows, columns)
    text = (
        f"ENTRY e {{ a = {kind}[2,{rows},{columns}] parameter(0) "
        f"f = ({kind}[2,{rows},{columns}], {kind}[2,{least}]) custom-call(a), "
        'custom_call_target="Qr" '
        f"r = {kind}[2,{rows},{columns}] get-tuple-element(f), index=0 "
        f"t = {kind}[2,{least}] get-tuple-element(f), index=1 "
        f"s = {kind}[2,{rows},{least}] slice(r), slice={{[0:2], [0:{rows}], [0:{least}]}} "
        f"q = {kind}[2,{rows},{least}] custom-call(s, t), "
        'custom_call_target="ProductOfElementaryHouseholderReflectors" '
        f"ROOT d = ({kind}[2,{rows},{columns}], {kind}[2,{rows},{least}]) tuple(r, q) }}"
    )
    executable = hlo2graph.compile(hlo2graph.parse(f"HloModule m\n{text}"), backend="host")
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, rows, columns)).astype(executable.inputs[0][1])
    for got, want in zip(executable(given), run_xla(f"HloModule m\n{text}", [given]), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5 if kind in ("f32", "c64") else 1e-12)


def eigenvectors(kind, size, options, *, batch="2,"):
    real = {"c64": "f32", "c128": "f64"}.get(kind, kind)
    return (
        f"HloModule m\nENTRY e {{ a = {kind}[{batch}{size},{size}] parameter(0) "
        f"ROOT c = ({kind}[{batch}{size},{size}], {real}[{batch}{size}]) custom-call(a), "
        f'custom_call_target="Eigh", backend_config="{options}" }}'
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("size", "options"), [(1, "1,1"), (5, "1,1"), (4, "0,1"), (7, "1,0")])
def test_eigenvectors_have_the_signs_of_the_one_that_xla_writes_out_itself(kind, size, options):
    text = eigenvectors(kind, size, f"{options},100,1e-9")
    executable = hlo2graph.compile(hlo2graph.parse(text), backend="host")
    given = matrix(kind, 2, size, size)
    for got, want in zip(executable(given), run_xla(text, [given]), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 if kind in ("f32", "c64") else 1e-9)


def test_what_is_no_number_ends_the_rounds_as_in_xla():
    text, given = (
        eigenvectors("f32", 3, "1,1,9,1e-6", batch=""),
        np.diag([3, np.inf, -2.0]).astype("f"),
    )
    executable = hlo2graph.compile(hlo2graph.parse(text), backend="host")
    for got, want in zip(executable(given), run_xla(text, [given]), strict=True):
        np.testing.assert_array_equal(got, want)


@needs_gxx
def test_the_device_gives_the_same_up_to_the_length_one_factor_of_each_vector():
    text = eigenvectors("c64", 5, "0,1,100,1e-6")
    plan, given = hlo2graph.plan(text, target="sm_90"), matrix("c64", 2, 5, 5)
    vectors, values = EmulatedExecutable(plan, Kernels([plan]))(given)
    wanted, rising = HostExecutable(plan)(given)
    np.testing.assert_allclose(values, rising, atol=1e-4)
    factors = np.sum(np.conj(wanted) * vectors, axis=-2, keepdims=True)
    np.testing.assert_allclose(np.abs(factors), 1, atol=1e-4)
    np.testing.assert_allclose(vectors, wanted * factors, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("1,1,100", "needs four numbers"),
        ("true,1,100,1e-6", "needs four numbers"),
        ("1,0,100,1e-6", "the kernel of eigh gives values that rise"),
    ],
)
def test_options_that_cannot_be_followed_are_named(options, message):
    with pytest.raises(UnsupportedError, match=message):
        check_support(hlo2graph.plan(eigenvectors("f32", 4, options), target="sm_90"))


@needs_gxx
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 4)])
def test_factors_by_the_name_that_jax_has_for_tpus(rows, columns):
    least = min(rows, columns)
    text = module(
        f"a = f32[2,{rows},{columns}] parameter(0) ROOT c = (f32[2,{rows},{columns}], "
        f's32[2,{least}], s32[2,{rows}]) custom-call(a), custom_call_target="LuDecomposition"'
    )
    plan, given = hlo2graph.plan(text, target="sm_90"), matrix("f32", 2, rows, columns)
    host = HostExecutable(plan)(given)
    for ours, wanted in zip(host, lax_linalg.lu(given), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-5)
    for ours, wanted in zip(EmulatedExecutable(plan, Kernels([plan]))(given), host, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-5)


def test_other_makers_of_gpus_have_the_same_routines():
    for name in ("getrf", "syevd", "gesvdj", "orgqr"):
        assert routine_of(f"hipsolver_{name}_ffi") is routine_of(f"cusolver_{name}_ffi")


@pytest.mark.parametrize("function", [jnp.linalg.eigh, jnp.linalg.svd, jnp.linalg.eigvalsh])
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_there_may_be_more_matrices_than_a_matrix_has_rows(function, platform):
    text = lowered(function, (np.zeros((513, 2, 2), np.float32),), platform)
    plan = hlo2graph.plan(text, target="sm_90")
    check_support(plan)
    assert any(source.grid[0] == 513 for source in kernels_of(plan).values())
