"""A value is the same in every kernel: comparisons with what is made of it come out as written."""

from __future__ import annotations

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import RUNNABLE
from needs import needs_gxx
from rewriting import ADD, MAX, module_of, rewritten

import hlo2graph as h2g
from hlo2graph.backends.cuda.compiler import compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import Module
from hlo2graph.ops.scalar_region import in_any_order
from hlo2graph.passes.fusion.body import Body
from hlo2graph.passes.fusion.facts import facts_of
from hlo2graph.passes.fusion.fuse import fuse, fusion_decisions
from hlo2graph.passes.order import PASSES
from hlo2graph.passes.round_compared import round_compared
from tests.emulation import EmulatedExecutable, Kernels

THREAD_FOLDS = 32  # steps from which threads fold together

# The largest of rows and of columns, each by a kernel of its own that makes the sums again.
LARGEST = """HloModule m
most {{ a = {0}[] parameter(0) b = {0}[] parameter(1) ROOT r = {0}[] maximum(a, b) }}
count {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }}
ENTRY e {{
  x = {0}[64,48] parameter(0)
  y = {0}[64,48] parameter(1)
  w = {0}[64,48] parameter(2)
  xy = {0}[64,48] multiply(x, y)
  wx = {0}[64,48] multiply(w, x)
  sum = {0}[64,48] add(xy, wx)
  least = {0}[] constant(-inf)
  rows = {0}[64] reduce(sum, least), dimensions={{1}}, to_apply=most
  columns = {0}[48] reduce(sum, least), dimensions={{0}}, to_apply=most
  all = {0}[64,48] broadcast(columns), dimensions={{1}}
  equal = pred[64,48] compare(sum, all), direction=EQ
  ones = s32[64,48] convert(equal)
  zero = s32[] constant(0)
  found = s32[48] reduce(ones, zero), dimensions={{0}}, to_apply=count
  apart = {0}[64,48] subtract(wx, xy)
  ROOT r = (s32[48], {0}[64], {0}[64,48]) tuple(found, rows, apart)
}}
"""


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def convolved(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def clipped_rows(x, w, u):
    """Clip what has no mean, and ask behind a product what was not clipped."""
    centred = x - x.mean(1, keepdims=True)
    kept = jnp.clip(centred, 0, 6)
    return jnp.where(centred == kept, u.astype(jnp.float32) * (kept @ w), 0).sum(1)


def relu6_block(x, w, scale):
    def loss(x, w, scale):
        y = convolved(x, w)
        mean = y.mean((0, 2, 3), keepdims=True)
        variance = jnp.square(y - mean).mean((0, 2, 3), keepdims=True)
        normal = (y - mean) * jax.lax.rsqrt(variance + 1e-5)
        return (jnp.clip(normal * scale[:, None, None] + x, 0, 6) ** 2).mean()

    return jax.grad(loss, (0, 1, 2))(x, w, scale)


def largest_gradients(x, w):
    def loss(x, w):
        y = x @ w
        y = y - y.mean(0)
        return (y.max(1) ** 2).sum() + (y.max(0) ** 2).sum() + y.max() ** 2

    return jax.grad(loss, (0, 1))(x, w)


def steps(x):
    mean = x.sum((0, 2, 3), keepdims=True)
    rest = x - jnp.round(mean * 8) / 8
    above = (x * 4096 > mean).astype(jnp.int32).sum(0)
    return rest, jnp.floor((rest * rest).sum((0, 2, 3)) * 8), above, jnp.argmax(rest, 1)


JAX = {  # functions whose fusions copied folds, or would
    "clipped-rows": (
        clipped_rows,
        (drawn(300, 512), drawn(512, 512), drawn(300, 512).astype("bfloat16")),
    ),
    "relu6-block": (
        relu6_block,
        (drawn(8, 16, 8, 8), drawn(16, 16, 3, 3) / 12, drawn(16)),
    ),
    "largest": (largest_gradients, (drawn(32, 16), drawn(16, 24, seed=1))),
    "steps": (steps, (drawn(8, 16, 12, 12),)),
}


@cache
def lowered(name: str) -> str:
    function, arguments = JAX[name]
    with jax.enable_x64(False):
        return jax.jit(function).lower(*arguments).as_text("hlo")


@cache
def emulated():
    """Return the plans of all programs here, and their kernels in one library."""
    texts = {name: lowered(name) for name in JAX}
    texts |= {kind: LARGEST.format(kind) for kind in ("f32", "bf16", "f16")}
    plans = {n: h2g.plan(t, target="sm_90", fuse="default") for n, t in texts.items()}
    return plans, Kernels(list(plans.values()))


def before_fusion(text: str) -> Module:
    module = h2g.parse(text)
    for rewrite in PASSES["default"][: PASSES["default"].index(fuse)]:
        module = rewrite(module)
    return module


def varies(module: Module, computation: str, name: str) -> bool:
    """Tell whether kernels may fold the same to other last bits."""
    held = module.computations[computation]
    instr = held[name]
    if not any(str(leaf.dtype)[0] in "fbc" for leaf in instr.shape.leaves()):
        return False
    if instr.opcode in ("dot", "convolution", "fft"):
        return True
    if instr.opcode != "reduce":
        return False
    region = module.computations[str(instr.attrs["to_apply"])].result.opcode
    steps = held[instr.operands[0]].shape.elements / max(1, instr.shape.elements)
    return steps >= THREAD_FOLDS and region not in ("maximum", "minimum", "and", "or")


def made_twice(text: str) -> list[str]:
    """Return the folds that several kernels make."""
    module, found = before_fusion(text), []
    for decisions in fusion_decisions(module):
        copies = Counter(m.name for kernel in decisions.together for m in kernel.members)
        where = decisions.computation
        found += [n for n, k in copies.items() if k > 1 and varies(module, where, n)]
    return found


@pytest.mark.parametrize("path", [p for p in RUNNABLE if p.suffix == ".hlo"], ids=lambda p: p.stem)
def test_no_fold_of_a_sample_is_in_two_kernels(path):
    assert made_twice(path.read_text()) == []


@pytest.mark.parametrize("name", JAX)
def test_no_fold_of_a_gradient_is_in_two_kernels(name):
    assert made_twice(lowered(name)) == []


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("r = f32[9] reduce(p, z), dimensions={1}, to_apply=sum", True),
        ("r = f32[9] reduce(p, z), dimensions={1}, to_apply=most", False),
        ("r = f32[40] reduce(p, z), dimensions={0}, to_apply=sum", False),  # by a thread alone
        ("r = s32[9] reduce(q, n), dimensions={1}, to_apply=count", False),
        ("r = f32[9,9] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}", True),
        ("r = s32[9,9] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}", False),
        ("r = f32[9,40] tanh(p)", False),
    ],
)
def test_which_folds_vary_from_kernel_to_kernel(fold, expected):
    module = module_of(
        f"""p = f32[9,40] parameter(0)
        q = s32[9,40] parameter(1)
        z = f32[] constant(0)
        n = s32[] constant(0)
        {fold}""",
        ADD + MAX + ADD.replace("sum", "count", 1).replace("f32", "s32"),
    )
    body = Body.of(module.entry, frozenset(), exact=in_any_order(module.computations))
    assert facts_of(body, "r").varies is expected


@needs_gxx
@pytest.mark.parametrize("name", JAX)
def test_gradients_are_those_of_jax(name):
    plans, kernels = emulated()
    function, arguments = JAX[name]
    with jax.enable_x64(False):
        want = jax.tree.leaves(jax.jit(function)(*arguments))
    got = EmulatedExecutable(plans[name], kernels)(*arguments)
    for ours, theirs in zip(got, want, strict=True):
        theirs = np.asarray(theirs)
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


@needs_gxx
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_the_largest_is_as_large_as_itself(kind):
    plans, kernels = emulated()
    dtype = plans[kind].inputs[0].shape.dtype.numpy
    arguments = [drawn(64, 48, seed=seed).astype(dtype) for seed in range(3)]
    got = EmulatedExecutable(plans[kind], kernels)(*arguments)[0]
    assert got.tolist() == HostExecutable(plans[kind])(*arguments)[0].tolist()
    assert got.min() >= 1


def test_the_compiler_contracts_nothing():
    pytest.importorskip("cuda.bindings.nvrtc")
    plan = h2g.plan(LARGEST.format("f32"), target="sm_90", fuse="default")
    texts = list(dict.fromkeys(kernel.text for kernel in kernels_of(plan).values()))
    assert "fma" not in compile_ptx(unit_text(texts), "sm_90")


def test_products_are_added_with_one_rounding():
    pytest.importorskip("cuda.bindings.nvrtc")
    module = module_of(
        """p = f32[5,7] parameter(0)
        q = f32[7,3] parameter(1)
        r = f32[5,3] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    )
    (kernel,) = kernels_of(h2g.plan(module, target="sm_90", fuse="default")).values()
    found = compile_ptx(unit_text([kernel.text]), "sm_90")
    assert "fma.rn.f32" in found
    assert "mul.f32" not in found


# ---- which narrow floats are rounded -------------------------------------------------------------


def rounded(body: str, before: str = "", exact: bool = True) -> set[str]:
    """Return what the pass rounds; the host's results stay the same, bit for bit."""
    made = rewritten(module_of(body, before), round_compared, exact=exact)
    return {
        i.name
        for i in made.entry.instructions
        if i.opcode == "convert" and i.shape == made.entry[i.operands[0]].shape
    }


def test_what_a_comparison_of_two_values_depends_on_is_rounded():
    assert rounded(
        """p = bf16[8] parameter(0)
        q = bf16[8] parameter(1)
        a = bf16[8] multiply(p, q)
        b = bf16[8] add(a, q)
        c = bf16[8] maximum(b, p)
        n = bf16[8] negate(c)
        m = bf16[8] negate(b)
        d = bf16[8] exponential(m)
        e = pred[8] compare(n, m), direction=GE
        r = (pred[8], bf16[8]) tuple(e, d)"""
    ) == {"a", "b"}


@pytest.mark.parametrize(
    ("step", "is_step"),
    [
        ("r = pred[8] compare(a, z), direction=GT", False),
        ("r = pred[8] compare(a, a), direction=NE", False),
        ("r = pred[8] compare(a, z), direction=EQ", True),
        ("r = bf16[8] floor(a)", True),
        ("r = bf16[8] sign(a)", True),
        ("r = s32[8] convert(a)", True),
        ("r = f32[8] convert(a)", False),
        ("r = bf16[8] tanh(a)", False),
        ("r = bf16[8] sort(a), dimensions={0}, to_apply=below", True),
        ("r = bf16[] reduce(a, o), dimensions={0}, to_apply=chosen", True),
    ],
)
def test_what_steps(step, is_step):
    body = f"""p = bf16[8] parameter(0)
        o = bf16[] constant(0)
        z = bf16[8] broadcast(o), dimensions={{}}
        a = bf16[8] exponential(p)
        {step}"""
    before = """below { a = bf16[] parameter(0)
        b = bf16[] parameter(1)
        ROOT r = pred[] compare(a, b), direction=LT }
        chosen { a = bf16[] parameter(0)
        b = bf16[] parameter(1)
        c = pred[] compare(a, b), direction=GE
        ROOT r = bf16[] select(c, a, b) }
        """
    assert rounded(body, before) == ({"a"} if is_step else set())


def test_wide_floats_are_looked_through_and_products_are_not():
    assert rounded(
        """p = bf16[8,8] parameter(0)
        a = bf16[8,8] exponential(p)
        b = bf16[8,8] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        c = bf16[8,8] multiply(b, p)
        d = f32[8,8] convert(c)
        e = f32[8,8] add(d, d)
        f = bf16[8,8] convert(e)
        g = f32[8,8] convert(f)
        r = pred[8,8] compare(g, d), direction=EQ"""
    ) == {"c"}


def test_sums_of_narrow_floats_are_rounded_and_what_is_largest_is_not():
    before = (ADD + MAX).replace("f32", "f16")
    assert rounded(
        """p = f16[8,8] parameter(0)
        z = f16[] constant(0)
        s = f16[8] reduce(p, z), dimensions={1}, to_apply=sum
        m = f16[8] reduce(p, z), dimensions={1}, to_apply=most
        r = pred[8] compare(s, m), direction=LT""",
        before,
    ) == {"s"}


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_quotients_that_are_compared_are_exact(kind):
    converted = "w = bf16[64,96] convert(q)" if kind == "f32" else "w = bf16[64,96] copy(q)"
    texts = [
        f"""HloModule m
sum {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT c = {kind}[] add(a, b) }}
ENTRY e {{
  p = {kind}[64,96] parameter(0)
  x = bf16[64,96] parameter(1)
  z = {kind}[] constant(0)
  s = {kind}[64] reduce(p, z), dimensions={{1}}, to_apply=sum
  d = {kind}[64,96] broadcast(s), dimensions={{0}}
  q = {kind}[64,96] divide(p, d)
  {converted}
  {ending}
}}
"""
        for ending in (
            "ROOT r = bf16[64,96] add(w, x)",
            "ROOT r = pred[64,96] compare(w, x), direction=EQ",
        )
    ]
    near = [
        any("near_quotient" in k.text for k in kernels_of(h2g.plan(t, target="sm_90")).values())
        for t in texts
    ]
    assert near == [True, False]
