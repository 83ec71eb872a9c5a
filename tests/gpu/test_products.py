"""Products of cuBLASLt and of our kernels against NumPy's: arrangements, dtypes, precisions."""

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.blas import library
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from tests.products import CUTS, arrangements, dot_text

BIG = {"m": 96, "k": 256, "n": 80}


FUSES = ["none", "default"]  # with none a library multiplies, with default small dots are ours


def agrees(text: str, fuse: str, precision: str = "default") -> None:
    if library() is None and fuse == "none":
        pytest.skip("cuBLASLt is not there")
    plan = h2g.plan(text, target="sm_90", fuse=fuse)
    executable = h2g.compile(plan, "cuda", precision)
    args = random_inputs(plan.inputs, seed=3)
    (got,), (want,) = executable(*args), h2g.compile(plan, "host")(*args)
    dtype = plan.outputs[0].shape.dtype
    found = compare(got, want, tolerance_for(dtype, tf32=precision == "default"))
    assert found.ok, str(found)
    assert not executable.notes, executable.notes


@pytest.mark.parametrize("fuse", FUSES)
@pytest.mark.parametrize("text", arrangements())
def test_arrangements(text, fuse):
    agrees(text, fuse)


@pytest.mark.parametrize("fuse", FUSES)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("order", [("mk", "kn"), ("km", "nk"), ("bmk", "bkn")])
def test_dtypes(dtype, order, fuse):
    agrees(dot_text(*order, (*order, "bmn" if "b" in order[0] else "mn"), dtype, **BIG), fuse)


@pytest.mark.parametrize("fuse", FUSES)
@pytest.mark.parametrize(
    ("dtype", "out"),
    [("f16", "f32"), ("bf16", "f32"), ("s8", "s32"), ("f8e4m3fn", "bf16"), ("f8e4m3fn", "f32")],
)
def test_results_wider_than_operands(dtype, out, fuse):
    agrees(dot_text("mk", "kn", ("mk", "nk", "mn"), dtype, out, **BIG), fuse)


@pytest.mark.parametrize("fuse", FUSES)
def test_highest_precision_is_ieee(fuse):
    text = dot_text("mk", "kn", ("mk", "kn", "mn"), m=256, k=512, n=256)
    plan = h2g.plan(text, target="sm_90", fuse=fuse)
    args = random_inputs(plan.inputs, seed=3)
    want = args[0].astype(np.float64) @ args[1].astype(np.float64)
    errors = {
        precision: np.abs(h2g.compile(plan, "cuda", precision)(*args)[0] - want).max()
        for precision in ("default", "highest")
    }
    assert errors["highest"] < 1e-3
    if library() is not None or fuse == "default":
        assert errors["default"] > 4 * errors["highest"]  # TF32 keeps 10 bits


@pytest.mark.parametrize("name", CUTS)
def test_slices_are_read_where_they_lie(name):
    agrees(f"HloModule m\nENTRY main {{\n{CUTS[name][0]}\n}}\n", "default")
