"""Arrays that move, on a real GPU: each strategy against a graph over buffers of its own."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.driver import call
from hlo2graph.backends.cuda.memory import Stream, cuda
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import POINTERS
from tests.blocks import Block, put
from tests.placements import PROGRAMS, Caller
from tests.test_cuda_graph import DIAMOND, X

FUSE = "none", "default"


def compiled(program, strategy, **options):
    return h2g.compile(program, "cuda", pointers=strategy, **options)


@pytest.mark.parametrize("strategy", POINTERS)
@pytest.mark.parametrize("fuse", FUSE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls(name, fuse, strategy):
    for unroll in ("auto", "never"):
        options = {"fuse": fuse, "unroll_loops": unroll}
        plain = compiled(PROGRAMS[name], "copy", **options)
        caller = Caller(compiled(PROGRAMS[name], strategy, **options), plain, 0)
        for _ in range(40):
            caller.call()
        refusals = {n for s in caller.exe.strategies for n in s.tally.notes}
        print(name, fuse, strategy, unroll, *caller.exe.strategies[0].tally.notes[:2], refusals)


@pytest.mark.parametrize("strategy", POINTERS)
def test_a_thousand_calls_with_arrays_that_move(strategy):
    exe = compiled(DIAMOND, strategy)
    want = exe(X)
    slab = Block(1 << 20)
    for k in range(1000):
        x = slab.view(X, 16 * (k % 997))
        assert same_bits([np.asarray(exe(x)[0])], want)


@pytest.mark.parametrize("strategy", POINTERS)
def test_threads_and_streams(strategy):
    exe = compiled(DIAMOND, strategy)
    want = {k: exe(X + k)[0] for k in range(6)}
    wrong = []

    def work(k):
        exe.device.make_current()
        stream = Stream() if k % 2 else None
        for turn in range(50):
            x = put(X + k, 16 * (turn % 3))
            (y,) = exe.run([x], stream=stream, out="fresh" if turn % 2 else None)
            if not np.array_equal(np.asarray(y), want[k]):
                wrong.append((k, turn))

    threads = [threading.Thread(target=work, args=(k,)) for k in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("strategy", POINTERS)
def test_an_executable_may_go_while_it_runs(strategy):
    want = compiled(DIAMOND, strategy)(X)
    for _ in range(5):
        exe = compiled(DIAMOND, strategy)
        (y,) = exe(put(X))
        del exe
        gc.collect()
        assert same_bits([np.asarray(y)], want)


@pytest.mark.parametrize("strategy", POINTERS)
def test_arrays_of_jax(strategy):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU here")
    exe = compiled(DIAMOND, strategy)
    for k in range(5):
        x = jax.numpy.asarray(X + k)
        (y,) = exe(x)
        assert np.array_equal(np.asarray(y), exe(X + k)[0])
        (again,) = exe(x)
        (once_more,) = exe(x)
        assert once_more is again


def test_addresses_on_the_host_are_refused():
    exe = compiled(DIAMOND, "update")
    x = put(X)
    x.__cuda_array_interface__["data"] = (X.ctypes.data, False)
    with pytest.raises(h2g.HloError, match="not on this GPU"):
        exe(x)
    call(cuda.cuCtxSynchronize)
    assert same_bits(exe(X), compiled(DIAMOND, "copy")(X))
