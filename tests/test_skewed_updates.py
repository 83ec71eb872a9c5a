"""Scatters some of whose rows have most of the updates: none of these is folded by one thread."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import module, scalar_region
from needs import needs_gxx
from rewriting import opcodes, rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.ops.folded_chunks import chunk_config, chunk_of
from hlo2graph.passes.large import fold_chunks
from hlo2graph.passes.large.order_updates import order_updates
from tests.emulation import Kernels
from tests.emulation.agreement import both_ways

UPDATES = 4290  # no whole number of chunks
FOLDS = {
    "add": np.add,
    "and": np.bitwise_and,
    "maximum": np.maximum,
    "multiply": np.multiply,
    "xor": np.bitwise_xor,
}
SORTED = ", indices_are_sorted=true"


def scatter(
    dtype: str, opcode: str, rows: int, window: str, how: str = "", updates: int = UPDATES
) -> str:
    """Return a program that scatters windows, or single elements, into rows."""
    tail = f",{window}" if window else ""
    dims = ",".join(str(k + 1) for k in range(tail.count(",")))
    return module(
        f"x = {dtype}[{rows}{tail}] parameter(0) i = s32[{updates},1] parameter(1) "
        f"u = {dtype}[{updates}{tail}] parameter(2) ROOT r = {dtype}[{rows}{tail}] scatter(x, i, u)"
        f", update_window_dims={{{dims}}}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=fold{how}",
        scalar_region("fold", opcode, dtype),
    )


CHUNKED = {  # the type, what folds, rows and a window
    "elements": ("f32", "add", 20000, ""),
    "elements-by-warps": ("f64", "multiply", 50, ""),
    "rows": ("f32", "add", 7000, "3"),
    "rows-by-warps": ("f32", "add", 3000, "2,20"),
    "rows-by-blocks": ("f16", "maximum", 40, "36"),
    "few-rows-by-blocks": ("s8", "add", 12, "3"),
    "halves": ("bf16", "add", 90, "5"),
    "bits": ("u16", "xor", 300, "33"),
    "all-bits": ("s16", "and", 12, "40"),
    "sorted-elements": ("f32", "add", 20000, "", SORTED),
    "sorted-rows": ("f32", "add", 50, "40", SORTED),
}
OTHERS = {
    "by-digits": ("f32", "add", 2000, "2", "", 33_000),
    "slabs": ("f32", "add", 3000, "4", "", 2000),
    "slabs-of-elements": ("f64", "multiply", 9000, "", "", 2500),
}
FOLDED = CHUNKED | OTHERS
PROGRAMS = {name: scatter(*how) for name, how in FOLDED.items()}
SKEWS = {
    "evenly": lambda rng, rows, count: rng.integers(-3, rows + 3, count),
    "ten": lambda rng, rows, count: rng.integers(0, 10, count) * (rows // 10),
    "one": lambda _, rows, count: np.full(count, rows // 3),
    "half": lambda rng, rows, count: rng.integers(0, rows, count) * rng.integers(0, 2, count),
    "none": lambda _, rows, count: np.full(count, rows),
}


@cache
def emulated():
    plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return plans, Kernels(list(plans.values()))


def given_to(name: str, skew: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, _, u = (p.shape for p in hlo2graph.parse(PROGRAMS[name]).entry.parameters)
    indices = SKEWS[skew](rng, x.dims[0], u.dims[0]).astype(np.int32)
    if "sorted" in name:
        indices = np.sort(indices)
    if x.dtype.is_integer:
        low, high = (0, 200) if x.dtype.name.startswith("u") else (-9, 9)
        drawn = [rng.integers(low, high, s.dims) for s in (x, u)]
    else:
        around = 1 if FOLDED[name][1] == "multiply" else 0
        drawn = [rng.standard_normal(s.dims) / 8 + around for s in (x, u)]
    return [drawn[0].astype(x.dtype.numpy), indices.reshape(-1, 1), drawn[1].astype(u.dtype.numpy)]


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_row_has_all_its_updates(name, skew):
    plans, kernels = emulated()
    x, indices, u = given_to(name, skew)
    (got,) = both_ways(plans[name], kernels, (x, indices, u))
    is_whole = x.dtype.kind in "iu"
    want = x.copy() if is_whole else x.astype(np.float64)
    inside = (indices[:, 0] >= 0) & (indices[:, 0] < len(x))
    given = u[inside] if is_whole else u[inside].astype(np.float64)
    FOLDS[FOLDED[name][1]].at(want, indices[inside, 0], given)
    if is_whole:
        np.testing.assert_array_equal(got, want)
    else:
        close = {2: 0.02, 4: 1e-5, 8: 1e-13}[x.dtype.itemsize]
        np.testing.assert_allclose(got.astype(np.float64), want, close, 50 * close)


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_of_one_row_stand_as_their_first_update(name):
    x, indices, u = given_to(name, "ten")
    if x.dtype.kind not in "iu":  # of which few are folded exactly
        x[:] = u[:] = FOLDED[name][1] == "multiply"
        u[:40] = 2
    made = rewritten(hlo2graph.parse(PROGRAMS[name]), order_updates, arguments=(x, indices, u))
    (found,) = [i for i in made.entry.instructions if i.opcode == "scatter"]
    assert chunk_of(found) == fold_chunks.CHUNK
    assert opcodes(made.entry).count("reduce") == 1
    (kernel,) = [
        source.text
        for source in kernels_of(hlo2graph.plan(PROGRAMS[name], target="sm_90")).values()
        if "range_" in source.text
    ]
    assert f"ChunkLooks<int, {fold_chunks.CHUNK}>" in kernel
    assert ("__syncthreads" in kernel) == ("blocks" in name or name in ("sorted-rows", "all-bits"))


def test_more_updates_have_longer_chunks():
    made = order_updates(hlo2graph.parse(scatter("f32", "add", 70000, "8", updates=600_000)))
    (found,) = [i for i in made.entry.instructions if i.opcode == "scatter"]
    assert chunk_of(found) == 512


def test_rows_are_sorted_by_as_few_digits_as_they_have():
    for rows, updates, key in ((0xFFFF, 40_000, "u16"), (0x10000, 40_000, "s32"), (9, 9000, "s32")):
        text = scatter("f16", "add", rows, "8", updates=updates)
        made = order_updates(hlo2graph.parse(text))
        (found,) = [i for i in made.entry.instructions if i.opcode == "sort"]
        assert str(next(iter(found.shape.leaves())).dtype) == key


@pytest.mark.parametrize(
    "text",
    [
        scatter("f32", "subtract", 50, "40", SORTED),
        scatter("s32", "add", 50, "40", SORTED),
        scatter("f32", "add", 50, "40", SORTED, updates=1000),
    ],
)
def test_what_may_not_be_folded_apart_or_is_short_stays(text):
    made = order_updates(hlo2graph.parse(text))
    assert "reduce" not in opcodes(made.entry)


def test_only_numbers_of_two_or_more_are_chunks():
    parsed = hlo2graph.parse(scatter("f32", "add", 50, "40", SORTED))
    instr = parsed.entry.result
    assert chunk_of(instr) is None
    for chunk, want in ((64, 64), (1, None), (-3, None), (2**31, None)):
        attrs = {**instr.attrs, "backend_config": chunk_config(chunk)}
        found = type(instr)(instr.name, "scatter", instr.shape, instr.operands, attrs)
        assert chunk_of(found) == want


def test_updates_of_a_large_array_of_one_value_are_looked_for_as_it_is_filled():
    text = scatter("f32", "add", 50_000, "64", updates=300)
    text = text.replace(
        "x = f32[50000,64] parameter(0) i = s32[300,1] parameter(1) u = f32[300,64] parameter(2)",
        "z = f32[] constant(0) x = f32[50000,64] broadcast(z), dimensions={} "
        "i = s32[300,1] parameter(0) u = f32[300,64] parameter(1)",
    )
    made = order_updates(hlo2graph.parse(text))
    assert {"sort", "scatter"} <= set(opcodes(made.entry))
