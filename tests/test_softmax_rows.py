"""Softmax of long rows, whose largest values and sums are found in one look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.program.device_figures import FIGURES
from tests.emulation import EmulatedExecutable
from tests.emulation.plans import planned
from tests.fold_programs import fold_program

SUMMED_WIDE = """HloModule m
most { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = bf16[7,40001] parameter(0) low = bf16[] constant(-inf) zero = f32[] constant(0)
  top = bf16[7] reduce(x, low), dimensions={1}, to_apply=most
  tops = bf16[7,40001] broadcast(top), dimensions={0}
  less = bf16[7,40001] subtract(x, tops)
  grown = bf16[7,40001] exponential(less)
  wide = f32[7,40001] convert(grown)
  sum = f32[7] reduce(wide, zero), dimensions={1}, to_apply=add
  sums = f32[7,40001] broadcast(sum), dimensions={0}
  part = f32[7,40001] divide(wide, sums)
  ROOT r = bf16[7,40001] convert(part) }
"""
LOGITS = """HloModule m
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { y = bf16[7,40001] parameter(0) low = f32[] constant(-inf) zero = f32[] constant(0)
  x = f32[7,40001] convert(y)
  top = f32[7] reduce(x, low), dimensions={1}, to_apply=most
  tops = f32[7,40001] broadcast(top), dimensions={0}
  less = f32[7,40001] subtract(x, tops)
  grown = f32[7,40001] exponential(less)
  sum = f32[7] reduce(grown, zero), dimensions={1}, to_apply=add
  sums = f32[7,40001] broadcast(sum), dimensions={0}
  ROOT r = f32[7,40001] divide(grown, sums) }
"""
TURNED = """HloModule m
most { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = bf16[2,2,20000] parameter(0) low = bf16[] constant(-inf) zero = f32[] constant(0)
  top = bf16[2,2] reduce(x, low), dimensions={2}, to_apply=most
  tops = bf16[2,2,20000] broadcast(top), dimensions={0,1}
  turned = bf16[2,2,20000] transpose(x), dimensions={1,0,2}
  less = bf16[2,2,20000] subtract(turned, tops)
  grown = bf16[2,2,20000] exponential(less)
  wide = f32[2,2,20000] convert(grown)
  ROOT r = f32[2,2] reduce(wide, zero), dimensions={2}, to_apply=add }
"""
PROGRAMS = {
    "softmax bf16": fold_program("softmax", "bf16", (7, 40001), (1,)),
    "log softmax f16": fold_program("log_softmax", "f16", (7, 40000), (1,)),
    "softmax f32": fold_program("softmax", "f32", (7, 33001), (1,)),
    "log softmax f32": fold_program("log_softmax", "f32", (7, 33000), (1,)),
    "summed wide": SUMMED_WIDE,
    "logits": LOGITS,
}
BLOCK = replace(FIGURES["sm_90"], cluster=1)


def drawn(dims: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return rows of all sorts of values."""
    values = np.random.default_rng(0).standard_normal(dims) * 3
    values[1] = np.sort(values[1])  # each larger than all before
    values[2, :-1] = -np.inf
    values[3] = -np.inf
    values[4, 77] = np.nan
    values[5, 20000] = np.inf
    values[6, ::3] = -np.inf
    return values.astype(dtype)


@needs_gxx
@pytest.mark.parametrize("figures", [FIGURES["sm_90"], BLOCK], ids=["clusters", "blocks"])
def test_one_look_gives_what_two_do(figures):
    with planned(PROGRAMS, figures) as (plans, kernels):
        for name, plan in plans.items():
            given = drawn(plan.inputs[0].shape.dims, plan.inputs[0].shape.dtype.numpy)
            with np.errstate(invalid="ignore"):
                want = HostExecutable(plan)(given)
            got = EmulatedExecutable(plan, kernels)(given)
            for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
                found = compare(ours, theirs, tolerance_for(bound.shape.dtype), name)
                assert found.ok, str(found)


@needs_gxx
def test_other_rows_beside_the_largest_are_looked_at_for_themselves():
    with planned({"turned": TURNED}, FIGURES["sm_90"]) as (plans, kernels):
        (given,) = random_inputs(plans["turned"].inputs, 0)
        given = given * given.dtype.type(3)
        (got,) = EmulatedExecutable(plans["turned"], kernels)(given)
        (want,) = HostExecutable(plans["turned"])(given)
        np.testing.assert_allclose(got, want, rtol=1e-2)


def barriers(text: str) -> int:
    return text.count("meeting_ends") + text.count("__syncthreads")


@pytest.mark.parametrize(
    ("name", "figures", "times"),
    [
        *((name, FIGURES["sm_90"], 1) for name in ("softmax bf16", "log softmax f16")),
        ("summed wide", FIGURES["sm_90"], 1),
        ("softmax bf16", BLOCK, 1),
        ("logits", BLOCK, 2),
        ("logits", FIGURES["sm_90"], 2),  # their exponentials are dear
        ("softmax f32", FIGURES["sm_90"], 2),
    ],
)
def test_threads_meet_once_where_that_pays(name, figures, times):
    with planned({name: PROGRAMS[name]}, figures, ()) as (plans, _):
        (source,) = kernels_of(plans[name]).values()
        assert barriers(source.text) == times


def test_other_folds_are_as_many_looks():
    texts = {"norm": fold_program("layer_norm", "f32", (7, 40000), (1,))}
    with planned(texts, FIGURES["sm_90"], ()) as (plans, _):
        (source,) = kernels_of(plans["norm"]).values()
        assert barriers(source.text) == 2
