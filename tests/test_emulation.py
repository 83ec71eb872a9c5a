"""Emitted CUDA C++, compiled for this machine and run: samples and edge cases, against the host."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from conftest import REFUSED, RUNNABLE, SAMPLES
from kernel_layouts import nested_fusions
from kernel_programs import PROGRAMS, long_fusion
from needs import needs_gxx
from random_modules import random_module

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host

pytestmark = [
    pytest.mark.slow,
    needs_gxx,
]
DRAWN = {"random": {4}}  # results of `rng`: their distribution counts, not their bits


def plan_of(text: str, fuse: str = "none"):
    return hlo2graph.plan(text, target="sm_90", fuse=fuse)


def sample_plan(path: Path, fuse: str):
    text = path.read_text()
    return hlo2graph.plan(text) if path.suffix == ".thunks" else plan_of(text, fuse)


@cache
def samples(fuse: str):
    """Return the plans of all samples, by name, and their kernels in one library."""
    found = {p.stem: sample_plan(p, fuse) for p in RUNNABLE}
    return found, Kernels(list(found.values()))


@cache
def programs():
    found = {name: plan_of(text) for name, text in PROGRAMS.items()}
    return found, Kernels(list(found.values()))


@pytest.mark.parametrize("fuse", ["none", "default"])
@pytest.mark.parametrize("name", [p.stem for p in RUNNABLE])
def test_samples_agree_with_the_host(name, fuse):
    plans, kernels = samples(fuse)
    agree_with_the_host(plans[name], kernels, skipped=DRAWN.get(name, ()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_edge_cases_agree_with_the_host(name):
    plans, kernels = programs()
    for seed in (0, 1):
        agree_with_the_host(plans[name], kernels, seed=seed)


@pytest.mark.parametrize("fuse", ["none", "default"])
def test_random_modules_agree_with_the_host(fuse):
    plans = [plan_of(random_module(Random(seed), 20), fuse) for seed in range(30)]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.stem in REFUSED], ids=lambda p: p.stem)
def test_what_has_no_kernel_is_named(path):
    with pytest.raises(UnsupportedError) as caught:
        check_support(sample_plan(path, "none"))
    for named in REFUSED[path.stem]:
        assert named in str(caught.value)


FUSED = """HloModule m
lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
inner { x = f32[8] parameter(0) s = f32[8] sort(x), dimensions={0}, to_apply=lt
  ROOT n = f32[8] negate(s) }
plain { x = f32[8] parameter(0) ROOT n = f32[8] negate(x) }
fused { x = f32[8] parameter(0)
  at = s32[2,1] iota(), iota_dimension=0
  few = f32[2] slice(x), slice={[3:5]}
  s = f32[8] sort(x), dimensions={0}, to_apply=lt
  t = f32[8] scatter(s, at, few), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=most
  f = f32[8] fusion(t), kind=kLoop, calls=inner
  g = f32[8] fusion(t), kind=kLoop, calls=plain
  RESULT }
ENTRY e { x = f32[8] parameter(0) y = f32[8] negate(x)
  ROOT r = SHAPE fusion(y), kind=kInput, calls=fused }
"""
RESULTS = {
    "f32[8]": "ROOT r = f32[8] add(f, g)",
    "(f32[8], f32[8], f32[8])": "ROOT r = (f32[8], f32[8], f32[8]) tuple(t, f, g)",
    "f32[]": "z = f32[] constant(-9) ROOT r = f32[] reduce(f, z), dimensions={0}, to_apply=most",
}


@pytest.mark.parametrize("fuse", ["none", "default"])
def test_a_fusion_of_what_needs_kernels_of_its_own_becomes_several(fuse):
    texts = [FUSED.replace("SHAPE", s).replace("RESULT", r) for s, r in RESULTS.items()]
    plans = [plan_of(text, fuse) for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        assert len(plan.body.thunks) > 1
        agree_with_the_host(plan, kernels)


def test_long_chains_neither_nest_nor_grow():
    plan = plan_of(long_fusion(5000))
    (source,) = kernels_of(plan).values()
    assert source.text.count("\n") < 30000
    agree_with_the_host(plan, Kernels([plan]))


def test_deep_fusions_end():
    plan = plan_of(nested_fusions(150))
    agree_with_the_host(plan, Kernels([plan]))


def test_draws_keep_to_their_distribution():
    plan = plan_of(
        """HloModule m
ENTRY e {
  low = f32[] constant(-1) high = f32[] constant(3)
  least = s32[] constant(-2) most = s32[] constant(8)
  mean = f64[] constant(5) spread = f64[] constant(2)
  u = f32[4000] rng(low, high), distribution=rng_uniform
  n = f64[4000] rng(mean, spread), distribution=rng_normal
  i = s32[4000] rng(least, most), distribution=rng_uniform
  ROOT t = (f32[4000], f64[4000], s32[4000]) tuple(u, n, i)
}"""
    )
    uniform, normal, whole = EmulatedExecutable(plan)()
    assert uniform.min() >= -1
    assert uniform.max() < 3
    assert abs(uniform.mean() - 1) < 0.1
    assert abs(normal.mean() - 5) < 0.2
    assert abs(normal.std() - 2) < 0.2
    assert set(whole.tolist()) == set(range(-2, 8))
    assert np.unique(uniform).size > 3900
