"""rng-bit-generator against XLA's bits; rng's shape and distribution."""

import numpy as np
import pytest
from agreement import agree, module, refused, run_host

import hlo2graph
from hlo2graph.ops import OPS

DIMS = ["", "5", "7,3", "3,4", "3,5,2", "0"]
TYPES = ["u8", "u16", "u32", "u64", "s64", "f32", "bf16"]


def generator(algorithm: str, length: int, dtype: str, dims: str) -> str:
    return module(
        f"s = u64[{length}] parameter(0) ROOT r = (u64[{length}], {dtype}[{dims}]) "
        f"rng-bit-generator(s), algorithm={algorithm}"
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("algorithm", "length"),
    [("rng_philox", 3), ("rng_philox", 2), ("rng_three_fry", 2), ("rng_default", 3)],
)
def test_bits(algorithm, length, dtype):
    """XLA gives unsigned words whatever was written, so bytes are compared."""
    state = np.random.default_rng(0).integers(0, 2**64, length, dtype=np.uint64)
    for dims in DIMS if dtype in ("u32", "u64") else DIMS[2:3]:
        agree(generator(algorithm, length, dtype, dims), [state], tolerance=0)


@pytest.mark.parametrize(("algorithm", "length"), [("rng_philox", 3), ("rng_three_fry", 2)])
@pytest.mark.parametrize("dtype", ["u32", "u64"])
def test_counter_carries(algorithm, length, dtype):
    state = np.array([5, 2**64 - 2, 9][:length], np.uint64)
    after, _ = agree(generator(algorithm, length, dtype, "4,6"), [state], tolerance=0)
    assert after[1] < 2**32
    assert length == 2 or after[2] == 10


@pytest.mark.parametrize(("algorithm", "length"), [("rng_philox", 3), ("rng_three_fry", 2)])
def test_bits_without_the_new_state(algorithm, length):
    text = module(
        f"s = u64[{length}] parameter(0) "
        f"ROOT r = u32[3,4] rng-bit-generator(s), algorithm={algorithm}"
    )
    agree(text, [np.array([5, 2**64 - 2, 9][:length], np.uint64)], tolerance=0)
    refused(text.replace(f"u64[{length}]", "u64[4]"), f"needs a state of u64.{length}.")


def test_state_must_fit_the_algorithm():
    parsed = hlo2graph.parse(generator("rng_three_fry", 3, "u32", "4"))
    reason = OPS["rng-bit-generator"].why_not(parsed.entry.result)
    assert reason is not None
    assert "u64[2]" in reason


def rng(dtype: str, distribution: str) -> str:
    return module(
        f"a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) "
        f"ROOT r = {dtype}[20000] rng(a, b), distribution={distribution}"
    )


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_normal(dtype):
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    (got,) = run_host(rng(dtype, "rng_normal"), [kind(2), kind(3)])
    assert got.dtype == kind
    wide = got.astype(np.float64)
    assert abs(wide.mean() - 2) < 0.1
    assert abs(wide.std() - 3) < 0.1


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_uniform(dtype):
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    (got,) = run_host(rng(dtype, "rng_uniform"), [kind(-1), kind(3)])
    wide = got.astype(np.float64)
    assert got.min() >= -1
    assert got.max() < 3
    assert abs(wide.mean() - 1) < 0.05
    assert abs(wide.std() - 4 / 12**0.5) < 0.05


def test_uniform_integers():
    (got,) = run_host(rng("s32", "rng_uniform"), [np.int32(-2), np.int32(3)])
    counts = np.bincount(got + 2, minlength=5)
    assert len(counts) == 5
    assert counts.min() > 3500


def test_runs_are_equal_and_operations_differ():
    text = module(
        "a = f32[] parameter(0) b = f32[] parameter(1) "
        "x = f32[8] rng(a, b), distribution=rng_uniform "
        "y = f32[8] rng(a, b), distribution=rng_uniform ROOT r = (f32[8], f32[8]) tuple(x, y)"
    )
    first, second = run_host(text, [np.float32(0), np.float32(1)])
    again, _ = run_host(text, [np.float32(0), np.float32(1)])
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != second.tobytes()


def test_first_state_is_that_of_a_fresh_program():
    (state,) = run_host(module("ROOT r = u64[2] rng-get-and-update-state(), delta=5"), [])
    assert state.tolist() == [0x7012395, 0]


@pytest.mark.parametrize(
    ("dtype", "distribution", "message"),
    [
        ("s32", "rng_normal", "rng_normal does not take s32"),
        ("c64", "rng_uniform", "rng_uniform does not take c64"),
        ("f32", "rng_bernoulli", "distribution"),
    ],
)
def test_refusals(dtype, distribution, message):
    refused(rng(dtype, distribution), message)
