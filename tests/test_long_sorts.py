"""Sorts and top-k of rows longer than a block's window, which many blocks do in steps."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from agreement import module, refused, scalar_region
from needs import needs_gxx
from rewriting import opcodes, rewritten
from sort_programs import comparator, pairs

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.sort_key import sort_key
from hlo2graph.passes.large.sort_steps import LongSort
from hlo2graph.passes.large.split_sorts import split_sorts
from hlo2graph.passes.large.split_tops import split_tops
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import both_ways

BY_BOTH = """before {
  a = s8[] parameter(0) b = s8[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3)
  less = pred[] compare(a, b), direction=LT same = pred[] compare(a, b), direction=EQ
  later = pred[] compare(i, j), direction=GT also = pred[] and(same, later)
  ROOT r = pred[] or(less, also) }"""


def top(dims: str, kept: str, k: int, dtype: str, largest: str = "true") -> str:
    return module(
        f"x = {dtype}[{dims}] parameter(0) "
        f"ROOT r = ({dtype}[{kept}], s32[{kept}]) topk(x), k={k}, largest={largest}"
    )


def steps(count: int, dtype: str, *lengths: int, region: str = "") -> str:
    """Return a sort in steps, from each length to the next."""
    both, lines = f"({dtype}[{count}], s32[{count}])", []
    names = "x, i"
    for number, (before, after) in enumerate(pairwise(lengths)):
        config = f'{{"sort_runs": {{"dimension": 0, "length": {after}, "sorted": {before}}}}}'
        lines += [
            f"step{number} = {both} custom-call({names}), to_apply=before, "
            f'custom_call_target="hlo2graph$sort_runs", backend_config={config}',
            f"x{number} = {dtype}[{count}] get-tuple-element(step{number}), index=0",
            f"i{number} = s32[{count}] get-tuple-element(step{number}), index=1",
        ]
        names = f"x{number}, i{number}"
    first = f"x = {dtype}[{count}] parameter(0) i = s32[{count}] iota(), iota_dimension=0 "
    return module(f"{first} {' '.join(lines)} ROOT r = {both} tuple({names})", region or BY_BOTH)


TOTAL = ", type=TOTALORDER"
SORTS = {
    "alone": module(
        "x = u16[9000] parameter(0) ROOT r = u16[9000] sort(x), dimensions={0}, to_apply=less",
        "less { a = u16[] parameter(0) b = u16[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=LT }",
    ),
    "rows": pairs("3,5000", 1, "f32", comparator("f32", "GT", TOTAL)),
    "columns": pairs("4098,2", 0, "s8", comparator("s8", "LT")),
    "by-value": pairs("9000", 0, "f16", comparator("f16", "LT")),
    "by-both": pairs("2,4099", 1, "s8", BY_BOTH),
}
SHORT = {f"short-{n}": pairs(f"3,{n}", 1, "s8", BY_BOTH) for n in (1, 2, 33, 700)}
TOPS = {
    "few": top("20001", "5", 5, "f32"),
    "rows": top("3,9000", "3,40", 40, "f32"),
    "least": top("2,2,8200", "2,2,1", 1, "s8", "false"),
    "many": top("9000", "3000", 3000, "f16"),
    "most-kept": top("10000", "1024", 1024, "u8"),
}
KEPT_WHOLE = {  # looked through by a block
    "bounded": top("2,4096", "2,32", 32, "f32"),
    "bounded-short": top("3,70", "3,20", 20, "s8", "false"),
    "bounded-wide": top("2,8192", "2,40", 40, "f32"),
    "bit-by-bit": top("2,4096", "2,300", 300, "f32"),
    "few": top("2,3000", "2,3", 3, "f16"),
}
PROGRAMS = {f"sort-{k}": v for k, v in SORTS.items()} | {f"top-{k}": v for k, v in TOPS.items()}
PROGRAMS |= (
    SHORT
    | {f"whole-{k}": v for k, v in KEPT_WHOLE.items()}
    | {
        "merged": steps(5000, "s8", 1, 2048, 4096, 8192),
        "whole": steps(4096, "s8", 1, 64, 2048, 4096),
        "ranked": steps(3100, "s8", 1, 64, 1024, 4096),
        "ranked-twice": steps(3100, "s8", 1, 64, 256, 4096),
        "joined": steps(9000, "s32", 1, 2048, 16384, region=comparator("s32", "LT")),
        "joined-short": steps(3100, "s32", 1, 32, 1024, 4096, region=comparator("s32", "GT")),
        "windows": pairs("9,2048", 1, "f16", comparator("f16", "LT")),
        "counted": pairs("2,1,65,3", 2, "s8", comparator("s8", "LT")),
        "short-rows": pairs("1100,13", 1, "f16", comparator("f16", "LT")),
        "short-columns": pairs("2,40,301", 1, "s16", comparator("s16", "GT")),
        "falling": pairs("3,700", 1, "f16", comparator("f16", "GT", TOTAL)),
        "turned": pairs("1500,2", 0, "u8", comparator("u8", "LT").replace("(a, b)", "(b, a)")),
    }
)


@cache
def emulated():
    plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return plans, Kernels(list(plans.values()))


def given_to(plan) -> list[np.ndarray]:
    """Return random arguments with many equals; floats have zeros of both signs, the extremes."""
    (array,) = random_inputs(plan.inputs, 0)
    flat = array.reshape(-1)
    flat[::7], flat[1::13] = 0, 1
    if array.dtype.kind == "f":
        flat[3::14], flat[5::500], flat[6::500] = -0.0, np.inf, -np.inf
    return [array]


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows_are_as_the_host_has_them(name):
    plans, kernels = emulated()
    plan = plans[name]
    assert len(plan.body.thunks) > (1 if name.startswith(("sort", "top")) else 0)
    arguments = given_to(plan)
    got = both_ways(plan, kernels, arguments)
    want = HostExecutable(hlo2graph.plan(PROGRAMS[name], target="host"))(*arguments)
    assert same_bits(got, want)
    assert same_bits(HostExecutable(plan)(*arguments), want)


@pytest.mark.slow
@needs_gxx
def test_no_element_is_lost_where_the_comparator_has_no_place_for_it():
    plans, kernels = emulated()
    plan = plans["sort-by-value"]
    (array,) = given_to(plan)
    array[::11], array[4::31] = np.nan, -np.nan
    values, places = EmulatedExecutable(plan, kernels)(array)
    assert sorted(places.tolist()) == list(range(array.size))
    assert same_bits([values], [array[places]])
    ordered = values[~np.isnan(values)]
    assert (ordered[:-1] <= ordered[1:]).all()


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("kind", ["crowded", "equal", "nan", "falling"])
def test_the_best_of_rows_are_found_wherever_they_stand(kind):
    plans, kernels = emulated()
    plan = plans["whole-bounded-wide"]
    places = np.arange(2 * 8192).reshape(2, 8192)
    array = {
        "crowded": np.where(places % 512 < 160, 1000 + places % 97, places % 89),
        "equal": places * 0,
        "nan": np.where(places % 3 == 0, np.nan, -places),
        "falling": -places,
    }[kind].astype(np.float32)
    got = EmulatedExecutable(plan, kernels)(array)
    want = HostExecutable(hlo2graph.plan(KEPT_WHOLE["bounded-wide"], target="host"))(array)
    assert same_bits(got, want)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("kind", ["few", "rising", "falling"])
def test_runs_are_joined_wherever_elements_belong(kind):
    plans, kernels = emulated()
    plan = plans["joined"]
    (array,) = given_to(plan)
    array = {"few": array % 3, "rising": np.sort(array), "falling": np.sort(array)[::-1]}[kind]
    values, places = EmulatedExecutable(plan, kernels)(np.ascontiguousarray(array))
    order = np.argsort(array, kind="stable")
    assert same_bits([values, places], [array[order], order.astype(np.int32)])


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize(
    ("limits", "steps"),
    [({"PARTS": 1}, 1), ({"LONG": 500, "FEWEST": 128}, 4)],
    ids=["one-block", "several-steps"],
)
def test_the_best_of_a_long_row_are_found(monkeypatch, limits, steps):
    for name, value in limits.items():
        monkeypatch.setitem(split_tops.__globals__, name, value)
    text = top("2,20001", "2,40", 40, "f32")
    plan = hlo2graph.plan(text, target="sm_90")
    (array,) = given_to(plan)
    assert len(plan.body.thunks) == steps
    want = HostExecutable(hlo2graph.plan(text, target="host"))(array)
    assert same_bits(EmulatedExecutable(plan)(array), want)


@pytest.mark.parametrize("name", SORTS)
def test_sorts_become_steps(name):
    parsed = hlo2graph.parse(SORTS[name])
    made = rewritten(parsed, split_sorts)
    assert set(opcodes(made.entry)) - {"iota"} == {"custom-call"}


@pytest.mark.parametrize("window", [4096, 2048, 64])
@pytest.mark.parametrize("whole", [2, 64, 65, 2049, 5000, 32768, 65537, 1 << 20, 3 << 20])
def test_steps_lead_from_elements_to_a_row(whole, window):
    window = min(window, 1 << (whole - 1).bit_length())
    for rows in (1, 64):
        steps = LongSort(0, rows, whole, window).steps()
        assert [runs.sorted for runs in steps] == [1, *(runs.length for runs in steps[:-1])]
        assert steps[0].length <= window
        assert whole <= steps[-1].length < 2 * whole


@pytest.mark.parametrize("name", TOPS)
def test_tops_become_smaller_ones(name):
    made = rewritten(hlo2graph.parse(TOPS[name]), split_tops)
    ways = opcodes(made.entry)
    assert ways.count("topk") == ways.count("custom-call") == (0 if name == "many" else 1)
    assert ways.count("sort") == (1 if name == "many" else 0)


def test_short_rows_stay_as_they_are():
    for text in (
        pairs("3,2048", 1, "s8", BY_BOTH),
        pairs("512,4096", 1, "s8", BY_BOTH),
        top("9,8192", "9,4", 4, "f32"),
    ):
        parsed = hlo2graph.parse(text)
        assert split_sorts(parsed) is parsed
        assert split_tops(parsed) is parsed


def test_short_sorts_by_value_get_an_order():
    text = pairs("3,200", 1, "f32", comparator("f32", "LT"))
    made = rewritten(hlo2graph.parse(text), split_sorts)
    (sort,) = [i for i in made.entry.instructions if i.opcode == "sort"]
    assert sort.attrs["to_apply"] == "before.total"
    plan = hlo2graph.plan(text, target="sm_90")
    assert any("count_before" in k.text for k in kernels_of(plan).values())
    plan = hlo2graph.plan(text, target="sm_90", fuse="none")
    assert not any("count_before" in k.text for k in kernels_of(plan).values())


JAX = """before {
  a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3)
  none = f32[] constant(nan) zero = f32[] constant(0)
  na = pred[] compare(a, a), direction=NE za = pred[] compare(a, zero), direction=EQ
  sa = f32[] select(za, zero, a) ka = f32[] select(na, none, sa)
  nb = pred[] compare(b, b), direction=NE zb = pred[] compare(b, zero), direction=EQ
  sb = f32[] select(zb, zero, b) kb = f32[] select(nb, none, sb)
  ROOT r = pred[] compare(ka, kb), direction=LT, type=TOTALORDER }"""


@pytest.mark.parametrize(
    ("dims", "how"),
    [("4095", "count_before"), ("9,2048", "sort_by_key"), ("9000,32", "count_in_row")],
)
def test_where_pairs_are_few_elements_are_counted(dims, how):
    text = pairs(dims, dims.count(","), "f32", comparator("f32", "LT"))
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert how in source.text


def test_comparators_that_give_every_number_a_place_stay():
    for length in (200, 5000):
        made = split_sorts(hlo2graph.parse(pairs(f"3,{length}", 1, "f32", JAX)))
        used = {i.attrs["to_apply"] for i in made.entry.instructions if "to_apply" in i.attrs}
        assert used == {"before"}


TWO_KEYS = """before {
  a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3)
  fi = f32[] convert(i) fj = f32[] convert(j) x = f32[] add(a, fi) y = f32[] add(fj, b)
  ROOT r = pred[] compare(x, y), direction=LT, type=TOTALORDER }"""


def test_a_key_is_seen_where_both_sides_are_made_alike():
    def found(region: str):
        return sort_key(hlo2graph.parse(pairs("9", 0, "f32", region)).computations, "before")

    assert found(JAX).rises
    assert not found(comparator("f32", "GT", TOTAL)).rises
    assert not found(comparator("f32", "LT", TOTAL).replace("(a, b)", "(b, a)")).rises
    assert found(comparator("f32", "LT")) is None  # it has no place for NaNs
    assert found(TWO_KEYS) is None
    assert found(TWO_KEYS.replace("add(fj, b)", "add(b, fj)")).rises
    assert found(JAX.replace("(kb)", "(b)").replace("compare(ka, kb)", "compare(ka, sb)")) is None


CALL = (
    "x = f32[100] parameter(0) ROOT r = f32[100] custom-call(x), "
    'custom_call_target="hlo2graph$sort_runs"'
)
LESS = (
    "less { a = f32[] parameter(0) b = f32[] parameter(1) "
    "ROOT r = pred[] compare(a, b), direction=LT }"
)


def runs(length: int, before: int, more: str = ", to_apply=less") -> str:
    config = f'{{"sort_runs": {{"dimension": 0, "length": {length}, "sorted": {before}}}}}'
    return module(
        f"{CALL}, backend_config={config}{more}", LESS, scalar_region("sum", "add", "f32")
    )


def test_steps_are_checked():
    refused(runs(64, 1, ""), "needs the attribute to_apply")
    refused(runs(64, 1, ", to_apply=sum"), "must return pred")


@pytest.mark.parametrize(
    "text", [runs(64, 24), runs(48, 24), runs(8192, 1), runs(2**21, 4), module(CALL, LESS)]
)
def test_steps_that_say_nothing_sensible_are_refused_by_name(text):
    with pytest.raises(UnsupportedError, match=r"hlo2graph\$sort_runs|sort_runs|backend_config"):
        hlo2graph.compile(text, backend="host")


def test_a_step_sorts_each_run():
    (got,) = HostExecutable(hlo2graph.plan(runs(64, 1), target="host"))(
        np.arange(100, 0, -1, dtype=np.float32)
    )
    assert got.tolist() == [*range(37, 101), *range(1, 37)]
