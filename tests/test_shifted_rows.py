"""Rows of narrow elements whose lengths words do not divide: by words all the same."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import FLAT, choose_for
from tests.fold_programs import fold_program

PROGRAMS = (
    ("softmax", "bf16", (37, 197), (1,)),
    ("softmax", "f16", (5, 3, 1501), (2,)),
    ("layer_norm", "bf16", (33, 333), (1,)),
    ("arg_max", "bf16", (70, 101), (1,)),
    ("two_sums", "bf16", (35, 259), (1,)),
    ("rms_norm", "bf16", (11, 4, 37), (2,)),
    *(("softmax", "bf16", (2, columns), (1,)) for columns in (50257, 65535)),
)


@pytest.fixture
def with_many_rows(monkeypatch):
    """Let few rows be cut as many are."""
    choose_for(FLAT, monkeypatch)


def text_of(text: str) -> str:
    return "\n".join(s.text for s in kernels_of(hlo2graph.plan(text, target="sm_90")).values())


def sums(rows: int, columns: int) -> str:
    return (
        "HloModule m\nadd { a = u8[] parameter(0) b = u8[] parameter(1) ROOT r = u8[] add(a, b) }\n"
        f"ENTRY e {{ x = u8[{rows},{columns}] parameter(0) z = u8[] constant(3)\n"
        f"ROOT r = u8[{rows}] reduce(x, z), dimensions={{1}}, to_apply=add }}\n"
    )


@needs_gxx
def test_rows_that_begin_anywhere_agree_with_the_host(with_many_rows):
    texts = [fold_program(*program) for program in PROGRAMS]
    texts += [sums(33, columns) for columns in (143, 137, 142, 601)]
    assert all("/ 4" in text_of(text) or "/ 8" in text_of(text) for text in texts)
    plans = [hlo2graph.plan(text, target="sm_90") for text in texts]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)


@pytest.mark.parametrize(
    ("dtype", "columns", "shifted"),
    [
        *(("bf16", 1501, True), ("u8", 1502, True), ("bf16", 1502, False)),
        *(("f32", 1501, True), ("f32", 50257, True), ("f32", 50256, False)),
        ("f32", 133, False),  # of which threads would have two words, and few a second one
    ],
)
def test_which_rows_go_by_words_that_they_begin_anywhere_in(dtype, columns, shifted):
    text = (
        fold_program("softmax", dtype, (100_000, columns), (1,))
        if dtype != "u8"
        else sums(100_000, columns)
    )
    vector = {"bf16": 4, "u8": 8, "f32": 4}[dtype]
    assert (f"+ {vector - 1}) / {vector};" in text_of(text)) == shifted
