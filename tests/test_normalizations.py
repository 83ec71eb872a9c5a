"""Batch normalisations written as sums and elementwise work."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx
from rewriting import ADD, module_of, opcodes, results, rewritten

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms.folds.folding import large_sizes
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.hlo import Module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.ops.region import Rows, region_of
from hlo2graph.passes import expand_normalizations as expanding
from hlo2graph.passes.expand_normalizations import expand_normalizations
from hlo2graph.program.device_figures import figures_for
from tests.emulation import EmulatedExecutable, Kernels

OPCODES = ("training", "inference", "grad")
SHAPES = [
    ("f32[6,5,4,3]", 1),
    ("f32[6,5,4,3]", 3),
    ("f32[6,5,4,3]{1,3,2,0}", 1),
    ("f32[6,5]", 0),
    ("f32[6,5]", 1),
    ("f32[5]", 0),
    ("f64[6,5,3]", 1),
    ("bf16[6,5,4,3]", 1),
    ("f16[40,5]", 1),
]


def norm(opcode: str, shape: str, feature: int) -> str:
    dtype, dims = shape.split("{")[0].rstrip("]").split("[")
    each = f"{dtype}[{dims.split(',')[feature]}]"
    several = f"({shape}, {each}, {each})"
    names, result = {
        "training": ("x, s, o", several),
        "inference": ("x, s, o, m, v", shape),
        "grad": ("x, s, m, v, g", several),
    }[opcode]
    return f"""
      x = {shape} parameter(0)
      s = {each} parameter(1)
      o = {each} parameter(2)
      m = {each} parameter(3)
      w = {each} parameter(4)
      v = {each} abs(w)
      g = {shape} parameter(5)
      ROOT r = {result} batch-norm-{opcode}({names}), epsilon=0.25, feature_index={feature}
    """


def arguments(module: Module, mean: float = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    return [(rng.standard_normal(s.dims) + mean).astype(s.dtype.numpy) for s in shapes]


def far_from(module: Module, given: list[np.ndarray]) -> float:
    """Return how far the results are from those as written, by their largest element, or 1."""
    made = results(expand_normalizations(module), given)
    pairs = zip(made, results(module, given), strict=True)
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    return max(float(abs(a - b).max() / max(abs(b).max(), 1)) for a, b in wide)


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize(("shape", "feature"), SHAPES)
@pytest.mark.parametrize("most", [0, 1 << 16])
def test_the_results_are_the_same(opcode, shape, feature, most, monkeypatch):
    monkeypatch.setattr(expanding, "MOST_COLUMNS", most)
    module = module_of(norm(opcode, shape, feature))
    made = rewritten(module, expand_normalizations, exact=False)
    assert not any(o.startswith("batch-norm") for o in opcodes(made.entry))
    close = {"f32": 1e-5, "f64": 1e-14, "bf16": 1e-2, "f16": 2e-3}
    assert far_from(module, arguments(module)) <= close[shape.split("[")[0]]


@pytest.mark.parametrize("most", [0, 1 << 16])
def test_a_mean_far_from_zero_costs_no_digits(most, monkeypatch):
    monkeypatch.setattr(expanding, "MOST_COLUMNS", most)
    module = module_of(norm("training", "f32[50,3,8]", 1))
    given = arguments(module, mean=1000.0)
    variance = results(expand_normalizations(module), given)[2]
    exact = given[0].astype(np.float64).var((0, 2))
    np.testing.assert_allclose(variance, exact, rtol=1e-5)


def test_equal_elements_have_no_variance(monkeypatch):
    monkeypatch.setattr(expanding, "MOST_COLUMNS", 0)
    module = module_of(norm("training", "f32[50,3,8]", 1))
    given = arguments(module)
    given[0][:] = np.float32(0.1)
    _, mean, variance = results(expand_normalizations(module), given)
    np.testing.assert_array_equal(mean, given[0][0, :, 0])
    np.testing.assert_array_equal(variance, 0)


def test_one_infinity_spoils_its_feature_only(monkeypatch):
    monkeypatch.setattr(expanding, "MOST_COLUMNS", 0)
    module = module_of(norm("training", "f32[4,3,8]", 1))
    given = arguments(module)
    given[0][2, 1, 4] = np.inf  # the element in the middle
    with np.errstate(invalid="ignore"):
        made, wanted = results(expand_normalizations(module), given), results(module, given)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
    assert made[1][1] == np.inf


def test_an_empty_array_keeps_its_kernel():
    module = module_of(norm("training", "f32[0,3,8]", 1))
    assert "batch-norm-training" in opcodes(expand_normalizations(module).entry)


def test_short_features_take_one_kernel_with_what_follows():
    body = norm("training", "f32[8,3,8,8]", 1).replace("ROOT r", "t")
    module = module_of(
        f"{body}  n = f32[8,3,8,8] get-tuple-element(t), index=0\n"
        "  ROOT e = f32[8,3,8,8] exponential(n)\n"
    )
    (kernel,) = h2g.plan(module, target="sm_90").body.thunks
    assert kernel.name.startswith("exponential")


def test_an_array_counts_once_for_each_tap_that_reads_it():
    """A block of a fold of windows holds fewer elements, or none."""
    taps = "".join(
        f"t{k} = f32[8,40] slice(p), slice={{[0:8], [{k}:{k + 40}]}}\n" for k in range(3)
    )
    module = module_of(
        "x = f32[8,40] parameter(0)\ny = f32[8,40] parameter(1)\nz = f32[] constant(0)\n"
        f"p = f32[8,42] pad(x, z), padding=0_0x1_1\n{taps}"
        "a = f32[8,40] add(t0, t1)\nb = f32[8,40] add(a, t2)\nc = f32[8,40] multiply(b, y)\n"
        "r = f32[8] reduce(c, z), dimensions={1}, to_apply=sum",
        ADD,
    )
    region = region_of(module.entry)
    assert isinstance(region, Rows)
    shapes = tuple(p.shape for p in module.entry.parameters)
    signature = Signature("k", shapes, (module.entry.result.shape,), 320, figures_for("sm_90"))
    assert large_sizes(region, signature, module.entry) == ([4, 4, 4, 4], [])


@needs_gxx
@pytest.mark.parametrize(
    ("opcode", "shape", "feature"),
    [
        ("training", "f32[9,3,100,90]", 1),
        ("training", "f32[90,25,36,3]", 3),
        ("grad", "f32[9,3,100,90]", 1),
        ("grad", "f32[9,3,10,9]", 1),
    ],
)
def test_the_kernels_agree_with_the_host(opcode, shape, feature):
    plan = h2g.plan(module_of(norm(opcode, shape, feature)), target="sm_90")
    args = random_inputs(plan.inputs, 0)
    wanted = h2g.compile(plan, "host")(*args)
    found = EmulatedExecutable(plan, Kernels([plan]))(*args)
    for a, b, bound in zip(found, wanted, plan.outputs, strict=True):
        compared = compare(a, b, tolerance_for(bound.shape.dtype), bound.name)
        assert compared.ok, str(compared)
