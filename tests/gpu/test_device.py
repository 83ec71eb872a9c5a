"""Programs on a real GPU: what only a device can get wrong."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.errors import BackendError
from hlo2graph.inspect.compare import same_bits
from tests.test_cuda_graph import DIAMOND, IF, KNOWN, LOOP, NESTED, SWITCH, X, agree, host


def cuda(program, **options):
    return h2g.compile(program, "cuda", **{"fuse": "none", **options})


@pytest.mark.parametrize("start", [0, 3, 5, 9])
def test_a_loop(start):
    args = np.int32(start), X
    assert same_bits(agree(cuda(LOOP), *args), host(LOOP, *args))


@pytest.mark.parametrize("unroll", ["auto", "never"])
def test_a_known_trip_count(unroll):
    exe = cuda(KNOWN, unroll_loops=unroll)
    assert bool(exe.unrolled) == (unroll == "auto")
    assert same_bits(agree(exe, X), host(KNOWN, X))


@pytest.mark.parametrize("selector", [-7, 0, 1, 2, 3, 1000])
def test_a_switch_clamps(selector):
    args = np.int32(selector), X
    assert same_bits(agree(cuda(SWITCH), *args), host(SWITCH, *args))


@pytest.mark.parametrize("chosen", [True, False])
def test_if_and_else(chosen):
    args = np.bool_(chosen), X
    assert same_bits(agree(cuda(IF), *args), host(IF, *args))


@pytest.mark.parametrize("unroll", ["auto", "never"])
@pytest.mark.parametrize("start", [0, 2, 4])
def test_nested_loops_and_branches(start, unroll):
    args = np.int32(start), X + 1
    assert same_bits(agree(cuda(NESTED, unroll_loops=unroll), *args), host(NESTED, *args))


def test_device_arrays_in_and_out():
    exe = cuda(DIAMOND)
    (x,) = exe.put(X)
    (y,) = exe(x)
    (want,) = exe(X)
    assert np.array_equal(np.asarray(y), want)
    (z,) = exe(y)
    assert np.array_equal(np.asarray(z), exe(want)[0])


def test_device_arrays_outlive_their_executable():
    exe = cuda(DIAMOND)
    (y,) = exe(*exe.put(X))
    want = np.asarray(y)
    del exe
    gc.collect()
    assert np.array_equal(np.asarray(y), want)


def test_calls_from_several_threads():
    exe = cuda(DIAMOND)
    want = {k: exe(X + k)[0] for k in range(4)}
    got = {}

    def work(k):
        for _ in range(20):
            got[k] = exe(X + k)[0]

    threads = [threading.Thread(target=work, args=(k,)) for k in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(got[k], want[k]) for k in want)


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU here")
    exe = cuda(DIAMOND)
    (y,) = exe(jax.numpy.asarray(X))
    (want,) = exe(X)
    exe(*exe.put(X))
    assert np.array_equal(np.asarray(jax.dlpack.from_dlpack(y)), want)


def test_a_program_too_large_for_the_gpu():
    text = """
HloModule large
ENTRY main {
  x = f32[] parameter(0)
  ROOT y = f32[400000000000] broadcast(x), dimensions={}
}
"""
    with pytest.raises(BackendError, match="this GPU has"):
        cuda(text)
