"""The kernels that fold rows and columns, compiled for this machine, against the host."""

from __future__ import annotations

from random import Random

import pytest
from fold_programs import FORMS, fold_program
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from tests.emulation import EmulatedExecutable, Kernels

pytestmark = [pytest.mark.slow, needs_gxx]
ROWS_ONLY = ("softmax", "log_softmax", "layer_norm", "rms_norm")
SIZES = (1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 64, 96, 100, 127, 128, 257, 520)
LONG = (1000, 1024, 4099, 8192, 9001)


def agrees(text: str, plan, kernels) -> None:
    arguments = random_inputs(plan.inputs, 0)
    executable = EmulatedExecutable(plan, kernels)
    got = executable(*arguments)
    kernels.run_backwards(True)
    backwards = executable(*arguments)
    kernels.run_backwards(False)
    assert same_bits(got, backwards), f"a barrier is missing in\n{text}"
    want = HostExecutable(plan)(*arguments)
    for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
        found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
        assert found.ok, f"{found} in\n{text}"


def drawn(form: str, rnd: Random) -> str:
    """Return a program of `form`, of any rank, reduced dimensions and layout."""
    rank = rnd.randint(1, 4)
    dims = [rnd.choice(SIZES) for _ in range(rank)]
    reduced = sorted(rnd.sample(range(rank), rnd.randint(1, rank)))
    while sum(n > 1 for n in dims) > 2 and _product(dims) > 20000:
        dims[rnd.randrange(rank)] = rnd.choice((1, 2, 3))
    if rnd.random() < 0.3:
        dims[rnd.choice(reduced)] = rnd.choice(LONG)
        dims = [n if n in LONG else min(n, 3) for n in dims]
    order = rnd.sample(range(rank), rank)
    layout = f"{{{','.join(map(str, order))}}}" if rnd.random() < 0.4 else ""
    dtype = rnd.choice(("f32", "f32", "bf16", "f16", "f64"))
    return fold_program(form, dtype, dims, reduced, layout)


def _product(dims) -> int:
    found = 1
    for n in dims:
        found *= n
    return found


@pytest.mark.parametrize("form", FORMS)
def test_random_shapes_agree_with_the_host(form):
    rnd = Random(form)
    texts = [drawn(form, rnd) for _ in range(10)]
    plans = [hlo2graph.plan(text, target="sm_90", fuse="none") for text in texts]
    kernels = Kernels(plans)
    for text, plan in zip(texts, plans, strict=True):
        agrees(text, plan, kernels)
