"""Scatters that add very many floats to elements: sums of whole numbers, the same in any order."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import module, scalar_region
from needs import needs_gxx
from rewriting import opcodes

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.large.order_updates import order_updates
from tests.emulation import EmulatedExecutable, Kernels

ROWS, COLUMNS, UPDATES = 30, 40, 66_000


def scatter(updates: int = UPDATES, opcode: str = "add", dtype: str = "f32") -> str:
    return module(
        f"x = {dtype}[{ROWS},{COLUMNS}] parameter(0) i = s32[2,{updates}] parameter(1) "
        f"u = {dtype}[{updates}] parameter(2) "
        f"ROOT r = {dtype}[{ROWS},{COLUMNS}] scatter(x, i, u), update_window_dims={{}}, "
        "inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, "
        "to_apply=fold",
        scalar_region("fold", opcode, dtype),
    )


def given() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers of all sizes, with elements of their own for what is special."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    places = np.stack([rng.integers(-1, COLUMNS + 1, UPDATES), rng.integers(1, ROWS, UPDATES)])
    sizes = rng.integers(-149, 100, (ROWS, COLUMNS))[places[1], places[0].clip(0, COLUMNS - 1)]
    updates = (rng.standard_normal(UPDATES) * 2.0**sizes).astype(np.float32)
    x[0] = 1
    x[0, 7:9] = -0.0
    special = [np.inf, -np.inf, np.nan, np.inf, -np.inf, 5, -5]
    places[:, :7], updates[:7] = [[1, 2, 3, 4, 4, 5, 5], [0] * 7], special
    places[:, 7], updates[7] = (1, 0), 3
    places[:, 8:10], updates[8:10] = [[8, 8], [0, 0]], [0.0, 0.0]
    return x, places.astype(np.int32), updates


def wanted(x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Return the sums of doubles, which lose nothing that matters."""
    found = np.where(np.isfinite(x), x, 0).astype(np.float64)
    column, row = places
    inside = (column >= 0) & (column < COLUMNS)
    with np.errstate(invalid="ignore", over="ignore"):
        np.add.at(found, (row[inside], column[inside]), updates[inside].astype(np.float64))
        return found.astype(np.float32)


@cache
def emulated():
    plan = hlo2graph.plan(scatter(), target="sm_90")
    return plan, Kernels([plan])


@pytest.mark.slow
@needs_gxx
def test_sums_are_exact_in_any_order():
    plan, kernels = emulated()
    x, places, updates = given()
    executable = EmulatedExecutable(plan, kernels)
    (got,) = executable(x, places, updates)
    (turned,) = executable(x, places[:, ::-1].copy(), updates[::-1].copy())
    assert same_bits([got], [turned])
    assert same_bits([got], HostExecutable(plan)(x, places, updates))
    want = wanted(x, places, updates)
    np.testing.assert_allclose(got, want, rtol=1.3e-7, atol=1e-45)
    assert got[0, :6].tolist()[:3] == [1, np.inf, -np.inf]
    assert np.isnan(got[0, 3:5]).all()
    assert got[0, 5] == 1
    assert np.signbit(got[0, 7])  # nothing was added


def test_the_steps_take_updates_in_any_order():
    made = order_updates(hlo2graph.parse(scatter()))
    assert opcodes(made.entry).count("scatter") == 2
    assert "sort" not in opcodes(made.entry)
    names = [t.name for t in hlo2graph.plan(scatter(), target="sm_90").body.thunks]
    assert len(names) == 5, "two fills, two scatters, and what is made of them"


@pytest.mark.parametrize(
    "text", [scatter(30_000), scatter(opcode="multiply"), scatter(dtype="f16")]
)
def test_others_are_sorted(text):
    assert "sort" in opcodes(order_updates(hlo2graph.parse(text)).entry)
