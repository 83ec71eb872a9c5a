"""Long rows that wait in shared memory for the row's total, or whose dear values do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.program.device_figures import FIGURES
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import choose_for
from tests.fold_programs import fold_program

READ = (("softmax", "bf16", 50257), ("log_softmax", "f16", 40003), ("layer_norm", "bf16", 40000))
DEAR = (("f32", 33001), ("f32", 50257))


@pytest.fixture(autouse=True)
def without_clusters(monkeypatch):
    """Plan for a device where rows have a block at most."""
    figures = replace(FIGURES["sm_90"], cluster=1)
    choose_for(figures, monkeypatch)


def kernel(form: str, dtype: str, rows: int, columns: int) -> KernelSource:
    plan = hlo2graph.plan(fold_program(form, dtype, (rows, columns), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    return source


@needs_gxx
def test_kept_rows_agree_with_the_host():
    given = [*READ, *(("softmax", *dear) for dear in DEAR[:1])]
    texts = [fold_program(form, dtype, (2, columns), (1,)) for form, dtype, columns in given]
    plans = [hlo2graph.plan(text, target="sm_90") for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.parametrize(("form", "dtype", "columns"), READ)
def test_a_row_is_read_once_where_two_fit_a_multiprocessor(form, dtype, columns):
    source = kernel(form, dtype, 4000, columns)
    before, _, after = source.text.partition("shuffle_down")
    assert source.threads == 512
    assert 2 * columns <= source.shared_bytes < 2 * columns + 8192 + 32  # whole words of all
    assert "__launch_bounds__(512, 2)" in before
    assert "p0[" in before
    assert "p0[" not in after


@pytest.mark.parametrize("form", ["softmax", "layer_norm"])
@pytest.mark.parametrize(
    ("rows", "columns", "bounds"),
    [
        *((4000, 32000, "512, 3"), (4000, 24000, "512"), (300, 32000, "1024")),
        (4000, 38000, "512, 2"),
    ],
)
def test_three_rows_are_kept_where_a_block_could_just_hold_one(form, rows, columns, bounds):
    source = kernel(form, "bf16", rows, columns)
    assert f"__launch_bounds__({bounds})" in source.text
    assert (source.shared_bytes > 0) == ("," in bounds)


@pytest.mark.parametrize(
    ("form", "columns", "bounds"),
    [
        *(("softmax", 32003, "512, 3"), ("log_softmax", 26001, "512, 3")),
        *(("softmax", 38001, "512, 2"), ("layer_norm", 32003, "512, 2")),
        ("layer_norm", 26001, "1024"),
    ],
)
def test_of_odd_rows_three_are_kept_for_softmaxes(form, columns, bounds):
    source = kernel(form, "bf16", 4000, columns)
    assert f"__launch_bounds__({bounds})" in source.text
    assert (source.shared_bytes >= 2 * columns) == ("," in bounds)


@pytest.mark.parametrize(("dtype", "columns"), DEAR)
def test_each_exponential_is_computed_once_where_one_row_fits(dtype, columns):
    source = kernel("softmax", dtype, 4000, columns)
    before, _, after = source.text.rpartition("__shared__")
    assert (source.threads, source.shared_bytes) == (1024, 4 * columns)
    assert "hlo::exponential" in before
    assert "hlo::exponential" not in after


@pytest.mark.parametrize(
    ("form", "dtype", "columns"),
    [
        ("softmax", "f32", 60000),  # more than a block holds
        ("softmax", "bf16", 1501),  # registers hold them
        ("log_softmax", "f32", 50257),  # no result asks for an exponential
        ("sum", "f32", 25000),  # nothing comes back to a row
    ],
)
def test_nothing_else_is_kept(form, dtype, columns):
    source = kernel(form, dtype, 4000, columns)
    assert source.shared_bytes == 0
    assert "kept[" not in source.text


@pytest.mark.parametrize("columns", [40000, 50257])
def test_rounds_of_long_rows_have_no_tests(columns):
    text = kernel("layer_norm", "bf16", 4000, columns).text
    rounds = text[
        text.index("for (", max(0, text.find("copies_land"))) : text.index("shuffle_down")
    ]
    assert rounds.count("if (") == 1 + (columns % 8 > 0)  # the first round, and the row's ends


def test_scalars_of_which_each_is_asked_for_twice_are_no_trouble():
    steps = "".join(f"  v{k + 1} = f32[] multiply(v{k}, v{k})\n" for k in range(40))
    text = fold_program("softmax", "f32", (3, 33001), (1,)).replace(
        "  less = f32[3,33001] subtract(p0, tops)",
        "  first = f32[1,1] slice(p0), slice={[0:1], [0:1]}\n  v0 = f32[] reshape(first)\n"
        f"{steps}  s = f32[3,33001] broadcast(v40), dimensions={{}}\n"
        "  less = f32[3,33001] subtract(s, tops)",
    )
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert len(source.text.splitlines()) < 1000
