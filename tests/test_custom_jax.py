"""Calls of JAX's own kernels and of libraries with a plain meaning, and what is refused by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, arguments_of, misfits, module, run_host
from lapack_programs import lowered
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError, VerifyError
from hlo2graph.ops.custom_call import TARGETS
from hlo2graph.ops.custom_jax import JAX, REFUSALS
from tests.emulation import EmulatedExecutable, Kernels


def bits(key: jax.Array) -> jax.Array:
    return jax.random.bits(jax.random.wrap_key_data(key), (7, 2))


@pytest.fixture
def threefry_text():
    """A program that calls ThreeFry's kernel, which JAX does when it is told to."""
    jax.config.update("jax_threefry_gpu_kernel_lowering", True)
    text = lowered(bits, (jax.ShapeDtypeStruct((2,), jnp.uint32),), "cuda")
    jax.config.update("jax_threefry_gpu_kernel_lowering", False)
    assert "cu_threefry2x32_ffi" in text
    return text


KEY = np.array([3, 2**31 + 5], np.uint32)


def test_threefry_gives_jaxs_bits(threefry_text):
    [got] = hlo2graph.compile(threefry_text, backend="host")(KEY)
    np.testing.assert_array_equal(got, jax.jit(bits)(KEY))


@pytest.mark.slow
@needs_gxx
def test_threefry_gives_jaxs_bits_on_the_device(threefry_text):
    plan = hlo2graph.plan(threefry_text, target="sm_90")
    [got] = EmulatedExecutable(plan, Kernels([plan]))(KEY)
    np.testing.assert_array_equal(got, jax.jit(bits)(KEY))


def pivots(dims: str, result: str) -> str:
    return module(
        f"p = s32[{dims}] parameter(0) ROOT r = {result} custom-call(p), "
        'custom_call_target="cu_lu_pivots_to_permutation"'
    )


def test_pivots_become_an_order():
    given = np.array([[2, 1, 2], [1, 3, 4]], np.int32)
    [got] = run_host(pivots("2,3", "s32[2,5]"), [given])
    np.testing.assert_array_equal(got, [[2, 1, 0, 3, 4], [1, 3, 4, 0, 2]])


@pytest.mark.slow
@needs_gxx
def test_pivots_become_an_order_on_the_device():
    given = np.array([[2, 1, 2], [1, 3, 4]], np.int32)
    plan = hlo2graph.plan(pivots("2,3", "s32[2,5]"), target="sm_90")
    [got] = EmulatedExecutable(plan, Kernels([plan]))(given)
    np.testing.assert_array_equal(got, HostExecutable(plan)(given)[0])


def test_pivots_that_do_not_fit_are_refused():
    misfits(pivots("2,3", "s32[2,2]"), "s32 pivots")
    misfits(pivots("2,3", "s32[5]"), "s32 pivots")


SOLVE = """a = f32[2,4,4] parameter(0) b = f32[2,3,4] parameter(1)
  call = (f32[2,3,4], s8[64]) custom-call(a, b), custom_call_target="__cublas$triangularSolve",
  backend_config={"lower":true,"unit_diagonal":true,"transpose_a":"TRANSPOSE"}
  ROOT r = f32[2,3,4] get-tuple-element(call), index=0"""
PLAIN = """a = f32[2,4,4] parameter(0) b = f32[2,3,4] parameter(1)
  ROOT r = f32[2,3,4] triangular-solve(a, b), lower=true, unit_diagonal=true,
  left_side=false, transpose_a=TRANSPOSE"""


def test_a_triangle_solved_by_cublas_is_hlos_own():
    arguments = arguments_of(module(PLAIN))
    [want] = run_host(module(PLAIN), arguments)
    np.testing.assert_array_equal(run_host(module(SOLVE), arguments)[0], want)
    plan = hlo2graph.plan(module(SOLVE), target="sm_90")
    check_support(plan)
    np.testing.assert_array_equal(HostExecutable(plan)(*arguments)[0], want)
    wrong = SOLVE.replace("(f32[2,3,4], s8", "(f32[2,3,5], s8").replace(
        "r = f32[2,3,4]", "r = f32[2,3,5]"
    )
    misfits(module(wrong), "result 0")
    without = module(SOLVE).replace('"transpose_a":"TRANSPOSE"', '"x":1')
    with pytest.raises(UnsupportedError, match="needs transpose_a"):
        hlo2graph.compile(without, backend="host")


def test_a_bound_says_nothing_about_values():
    agree(
        module(
            "x = f32[2,3] parameter(0) ROOT r = f32[2,3] custom-call(x), "
            'custom_call_target="SetBound", literal=s32[] 1'
        ),
        tolerance=0,
    )


def test_the_largest_by_the_gpus_kernel_are_those_of_topk():
    call = "ROOT r = (f32[3,4], s32[3,4]) custom-call(x), custom_call_target="
    texts = [module(f'x = f32[3,50] parameter(0) {call}"{t}"') for t in ("TopK", "__gpu$TopK")]
    arguments = arguments_of(texts[0])
    for ours, theirs in zip(*(run_host(text, arguments) for text in texts), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_has_no_meaning_here_is_refused_by_name(reason):
    named = [name for name in JAX if why_not(name) == reason]
    assert named
    for name in named:
        text = module(
            f'x = f32[4] parameter(0) ROOT r = f32[4] custom-call(x), custom_call_target="{name}"'
        )
        with pytest.raises(UnsupportedError) as caught:
            hlo2graph.compile(text, backend="host")
        assert f'"{name}": {reason}' in str(caught.value)
        with pytest.raises(UnsupportedError, match="cuda cannot run"):
            check_support(hlo2graph.plan(text, target="sm_90"))


def why_not(name: str) -> str | None:
    call = hlo2graph.parse(
        module(f'ROOT r = f32[4] custom-call(), custom_call_target="{name}"'), verify=False
    )
    return TARGETS[name].why_not(call.entry.result)


def test_callbacks_of_jax_are_refused_by_name():
    def call(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((4,), np.float32), x)

    text = lowered(call, (np.zeros(4, np.float32),), "cpu")
    with pytest.raises(UnsupportedError, match="calls back into the Python process"):
        hlo2graph.compile(text, backend="host")


SCALED = module(
    "a = f8e4m3fn[2,4,64] parameter(0) b = f8e4m3fn[2,3,64] parameter(1) "
    "s = f8e8m0fnu[2,4,2] parameter(2) t = f8e8m0fnu[2,3,2] parameter(3) "
    'ROOT r = f32[2,4,3] custom-call(a, b, s, t), custom_call_target="__op$block_scaled_dot"'
)


@needs_gxx
def test_products_of_scaled_blocks_are_hlos_own():
    plan, given = hlo2graph.plan(SCALED, target="sm_90"), arguments_of(SCALED)
    lhs, rhs = (given[k].astype("f") * given[k + 2].astype("f").repeat(32, axis=2) for k in (0, 1))
    wanted = np.einsum("bmk,bnk->bmn", lhs, rhs)
    for run in (HostExecutable(plan), EmulatedExecutable(plan, Kernels([plan]))):
        np.testing.assert_allclose(run(*given)[0], wanted, rtol=1e-4, atol=1e-2)


def test_scaled_blocks_that_do_not_fit_are_refused():
    with pytest.raises(VerifyError, match="does not divide"):
        hlo2graph.compile(SCALED.replace("f8e8m0fnu[2,4,2]", "f8e8m0fnu[2,4,3]"), backend="host")
