"""Cholesky factors and triangular solves: of small triangles in a block, of large ones in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from agreement import module
from needs import needs_gxx
from ptxas import spilt
from rewriting import opcodes, rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.linalg import TRANSPOSES, largest_block
from hlo2graph.passes.large.split_factors import split_factors
from hlo2graph.program.device_figures import FIGURES
from tests.emulation import EmulatedExecutable
from tests.emulation.cases import Cases
from tests.emulation.plans import planned

RNG = np.random.default_rng(0)


def cholesky(dtype: str, dims: str, lower: str = "true") -> str:
    return module(
        f"a = {dtype}[{dims}] parameter(0) ROOT r = {dtype}[{dims}] cholesky(a), lower={lower}"
    )


def potrf(dims: str, batch: str = "", lower: str = "true", layout: str = "{1,2,0}") -> str:
    return module(
        f"a = f32[{dims}]{layout} parameter(0) "
        f"ROOT r = (f32[{dims}]{layout}, s32[{batch}]) custom-call(a), "
        'custom_call_target="cusolver_potrf_ffi", api_version=API_VERSION_TYPED_FFI, '
        f"backend_config={{lower = {lower}}}"
    )


def solve(dtype: str, a: str, b: str, left: bool, lower: bool, how: str, unit: str) -> str:
    return module(
        f"a = {dtype}[{a}] parameter(0) b = {dtype}[{b}] parameter(1) "
        f"ROOT r = {dtype}[{b}] triangular-solve(a, b), left_side={str(left).lower()}, "
        f"lower={str(lower).lower()}, transpose_a={how}, unit_diagonal={unit}"
    )


def numbers(dtype: str, *dims: int) -> np.ndarray:
    found = RNG.standard_normal(dims) + 1j * RNG.standard_normal(dims)
    return (found if dtype[0] == "c" else found.real).astype(DTYPES[dtype].numpy)


def positive(dtype: str, *dims: int) -> np.ndarray:
    a = numbers(dtype, *dims).astype(np.complex128)
    whole = a @ a.conj().swapaxes(-1, -2) / dims[-1] + np.eye(dims[-1])
    return (whole if dtype[0] == "c" else whole.real).astype(DTYPES[dtype].numpy)


def triangle(dtype: str, *dims: int) -> np.ndarray:
    found = numbers(dtype, *dims) / (2 * dims[-1]) + np.eye(dims[-1]) * 1.5
    return found.astype(DTYPES[dtype].numpy)


WAYS = list(product((True, False), (True, False), TRANSPOSES))
CASES: dict[str, tuple[str, Sequence[np.ndarray]]] = {
    "small-f32": (cholesky("f32", "3,5,5"), [positive("f32", 3, 5, 5)]),
    "small-c64": (cholesky("c64", "2,31,31", "false"), [positive("c64", 2, 31, 31)]),
    "large-f32": (cholesky("f32", "132,132"), [positive("f32", 132, 132)]),
    "large-c64": (cholesky("c64", "2,70,70"), [positive("c64", 2, 70, 70)]),
    "large-f64": (cholesky("f64", "65,65", "false"), [positive("f64", 65, 65)]),
    "large-corners": (cholesky("f64", "322,322"), [positive("f64", 322, 322)]),
    "potrf": (potrf("2,130,130", "2"), [positive("f32", 2, 130, 130)]),
    "potrf-small": (potrf("2,45,45", "2"), [positive("f32", 2, 45, 45)]),
    "potrf-upper": (potrf("2,64,64", "2", "false"), [positive("f32", 2, 64, 64)]),
    "potrf-rows": (potrf("2,45,45", "2", layout=""), [positive("f32", 2, 45, 45)]),
    "solve-small": (
        solve("f32", "2,97,97", "2,97,17", True, True, "NO_TRANSPOSE", "false"),
        [triangle("f32", 2, 97, 97), numbers("f32", 2, 97, 17)],
    ),
    "solve-many": (
        solve("f32", "9,7,7", "9,300,7", False, True, "ADJOINT", "false"),
        [triangle("f32", 9, 7, 7), numbers("f32", 9, 300, 7)],
    ),
    "solve-unit": (
        solve("f64", "70,70", "70,3", True, False, "NO_TRANSPOSE", "true"),
        [triangle("f64", 70, 70), numbers("f64", 70, 3)],
    ),
}
CASES |= {
    f"solve-{left}-{lower}-{how}": (
        solve("c64", "2,70,70", "2,70,5" if left else "2,5,70", left, lower, how, "false"),
        [triangle("c64", 2, 70, 70), numbers("c64", 2, *((70, 5) if left else (5, 70)))],
    )
    for left, lower, how in WAYS[::2]
}


EMULATED = Cases({name: text for name, (text, _) in CASES.items()})
run, host = EMULATED.run, EMULATED.host


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_host(name):
    arguments = CASES[name][1]
    for ours, theirs in zip(run(name, arguments), host(name, arguments), strict=True):
        scale = np.abs(theirs).max() if theirs.size else 1
        bound = 1e-12 if theirs.dtype.name in ("float64", "complex128") else 3e-6
        assert np.abs(ours - theirs).max() <= bound * scale


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("bad", [0, 127, 128, 131])
def test_what_has_no_factor_is_nan(bad):
    (a,) = CASES["large-f32"][1]
    a = a.copy()
    a[bad, bad] = -1
    (got,) = run("large-f32", [a])
    assert np.isnan(got).all()


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("bad", [3, 129])
def test_what_has_no_factor_stays_and_is_told_of(bad):
    (a,) = CASES["potrf"][1]
    a = a.copy()
    a[1, bad, bad] = -1
    factor, info = run("potrf", [a])
    assert info.tolist() == [0, bad + 1]
    assert same_bits([factor[1]], [a[1]])
    assert np.isfinite(factor).all()
    assert host("potrf", [a])[1].tolist() == info.tolist()


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("power", [1000, -1000])
def test_pivots_may_be_huge_or_tiny(power):
    (a,) = CASES["large-f64"][1]
    (near,), (far,) = run("large-f64", [a]), run("large-f64", [np.ldexp(a, power)])
    np.testing.assert_allclose(far, np.ldexp(near, power // 2), rtol=1e-12)


@pytest.mark.slow
@needs_gxx
def test_of_many_matrices_each_has_few_warps():
    texts = {"potrf": CASES["potrf-small"][0], "cholesky": cholesky("f32", "2,45,45")}
    arguments = CASES["potrf-small"][1]
    one = replace(FIGURES["sm_90"], multiprocessors=1)
    with planned(texts, one) as (plans, kernels):
        for name, plan in plans.items():
            (source,) = kernels_of(plan).values()
            assert source.threads == 64
            got = EmulatedExecutable(plan, kernels)(*arguments)
            want = HostExecutable(hlo2graph.plan(texts[name], target="host"))(*arguments)
            for ours, theirs in zip(got, want, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=3e-6)


SMALL = ("small", "many", "upper", "rows")
LARGE = [name for name in CASES if not any(word in name for word in SMALL)]


@pytest.mark.parametrize("name", LARGE)
def test_steps_are_legal_and_small(name):
    text, arguments = CASES[name]
    made = rewritten(hlo2graph.parse(text), split_factors, exact=False, arguments=arguments)
    ways = opcodes(made.entry)
    assert "dot" in ways
    for instr in made.entry.instructions:
        if instr.opcode in ("cholesky", "triangular-solve"):
            triangle = made.entry[instr.operands[0]].shape
            assert triangle.dims[-1] <= largest_block(triangle.dtype)


def test_very_large_matrices_are_halved_first():
    made = split_factors(hlo2graph.parse(cholesky("f32", "4400,4400")))
    dots = [i for i in made.entry.instructions if i.opcode == "dot"]
    assert max(i.shape.dims[-1] for i in dots) == 4400 - 2176
    assert all("highest" in str(i.attrs["operand_precision"]) for i in dots)


def test_corners_have_products_of_their_own_where_much_is_behind():
    made = split_factors(hlo2graph.parse(CASES["large-corners"][0]))
    products = {i.shape.dims for i in made.entry.instructions if i.opcode == "dot"}
    first, second = {(64, 64), (194, 64), (194, 194)}, {(194, 64), (130, 130)}
    assert products >= first | second


def test_small_matrices_stay_as_they_are():
    parsed = hlo2graph.parse(cholesky("f32", "128,128"))
    assert split_factors(parsed) is parsed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dtype", "size"), [("sm_80", "f32", 128), ("sm_90", "c64", 64), ("sm_90", "c128", 64)]
)
def test_triangles_stay_out_of_local_memory(arch, dtype, size):
    square = f"{size},{size}"
    for text in (
        cholesky(dtype, square),
        solve(dtype, square, f"{size},500", True, True, "ADJOINT", "false"),
    ):
        (source,) = kernels_of(hlo2graph.plan(text, target=arch)).values()
        assert spilt(source.text, arch) == 0
