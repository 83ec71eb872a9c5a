"""What is read beside rows that begin anywhere in a word: by two accesses, shifted in registers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.folds.shifted_rows import ShiftedRow
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.device_figures import FIGURES
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import planned
from tests.fold_programs import fold_program, regions

SMALL = replace(FIGURES["sm_90"], multiprocessors=0, threads=0)  # any rows fill it
NORMS = (
    *(("layer_norm", "f32", (9, columns)) for columns in (1501, 1502, 1503)),
    ("layer_norm", "f32", (5, 2, 20001)),
    *(("layer_norm", "bf16", (5, columns)) for columns in (32003, 40001)),
    *(("layer_norm", "f16", (5, columns)) for columns in (35007, 40001)),
    ("layer_norm", "f64", (9, 12001)),
)


def beside(full: str, narrow: str, rows: int, columns: int) -> str:
    """Return a module whose rows are weighted by a type of their own, in the fold and behind it."""
    shape = f"[{rows},{columns}]"
    return f"""HloModule m
{regions(full)}
fused {{ x = {full}{shape} parameter(0)
  w = {narrow}[{columns}] parameter(1) v = {narrow}[{columns}] parameter(2)
  w2 = {full}[{columns}] convert(w) v2 = {full}[{columns}] convert(v)
  ws = {full}{shape} broadcast(w2), dimensions={{1}}
  vs = {full}{shape} broadcast(v2), dimensions={{1}}
  xs = {full}{shape} multiply(x, ws) zero = {full}[] constant(0)
  s = {full}[{rows}] reduce(xs, zero), dimensions={{1}}, to_apply=most
  ss = {full}{shape} broadcast(s), dimensions={{0}}
  d = {full}{shape} subtract(x, ss) e = {full}{shape} multiply(d, vs)
  ROOT r = {full}{shape} add(e, ws) }}
ENTRY e {{ x = {full}{shape} parameter(0)
  w = {narrow}[{columns}] parameter(1) v = {narrow}[{columns}] parameter(2)
  ROOT f = {full}{shape} fusion(x, w, v), kind=kInput, calls=fused }}
"""


def text_of(form: str, dtype: str, rows: int, columns: int) -> str:
    plan = hlo2graph.plan(fold_program(form, dtype, (rows, columns), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    return source.text


@needs_gxx
def test_norms_of_odd_rows_agree_with_the_host():
    texts = {
        f"{form} {dtype} {dims}": fold_program(form, dtype, dims, (len(dims) - 1,))
        for form, dtype, dims in NORMS
    }
    texts |= {
        f"{full} by {narrow}": beside(full, narrow, 9, columns)
        for full, narrow, columns in (
            *(("f32", narrow, 1501) for narrow in ("bf16", "s8", "f32", "f64")),
            ("bf16", "f32", 40001),
            ("bf16", "s8", 32003),
        )
    }
    with planned(texts, SMALL) as (plans, kernels):
        for name, plan in plans.items():
            (source,) = kernels_of(plan).values()
            assert ("askew" in source.text) == (not name.startswith("layer_norm f64")), name
            agree_with_the_host(plan, kernels)


@needs_gxx
@pytest.mark.parametrize("by", ["+ 1", "^ 1"])
def test_a_wrong_shift_is_noticed(monkeypatch, by):
    line = ElementEmitter.line

    def shifted(emit: ElementEmitter, text: str) -> None:
        wrong = f" {by});" if "hlo::askew" in text else ");"
        line(emit, text.removesuffix(");") + wrong if text.endswith(");") else text)

    monkeypatch.setattr(ElementEmitter, "line", shifted)
    text = fold_program("layer_norm", "f32", (9, 1501), (1,))
    with planned({"rows": text}, SMALL) as (plans, kernels), pytest.raises(AssertionError):
        agree_with_the_host(plans["rows"], kernels)


@pytest.mark.parametrize(
    ("form", "dtype", "rows", "columns", "is_askew"),
    [
        ("layer_norm", "f32", 4000, 20001, True),
        ("layer_norm", "bf16", 4000, 40001, True),  # kept in shared memory
        ("layer_norm", "f32", 4000, 20000, False),  # on whole accesses
        ("layer_norm", "f32", 4000, 50001, False),  # held by clusters, whose registers are full
        ("rms_norm", "bf16", 4000, 40001, False),  # nothing beside
        ("layer_norm", "bf16", 100_000, 1501, False),  # narrow, held
        ("layer_norm", "f32", 10, 1501, False),  # so few that all is read first
        ("softmax", "f32", 4000, 20001, False),  # nothing beside
        ("sum", "f32", 4000, 20001, False),
    ],
)
def test_where_it_is_done(form, dtype, rows, columns, is_askew):
    assert ("askew" in text_of(form, dtype, rows, columns)) == is_askew


@pytest.mark.parametrize(
    ("form", "rows", "columns", "blocks"),
    [
        ("layer_norm", 4000, 20001, 2),
        ("layer_norm", 4000, 20002, 2),
        ("layer_norm", 100, 20001, 1),  # of which each multiprocessor has one at most
        ("layer_norm", 4000, 20000, 1),  # on whole accesses
        ("layer_norm", 4000, 10001, 1),
        ("softmax", 4000, 20001, 1),  # nothing beside
    ],
)
def test_which_rows_two_blocks_hold_that_one_could(form, rows, columns, blocks):
    plan = hlo2graph.plan(fold_program(form, "f32", (rows, columns), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    assert source.grid[0] == rows * blocks
    assert ("__cluster_dims__(2)" in source.text) == (blocks == 2)


@needs_gxx
def test_columns_of_several_accesses_are_noticed_in_a_wrong_order(monkeypatch):
    askew = ShiftedRow._askew

    def turned(row, array, columns, each):
        found = askew(row, array, columns, each)
        return found[each:] + found[:each]

    monkeypatch.setattr(ShiftedRow, "_askew", turned)
    text = beside("bf16", "f32", 5, 40001)
    with planned({"rows": text}, SMALL) as (plans, kernels), pytest.raises(AssertionError):
        agree_with_the_host(plans["rows"], kernels)


@pytest.mark.parametrize(("full", "narrow", "count"), [("bf16", "f32", 4), ("bf16", "s8", 8)])
def test_an_access_has_16_bytes_at_most(full, narrow, count):
    plan = hlo2graph.plan(beside(full, narrow, 4000, 40001), target="sm_90")
    (source,) = kernels_of(plan).values()
    assert f"askew<{count}>(p2" in source.text


def test_what_a_stage_asked_for_is_read_once_where_rows_are_held():
    plan = hlo2graph.plan(beside("f32", "f32", 4000, 20001), target="sm_90")
    (source,) = kernels_of(plan).values()
    assert "askew<4>(p2" in source.text
    assert "askew<4>(p1" not in source.text
