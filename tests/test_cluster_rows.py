"""Rows that a cluster's blocks hold together: read once, folded through each other's memory."""

from __future__ import annotations

import re

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.device_figures import FIGURES
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import planned
from tests.fold_programs import fold_program, regions

SM_90 = FIGURES["sm_90"]
LONG = (
    ("softmax", "bf16", 50257),  # rows that begin anywhere in a word
    ("log_softmax", "f16", 40001),
    ("layer_norm", "bf16", 40000),
    ("softmax", "f32", 33001),
    ("layer_norm", "f32", 40001),
    ("softmax", "f64", 20001),
)


def from_the_best(dtype: str, low: str) -> str:
    """Return a module in which two values fold together."""
    return (
        "HloModule m"
        + regions(dtype)
        + f"""ENTRY e {{ x = {dtype}[2,40000] parameter(0)
  i = s32[2,40000] iota(), iota_dimension=1
  low = {dtype}[] constant({low}) zero = s32[] constant(0)
  b = ({dtype}[2], s32[2]) reduce(x, i, low, zero), dimensions={{1}}, to_apply=best
  at = s32[2] get-tuple-element(b), index=1
  spread = s32[2,40000] broadcast(at), dimensions={{0}}
  ROOT r = s32[2,40000] subtract(i, spread) }}
"""
    )


PARTS = f"""HloModule m
{regions("c128")}
ENTRY e {{ x = c128[2,17000] parameter(0) zero = c128[] constant((0, 0))
  sum = c128[2] reduce(x, zero), dimensions={{1}}, to_apply=add
  sums = c128[2,17000] broadcast(sum), dimensions={{0}}
  ROOT r = c128[2,17000] divide(x, sums) }}
"""


def text_of(form: str, dtype: str, columns: int, *, rows: int = 80, target: str = "sm_90") -> str:
    plan = hlo2graph.plan(fold_program(form, dtype, (rows, columns), (1,)), target=target)
    (source,) = kernels_of(plan).values()
    return source.text


def cluster_of(text: str) -> int:
    found = re.search(r"__cluster_dims__\((\d+)\)", text)
    return int(found[1]) if found else 1


@needs_gxx
def test_rows_of_clusters_agree_with_the_host():
    texts = {f"{form} {n}": fold_program(form, dtype, (3, n), (1,)) for form, dtype, n in LONG}
    texts["from the best"] = from_the_best("f32", "-inf")
    texts["from the best byte"] = from_the_best("s8", "-128")
    texts["parts of a complex sum"] = PARTS
    with planned(texts, SM_90) as (plans, kernels):
        for plan in plans.values():
            (source,) = kernels_of(plan).values()
            assert cluster_of(source.text) > 1
            agree_with_the_host(plan, kernels)


@needs_gxx
@pytest.mark.parametrize(
    "left_out", ["cluster_waits", "meetings_open", "meeting_expects", "hand_over", "meeting_ends"]
)
def test_a_missing_step_of_a_meeting_is_noticed(monkeypatch, left_out):
    """Nothing may be handed over before all have begun, or be read before all have handed over."""
    line, met = ElementEmitter.line, []

    def without(emit: ElementEmitter, text: str) -> None:
        if f"hlo::{left_out}(" in text:
            met.append(text)
        if text not in met[:1]:
            line(emit, text)

    monkeypatch.setattr(ElementEmitter, "line", without)
    text = fold_program("layer_norm", "f32", (3, 40000), (1,))
    with planned({"rows": text}, SM_90) as (plans, kernels), pytest.raises(AssertionError):
        agree_with_the_host(plans["rows"], kernels)
    assert met


@pytest.mark.parametrize(("form", "dtype", "columns"), LONG)
def test_their_elements_are_read_once(form, dtype, columns):
    text = text_of(form, dtype, columns)
    before, _, after = text.partition("hlo::shuffle")
    assert cluster_of(text) > 1
    assert "p0[" in before
    assert "p0[" not in after


@pytest.mark.parametrize(("form", "dtype", "columns"), LONG[3:])
def test_many_wide_rows_have_clusters_too(form, dtype, columns):
    assert cluster_of(text_of(form, dtype, columns, rows=4000)) > 1


@pytest.mark.parametrize(("rows", "cluster"), [(1, 8), (16, 8), (17, 1)])
def test_few_rows_have_clusters_where_a_block_would_do(rows, cluster):
    assert cluster_of(text_of("softmax", "f32", 30000, rows=rows)) == cluster


@pytest.mark.parametrize(
    ("form", "dtype", "columns"),
    [
        ("softmax", "bf16", 1501),  # a block holds them
        ("sum", "f32", 50257),  # looked at once
        ("two_sums", "f32", 50257),
    ],
)
def test_other_rows_have_a_block(form, dtype, columns):
    assert cluster_of(text_of(form, dtype, columns)) == 1


def test_where_there_are_no_clusters_long_rows_have_a_block():
    assert cluster_of(text_of("softmax", "bf16", 50257, target="sm_80")) == 1


def test_parts_of_a_launch_have_no_clusters():
    """What else is beside them is of no cluster."""
    fused = fold_program("softmax", "f32", (4, 50257), (1,)).partition("fused {")
    body = fused[2].partition("ENTRY")[0].rstrip().removesuffix("}")
    text = f"""{fused[0]}one {{{body}}}
other {{{body}}}
both {{ p0 = f32[4,50257] parameter(0) p1 = f32[4,50257] parameter(1)
  a = f32[4,50257] fusion(p0), kind=kInput, calls=one
  b = f32[4,50257] fusion(p1), kind=kInput, calls=other
  ROOT t = (f32[4,50257], f32[4,50257]) tuple(a, b) }}
ENTRY e {{ p0 = f32[4,50257] parameter(0) p1 = f32[4,50257] parameter(1)
  ROOT r = (f32[4,50257], f32[4,50257]) fusion(p0, p1), kind=kInput, calls=both }}
"""
    (source,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert cluster_of(source.text) == 1
    assert "cluster" not in source.text


@needs_gxx
def test_of_more_arrays_than_a_block_holds_no_row_has_more_threads_than_runs():
    given = [f"p{k} = f32[1,4096] parameter({k})" for k in range(9)]
    sums = [f"v{k} = f32[1,4096] add(p{k}, {f'v{k - 1}' if k > 1 else 'p0'})" for k in range(1, 9)]
    fused = fold_program("softmax", "f32", (1, 4096), (1,)).partition("fused {")
    body = fused[2].partition("ENTRY")[0].replace("subtract(p0", "subtract(v8")
    body = body.replace("p0 = f32[1,4096] parameter(0)", " ".join([*given, *sums]))
    names = ", ".join(f"p{k}" for k in range(9))
    text = f"""{fused[0]}fused {{{body}ENTRY e {{ {" ".join(given)}
  ROOT f = f32[1,4096] fusion({names}), kind=kInput, calls=fused }}
"""
    with planned({"sums": text}, SM_90) as (plans, kernels):
        agree_with_the_host(plans["sums"], kernels)
