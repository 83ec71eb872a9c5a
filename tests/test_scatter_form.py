"""Scatters of more updates than a block works out at once: each element meets them in order."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module, scalar_region
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import same_bits
from tests.emulation import Kernels
from tests.emulation.agreement import both_ways

REGIONS = {
    "last": "fold { a = s32[] parameter(0) ROOT b = s32[] parameter(1) }\n",
    "mixed": (
        "fold { a = s32[] parameter(0) b = s32[] parameter(1) n = s32[] constant(3) "
        "m = s32[] multiply(a, n) ROOT r = s32[] add(m, b) }\n"
    ),
    "sum": scalar_region("fold", "add", "s32"),
}


def scatter(window: int) -> str:
    """Return an instruction that scatters 1000 rows, or single elements, into 600 rows."""
    if window == 1:
        return (
            "x = s32[600] parameter(0) i = s32[1000,1] parameter(1) u = s32[1000] parameter(2) "
            "ROOT r = s32[600] scatter(x, i, u), update_window_dims={}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            "to_apply=fold"
        )
    return (
        f"x = s32[600,{window}] parameter(0) i = s32[1000,1] parameter(1) "
        f"u = s32[1000,{window}] parameter(2) ROOT r = s32[600,{window}] scatter(x, i, u), "
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=fold"
    )


@pytest.mark.slow
@needs_gxx
def test_updates_keep_their_order():
    texts = [module(scatter(w), region) for w in (1, 7, 300) for region in REGIONS.values()]
    plans = [hlo2graph.plan(text, target="sm_90", fuse="none") for text in texts]
    kernels = Kernels(plans)
    rng = np.random.default_rng(0)
    for plan in plans:
        arguments = [
            rng.integers(-5 if k == 1 else 0, 605 if k == 1 else 9, b.shape.dims, np.int32)
            for k, b in enumerate(plan.inputs)
        ]
        got = both_ways(plan, kernels, arguments)
        assert same_bits(got, HostExecutable(plan)(*arguments)), str(plan)
