"""Of several NaNs the first is the arg max, and the arg min, wherever threads meet it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.inspect.xla import xla_results
from hlo2graph.ops.scalar_region import index_compared
from tests.emulation import EmulatedExecutable, Kernels

CASES = {
    "row": ((4, 1000), 1),
    "short-row": ((4, 100), 1),
    "odd-row": ((5, 1501), 1),
    "long-row": ((2, 40_000), 1),
    "few-columns": ((5000, 3), 0),
    "columns": ((300, 70), 0),
    "middle": ((6, 200, 5), 1),
    "all": ((70_000,), 0),
}
TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f64": jnp.float64}


def several_nans(dims, axis, dtype):
    """Return numbers of which each row has two to six NaNs."""
    rng = np.random.default_rng([len(dims), *dims])
    x = rng.standard_normal(dims).astype(TYPES[dtype])
    rows = np.moveaxis(x, axis, -1)
    for at in np.ndindex(rows.shape[:-1]):
        rows[at][rng.choice(dims[axis], rng.integers(2, 7), replace=False)] = np.nan
    return x


def program(function, axis, x):
    with jax.enable_x64(True):
        return jax.jit(lambda a: function(a, axis=axis)).lower(x).as_text("hlo")


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
def test_the_first_nan_wins(function, dtype):
    made = []
    for dims, axis in CASES.values():
        x = several_nans(dims, axis, dtype)
        text = program(function, axis, x)
        plans = (h2g.plan(text, target="sm_90", fuse=fuse) for fuse in ("default", "none"))
        made += [(text, plan, axis, x) for plan in plans]
    kernels = Kernels([plan for _, plan, _, _ in made])
    for text, plan, axis, x in made:
        first = np.isnan(x.astype(np.float64)).argmax(axis)
        np.testing.assert_array_equal(h2g.compile(text, "host")(x)[0], first)
        np.testing.assert_array_equal(EmulatedExecutable(plan, kernels)(x)[0], first)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["row", "columns"])
def test_so_has_xla_it(name):
    dims, axis = CASES[name]
    x = several_nans(dims, axis, "f32")
    (found,) = xla_results(h2g.parse(program(jnp.argmax, axis, x)), [x])
    np.testing.assert_array_equal(found, np.isnan(x).argmax(axis))


@pytest.mark.parametrize(
    ("compared", "index"),
    [
        ("compare(i, j), direction=LT", 1),
        ("compare(j, i), direction=LT", None),
        ("compare(i, j), direction=GT", None),
        ("compare(a, b), direction=LT", None),
    ],
)
def test_what_counts_as_an_index(compared, index):
    module = h2g.parse(
        "HloModule m\n"
        "pick { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) "
        f"j = s32[] parameter(3) c = pred[] {compared} v = f32[] select(c, a, b) "
        "k = s32[] select(c, i, j) ROOT t = (f32[], s32[]) tuple(v, k) }\n"
        "ENTRY e { x = f32[8] parameter(0) n = s32[8] iota(), iota_dimension=0 "
        "z = f32[] constant(0) o = s32[] constant(0) "
        "ROOT r = (f32[], s32[]) reduce(x, n, z, o), dimensions={0}, to_apply=pick }\n"
    )
    assert index_compared(module.computations, "pick") == index
