"""cholesky, triangular-solve, fft and batch normalisation against XLA."""

import numpy as np
import pytest
from agreement import agree, module, refused

import hlo2graph

TOLERANCE = {"f16": 3e-2, "bf16": 1e-1, "f32": 1e-4, "c64": 1e-4}
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "c64": np.complex64}


def matrices(dtype: str, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    m = rng.standard_normal((2, 5, 5)) + shift * np.eye(5)
    if dtype == "c64":
        m = m + 1j * rng.standard_normal((2, 5, 5))
    return m.astype(NUMPY[dtype])


def definite(dtype: str) -> np.ndarray:
    m = matrices("c64" if dtype == "c64" else "f64")
    return (m @ m.swapaxes(-1, -2).conj() + 5 * np.eye(5)).astype(NUMPY[dtype])


def cholesky(dtype: str, lower: str) -> str:
    shape = f"{dtype}[2,5,5]"
    return module(f"x = {shape} parameter(0) ROOT r = {shape} cholesky(x), lower={lower}")


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky(dtype, lower):
    agree(cholesky(dtype, lower), [definite(dtype)], TOLERANCE.get(dtype, 1e-10))


@pytest.mark.parametrize("lower", ["true", "false"])
def test_only_one_triangle_is_read(lower):
    x = definite("f32")
    x[:, *np.triu_indices(5, 1) if lower == "true" else np.tril_indices(5, -1)] = np.nan
    (got,) = agree(cholesky("f32", lower), [x], 1e-4)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("at", [0, 3])
def test_matrix_that_is_not_definite_gives_nan_alone(at):
    x = definite("f32")
    x[0, at, at] = -1
    (got,) = agree(cholesky("f32", "true"), [x], 1e-4)
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", ["true", "false"])
@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("unit", ["true", "false"])
def test_triangular_solve(dtype, transpose, left, lower, unit):
    b = f"{dtype}[2,5,3]" if left == "true" else f"{dtype}[2,3,5]"
    text = module(
        f"a = {dtype}[2,5,5] parameter(0) b = {b} parameter(1) "
        f"ROOT r = {b} triangular-solve(a, b), left_side={left}, lower={lower}, "
        f"unit_diagonal={unit}, transpose_a={transpose}"
    )
    right = matrices(dtype)[:, :, :3]
    right = right if left == "true" else right.swapaxes(-1, -2).copy()
    agree(text, [matrices(dtype, 6), right], 1e-3)


@pytest.mark.parametrize(
    ("kind", "given", "result", "length"),
    [
        ("FFT", "c64[3,8]", "c64[3,8]", "8"),
        ("IFFT", "c64[3,4,6]", "c64[3,4,6]", "4,6"),
        ("RFFT", "f32[2,4,7]", "c64[2,4,4]", "4,7"),
        ("IRFFT", "c64[2,4,4]", "f32[2,4,7]", "4,7"),
        ("IRFFT", "c128[2,5]", "f64[2,8]", "8"),
        ("FFT", "c128[2,3,4,5]", "c128[2,3,4,5]", "3,4,5"),
        ("RFFT", "f64[9]", "c128[5]", "9"),
        ("IRFFT", "c64[2,3,4,4]", "f32[2,3,4,6]", "3,4,6"),
    ],
)
def test_fft(kind, given, result, length):
    text = module(
        f"x = {given} parameter(0) "
        f"ROOT r = {result} fft(x), fft_type={kind}, fft_length={{{length}}}"
    )
    agree(text, tolerance=1e-4)


def batch_norm(opcode: str, dtype: str, features: str, whole_last: bool, results: int) -> str:
    lines = [f"x = {dtype}[4,3,5] parameter(0)"]
    count = 3 if opcode == "training" else 5
    for number in range(1, count):
        last = whole_last and number == count - 1
        lines.append(f"p{number} = {dtype}{'[4,3,5]' if last else features} parameter({number})")
    operands = ", ".join(["x", *(f"p{n}" for n in range(1, count))])
    whole, each = f"{dtype}[4,3,5]", f"{dtype}[3]"
    shape = whole if results == 1 else f"({whole}, {each}, {each})"
    lines.append(
        f"ROOT r = {shape} batch-norm-{opcode}({operands}), epsilon=0.001, feature_index=1"
    )
    return module(" ".join(lines))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    ("opcode", "whole_last", "results"),
    [("training", False, 3), ("inference", False, 1), ("grad", True, 3)],
)
def test_batch_norm(opcode, whole_last, results, dtype):
    text = batch_norm(opcode, dtype, "[3]", whole_last, results)
    rng = np.random.default_rng(4)
    arguments = [
        np.abs(rng.standard_normal(p.shape.dims)).astype(p.shape.dtype.numpy)
        for p in hlo2graph.parse(text).entry.parameters
    ]
    agree(text, arguments, TOLERANCE.get(dtype, 1e-10))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x = f32[3,4] parameter(0) ROOT r = f32[3,4] cholesky(x)", "needs square matrices"),
        ("x = s32[3,3] parameter(0) ROOT r = s32[3,3] cholesky(x)", "takes floating-point"),
        (
            "a = f32[3,3] parameter(0) b = f32[4,3] parameter(1) "
            "ROOT r = f32[4,3] triangular-solve(a, b), left_side=true",
            "rows of b must be as many",
        ),
        (
            "x = f32[8] parameter(0) ROOT r = c64[5] fft(x), fft_type=RFFT, fft_length={9}",
            r"takes last dimensions \{9\}",
        ),
        (
            "x = f32[8] parameter(0) ROOT r = f32[8] fft(x), fft_type=FFT, fft_length={8}",
            "FFT takes c64 or c128",
        ),
        (
            "x = c64[8] parameter(0) ROOT r = c64[8] fft(x), fft_type=FFT, fft_length={1,8}",
            "more dimensions than",
        ),
    ],
)
def test_refusals(entry, message):
    refused(module(entry), message)


def test_batch_norm_refuses_other_feature_counts():
    refused(batch_norm("training", "f32", "[4]", False, 3), r"operand 1 must be f32\[3\]")
