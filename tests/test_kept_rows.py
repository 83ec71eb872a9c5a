"""Long rows whose dear values wait in shared memory for the row's total."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import KernelSource
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.fold_programs import fold_program

KEPT = (("bf16", 50257), ("f16", 40000), ("f32", 33001))


def kernel(form: str, dtype: str, rows: int, columns: int) -> KernelSource:
    plan = hlo2graph.plan(fold_program(form, dtype, (rows, columns), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    return source


@needs_gxx
def test_kept_exponentials_agree_with_the_host():
    texts = [fold_program("softmax", dtype, (2, columns), (1,)) for dtype, columns in KEPT]
    plans = [hlo2graph.plan(text, target="sm_90") for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.parametrize(("dtype", "columns"), KEPT)
def test_each_exponential_is_computed_once(dtype, columns):
    source = kernel("softmax", dtype, 4000, columns)
    before, _, after = source.text.rpartition("__shared__")
    assert source.shared_bytes == 4 * columns
    assert "hlo::exponential" in before
    assert "hlo::exponential" not in after


@pytest.mark.parametrize(
    ("form", "columns"),
    [
        ("softmax", 60000),  # more than a block holds
        ("softmax", 1501),  # registers hold them
        ("log_softmax", 50257),  # no result asks for an exponential
        ("layer_norm", 50257),
    ],
)
def test_nothing_else_is_kept(form, columns):
    source = kernel(form, "bf16", 4000, columns)
    assert source.shared_bytes == 0
    assert "kept[" not in source.text


@pytest.mark.parametrize("columns", [40000, 50257])
def test_rounds_of_long_rows_have_no_tests(columns):
    text = kernel("log_softmax", "bf16", 4000, columns).text
    rounds = text[text.index("for (") : text.index("shuffle_down")]
    assert rounds.count("if (") == 1 + (columns % 8 > 0)  # the first round, and the row's ends
