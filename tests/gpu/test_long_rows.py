"""Long rows that clusters hold or keep in parts, few and many, on the device against the host."""

from __future__ import annotations

import pytest

import hlo2graph as h2g
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from tests.fold_programs import fold_program

ROWS = (
    *(("softmax", "f32", rows, 50257) for rows in (1, 5, 140)),  # held, by words of 16 bytes
    *(("layer_norm", dtype, 5, 50001) for dtype in ("f32", "f64", "bf16")),
    *(("log_softmax", "bf16", rows, 50257) for rows in (5, 300)),  # held, kept
    *(("layer_norm", "f32", 300, columns) for columns in (20001, 20002, 12003)),  # pairs, a block
    ("layer_norm", "f32", 5000, 1501),
    *(("layer_norm", "bf16", 400, columns) for columns in (40000, 40001, 32003)),
    ("log_softmax", "f16", 300, 60002),
    ("softmax", "bf16", 100, 151936),
    ("softmax", "bf16", 450, 32003),
)


@pytest.mark.parametrize(("form", "dtype", "rows", "columns"), ROWS)
def test_long_rows_agree_with_the_host(form, dtype, rows, columns):
    text = fold_program(form, dtype, (rows, columns), (1,))
    plan = h2g.plan(text, target="sm_90")
    executable = h2g.compile(plan, "cuda")
    args = random_inputs(plan.inputs, 0)
    got = executable(*args)
    for _ in range(20):
        assert same_bits(got, executable(*args)), "two runs differ"
    for ours, theirs, bound in zip(
        got, h2g.compile(plan, "host")(*args), plan.outputs, strict=True
    ):
        found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
        assert found.ok, str(found)
