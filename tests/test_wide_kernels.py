"""Kernels of arrays of over 2^31 elements: nothing that counts elements fits into 32 bits."""

from __future__ import annotations

import re

import pytest
from agreement import module, scalar_region
from kernel_programs import PROGRAMS
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.errors import UnsupportedError
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

MANY = 2**26  # columns of 64 rows are 2^32 elements
ADD = scalar_region("add", "add", "f32")
WIDE = {
    "reduce-columns": module(
        f"x = f32[64,{MANY}] parameter(0) z = f32[] constant(0) "
        f"ROOT r = f32[{MANY}] reduce(x, z), dimensions={{0}}, to_apply=add",
        ADD,
    ),
    "scatter-windows": module(
        f"x = f32[64,{MANY}] parameter(0) i = s32[3,1] parameter(1) u = f32[3,64] parameter(2) "
        f"ROOT r = f32[64,{MANY}] scatter(x, i, u), update_window_dims={{1}}, "
        "inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=1, "
        "to_apply=add",
        ADD,
    ),
    "solve": module(
        f"a = f32[64,64] parameter(0) b = f32[64,{MANY}] parameter(1) "
        f"ROOT r = f32[64,{MANY}] triangular-solve(a, b), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    ),
    "fft": module(
        f"x = c64[64,8,{MANY // 8}] parameter(0) "
        f"ROOT r = c64[64,8,{MANY // 8}] fft(x), fft_type=FFT, fft_length={{64,8,{MANY // 8}}}"
    ),
    "batch-norm": module(
        f"x = f32[64,{MANY}] parameter(0) s = f32[64] parameter(1) o = f32[64] parameter(2) "
        f"ROOT r = (f32[64,{MANY}], f32[64], f32[64]) batch-norm-training(x, s, o), "
        "epsilon=0.001, feature_index=0"
    ),
    "topk": module(
        f"x = s8[{2**31}] parameter(0) ROOT r = (s8[5], s32[5]) topk(x), k=5, largest=true"
    ),
    "topk-windows": module(
        f"x = s8[{2**31}] parameter(0) ROOT r = (s8[99], s32[99]) topk(x), k=99, largest=true"
    ),
}
NARROW_PRODUCT = re.compile(r"\[[^\]]*\b\w+ \* \d+(?![\dl])")
COUNTER = re.compile(r"for \(int [^;]*; [^;]*?< (\d+);")


def is_wide(plan, name):
    """Tell whether a kernel has a large array: what a split leaves is small."""
    computation = plan.computations[name]
    shapes = [p.shape for p in computation.parameters] + [computation.result.shape]
    return any(leaf.elements >= 2**31 for shape in shapes for leaf in shape.leaves())


@pytest.mark.parametrize("name", WIDE)
def test_places_are_counted_in_64_bits(name):
    fuse = "none" if name == "batch-norm" else "default"  # else it is taken apart
    plan = hlo2graph.plan(WIDE[name], target="sm_90", fuse=fuse)
    wide = [source for key, source in kernels_of(plan).items() if is_wide(plan, key.computation)]
    assert wide
    for source in wide:
        assert "long long" in source.text
        assert not NARROW_PRODUCT.findall(source.text)
        assert all(int(end) < 2**31 for end in COUNTER.findall(source.text))


def test_more_blocks_than_a_kernel_has_are_refused():
    text = module(f"ROOT wide = f32[{2**63 - 1}] iota(), iota_dimension=0")
    plan = hlo2graph.plan(text, target="sm_90")
    with pytest.raises(UnsupportedError, match=r"wide, iota of f32\[9223372036854775807\]"):
        kernels_of(plan)


@pytest.mark.slow
@needs_gxx
def test_counting_in_64_bits_gives_the_same(monkeypatch):
    monkeypatch.setattr(Signature, "index_type", property(lambda _: "long long"))
    plans = [hlo2graph.plan(text, target="sm_90") for text in PROGRAMS.values()]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)
