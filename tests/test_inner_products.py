"""Products of vectors written as sums."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import module_of, opcodes, results, rewritten, whole_arguments

import hlo2graph as h2g
from hlo2graph.passes.expand_inner_products import expand_inner_products

VECTORS = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
BATCHES = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1,2}, "
BATCHES += "rhs_contracting_dims={1,2}"


def product(lhs: str, rhs: str, out: str, dims: str = VECTORS) -> str:
    return f"p = {lhs} parameter(0)\nq = {rhs} parameter(1)\nd = {out} dot(p, q), {dims}"


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dims"),
    [
        ("f32[50]", "f32[50]", "f32[]", VECTORS),
        ("f64[50]", "f64[50]", "f64[]", VECTORS),
        ("s32[50]", "s32[50]", "s32[]", VECTORS),
        ("s8[50]", "s8[50]", "s32[]", VECTORS),
        ("bf16[50]", "bf16[50]", "bf16[]", VECTORS),
        ("f16[50]", "f16[50]", "f32[]", VECTORS),
        ("f32[1]", "f32[1]", "f32[]", VECTORS),
        ("f32[3,4,5]", "f32[3,4,5]", "f32[3]", BATCHES),
        ("f32[3,4,5]{0,2,1}", "f32[3,4,5]", "f32[3]", BATCHES),
    ],
)
def test_a_product_without_free_dimensions_is_a_sum(lhs, rhs, out, dims):
    module = module_of(product(lhs, rhs, out, dims))
    made = rewritten(module, expand_inner_products, arguments=whole_arguments(module))
    assert "dot" not in opcodes(made.entry)
    assert opcodes(made.entry).count("reduce") == 1


def test_narrow_floats_are_summed_in_float32():
    module = module_of(product("bf16[512]", "bf16[512]", "bf16[]"))
    made = expand_inner_products(module)
    given = [np.full(512, 1, made.entry.parameters[0].shape.dtype.numpy)] * 2
    assert results(made, given)[0] == 512


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dims"),
    [
        ("f32[4,50]", "f32[50]", "f32[4]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("c64[50]", "c64[50]", "c64[]", VECTORS),
        ("f32[0]", "f32[0]", "f32[]", VECTORS),
        ("f32[4,4]", "f32[4,4]", "f32[]", "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}"),
        (
            "f32[4,5]",
            "f32[5,4]",
            "f32[4]",
            "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ],
)
def test_other_products_stay(lhs, rhs, out, dims):
    module = module_of(product(lhs, rhs, out, dims))
    assert expand_inner_products(module) is module


def test_what_is_made_of_the_vectors_shares_the_kernel():
    text = """HloModule m
    ENTRY main {
      p = f32[128] parameter(0)
      q = f32[128] parameter(1)
      d = f32[] dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}
      b = f32[128] broadcast(d), dimensions={}
      s = f32[128] subtract(p, b)
      ROOT e = f32[] dot(s, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}
    }"""
    assert len(h2g.plan(text, target="sm_90").body.thunks) == 1


@pytest.mark.parametrize(("given", "out"), [("f32", "s32"), ("f64", "f32"), ("s32", "f32")])
def test_factors_are_not_rounded_to_the_type_of_the_result(given, out):
    dims = (
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )
    module = module_of(product(f"{given}[3,5]", f"{given}[3,5]", f"{out}[3]", dims))
    assert expand_inner_products(module) is module
