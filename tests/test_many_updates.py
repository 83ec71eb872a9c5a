"""Scatters of many updates: taken in any order where that gives the same bits, sorted elsewhere."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import ARGMAX, module, scalar_region
from needs import needs_gxx
from rewriting import opcodes, rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.large.order_updates import order_updates
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import both_ways

ELEMENTS = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1"
)
ROWS = ELEMENTS.replace("update_window_dims={}", "update_window_dims={1}")
LAST = "fold { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }"


def scatter(
    dtype: str, operand: str, indices: str, updates: str, how: str, region: str, number: str = "s32"
) -> str:
    return module(
        f"x = {dtype}[{operand}] parameter(0) i = {number}[{indices}] parameter(1) "
        f"u = {dtype}[{updates}] parameter(2) "
        f"ROOT r = {dtype}[{operand}] scatter(x, i, u), {how}, to_apply=fold",
        region,
    )


def region(opcode: str, dtype: str) -> str:
    return scalar_region("fold", opcode, dtype)


PAIRS = module(
    "x = f32[50] parameter(0) k = s32[50] parameter(3) i = s32[4100,1] parameter(1) "
    "u = f32[4100] parameter(2) v = s32[4100] parameter(4) "
    f"ROOT r = (f32[50], s32[50]) scatter(x, k, i, u, v), {ELEMENTS}, to_apply=largest",
    ARGMAX,
)
UNIQUE = ROWS + ", unique_indices=true"
SORTED = ROWS + ", indices_are_sorted=true"
GRID = (
    "update_window_dims={2}, inserted_window_dims={0,2}, scatter_dims_to_operand_dims={2,0}, "
    "index_vector_dim=1"
)
TURNED = GRID.replace("update_window_dims={2}", "update_window_dims={1}")
FREE = {
    f"{opcode}-{dtype}": scatter(
        dtype, "300", "2000,1", "2000", ELEMENTS, region(opcode, dtype), "s64"
    )
    for opcode, dtype in (("add", "s32"), ("add", "u64"), ("maximum", "s64"), ("xor", "u32"))
}
for opcode, dtype in (("maximum", "f64"), ("minimum", "f32")):
    FREE[f"{opcode}-{dtype}"] = scatter(
        dtype, "40", "5000,1", "5000", ELEMENTS, region(opcode, dtype)
    )
for opcode, dtype in (("add", "s32"), ("maximum", "f64"), ("xor", "u64"), ("and", "s32")):
    FREE[f"many-{opcode}-{dtype}"] = scatter(
        dtype, "70", "66000,1", "66000", ELEMENTS, region(opcode, dtype)
    )
FREE["rows"] = scatter("s32", "40,7", "600,1", "600,7", ROWS, region("minimum", "s32"))
FREE["unique"] = scatter("f32", "900,3", "700,1", "700,3", UNIQUE, region("add", "f32"))
ORDERED = {
    "elements": scatter("f32", "12000", "5000,1", "5000", ELEMENTS, region("add", "f32")),
    "rows": scatter("f32", "3000,5", "4200,1", "4200,5", ROWS, region("add", "f32")),
    "wide-rows": scatter("f32", "300,70", "4200,1", "4200,70", ROWS, region("add", "f32")),
    "many-rows": scatter("f32", "2120,40", "4100,1", "4100,39", ROWS, region("add", "f32")),
    "whole-rows": scatter("f32", "2120,128", "4100,1", "4100,128", ROWS, region("add", "f32")),
    "whole-halves": scatter(
        "f16", "2120,256", "4100,1", "4100,256", ROWS, region("maximum", "f16")
    ),
    "last": scatter("f32", "90,5", "4200,1", "4200,4", ROWS, LAST),
    "halves": scatter("f16", "900", "4100,1", "4100", ELEMENTS, region("add", "f16"), "u8"),
    "bytes": scatter("s8", "900", "4100,1", "4100", ELEMENTS, region("add", "s8"), "s64"),
    "most": scatter("f16", "40", "5000,1", "5000", ELEMENTS, region("maximum", "f16")),
    "sums": scatter("s8", "8", "4300,1", "4300", ELEMENTS, region("add", "s8")),
    "grid": scatter("f32", "9,3,11", "60,2,70", "60,70,3", GRID, region("subtract", "f32")),
    "pairs": PAIRS,
}
GIVEN = {
    "sorted-rows": scatter("f32", "90,5", "300,1", "300,5", SORTED, region("add", "f32")),
    "sorted-rows-u64": scatter(
        "f32", "90,5", "300,1", "300,5", SORTED, region("add", "f32"), "u64"
    ),
    "sorted-grid": scatter(
        "f32", "9,3,11", "300,2", "300,3", f"{TURNED}, indices_are_sorted=true", LAST
    ),
}
COMPARED = {
    "compared-f32": scatter("f32", "300", "5000,1", "5000", ELEMENTS, region("add", "f32")),
    "compared-f64": scatter("f64", "57", "4099,1", "4099", ELEMENTS, region("add", "f64"), "s8"),
    "compared-rows": scatter("f32", "90,5", "600,1", "600,5", ROWS, region("add", "f32")),
    "compared-matrices": scatter(
        "f64",
        "97,3,2",
        "60,70",
        "60,70,3,2",
        ROWS.replace("dims={1}", "dims={2,3}").replace("vector_dim=1", "vector_dim=2"),
        region("add", "f64"),
    ),
}
PROGRAMS = FREE | COMPARED | {f"ordered-{k}": v for k, v in ORDERED.items()} | GIVEN


def given_to(name: str) -> list[np.ndarray]:
    """Return arguments: numbers that round when added, indices of which some are outside."""
    rng = np.random.default_rng(0)
    found = []
    for number, parameter in enumerate(hlo2graph.parse(PROGRAMS[name]).entry.parameters):
        shape = parameter.shape
        if number == 1:
            low = 0 if shape.dtype.name.startswith("u") else -4
            array = rng.integers(low, 97, shape.dims)
            if name == "unique":
                array = rng.permutation(1000)[: shape.dims[0]].reshape(shape.dims)
            if name.startswith("sorted-rows"):
                array = np.sort(array, axis=0)
            if name == "sorted-rows-u64":
                array[-20:] = -1  # the largest number of all, as it is read
            if name == "sorted-grid":  # as indices into the operand, along whose rows they go
                array = rng.integers(-1, 12, shape.dims)
                array = array[np.lexsort(array.T)]
        elif shape.dtype.is_float:
            array = rng.standard_normal(shape.dims) * 3
        else:
            array = rng.integers(0, 100, shape.dims)
        found.append(array.astype(shape.dtype.numpy))
    return found


@cache
def emulated():
    plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return plans, Kernels(list(plans.values()))


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_updates_are_folded_as_the_host_folds_them(name):
    plans, kernels = emulated()
    plan, arguments = plans[name], given_to(name)
    got = both_ways(plan, kernels, arguments)
    want = HostExecutable(hlo2graph.plan(PROGRAMS[name], target="host"))(*arguments)
    if name not in COMPARED:
        assert same_bits(HostExecutable(plan)(*arguments), want)
    if name in COMPARED:
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-4)
    elif name == "ordered-halves":  # which are rounded once, at the end
        np.testing.assert_allclose(got[0].astype(float), want[0].astype(float), 0.01, 0.3)
    else:
        assert same_bits(got, want)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", ["maximum-f64", "minimum-f32"])
def test_the_largest_of_all_signs_are_kept_and_nan_where_one_is(name):
    plans, kernels = emulated()
    x, i, u = given_to(name)
    some = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 2.0, -np.nan]
    x[: len(some)], x[len(some) : 2 * len(some)] = some, np.roll(some, 3)
    u[: 20 * len(some)] = np.tile(some, 20)
    want = HostExecutable(hlo2graph.plan(PROGRAMS[name], target="host"))(x, i, u)
    got = EmulatedExecutable(plans[name], kernels)(x, i, u)
    known = ~np.isnan(want[0])
    assert (np.isnan(got[0]) == ~known).all()
    assert same_bits([got[0][known]], [want[0][known]])


@pytest.mark.parametrize("name", FREE)
def test_any_order_takes_a_copy_at_most(name):
    made = rewritten(hlo2graph.parse(FREE[name]), order_updates, arguments=given_to(name))
    assert opcodes(made.entry) == ["fusion", "scatter"]
    _takes_any_order(hlo2graph.plan(FREE[name], target="sm_90"))


def _takes_any_order(plan) -> None:
    before, after = plan.body.thunks
    assert before.writes == after.writes
    *_, source = kernels_of(plan).values()
    assert "numbers[" not in source.text  # which slabs have


def test_blocks_share_few_elements_where_updates_are_many():
    for name in ("many-add-s32", "many-maximum-f64", "add-s32"):
        *_, source = kernels_of(hlo2graph.plan(FREE[name], target="sm_90")).values()
        assert ("__shared__" in source.text) == name.startswith("many")


def test_what_nobody_else_needs_is_not_copied():
    text = FREE["add-s32"].replace(
        "ROOT r = s32[300] scatter(x", "n = s32[300] negate(x) ROOT r = s32[300] scatter(n"
    )
    made = rewritten(hlo2graph.parse(text), order_updates)
    assert opcodes(made.entry) == ["negate", "opt-barrier", "scatter"]
    _takes_any_order(hlo2graph.plan(text, target="sm_90"))


def test_what_is_donated_is_not_copied():
    text = FREE["add-s32"].replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}) }")
    (thunk,) = hlo2graph.plan(text, target="sm_90").body.thunks
    assert thunk.reads[0] == thunk.writes[0]


@pytest.mark.parametrize("name", COMPARED)
def test_few_elements_look_at_all_updates(name):
    made = order_updates(hlo2graph.parse(COMPARED[name]))
    assert {"scatter", "sort"}.isdisjoint(opcodes(made.entry))
    plan = hlo2graph.plan(COMPARED[name], target="sm_90")
    assert plan.arena.size < 1 << 20
    x, i, u = given_to(name)
    i.flat[:4] = [3, 3, 5, 7]
    updates = u.reshape(i.size, -1)
    updates[:4] = np.array([np.inf, -np.inf, np.inf, np.nan]).reshape(-1, 1)
    x[-1] = -0.0
    i[i == len(x) - 1] = 0
    (got,) = HostExecutable(plan)(x, i, u)
    (want,) = HostExecutable(hlo2graph.plan(COMPARED[name], target="host"))(x, i, u)
    np.testing.assert_allclose(got, want, 1e-5, 1e-4)
    assert np.signbit(got[-1]).all()


@pytest.mark.parametrize("name", ORDERED)
def test_other_updates_are_sorted(name):
    made = rewritten(
        hlo2graph.parse(ORDERED[name]), order_updates, arguments=given_to(f"ordered-{name}")
    )
    assert opcodes(made.entry).count("sort") == 1
    (found,) = [i for i in made.entry.instructions if i.opcode == "scatter"]
    assert found.attrs["indices_are_sorted"] is True


def test_updates_at_the_same_places_are_sorted_once():
    text = module(
        "x = f16[300] parameter(0) i = s32[5000,1] parameter(1) u = f16[5000] parameter(2) "
        f"a = f16[300] scatter(x, i, u), {ELEMENTS}, to_apply=fold "
        f"b = f16[300] scatter(x, i, u), {ELEMENTS}, to_apply=most "
        "ROOT r = (f16[300], f16[300]) tuple(a, b)",
        region("add", "f16"),
        scalar_region("most", "multiply", "f16"),
    )
    ways = opcodes(order_updates(hlo2graph.parse(text)).entry)
    assert ways.count("sort") == 1
    assert ways.count("scatter") == 2


def test_few_updates_of_what_is_large_take_a_copy():
    text = scatter("f32", "20000,1100", "40,1", "40,1100", ROWS, region("add", "f32"))
    made = order_updates(hlo2graph.parse(text))
    assert opcodes(made.entry) == ["fusion", "scatter"]
    before, after = hlo2graph.plan(text, target="sm_90").body.thunks
    assert before.writes == after.writes


def test_more_updates_of_what_is_large_are_looked_for_on_the_way():
    text = scatter("f32", "20000,1100", "300,1", "300,1100", ROWS, region("add", "f32"))
    made = order_updates(hlo2graph.parse(text))
    assert {"sort", "scatter"} <= set(opcodes(made.entry))
    assert "fusion" not in opcodes(made.entry)
    kept = text.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }")
    assert opcodes(order_updates(hlo2graph.parse(kept)).entry) == ["opt-barrier", "scatter"]


@pytest.mark.parametrize(
    "text",
    [
        scatter("f32", "300", "500,1", "500", ELEMENTS, region("add", "f32")),
        scatter("s32", "300", "500,1", "500", ELEMENTS, region("add", "s32")),
        GIVEN["sorted-rows"],
        scatter(
            "f32",
            "90",
            "5000,1",
            "5000,2",
            ELEMENTS.replace("s={}", "s={1}").replace(
                "inserted_window_dims={0}", "inserted_window_dims={}"
            ),
            region("add", "f32"),
        ),
    ],
)
def test_few_updates_and_overlapping_windows_stay(text):
    parsed = hlo2graph.parse(text)
    assert order_updates(parsed) is parsed
