"""Kernels of whose results none has an element: a grid has a block, which writes nothing."""

from __future__ import annotations

import pytest
from agreement import module, scalar_region

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of

LESS = (
    "less { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) "
    "j = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }"
)
PROGRAMS = {
    "sort": "i = s32[2,0,31] iota(), iota_dimension=2 "
    "ROOT r = (f32[2,0,31], s32[2,0,31]) sort(x, i), dimensions={2}, to_apply=less",
    "topk": "ROOT r = (f32[2,0,3], s32[2,0,3]) topk(x), k=3, largest=true",
    "cumulative-sum": "z = f32[] constant(0) ROOT r = f32[2,0,31] reduce-window(x, z), "
    "window={size=1x1x31 pad=0_0x0_0x30_0}, to_apply=add",
    "batch-norm": "o = f32[2] parameter(1) ROOT r = (f32[2,0,31], f32[2], f32[2]) "
    "batch-norm-training(x, o, o), epsilon=0.001, feature_index=0",
    "inference": "o = f32[0] parameter(1) ROOT r = f32[2,0,31] "
    "batch-norm-inference(x, o, o, o, o), epsilon=0.001, feature_index=1",
    "gradient": "o = f32[0] parameter(1) ROOT r = (f32[2,0,31], f32[0], f32[0]) "
    "batch-norm-grad(x, o, o, o, x), epsilon=0.001, feature_index=1",
    "cholesky": "c = f32[0,31,31] parameter(1) ROOT r = f32[0,31,31] cholesky(c), lower=true",
    "large-cholesky": "c = f32[0,300,300] parameter(1) "
    "ROOT r = f32[0,300,300] cholesky(c), lower=true",
}


@pytest.mark.parametrize("fuse", ["none", "default"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_stored_to_arrays_without_elements(name, fuse):
    text = module(
        f"x = f32[2,0,31] parameter(0) {PROGRAMS[name]}", LESS, scalar_region("add", "add", "f32")
    )
    plan = h2g.plan(text, target="sm_90", fuse=fuse)
    for key, source in kernels_of(plan).items():
        results = plan.computations[key.computation].result.shape.leaves()
        assert source.grid == (1, 1, 1) or any(leaf.elements for leaf in results)
        for number, leaf in enumerate(results):
            assert leaf.elements or f"r{number}[" not in source.text.partition("{")[2]
