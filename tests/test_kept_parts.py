"""Long rows of narrow elements that small blocks of clusters keep in shared memory."""

from __future__ import annotations

from dataclasses import replace

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
FEW = replace(SM_90, multiprocessors=1)  # few rows fill it
TURNED = f"""HloModule m
{regions("bf16")}
fused {{ x = bf16[3,40000]{{0,1}} parameter(0) zero = bf16[] constant(0)
  s = bf16[3,40000] negate(x)
  t = bf16[3] reduce(s, zero), dimensions={{1}}, to_apply=most
  ts = bf16[3,40000] broadcast(t), dimensions={{0}}
  ROOT r = bf16[3,40000] subtract(s, ts) }}
ENTRY e {{ x = bf16[3,40000]{{0,1}} parameter(0)
  ROOT f = bf16[3,40000] fusion(x), kind=kInput, calls=fused }}
"""
PARTS = (
    ("softmax", "bf16", 50257),
    ("softmax", "bf16", 151936),
    ("log_softmax", "f16", 60002),
    ("log_softmax", "bf16", 40000),
    ("softmax", "f16", 40001),
)


@needs_gxx
def test_rows_that_clusters_keep_agree_with_the_host():
    given = {f"{k}": fold_program(form, t, (3, n), (1,)) for k, (form, t, n) in enumerate(PARTS)}
    with planned(given | {"turned": TURNED}, FEW) as (plans, kernels):
        for name, plan in plans.items():
            (source,) = kernels_of(plan).values()
            assert ("copy_ahead" in source.text) == (name != "turned")
            agree_with_the_host(plan, kernels)


@needs_gxx
@pytest.mark.parametrize("left_out", ["copies_land", "copy_ahead"])
def test_copies_that_are_not_waited_for_are_noticed(monkeypatch, left_out):
    line, met = ElementEmitter.line, []

    def without(emit: ElementEmitter, text: str) -> None:
        if left_out in text:
            met.append(text)
        else:
            line(emit, text)

    monkeypatch.setattr(ElementEmitter, "line", without)
    text = fold_program("log_softmax", "bf16", (3, 50257), (1,))
    with planned({"rows": text}, FEW) as (plans, kernels), pytest.raises(AssertionError):
        agree_with_the_host(plans["rows"], kernels)
    assert met


@pytest.mark.parametrize(
    ("form", "dtype", "rows", "columns", "bounds", "cluster", "is_kept"),
    [
        ("softmax", "bf16", 4000, 50257, "256, 4", 2, True),
        ("log_softmax", "bf16", 4000, 50257, "256, 4", 2, True),
        ("softmax", "bf16", 1316, 151936, "256, 5", 8, True),
        ("softmax", "bf16", 4000, 40001, "256, 5", 2, True),
        ("layer_norm", "bf16", 4000, 40000, "512, 2", 1, True),  # two looks
        ("softmax", "bf16", 4000, 32003, "512, 3", 1, True),  # a block each, three at once
        (
            "softmax",
            "bf16",
            80,
            50257,
            "256",
            8,
            False,
        ),  # too few: registers of more blocks hold them
        ("softmax", "f32", 4000, 50257, "256, 5", 8, False),  # registers hold as much
    ],
)
def test_small_blocks_of_clusters_keep_narrow_rows(
    form, dtype, rows, columns, bounds, cluster, is_kept
):
    plan = hlo2graph.plan(fold_program(form, dtype, (rows, columns), (1,)), target="sm_90")
    (source,) = kernels_of(plan).values()
    head = source.text.partition("\n")[0]
    assert head.endswith(
        f"__launch_bounds__({bounds})" + f" __cluster_dims__({cluster})" * (cluster > 1)
    )
    assert (source.shared_bytes > 0) == ("copy_ahead" in source.text) == is_kept
    if is_kept:
        assert source.shared_bytes * int(bounds.split(", ")[1]) < SM_90.shared
