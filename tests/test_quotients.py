"""Division of floats in kernels: a corrected guess, which has to be as exact as a division."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from tests.emulation import EmulatedExecutable, Kernels

COUNT = 1 << 16


def any_bits(rng: np.random.Generator) -> np.ndarray:
    """Return floats of all kinds: infinite, NaN, denormal."""
    return rng.integers(0, 2**32, COUNT, dtype=np.uint32).view(np.float32)


def near_one(rng: np.random.Generator) -> np.ndarray:
    """Return floats next to powers of two, where reciprocals round worst."""
    mantissas = rng.integers(-64, 64, COUNT).astype(np.int32)
    exponents = rng.integers(-70, 70, COUNT).astype(np.int32)
    return (0x3F800000 + mantissas + (exponents << 23)).astype(np.int32).view(np.float32)


def mixed(rng: np.random.Generator) -> np.ndarray:
    """Return floats around the edges of what a corrected guess serves."""
    scale = np.exp2(rng.integers(-110, 110, COUNT)).astype(np.float32)
    return rng.standard_normal(COUNT).astype(np.float32) * scale


@pytest.fixture(scope="module")
def divide():
    shape = f"f32[{COUNT}]"
    text = f"x = {shape} parameter(0) y = {shape} parameter(1) ROOT r = {shape} divide(x, y)"
    plan = hlo2graph.plan(module(text), target="sm_90")
    return EmulatedExecutable(plan, Kernels([plan])), HostExecutable(plan)


@needs_gxx
@pytest.mark.parametrize("drawn", [any_bits, near_one, mixed])
def test_quotients_are_exact(divide, drawn):
    rng = np.random.default_rng(0)
    x, y = drawn(rng), drawn(rng)
    x[::7], x[1::7] = 0.0, -0.0
    (got,), (wanted,) = (np.asarray(run(x, y)).reshape(1, -1) for run in divide)
    np.testing.assert_array_equal(got, wanted)
    known = ~np.isnan(wanted)
    assert (np.signbit(got) == np.signbit(wanted))[known].all()
