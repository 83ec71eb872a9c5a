"""Library calls of GPU and CPU programs, against HLO's own operations and JAX's results."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
import numpy as np
import pytest
from agreement import arguments_of, leaves, module, refused, run_host
from jax.lax import linalg as lax_linalg

import hlo2graph
from hlo2graph.errors import UnsupportedError

X, W = "x = f32[4,6]{1,0} parameter(0)", "w = f32[6,8]{1,0} parameter(1)"
PRODUCT = "d = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def gemm(operands: str, result: str = "f32[4,8]", target: str = "$lt$matmul", **config) -> str:
    """Return the call of a matrix product; the numbers of dimensions are strings, as XLA's are."""
    dims = {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
    held = {"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dims, **config}
    text = json.dumps({"gemm_backend_config": held})
    return (
        f"call = ({result}, s8[16]) custom-call({operands}), "
        f'custom_call_target="__cublas{target}", backend_config={text}'
    )


def first(call: str, result: str = "f32[4,8]") -> str:
    return f"{call} ROOT r = {result} get-tuple-element(call), index=0"


def same(ours: str, plain: str, tolerance: float = 1e-5) -> None:
    """Require that two modules of the same parameters give the same results."""
    arguments = arguments_of(plain)
    for got, want in zip(run_host(ours, arguments), run_host(plain, arguments), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


BIAS = "b = f32[8] parameter(2) bs = f32[4,8] broadcast(b), dimensions={1}"
HALF = "half = f32[] constant(0.5) halves = f32[4,8] broadcast(half), dimensions={}"
ONE = "one = f32[] constant(1) ones = f32[4,8] broadcast(one), dimensions={}"
ZERO = "zero = f32[] constant(0) zeros = f32[4,8] broadcast(zero), dimensions={}"
RELU = f"{ZERO} ROOT r = f32[4,8] maximum(v, zeros)"
SILU = "l = f32[4,8] logistic(v) ROOT r = f32[4,8] multiply(v, l)"
GELU = f"""{HALF} {ONE}
  cube = f32[] constant(0.044715) cubes = f32[4,8] broadcast(cube), dimensions={{}}
  slope = f32[] constant(0.7978845608) slopes = f32[4,8] broadcast(slope), dimensions={{}}
  v2 = f32[4,8] multiply(v, v) v3 = f32[4,8] multiply(v2, v) c3 = f32[4,8] multiply(v3, cubes)
  sum = f32[4,8] add(v, c3) t = f32[4,8] multiply(sum, slopes) th = f32[4,8] tanh(t)
  p = f32[4,8] add(th, ones) q = f32[4,8] multiply(p, v) ROOT r = f32[4,8] multiply(q, halves)"""
PLAIN = "ROOT r = f32[4,8] copy(v)"
EPILOGUES = {"DEFAULT": PLAIN, "RELU": RELU, "GELU": GELU, "SILU": SILU}


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues(epilogue):
    ours = module(f"{X} {W} {first(gemm('x, w', epilogue=epilogue))}")
    same(ours, module(f"{X} {W} {PRODUCT} v = f32[4,8] copy(d) {EPILOGUES[epilogue]}"))


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues_with_bias(epilogue):
    name = "BIAS" if epilogue == "DEFAULT" else f"BIAS_{epilogue}"
    call = first(gemm("x, w, b", epilogue=name))
    ours = module(f"{X} {W} b = f32[8] parameter(2) {call}")
    same(ours, module(f"{X} {W} {BIAS} {PRODUCT} v = f32[4,8] add(d, bs) {EPILOGUES[epilogue]}"))


@pytest.mark.parametrize("bias", ["", "BIAS_"])
def test_gelu_keeps_what_it_was_given(bias):
    shape = "f32[4,8], f32[4,8]"
    parameter = "b = f32[8] parameter(2)" if bias else ""
    call = gemm("x, w, b" if bias else "x, w", shape, epilogue=f"{bias}GELU_AUX")
    ours = module(f"{X} {W} {parameter} {call} ROOT r = f32[4,8] get-tuple-element(call), index=1")
    added = f"{BIAS} ROOT v = f32[4,8] add(d, bs)" if bias else "ROOT v = f32[4,8] copy(d)"
    same(ours, module(f"{X} {W} {PRODUCT} {added}"))


@pytest.mark.parametrize("target", ["$gemm", "$lt$matmul"])
def test_alpha_beta_and_c(target):
    call = first(gemm("x, w, c", target=target, alpha_real=0.5, beta=2))
    ours = module(f"{X} {W} c = f32[4,8] parameter(2) {call}")
    plain = f"""{X} {W} c = f32[4,8] parameter(2) {PRODUCT} {HALF}
      scaled = f32[4,8] multiply(d, halves) c2 = f32[4,8] add(c, c)
      ROOT r = f32[4,8] add(scaled, c2)"""
    same(ours, module(plain))


def test_the_bias_lies_along_the_fastest_dimension():
    call = gemm("x, w, b", "f32[4,8]{0,1}", epilogue="BIAS")
    ours = module(f"{X} {W} b = f32[4] parameter(2) {first(call, 'f32[4,8]{0,1}')}")
    plain = "b = f32[4] parameter(2) bs = f32[4,8] broadcast(b), dimensions={0}"
    same(ours, module(f"{X} {W} {plain} {PRODUCT} ROOT r = f32[4,8] add(d, bs)"))


def test_batches_and_older_forms_of_the_configuration():
    dims = {
        "lhs_contracting_dimensions": ["2"],
        "rhs_contracting_dimensions": ["1"],
        "lhs_batch_dimensions": ["0"],
        "rhs_batch_dimensions": [0],
    }
    parameters = "x = f16[3,4,6] parameter(0) w = f16[3,6,2] parameter(1)"
    config = json.dumps(json.dumps({"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dims}))
    ours = (
        f"{parameters} ROOT r = f16[3,4,2] custom-call(x, w), "
        f'custom_call_target="__cublas$gemm", backend_config={config}'
    )
    plain = (
        f"{parameters} ROOT r = f16[3,4,2] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    same(module(ours), module(plain), 1e-3)


def test_integers_and_complex_numbers():
    integers = "x = s8[4,6] parameter(0) w = s8[6,8] parameter(1)"
    result = "s32[4,8]"
    ours = module(f"{integers} {first(gemm('x, w', result), result)}")
    same(ours, module(f"{integers} ROOT {PRODUCT.replace('f32', 's32')}"), 0)
    numbers, result = "x = c64[4,6] parameter(0) w = c64[6,8] parameter(1)", "c64[4,8]"
    ours = module(f"{numbers} {first(gemm('x, w', result, alpha_real=0, alpha_imag=1), result)}")
    plain = f"""{numbers} {PRODUCT.replace("f32", "c64")} i = c64[] constant((0, 1))
      is = c64[4,8] broadcast(i), dimensions={{}} ROOT r = c64[4,8] multiply(d, is)"""
    same(ours, module(plain))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (gemm("x, w", epilogue="DRELU"), "the epilogue DRELU is not known"),
        (gemm("x, w", epilogue="RELU_AUX"), "the epilogue RELU_AUX is not known"),
        (gemm("x, w", beta=1), "it takes 3 operands"),
        (gemm("x, w", alpha_real=10**400), "finite numbers"),
        (gemm("x, w", dot_dimension_numbers=7), "no gemm_backend_config"),
        (
            gemm("x, w", epilogue="GELU_AUX").replace("(f32[4,8], s8[16])", "(f32[4,8])"),
            "gives 2 arr",
        ),
        (gemm("x, w").split(", backend")[0], "no gemm_backend_config"),
        (gemm("x, w").split("={")[0] + "={}", "no gemm_backend_config"),
        (gemm("x, w", target="$lt$matmul$f8"), "no rule for"),
    ],
)
def test_what_a_matrix_product_cannot_mean_is_refused_by_name(call, reason):
    text = module(f"{X} {W} {first(call)}")
    with pytest.raises(UnsupportedError, match="__cublas") as caught:
        hlo2graph.compile(hlo2graph.parse(text), backend="host")
    assert reason in str(caught.value)


def test_shapes_that_do_not_fit_are_refused():
    refused(module(f"{X} {W} {first(gemm('x, w', 'f32[4,9]'), 'f32[4,9]')}"), "result 0")
    refused(module(f"{X} {W} {first(gemm('x, x'))}"), "contracting dimensions differ")
    refused(module(f"{X} {W} {first(gemm('x, w, x', beta=1))}"), "C must have")
    refused(module(f"{X} {W} {first(gemm('x, w, x', epilogue='BIAS'))}"), "bias")


# ---- convolutions ------------------------------------------------------------------------------

LABELS = ("NHWC", "HWIO", "NHWC")
CASES = {  # strides, padding, kernel dilation, groups
    "plain": ((1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "strided": ((2, 3), ((1, 1), (0, 2)), (1, 1), 1),
    "dilated": ((1, 2), ((2, 1), (2, 2)), (2, 1), 1),
    "grouped": ((2, 1), ((0, 1), (1, 0)), (1, 2), 2),
}


def conv(target: str, case: str, operands: str, result: str, config: str = "{}") -> str:
    strides, padding, dilation, groups = CASES[case]
    pads = "x".join(f"{low}_{high}" for low, high in padding)
    stride, dilate = ("x".join(map(str, n)) for n in (strides, dilation))
    return (
        f"call = ({result}, u8[0]) custom-call({operands}), "
        f"window={{size=3x2 stride={stride} pad={pads} rhs_dilate={dilate}}}, "
        f"dim_labels=b01f_01io->b01f, feature_group_count={groups}, "
        f'custom_call_target="__cudnn${target}", '
        f'backend_config={{"cudnn_conv_backend_config":{config}}}'
    )


def forward(case: str):
    strides, padding, dilation, groups = CASES[case]
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, strides, padding, (1, 1), dilation, LABELS, groups
    )


def images(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, w, and something of the shape of y."""
    rng, groups = np.random.default_rng(0), CASES[case][3]
    x = rng.standard_normal((2, 8, 9, 4)).astype(np.float32)
    w = rng.standard_normal((3, 2, 4 // groups, 6)).astype(np.float32)
    y = forward(case)(x, w)
    return x, w, rng.standard_normal(y.shape).astype(np.float32)


def text_of(array: np.ndarray) -> str:
    return f"f32[{','.join(map(str, array.shape))}]"


def call_conv(target: str, case: str, given: list[np.ndarray], result, config: str = "{}"):
    parameters = [f"p{k} = {text_of(a)} parameter({k})" for k, a in enumerate(given)]
    names = ", ".join(f"p{k}" for k in range(len(given)))
    call = conv(target, case, names, text_of(result), config)
    (got,) = run_host(module(f"{' '.join(parameters)} {first(call, text_of(result))}"), given)
    return got


@pytest.mark.parametrize("case", CASES)
def test_convolutions_and_their_gradients(case):
    x, w, dy = images(case)
    y, gradients = jax.vjp(forward(case), x, w)
    dx, dw = gradients(jnp.asarray(dy))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(call_conv("convForward", case, [x, w], y), y, **close)
    np.testing.assert_allclose(call_conv("convBackwardInput", case, [dy, w], x), dx, **close)
    np.testing.assert_allclose(call_conv("convBackwardFilter", case, [x, dy], w), dw, **close)


@pytest.mark.parametrize(
    ("mode", "activation"),
    [
        ("kNone", lambda v: v),
        ("kRelu", jax.nn.relu),
        ("kRelu6", jax.nn.relu6),
        ("kElu", jax.nn.elu),
        ("kLeakyRelu", lambda v: jax.nn.leaky_relu(v, 0.25)),
    ],
)
def test_fused_convolution(mode, activation):
    x, w, side = images("strided")
    bias = np.arange(6, dtype=np.float32)
    config = json.dumps(
        {
            "conv_result_scale": 0.5,
            "side_input_scale": 2,
            "activation_mode": mode,
            "leakyrelu_alpha": 0.25,
        }
    )
    plain = 0.5 * forward("strided")(x, w) + bias
    for given, want in (([], plain), ([side], plain + 2 * side)):
        given = [x, w, bias, *given]
        got = call_conv("convBiasActivationForward", "strided", given, side, config)
        np.testing.assert_allclose(got, activation(want), rtol=1e-4, atol=1e-4)


# ---- LAPACK ------------------------------------------------------------------------------------

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
