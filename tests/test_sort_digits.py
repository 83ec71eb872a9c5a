"""Sorts of many elements by one digit of their keys after the other."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import module, refused
from needs import needs_gxx
from rewriting import opcodes
from sort_programs import comparator, pairs

import hlo2graph
from hlo2graph.backends.cuda.forms.sorts import digits
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.sort_key import sort_keys
from hlo2graph.passes.large import sort_steps
from hlo2graph.passes.large.split_sorts import split_sorts
from tests.emulation import Kernels
from tests.emulation.agreement import both_ways

TOTAL = ", type=TOTALORDER"


TWO_KEYS = """before {
  a = s8[] parameter(0) b = s8[] parameter(1) x = f32[] parameter(2) y = f32[] parameter(3)
  first = pred[] compare(a, b), direction=LT same = pred[] compare(a, b), direction=EQ
  next = pred[] compare(x, y), direction=GT, type=TOTALORDER also = pred[] and(same, next)
  ROOT r = pred[] or(first, also) }"""


def alone(dims: str, dtype: str, direction: str = "LT") -> str:
    return module(
        f"x = {dtype}[{dims}] parameter(0) ROOT r = {dtype}[{dims}] sort(x), dimensions={{0}}, "
        "to_apply=less",
        f"less {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) "
        f"ROOT r = pred[] compare(a, b), direction={direction} }}",
    )


SORTS = {
    "u8": alone("9001", "u8"),
    "s16-falling": alone("5000", "s16", "GT"),
    "rows": pairs("3,5000", 1, "f16", comparator("f16", "GT", TOTAL)),
    "by-value": pairs("9000", 0, "bf16", comparator("bf16", "LT")),
    "wide": pairs("4099", 0, "s64", comparator("s64", "LT")),
    "two-keys": module(
        "a = s8[6000] parameter(0) x = f32[6000] parameter(1) "
        "ROOT r = (s8[6000], f32[6000]) sort(a, x), dimensions={0}, to_apply=before",
        TWO_KEYS,
    ),
}


@cache
def emulated():
    """Return plans that sort by digits, of chunks of one tile, and of as many as there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort_steps, "_DIGIT_NS", 1)
        plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in SORTS.items()}
        patch.setattr(sort_steps, "MULTIPROCESSORS", 1)
        for name in ("u8", "two-keys"):
            plans[f"{name}-alone"] = hlo2graph.plan(SORTS[name], target="sm_90")
        patch.setattr(sort_steps, "MANY", 1)
        patch.setattr(digits, "MANY", 1)
        plans["rows-many"] = hlo2graph.plan(SORTS["rows"], target="sm_90")
        kernels = Kernels(list(plans.values()))
    return plans, kernels


def given_to(plan) -> list[np.ndarray]:
    """Return random arguments with many equals; floats have zeros of both signs, the extremes."""
    arrays = random_inputs(plan.inputs, 0)
    for array in arrays:
        flat = array.reshape(-1)
        flat[::7], flat[1::13] = 0, 1
        if array.dtype.kind == "f":
            flat[3::14], flat[5::500], flat[6::500] = -0.0, np.inf, -np.inf
    return arrays


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", [*SORTS, "u8-alone", "two-keys-alone", "rows-many"])
def test_digits_sort_as_the_host_does(name):
    plans, kernels = emulated()
    plan, arguments = plans[name], given_to(plans[name])
    got = both_ways(plan, kernels, arguments)
    text = SORTS[name.removesuffix("-alone").removesuffix("-many")]
    want = HostExecutable(hlo2graph.plan(text, target="host"))(*arguments)
    assert same_bits(got, want)
    assert same_bits(HostExecutable(plan)(*arguments), want)


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        (pairs(f"{1 << 20}", 0, "f32", comparator("f32", "LT")), 4),
        (pairs(f"{1 << 20}", 0, "s64", comparator("s64", "GT")), 8),
        (alone(f"{1 << 18}", "u8"), 1),
        (SORTS["two-keys"].replace("6000", f"{1 << 18}"), 5),
        (pairs("3,2000", 1, "f32", comparator("f32", "LT")), 0),
        (pairs("262144,2", 0, "f32", comparator("f32", "LT")), 0),
        (alone(f"{1 << 20}", "f8e5m2"), 0),
        (alone(f"{1 << 31}", "u8"), 0),
    ],
)
def test_long_sorts_by_keys_become_a_count_and_a_step_for_each_digit(text, digits):
    made = split_sorts(hlo2graph.parse(text))
    calls = [i for i in made.entry.instructions if i.opcode == "custom-call"]
    targets = [str(i.attrs["custom_call_target"]).partition("$")[2] for i in calls]
    assert targets.count("count_digits") == targets.count("sort_digits") == digits
    if digits:
        assert set(opcodes(made.entry)) - {"iota", "get-tuple-element"} == {"custom-call"}


def test_keys_are_found_one_behind_the_other():
    def found(region: str):
        return sort_keys(hlo2graph.parse(pairs("9", 0, "s8", region)).computations, "before")

    both = TWO_KEYS.replace("f32", "s32").replace(TOTAL, "")
    assert [(str(k.dtype), k.rises) for k in found(both)] == [("s8", True), ("s32", False)]
    assert len(found(both.replace("and(same, next)", "and(next, same)"))) == 2
    assert len(found(both.replace("or(first, also)", "or(also, first)"))) == 2
    assert found(both.replace("direction=EQ", "direction=NE")) == ()
    assert found(both.replace("compare(a, b), direction=EQ", "compare(x, y), direction=EQ")) == ()
    assert found(both.replace("and(same", "or(same")) == ()
    assert len(found(comparator("s8", "LT"))) == 1
    assert found(comparator("s8", "LE")) == ()


DIGIT = """digit { a = u16[] parameter(0) n = u16[] parameter(1) m = u16[] parameter(2)
  b = u16[] shift-right-logical(a, n) c = u16[] and(b, m) ROOT r = u8[] convert(c) }"""


def call(target: str, operands: str, config: str, shape: str = "u16[10]") -> str:
    return module(
        "x = u16[10] parameter(0) c = s32[1,3,256] parameter(1) n = u16[2] constant({0, 255}) "
        f'ROOT r = {shape} custom-call({operands}), custom_call_target="hlo2graph${target}", '
        f"backend_config={config}, to_apply=digit",
        DIGIT,
    )


CHUNKS = '{"sort_digits": {"dimension": 0, "chunk": 4, "first": 0}}'


def test_steps_count_and_move():
    x = np.array([5, 3, 3, 0x105, 9, 0x203, 1, 1, 0, 300], np.uint16)
    text = call("count_digits", "x, n", CHUNKS, "s32[1,3,256]")
    (counts,) = HostExecutable(hlo2graph.plan(text, target="host"))(x, np.zeros((1, 3, 256), "i4"))
    assert [counts[0, k].sum() for k in range(3)] == [4, 4, 2]
    assert (counts[0, 0, 5], counts[0, 0, 3], counts[0, 1, 1]) == (2, 2, 2)
    text = call("sort_digits", "x, n, c", CHUNKS)
    (got,) = HostExecutable(hlo2graph.plan(text, target="host"))(x, counts)
    assert got.tolist() == [0, 1, 1, 3, 3, 0x203, 5, 0x105, 9, 300]


def test_steps_are_checked():
    refused(call("sort_digits", "n, c", CHUNKS), "takes arrays, the bits of a digit")
    refused(call("count_digits", "x, x", CHUNKS), "two numbers as the bits of a digit")
    refused(call("sort_digits", "x, n, c", CHUNKS.replace("4,", "5,")), "takes counts of")
    refused(call("count_digits", "x, c, n", CHUNKS), "arrays of the same sizes")
    text = call("count_digits", "x, n", CHUNKS, "s32[1,3,256]")
    refused(text.replace("u8[] convert", "u16[] negate"), "must return u8")
    refused(text.replace(", to_apply=digit", ""), "needs the attribute to_apply")


@pytest.mark.parametrize("config", ["{}", CHUNKS.replace("4", "0"), CHUNKS.replace('"chunk"', "7")])
def test_steps_that_say_nothing_sensible_are_refused_by_name(config):
    with pytest.raises(UnsupportedError, match="backend_config"):
        hlo2graph.compile(call("sort_digits", "x, n, c", config), backend="host")
