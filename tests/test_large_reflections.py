"""QR factors: of panels in registers, of large matrices in steps; products of reflections."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import module
from lapack_programs import all_in_registers, lowered, matrix
from needs import needs_gxx
from ptxas import spilt
from rewriting import opcodes, rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES
from hlo2graph.ops.linalg import panel_columns
from hlo2graph.passes.large.split_reflections import split_reflections
from tests.emulation.cases import Cases


def qr(dtype: str, *dims: int, mode: str = "reduced", platform: str = "cuda"):
    a = matrix(dtype, *dims)
    with jax.enable_x64(True):
        return lowered(lambda a: jnp.linalg.qr(a, mode), (a,), platform), a


def geqrf(dtype: str, rows: int, columns: int) -> str:
    a = f"{dtype}[{rows},{columns}]"
    results = f"{a}, {dtype}[{min(rows, columns)}]"
    return module(f"a = {a} parameter(0) ROOT r = ({results}) custom-call(a), {QR}")


QR = 'custom_call_target="Qr"'
CASES: dict[str, tuple[str, np.ndarray]] = {
    "panel": qr("f32", 2, 70, 24),
    "panel-one": qr("c128", 5, 5),
    "panel-wide": qr("c64", 9, 30),
    "panel-tall": qr("f32", 520, 3),
    "large": qr("f32", 67, 66),
    "large-tall": qr("c64", 2, 36, 34),
    "large-wide": qr("f64", 34, 44),
    "large-whole": qr("f32", 70, 66, mode="complete"),
    "large-rows": qr("c128", 30, 20, platform="cpu"),
}
LARGE = [name for name in CASES if name.startswith("large")]


EMULATED = Cases({name: text for name, (text, _) in CASES.items()})


def run(name: str, a: np.ndarray) -> tuple[np.ndarray, ...]:
    return EMULATED.run(name, (a,))


def off(a: np.ndarray, found: Sequence[np.ndarray]) -> float:
    """Return how far QR is from `a`, and Q's adjoint from its inverse, in last places."""
    q, r = (x.astype(np.complex128) for x in found)
    assert not np.tril(r, -1).any()
    size = np.linalg.norm(a.astype(np.complex128), axis=-2, keepdims=True)
    apart = np.abs(q @ r - a) / np.where(size > 0, size, 1)
    skew = np.abs(q.conj().swapaxes(-1, -2) @ q - np.eye(q.shape[-1]))
    return float(max(apart.max(), skew.max()) / np.finfo(a.dtype).eps)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", CASES)
def test_kernels_give_factors_of_the_matrix(name):
    text, a = CASES[name]
    got = run(name, a)
    assert off(a, got) <= 2 * np.sqrt(a.shape[-2])
    want = HostExecutable(hlo2graph.plan(text, target="host"))(a)
    count = min(a.shape[-2:])  # what is behind is any complement
    tolerance = {"float32": 1e-4, "complex64": 1e-4}.get(a.dtype.name, 1e-11)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours[..., :count], theirs[..., :count], atol=tolerance)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", ["panel", "large"])
def test_columns_may_be_huge_tiny_equal_or_zero(name):
    a = CASES[name][1].copy()
    a[..., 0::3] *= 1e30
    a[..., 1::3] *= 1e-30
    a[..., 4] = 0
    a[..., 6] = a[..., 3]
    assert off(a, run(name, a)) <= 4 * np.sqrt(a.shape[-2])


@pytest.mark.slow
@needs_gxx
def test_what_is_no_number_spreads():
    a = CASES["panel"][1].copy()
    a[0, 3, 2] = np.nan
    _, r = run("panel", a)
    assert np.isnan(r[0, 2, 2:]).all()
    assert np.isfinite(r[0, :, :2]).all()
    assert np.isfinite(r[1]).all()


@pytest.mark.parametrize("name", LARGE)
def test_steps_are_legal_and_small(name):
    text, a = CASES[name]
    parsed = hlo2graph.parse(text)
    made = rewritten(parsed, split_reflections, exact=False, arguments=[a])
    assert any("dot" in opcodes(c) for c in made.computations.values())
    assert all_in_registers(made)


def test_few_reflections_stay_as_they_are():
    parsed = hlo2graph.parse(qr("f32", 6, 6)[0])
    assert split_reflections(parsed) is parsed


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "rows"), [("f32", 512), ("c128", 1024)])
def test_panels_stay_out_of_local_memory(dtype, rows):
    columns = panel_columns(DTYPES[dtype], rows)
    (source,) = kernels_of(hlo2graph.plan(geqrf(dtype, rows, columns), target="sm_90")).values()
    assert spilt(source.text, "sm_90") == 0
