"""The GPU library's sort, against HLO's."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import draw, misfits, module, run_host
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError
from hlo2graph.frontend import parse, verify
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.ops.spec import Array
from hlo2graph.passes.expand_sorts import expand_sorts
from tests.emulation import EmulatedExecutable, Kernels

TARGET = 'custom_call_target="__cub$DeviceRadixSort"'


def pairs(keys: str, values: str, config: str = '{"descending":true}') -> str:
    result = f"({keys}, {values}, u8[128])"
    return module(
        f"k = {keys} parameter(0) v = {values} parameter(1) "
        f"s = {result} custom-call(k, v), {TARGET}, backend_config={config} "
        f"a = {keys} get-tuple-element(s), index=0 b = {values} get-tuple-element(s), index=1 "
        f"ROOT r = ({keys}, {values}) tuple(a, b)"
    )


def drawn(dtype: str, *dims: int) -> Array:
    return draw(Shape(DTYPES[dtype], dims), np.random.default_rng(5))


@pytest.mark.parametrize("config", ['{"descending":true}', '{"descending":false}', "{}"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "s8", "u16", "s64"])
def test_sorts_are_stable(dtype, config):
    text = pairs(f"{dtype}[3,40]", "s32[3,40]", config)
    keys, places = drawn(dtype, 3, 40), np.tile(np.arange(40, dtype=np.int32), (3, 1))
    if dtype == "f32":
        keys = np.round(keys)  # for equals, and zeros of both signs
    wide = keys.astype(np.float64)
    order = np.argsort(-wide if "true" in config else wide, axis=-1, kind="stable")
    want = [np.take_along_axis(keys, order, -1), order]
    evaluated = run_host(text, [keys, places])
    compiled = hlo2graph.compile(text, backend="host")(keys, places)
    for found in (evaluated, compiled):
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_nans_go_where_their_bits_put_them():
    text = module(
        f"k = f32[5] parameter(0) s = (f32[5], u8[1]) custom-call(k), {TARGET} "
        "ROOT r = f32[5] get-tuple-element(s), index=0"
    )
    given = np.array([np.nan, 1, -np.nan, -np.inf, np.inf], np.float32)
    for found in (run_host(text, [given]), hlo2graph.compile(text, backend="host")(given)):
        np.testing.assert_array_equal(np.signbit(found[0]), [True, True, False, False, False])
        np.testing.assert_array_equal(found[0][1:4], [-np.inf, 1, np.inf])


def test_sorts_become_hlos_own_that_are_legal():
    expanded = expand_sorts(verify(parse(pairs("f32[3,40]", "bf16[3,40]"))))
    opcodes = [i.opcode for i in verify(expanded).entry.instructions]
    assert "sort" in opcodes
    assert "custom-call" not in opcodes
    assert parse(str(expanded)) == expanded


@pytest.mark.slow
@needs_gxx
def test_sorts_on_the_device():
    text = pairs("f32[3,40]", "s32[3,40]")
    plan = hlo2graph.plan(text, target="sm_90")
    check_support(plan)
    given = [np.round(drawn("f32", 3, 40)), drawn("s32", 3, 40)]
    found = EmulatedExecutable(plan, Kernels([plan]))(*given)
    for got, want in zip(found, run_host(text, given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_sorts_that_do_not_fit_are_refused():
    misfits(pairs("f32[3,40]", "s32[3,41]"), "of the same sizes")
    misfits(pairs("c64[3,40]", "s32[3,40]"), "real numbers")
    text = pairs("f32[9]", "s32[9]", '{"descending":7}')
    with pytest.raises(UnsupportedError, match="whether it is descending"):
        hlo2graph.compile(text, backend="host")
