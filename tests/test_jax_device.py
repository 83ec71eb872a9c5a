"""`hlo2graph.jax.jit` on the GPU, with a CUDA driver and a JAX device that are on the host."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jaxlib import _jax

import hlo2graph.jax
from hlo2graph.backends.cuda import dlpack
from hlo2graph.jax import on_device, program
from tests.fake_cuda import fake

__all__ = ["fake"]  # a fixture

X = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
Y = jnp.ones((3, 4), jnp.float32)


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Leave what is alive before these tests out of their collections, which then take no time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def made(fake, monkeypatch):
    """Let what is compiled for cuda run on the fake driver; collect driver and executable."""
    found = []

    def compiled(text, backend, *, filename, **options):
        assert backend == "cuda"
        driver, executable = fake(text, fuse="default", **options)
        driver.is_live = lambda *_: True  # arrays of JAX's lie outside of it
        found.append((driver, executable))
        return executable

    monkeypatch.setattr(program, "compile", compiled)
    monkeypatch.setattr(program, "platform_for", lambda _: "cuda")
    monkeypatch.setattr("hlo2graph.jax.function.platform_for", lambda _: "cuda")
    monkeypatch.setattr(program, "device_of", lambda _: jax.devices("cpu")[0])
    monkeypatch.setattr(on_device, "stream_of", lambda _: None)
    monkeypatch.setattr(on_device, "exported", lambda array, _: array.__dlpack__())
    monkeypatch.setattr(dlpack, "CUDA", dlpack.CPU)
    yield found
    found.clear()
    gc.collect()  # what holds device memory frees it while its driver is there


def same(found, want):
    assert jax.tree.structure(found) == jax.tree.structure(want)
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert got.aval == wanted.aval
        if jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
            got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
        np.testing.assert_allclose(
            np.asarray(got, np.float32), np.asarray(wanted, np.float32), rtol=1e-5
        )


TABLE = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)
FUNCTIONS = {
    "tree": lambda x, y: {"sum": x + y, "none": None, "pair": (x * 2, y.sum())},
    "closed": lambda x, y: x * TABLE + y,
    "weak": lambda x, y: 2.0 * 3,
    "argument": lambda x, y: (x, y, x),
    "key": lambda x, y: jax.random.key(3),
    "narrow": lambda x, y: (x.astype(jnp.bfloat16) + 1, x > 3),
    "nothing": lambda x, y: (),
    "empty": lambda x, y: (x[:0], y[:0] + x[:0]),
    "eight-bits": lambda x, y: x.astype(jnp.float8_e4m3fn),
}


@pytest.mark.parametrize("strategy", ["auto", "copy", "cache"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_jax(made, name, strategy):
    f = hlo2graph.jax.jit(FUNCTIONS[name], pointers=strategy)
    for k in range(5):
        same(f(X + k, Y), jax.jit(FUNCTIONS[name])(X + k, Y))
    assert len(made) == 1


def test_reads_arguments_where_they_lie(made):
    f = hlo2graph.jax.jit(lambda x, y: x + y, pointers="update")
    f(X, Y)
    driver, _ = made[0]
    driver.api.clear()
    f(X, Y)
    assert "cuMemcpyHtoDAsync" not in driver.api


def test_results_live_until_jax_drops_them(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    kept = [f(X + k) for k in range(20)]
    for k, result in enumerate(kept):
        np.testing.assert_array_equal(result, X + k + 1)


def test_memory_of_results_is_used_again(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    places = set()
    for k in range(20):
        result = f(X + k)
        places.add(result.unsafe_buffer_pointer())
        np.testing.assert_array_equal(result, X + k + 1)
    assert len(places) <= 3


def test_results_as_arguments(made):
    f = hlo2graph.jax.jit(lambda x: x * 2)
    x = Y
    for _ in range(10):
        x = f(x)
    np.testing.assert_array_equal(x, np.full((3, 4), 1024))


def test_a_donated_argument_becomes_the_result(made):
    f = hlo2graph.jax.jit(lambda x, y: (x * y + 1, y.sum()), donate_argnums=0)
    x = X + 0
    place = x.unsafe_buffer_pointer()
    result, total = f(x, Y)  # memory of JAX's own is not written
    assert result.unsafe_buffer_pointer() != place
    np.testing.assert_array_equal(result, X + 1)
    assert total == 12
    place = result.unsafe_buffer_pointer()
    for _ in range(5):
        result, _ = f(result, Y)
        assert result.unsafe_buffer_pointer() == place
    np.testing.assert_array_equal(result, X + 6)


def test_a_donated_argument_that_jax_still_reads_is_not_written(made):
    f = hlo2graph.jax.jit(lambda x: x + 1, donate_argnums=0)
    x = f(X)
    held, place = x.__dlpack__(), x.unsafe_buffer_pointer()
    y = f(x)
    assert x.is_deleted()
    assert y.unsafe_buffer_pointer() != place
    still = _jax.dlpack_managed_tensor_to_buffer(held, jax.devices("cpu")[0], None)
    np.testing.assert_array_equal(still, X + 1)
    np.testing.assert_array_equal(y, X + 2)


def test_a_donated_argument_that_is_also_another(made):
    f = hlo2graph.jax.jit(lambda x, y: x * y + y, donate_argnums=0)
    x = X + 0
    y = X + 1
    np.testing.assert_array_equal(f(x, y), (X + 1) * X + (X + 1))


def test_arrays_from_the_host(made):
    f = hlo2graph.jax.jit(lambda x, y, n: x * n + y)
    want = np.asarray(X) * 3 + 1
    np.testing.assert_array_equal(f(np.asarray(X), np.asarray(Y), 3), want)
    np.testing.assert_array_equal(f(X, np.asarray(Y), np.float32(3)), want)
    assert len(made) == 2  # a weak type, and one that is not


def test_calls_at_once_have_streams_of_their_own(made, monkeypatch):
    waited = []
    monkeypatch.setattr(on_device, "Relay", lambda _, running: lambda: waited.append(running))
    f = hlo2graph.jax.jit(lambda x: x + 1)
    f(X)
    results = []
    thread = threading.Thread(target=lambda: results.append(f(X)))
    with made[0][1]._first.lock:  # a call of this thread is under way
        thread.start()
        thread.join()
    np.testing.assert_array_equal(results[0], X + 1)
    assert len(set(waited)) == 2
    assert len(made) == 1


def test_arrays_in_another_layout(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    x = jax.device_put(X, Format(Layout((1, 0)), X.sharding))
    by_columns = jax.jit(lambda x: x * 1, out_shardings=x.format)(x)
    np.testing.assert_array_equal(f(by_columns), X + 1)
    np.testing.assert_array_equal(f(X), X + 1)


def test_jax_waits_for_each_call(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    f(X)
    driver, _ = made[0]
    driver.api.clear()
    f(X)
    for_memory, *rest = driver.api
    assert for_memory == "cuStreamWaitEvent"
    assert rest == ["cuGraphLaunch", "cuStreamWaitEvent"]


def test_deleted_arrays_are_refused(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    x = X + 0
    for _ in range(3):
        f(x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x)


def test_results_that_cannot_be_handed_over_are_jaxs(made):
    f = hlo2graph.jax.jit(lambda x: x.astype(jnp.int4))
    with pytest.warns(UserWarning, match="result 0 is s4, which DLPack has not"):
        same(f(Y), Y.astype(jnp.int4))


def test_many_arrays(made, monkeypatch):
    monkeypatch.setattr(on_device, "MOST_PLACES", 8)
    f = hlo2graph.jax.jit(lambda x, y: x + y)
    held = [X + k for k in range(12)]
    for _ in range(3):
        for k, x in enumerate(held):
            np.testing.assert_array_equal(f(x, Y), X + k + 1)
    results = [f(x, Y) for x in held]
    for k, result in enumerate(results):
        np.testing.assert_array_equal(result, X + k + 1)


def test_an_array_of_an_old_one_s_id(made):
    f = hlo2graph.jax.jit(lambda x: x + 1)
    for k in range(50):  # each may get the id, the place, or both of the one before
        x = jax.device_put(np.asarray(X) * k)
        np.testing.assert_array_equal(f(x), np.asarray(X) * k + 1)
        del x
