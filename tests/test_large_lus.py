"""LU factors: of panels in a block's registers, of large matrices in steps."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import module
from lapack_programs import TYPES, all_in_registers, lowered, matrix
from needs import needs_gxx
from ptxas import spilt
from rewriting import opcodes, rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.linalg import panel_columns
from hlo2graph.passes.large.split_lus import split_lus
from tests.emulation.cases import Cases

GETRF = 'custom_call_target="cusolver_getrf_ffi", api_version=API_VERSION_TYPED_FFI'


def getrf(dtype: str, rows: int, columns: int, batch: str = "2", layout: str = "{1,2,0}") -> str:
    a = f"{dtype}[{batch},{rows},{columns}]{layout}"
    results = f"{a}, s32[{batch},{min(rows, columns)}], s32[{batch}]"
    return module(f"a = {a} parameter(0) ROOT r = ({results}) custom-call(a), {GETRF}")


def lu(dtype: str, rows: int, columns: int) -> str:
    a = f"{dtype}[{rows},{columns}]"
    results = f"{a}, s32[{min(rows, columns)}], s32[{rows}]"
    call = 'custom_call_target="LuDecomposition"'
    return module(f"a = {a} parameter(0) ROOT r = ({results}) custom-call(a), {call}")


def whole(dtype: str, *dims: int) -> np.ndarray:
    """Return numbers of which many are as large as others, so that the first one matters."""
    return np.round(2 * matrix(dtype, *dims)).astype(TYPES[dtype])


CASES: dict[str, tuple[str, Sequence[np.ndarray]]] = {
    "panel": (getrf("f32", 70, 24), [whole("f32", 2, 70, 24)]),
    "panel-rows": (getrf("f64", 40, 9, layout=""), [matrix("f64", 2, 40, 9)]),
    "panel-wide": (lu("c64", 9, 30), [matrix("c64", 9, 30)]),
    "panel-one": (getrf("c128", 5, 5), [matrix("c128", 2, 5, 5)]),
    "panel-tall": (lu("f32", 520, 5), [matrix("f32", 520, 5)]),
    "large": (getrf("f32", 70, 70), [matrix("f32", 2, 70, 70)]),
    "large-tall": (getrf("c64", 90, 70), [matrix("c64", 2, 90, 70)]),
    "large-wide": (lu("c128", 20, 50), [matrix("c128", 20, 50)]),
    "large-rows": (lu("f64", 70, 70), [matrix("f64", 70, 70)]),
}
LARGE = [name for name in CASES if name.startswith("large")]


EMULATED = Cases({name: text for name, (text, _) in CASES.items()})
run, host = EMULATED.run, EMULATED.host


def off(a: np.ndarray, factors: np.ndarray, pivots: np.ndarray, base: int) -> float:
    """Return how far L U is from the exchanged rows of `a`, in the last places of its type."""
    rows, columns = a.shape
    size = min(rows, columns)
    held = a.astype(np.complex128)
    for row, other in enumerate(pivots - base):
        held[[row, other]] = held[[other, row]]
    lower = np.tril(factors[:, :size], -1).astype(np.complex128) + np.eye(rows, size)
    found = lower @ np.triu(factors[:size]).astype(np.complex128)
    return float(np.abs(found - held).max() / np.abs(a).max() / np.finfo(a.dtype).eps)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", CASES)
def test_kernels_exchange_as_the_host_does_and_multiply_to_the_matrix(name):
    (a,) = CASES[name][1]
    got, want = run(name, [a]), host(name, [a])
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    base = 1 if "getrf" in CASES[name][0] else 0
    parts = [a[None], got[0][None], got[1][None]] if a.ndim == 2 else [a, *got[:2]]
    for one, factors, pivots in zip(*parts, strict=True):
        assert off(one, factors, pivots, base) <= 4 * np.sqrt(len(one))


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("bad", [0, 63, 64, 69])
def test_the_first_column_without_a_pivot_is_told_of(bad):
    (a,) = CASES["large"][1]
    a = a.copy()
    a[1, :, bad] = 0
    a[1, :, -1] = 0
    factors, _, info = run("large", [a])
    assert info.tolist() == [0, bad + 1]
    assert np.isfinite(factors).all()
    assert host("large", [a])[2].tolist() == info.tolist()


@pytest.mark.slow
@needs_gxx
def test_a_row_without_a_pivot_takes_nothing_out_of_others():
    (a,) = CASES["panel-one"][1]
    a = a.copy()
    a[0, :, 1] = a[0, :, 0]
    a[0, 2, 3] = np.inf
    assert same_bits(np.isnan(run("panel-one", [a])[0]), np.isnan(host("panel-one", [a])[0]))


@pytest.mark.parametrize("name", LARGE)
def test_steps_are_legal_and_small(name):
    text, arguments = CASES[name]
    made = rewritten(hlo2graph.parse(text), split_lus, exact=False, arguments=arguments)
    assert "dot" in opcodes(made.entry) or name == "large-wide"
    assert all_in_registers(made)


def test_of_too_many_rows_panels_are_wide():
    made = split_lus(hlo2graph.parse(lu("f32", 6000, 130)))
    calls = [i for i in made.entry.instructions if i.opcode == "custom-call"]
    widths = [next(call.shape.leaves()).dims for call in calls]
    assert widths == [(6000, 64), (5936, 64), (5872, 2)]


def test_what_the_order_of_rows_is_made_of_is_not_followed():
    a, b = matrix("f32", 100, 100), matrix("f32", 100, 2)
    text = lowered(jnp.linalg.solve, (a, b), "cuda")
    plan = hlo2graph.plan(text, target="sm_90")
    calls = [
        target_of(instr)
        for computation in plan.computations.values()
        for instr in computation.instructions
        if instr.opcode == "custom-call"
    ]
    assert set(calls) == {"LuDecomposition"}
    (got,) = HostExecutable(plan)(a, b)
    want = np.linalg.solve(a.astype(np.float64), b)
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "rows"), [("f32", 512), ("c128", 1024)])
def test_panels_stay_out_of_local_memory(dtype, rows):
    columns = panel_columns(DTYPES[dtype], rows)
    (source,) = kernels_of(hlo2graph.plan(lu(dtype, rows, columns), target="sm_90")).values()
    assert spilt(source.text, "sm_90") == 0
