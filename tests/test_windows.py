"""Kernels whose threads compute patches of a window's results: emulated, against the host."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

SAME = "size=3x3 pad=1_1x1_1"
LABELS = "dim_labels=bf01_oi01->bf01"
LAST = "b01f_01io->b01f"


def window(given: str, result: str, attrs: str, folds: bool = False, kind: str = "f32") -> str:
    """Return a program of a normalised image, its window of each feature, and perhaps totals."""
    features = given.split(",")[1]
    lines = [
        f"a = {kind}[{given}] parameter(0)",
        f"s = {kind}[{features}] parameter(1)",
        f"k = {kind}[{features},1,3,3] parameter(2)",
        f"sb = {kind}[{given}] broadcast(s), dimensions={{1}}",
        f"d = {kind}[{given}] subtract(a, sb)",
        f"z = {kind}[] constant(0)",
        f"h = {kind}[] constant(1)",
        f"zb = {kind}[{given}] broadcast(z), dimensions={{}}",
        f"hb = {kind}[{given}] broadcast(h), dimensions={{}}",
        f"x = {kind}[{given}] clamp(zb, d, hb)",
    ]
    groups = f"feature_group_count={features}"
    whole = f"{kind}[{result}] convolution(x, k), window={{{attrs}}}, {LABELS}, {groups}"
    if not folds:
        return f"HloModule m\nENTRY e {{\n{chr(10).join(lines)}\nROOT r = {whole}\n}}"
    lines += [
        f"w = {whole}",
        f"t = {kind}[{features}] reduce(w, z), dimensions={{0,2,3}}, to_apply=add",
        f"q = {kind}[{result}] multiply(w, w)",
        f"u = {kind}[{features}] reduce(q, z), dimensions={{0,2,3}}, to_apply=add",
        f"ROOT r = ({kind}[{features}], {kind}[{features}]) tuple(t, u)",
    ]
    add = (
        f"add {{ p = {kind}[] parameter(0) c = {kind}[] parameter(1) ROOT v = {kind}[] add(p, c) }}"
    )
    return f"HloModule m\n{add}\nENTRY e {{\n{chr(10).join(lines)}\n}}"


def by_channels(given: str, result: str, attrs: str, kind: str = "f32", size: int = 3) -> str:
    """Return the window of a program whose features lie side by side."""
    features = given.split(",")[-1]
    text = window(f"1,{features}", f"1,{features}", attrs, kind=kind)
    text = text.replace("dimensions={1}", "dimensions={3}").replace("bf01_oi01->bf01", LAST)
    text = text.replace(f"{kind}[{features},1,3,3]", f"{kind}[{size},{size},1,{features}]")
    head, _, whole = text.rpartition(f"{kind}[1,{features}] convolution")
    return f"{head}{kind}[1,{features}] convolution{whole}".replace(
        f"ROOT r = {kind}[1,{features}]", f"ROOT r = {kind}[{result}]"
    ).replace(f"{kind}[1,{features}]", f"{kind}[{given}]")


def gradient(given: str, result: str) -> str:
    """Return a program of the gradient of a window's weights."""
    features = given.split(",")[1]
    return (
        f"HloModule m\nENTRY e {{ x = f32[{given}] parameter(0) g = f32[{result}] parameter(1) "
        f"ROOT r = f32[3,3,1,{features}] convolution(x, g), "
        f"window={{size={'x'.join(result.split(',')[2:])} pad=1_1x1_1}}, "
        f"dim_labels=fb01_io01->01bf, batch_group_count={features} }}"
    )


HIGH = {
    "eight": window("2,11,40,48", "2,11,40,48", SAME),
    "seven": window("9,24,14,14", "9,24,14,14", SAME),
    "whole": window("70,10,7,7", "70,10,7,7", SAME),
    "strided": window("3,8,80,80", "3,8,40,40", f"{SAME} stride=2x2"),
    "dilated": window("3,9,20,20", "3,9,40,40", "size=3x3 pad=1_2x1_2 lhs_dilate=2x2"),
    "bf16": window("2,11,40,48", "2,11,40,48", SAME, kind="bf16"),
    "sums": window("3,5,16,20", "3,5,16,20", SAME, folds=True),
    "sums-odd": window("3,5,14,9", "3,5,14,9", SAME, folds=True),
    "sums-strided": window("2,3,28,28", "2,3,14,14", f"{SAME} stride=2x2", folds=True),
    "sums-dilated": window(
        "3,4,10,7", "3,4,20,14", "size=3x3 pad=1_2x1_2 lhs_dilate=2x2", folds=True
    ),
    "dilated-rows": window("6,9,20,20", "6,9,40,20", "size=3x3 pad=1_2x1_1 lhs_dilate=2x1"),
    "gradient": gradient("3,5,16,12", "3,5,16,12"),
    "channels": by_channels("3,20,20,36", "3,20,20,36", SAME),
    "channels-seven": by_channels("17,7,7,48", "17,7,7,48", SAME),
    "channels-two": by_channels("5,9,18,44", "5,9,18,44", SAME, size=3),
    "channels-bf16": by_channels("3,20,24,40", "3,20,24,40", SAME, kind="bf16"),
    "channels-five": by_channels("3,20,24,28", "3,20,24,28", "size=5x5 pad=2_2x2_2", size=5),
}
FLAT = {
    "channels-odd": by_channels("3,20,20,35", "3,20,20,35", SAME),
    "channels-strided": by_channels("7,40,40,36", "7,20,20,36", f"{SAME} stride=2x2"),
    "channels-in-odd-rows": by_channels("3,20,27,36", "3,20,27,36", SAME),
    "odd": window("2,32,23,27", "2,32,23,27", SAME),
    "dilated": window("9,9,7,21", "9,9,21,42", "size=3x3 pad=1_3x1_2 lhs_dilate=3x2"),
    "few": window("1,2,8,8", "1,2,8,8", SAME),
}


def is_high(plan) -> bool:
    """Tell whether any kernel chooses between padding and image, without a jump."""
    return any("? v" in source.text for source in kernels_of(plan).values())


@pytest.mark.parametrize("name", HIGH)
def test_threads_take_patches(name):
    assert is_high(h2g.plan(HIGH[name], target="sm_90"))


@pytest.mark.parametrize("name", FLAT)
def test_but_not_where_results_are_few_or_fit_none(name):
    assert not is_high(h2g.plan(FLAT[name], target="sm_90"))


@pytest.mark.slow
@needs_gxx
def test_they_agree_with_the_host():
    programs = [*HIGH.values(), *FLAT.values()]
    plans = [h2g.plan(text, target="sm_90") for text in programs]
    kernels = Kernels(plans)
    for plan in plans:
        agree_with_the_host(plan, kernels)
