"""`hlo2graph.jax` on a GPU, with a JAX that has one too."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
if jax.default_backend() != "gpu":
    pytest.skip("jax has no GPU here", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402

import hlo2graph.jax  # noqa: E402
from tests.gpu.jax_functions import FUNCTIONS  # noqa: E402


def agree(found, want):
    assert jax.tree.structure(found) == jax.tree.structure(want)
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_jax_jit(name):
    function = FUNCTIONS[name]()
    ours = hlo2graph.jax.jit(function.call, backend="cuda", **function.flags)
    theirs = jax.jit(function.call, **function.flags)
    for _ in range(3):
        agree(ours(*jax.device_put(function.args)), theirs(*jax.device_put(function.args)))


@pytest.mark.parametrize("pointers", ["auto", "copy", "update", "cache"])
def test_work_of_jax_between_calls(pointers):
    """Memory that JAX has dropped while work on it is still to run is not written before that."""
    f = hlo2graph.jax.jit(lambda x: x + 1, backend="cuda", pointers=pointers)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, v: v @ v / 1024, x).sum())
    x = jnp.ones((1024, 1024))
    sums = [slow(f(x + k)) for k in range(30)]
    again = [slow(x + k + 1) for k in range(30)]
    np.testing.assert_allclose(np.asarray(sums), np.asarray(again), rtol=1e-3)


def test_chains_of_results():
    f = hlo2graph.jax.jit(lambda x, y: (x * 1.0001 + y, y), backend="cuda", donate_argnums=0)
    g = jax.jit(lambda x, y: (x * 1.0001 + y, y))
    x = z = jnp.zeros((512, 512))
    x = x + 0
    y = jnp.ones((512, 512))
    for _ in range(200):
        x, _ = f(x, y)
        z, _ = g(z, y)
    agree(x, z)


def test_donated_memory_is_the_results():
    f = hlo2graph.jax.jit(lambda x: x + 1, backend="cuda", donate_argnums=0)
    x = jnp.arange(1000.0)
    y = f(x)
    place = y.unsafe_buffer_pointer()
    z = f(y)
    assert y.is_deleted()
    assert z.unsafe_buffer_pointer() == place
    agree(z, jnp.arange(1000.0) + 2)


def test_donated_memory_that_jax_reads_is_read_first():
    f = hlo2graph.jax.jit(lambda x: x * 0, backend="cuda", donate_argnums=0)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, v: v @ v / 1024, x).sum())
    for _ in range(10):
        x = f(jnp.ones((1024, 1024))) + 1
        y = hlo2graph.jax.jit(lambda x: x + 0, backend="cuda")(x)
        total = slow(y)
        f(y)
        np.testing.assert_allclose(np.asarray(total), 1024 * 1024, rtol=1e-3)


def test_arrays_that_are_on_the_host():
    f = hlo2graph.jax.jit(lambda x, y: x * y, backend="cuda")
    on_cpu = jax.device_put(np.arange(5.0), jax.devices("cpu")[0])
    agree(f(on_cpu, 2.0), jnp.arange(5.0) * 2)
    agree(f(np.arange(5.0), jnp.float32(2)), jnp.arange(5.0) * 2)
