"""Small images feature by feature: what lies so, what does not, and that results stay the same."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Layout
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.ops.matmul import product_of
from hlo2graph.passes.lay_out_images import lay_out_images
from hlo2graph.passes.simplify import simplify
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

LABELS = "dim_labels=bf01_oi01->bf01"
FEATURES_FIRST = Layout((3, 2, 0, 1))


def points(images: str = "6,8,7,7", ending: str = "ROOT r = f32[6,16,7,7] exponential(y)") -> str:
    """Return a program that multiplies images' places, before and after elementwise work."""
    result = images.replace("8", "16", 1)
    return f"""HloModule m
ENTRY e {{
  a = f32[{images}] parameter(0)
  k = f32[16,8,1,1] parameter(1)
  x = f32[{images}] negate(a)
  y = f32[{result}] convolution(x, k), window={{size=1x1}}, {LABELS}
  {ending}
}}
"""


def laid_out(text: str):
    return verify(lay_out_images(simplify(h2g.parse(text)))).entry


def test_what_is_multiplied_and_the_product_lie_feature_by_feature():
    made = laid_out(points())
    assert made["x"].shape.layout == FEATURES_FIRST
    (dot,) = (i for i in made.instructions if i.opcode == "dot")
    assert dot.shape.layout == Layout((2, 1, 0, 3))
    lhs, rhs = (made[name].shape for name in dot.operands)
    found = product_of(dot, lhs, rhs, dot.shape)
    assert (found.batch, found.m, found.k, found.n) == (1, 6 * 49, 8, 16)


def test_arguments_and_results_lie_as_they_did():
    made = laid_out(points())
    assert made["a"].shape.is_row_major
    assert made["r"].shape.is_row_major


@pytest.mark.parametrize(
    "text",
    [
        points("6,8,32,32", "ROOT r = f32[6,16,32,32] exponential(y)"),
        points("1,8,7,7", "ROOT r = f32[1,16,7,7] exponential(y)"),
    ],
    ids=["large", "single"],
)
def test_other_images_stay(text):
    module = simplify(h2g.parse(text))
    assert lay_out_images(module) is module


def test_what_is_looked_at_as_bytes_stays():
    ending = "e = f32[6,16,7,7] exponential(y) ROOT b = s32[6,16,7,7] bitcast(e)"
    assert laid_out(points(ending=ending))["e"].shape.is_row_major


def block(images: int, side: int, stride: int) -> str:
    """Return an inverted residual, as MobileNet has them, with its gradients."""
    import jax
    import jax.numpy as jnp

    def convolved(x, w, stride=1, groups=1):
        labels = ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=labels, feature_group_count=groups
        )

    def norm(v, scale):
        mean, var = v.mean((0, 2, 3), keepdims=True), v.var((0, 2, 3), keepdims=True)
        return (v - mean) * jax.lax.rsqrt(var + 1e-3) * scale[:, None, None]

    def loss(weights, x):
        wide, each, narrow, scale = weights
        y = jax.nn.relu(norm(convolved(x, wide), scale))
        y = jax.nn.relu(convolved(y, each, stride, 16))
        return (convolved(y, narrow) ** 2).mean()

    shapes = [(16, 8, 1, 1), (16, 1, 3, 3), (8, 16, 1, 1), (16,)]
    weights = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    x = jax.ShapeDtypeStruct((images, 8, side, side), jnp.float32)
    return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(weights, x).as_text("hlo")


BLOCKS = {"odd": (4, 7, 1), "even": (3, 8, 1), "strided": (2, 14, 2)}


@pytest.mark.slow
@needs_gxx
def test_kernels_read_and_write_what_lies_so():
    plans = [h2g.plan(block(*BLOCKS[name]), target="sm_90") for name in ("odd", "strided")]
    shapes = [str(t.shape) for p in plans for c in p.computations.values() for t in c.instructions]
    assert any("{3,2,0,1}" in shape for shape in shapes)
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels, tf32=True)


@pytest.mark.parametrize("name", BLOCKS)
def test_results_are_the_same(name):
    module = simplify(h2g.parse(block(*BLOCKS[name])))
    plans = [h2g.plan(m, target="host") for m in (module, lay_out_images(module))]
    arguments = random_inputs(plans[0].inputs, 0)
    before, after = (HostExecutable(plan)(*arguments) for plan in plans)
    for ours, theirs, bound in zip(after, before, plans[0].outputs, strict=True):
        found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
        assert found.ok, str(found)
