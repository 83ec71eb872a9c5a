"""What the kernel of a product reads before those in front of it are done: weights, no else."""

from __future__ import annotations

import re

import pytest
from agreement import module

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import FOLLOW
from tests.ptxas import spilt

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def product_of(text: str):
    """Return the kernel that multiplies."""
    sources = kernels_of(h2g.plan(text, target="sm_90")).values()
    return next(s for s in sources if "sums[" in s.text)


def early(text: str) -> set[str]:
    """Return the arrays that the kernel that multiplies reads before it waits."""
    before, waits, behind = product_of(text).text.partition(FOLLOW)
    assert waits
    assert FOLLOW not in behind
    return set(re.findall(r"load\((p\d+)\[", before))


def dense(rows: int, dtype: str = "f32", width: int = 2048) -> str:
    """Return a product of what a softmax makes and of a weight."""
    return module(
        f"""x = {dtype}[{rows},512] parameter(0)
        w = {dtype}[512,{width}] parameter(1)
        low = {dtype}[] constant(-inf)
        top = {dtype}[{rows}] reduce(x, low), dimensions={{1}}, to_apply=max
        tops = {dtype}[{rows},512] broadcast(top), dimensions={{0}}
        y = {dtype}[{rows},512] subtract(x, tops)
        ROOT d = {dtype}[{rows},{width}] dot(y, w), {PLAIN}""",
        f"""max {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1)
        ROOT r = {dtype}[] maximum(a, b) }}""",
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("rows", [1, 4, 40])
def test_weights_are_read_early(rows, dtype):
    assert early(dense(rows, dtype)) == {"p1"}


def test_what_the_graph_makes_is_not_read_early():
    text = (
        dense(4)
        .replace("dot(y, w)", "dot(y, v)")
        .replace(
            "ROOT d",
            "h = f32[512,2048] sine(w) t = f32[512,2048] tanh(h)\n"
            "v = f32[512,2048] sort(t), dimensions={0}, to_apply=less\nROOT d",
        )
    )
    less = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), "
    text = text.replace("HloModule m\n", f"HloModule m\n{less} direction=LT }}\n")
    assert not early(text)


def test_an_argument_that_is_written_over_is_not_read_early():
    text = module(f"""x = f32[4,512] parameter(0) w = f32[512,2048] parameter(1)
      d = f32[4,2048] dot(x, w), {PLAIN}
      one = f32[] constant(1) ones = f32[512,2048] broadcast(one), dimensions={{}}
      next = f32[512,2048] subtract(w, ones)
      ROOT r = (f32[4,2048], f32[512,2048]) tuple(d, next)""")
    assert early(text)
    donated = "HloModule m, input_output_alias={ {1}: (1, {}, must-alias) }"
    assert "p1" not in early(text.replace("HloModule m", donated))


def test_each_part_of_a_kernel_waits():
    parts = module(f"""x = f32[4,512] parameter(0) w = f32[512,640] parameter(1)
      y = f32[300] parameter(2)
      d = f32[4,640] dot(x, w), {PLAIN}
      s = f32[300] sine(y)
      ROOT r = (f32[4,640], f32[300]) tuple(d, s)""")
    [source] = kernels_of(h2g.plan(parts, target="sm_90")).values()
    assert source.text.count(FOLLOW) == 2


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_early_reads_spill_no_registers(rows):
    assert spilt(product_of(dense(rows, "bf16")).text, "sm_90") == 0
