"""Products of float8 numbers with scales, written out in HLO's own operations."""

from __future__ import annotations

import json

import numpy as np
import pytest
from agreement import arguments_of, misfits, module, run_host
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from tests.emulation import EmulatedExecutable, Kernels

GIVEN = """a = f8e4m3fn[4,16] parameter(0) b = f8e4m3fn[16,3] parameter(1)
  c = bf16[4,3] parameter(2) s = f32[] parameter(3) t = f32[] parameter(4)
  bias = bf16[3] parameter(5) d = f32[] parameter(6)
  """
PLAIN = """wa = f32[4,16] convert(a) wb = f32[16,3] convert(b)
  product = f32[4,3] dot(wa, wb), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  st = f32[] multiply(s, t) sts = f32[4,3] broadcast(st), dimensions={}
  scaled = f32[4,3] multiply(product, sts)
  """
BIASED = """wide = f32[3] convert(bias) biases = f32[4,3] broadcast(wide), dimensions={1}
  sum = f32[4,3] add(scaled, biases) zero = f32[] constant(0)
  zeros = f32[4,3] broadcast(zero), dimensions={} active = f32[4,3] maximum(sum, zeros)
  """
ADDED = """wc = f32[4,3] convert(c) two = f32[] constant(2)
  twos = f32[4,3] broadcast(two), dimensions={} c2 = f32[4,3] multiply(wc, twos)
  active = f32[4,3] add(scaled, c2)
  """
SATURATED = """ds = f32[4,3] broadcast(d), dimensions={} grown = f32[4,3] multiply(active, ds)
  low = f32[] constant(-448) high = f32[] constant(448)
  held = f32[4,3] clamp(low, grown, high) ROOT r = f8e4m3fn[4,3] convert(held)"""
ROUNDED = "ROOT r = bf16[4,3] convert(active)"


def call(operands: str, result: str, **config: object) -> str:
    """Return a module of the call and nothing else."""
    dims = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    held = {"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dims, **config}
    text = json.dumps({"gemm_backend_config": held})
    return module(
        f"{GIVEN} call = ({result}, s8[16]) custom-call({operands}), "
        f'custom_call_target="__cublas$lt$matmul$f8", backend_config={text} '
        f"ROOT r = {result.partition(', ')[0]} get-tuple-element(call), index=0"
    )


CALLS = {
    "bias": (
        call("a, b, s, t, bias", "bf16[4,3]", epilogue="BIAS_RELU"),
        PLAIN + BIASED + ROUNDED,
    ),
    "bias-and-scale": (
        call("a, b, s, t, bias, d", "f8e4m3fn[4,3]", epilogue="BIAS_RELU"),
        PLAIN + BIASED + SATURATED,
    ),
    "scale-and-bias": (
        call("a, b, s, t, d, bias", "f8e4m3fn[4,3]", epilogue="BIAS_RELU"),
        PLAIN + BIASED + SATURATED,
    ),
    "added": (call("a, b, c, s, t", "bf16[4,3]", beta=2), PLAIN + ADDED + ROUNDED),
}


@pytest.mark.parametrize("name", CALLS)
def test_products_are_what_hlo_says(name):
    ours, plain = CALLS[name]
    plain = module(GIVEN + plain)
    arguments = arguments_of(plain)
    arguments[6] = np.float32(300)  # for some to saturate
    [got], [want] = run_host(ours, arguments), run_host(plain, arguments)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.slow
@needs_gxx
def test_products_on_the_device():
    plans = {n: hlo2graph.plan(text, target="sm_90") for n, (text, _) in CALLS.items()}
    kernels = Kernels(list(plans.values()))
    for plan in plans.values():
        check_support(plan)
        arguments = arguments_of(CALLS["bias"][0])
        arguments[6] = np.float32(300)
        [got] = EmulatedExecutable(plan, kernels)(*arguments)
        [want] = HostExecutable(plan)(*arguments)
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=0.13)


LARGEST = call("a, b, s, t, d", "f8e4m3fn[4,3], f32[]").replace("index=0", "index=1")
LARGEST = LARGEST.replace("ROOT r = f8e4m3fn[4,3]", "ROOT r = f32[]")


def test_the_largest_size_comes_before_the_scale():
    arguments = arguments_of(LARGEST)
    [got] = run_host(LARGEST, arguments)
    a, b, s, t = (np.asarray(arguments[k], np.float32) for k in (0, 1, 3, 4))
    np.testing.assert_allclose(got, np.abs(a @ b * s * t).max(), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="on the host only"):
        check_support(hlo2graph.plan(LARGEST, target="sm_90"))


def test_calls_that_do_not_fit_are_refused():
    misfits(call("a, b, c, s, t", "bf16[4,3]"), "takes two to four scales")
    misfits(call("a, b, s, t", "bf16[4,4]"), "result 0")
    with pytest.raises(UnsupportedError, match="it takes 2 operands"):
        hlo2graph.compile(call("a, b, s", "bf16[4,3]"), backend="host")
