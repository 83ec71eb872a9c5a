"""Convolutions with staged operands, and gradients in two steps: emulated, against the host."""

from __future__ import annotations

import re

import numpy as np
import pytest
from needs import needs_gxx
from ptxas import spilt

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms.products import convolution as form
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.wrap import Outer, wrapped
from hlo2graph.backends.host import HostExecutable
from hlo2graph.frontend.verify import verify
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes.expand_depthwise import expand_depthwise
from hlo2graph.passes.split_convolutions import split_convolutions
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

LAST = "dim_labels=b01f_01io->b01f"
FIRST = "dim_labels=bf01_oi01->bf01"
GRADIENT = "dim_labels=f01b_i01o->01bf"
SAME = "window={size=3x3 pad=1_1x1_1}"


def convolution(lhs: str, rhs: str, result: str, attrs: str) -> str:
    return (
        f"HloModule m\nENTRY e {{ x = {lhs} parameter(0) k = {rhs} parameter(1) "
        f"ROOT r = {result} convolution(x, k), {attrs} }}"
    )


STAGED = {
    "features-last": convolution(
        "f32[2,5,6,64]", "f32[3,3,64,40]", "f32[2,5,6,40]", f"{SAME}, {LAST}"
    ),
    "features-first": convolution(
        "f32[2,16,6,8]", "f32[40,16,3,3]", "f32[2,40,6,8]", f"{SAME}, {FIRST}"
    ),
    "bf16": convolution("bf16[2,5,6,64]", "bf16[3,3,64,40]", "f32[2,5,6,40]", f"{SAME}, {LAST}"),
    "f16-features-first": convolution(
        "f16[2,16,6,8]", "f16[36,16,3,3]", "f16[2,36,6,8]", f"{SAME}, {FIRST}"
    ),
    "odd": convolution(
        "f32[3,23,27]", "f32[5,27,29]", "f32[3,19,29]", "window={size=5}, dim_labels=b0f_0io->b0f"
    ),
    "gradient": convolution(
        "f32[3,6,8,64]",
        "f32[3,6,8,32]",
        "f32[3,3,64,32]",
        f"window={{size=6x8 pad=1_1x1_1}}, {GRADIENT}",
    ),
    "gradient-bf16": convolution(
        "bf16[4,6,8,40]",
        "bf16[4,6,8,24]",
        "bf16[3,3,40,24]",
        f"window={{size=6x8 pad=1_1x1_1}}, {GRADIENT}",
    ),
    "gradient-features-first": convolution(
        "f32[4,40,7,7]",
        "f32[4,36,7,7]",
        "f32[1,1,40,36]",
        "window={size=7x7}, dim_labels=fb01_io01->01bf",
    ),
    "gradient-of-strides": convolution(
        "f32[6,33,9,9]",
        "f32[6,36,5,5]",
        "f32[3,3,33,36]",
        "window={size=5x5 pad=1_1x1_1 rhs_dilate=2x2}, dim_labels=fb01_io01->01bf",
    ),
    "gradient-of-strides-last": convolution(
        "f32[6,9,9,64]",
        "f32[6,5,5,32]",
        "f32[3,3,64,32]",
        f"window={{size=5x5 pad=1_1x1_1 rhs_dilate=2x2}}, {GRADIENT}",
    ),
    "strided-last": convolution(
        "bf16[2,13,11,64]",
        "bf16[3,3,64,32]",
        "f32[2,7,6,32]",
        f"window={{size=3x3 stride=2x2 pad=1_1x1_1 rhs_reversal=1x1}}, {LAST}",
    ),
    "feature-groups": convolution(
        "f32[2,5,6,96]",
        "f32[3,3,48,64]",
        "f32[2,5,6,64]",
        f"{SAME}, {LAST}, feature_group_count=2",
    ),
    "batch-groups": convolution(
        "f32[4,5,6,32]",
        "f32[3,3,32,64]",
        "f32[2,5,6,64]",
        f"{SAME}, {LAST}, batch_group_count=2",
    ),
    "strided": convolution(
        "f32[2,13,11,36]",
        "f32[3,3,36,32]",
        "f32[2,7,6,32]",
        f"window={{size=3x3 stride=2x2 pad=1_1x1_1 rhs_reversal=1x1}}, {LAST}",
    ),
    "dilated": convolution(
        "f32[2,5,6,36]",
        "f32[3,3,36,32]",
        "f32[2,10,12,32]",
        f"window={{size=3x3 pad=1_2x1_2 lhs_dilate=2x2}}, {LAST}",
    ),
    "both-sides": """HloModule m
fused { x = bf16[2,5,6,36] parameter(0) k = bf16[3,3,36,32] parameter(1) c = f32[32] parameter(2)
  n = bf16[2,5,6,36] negate(x)
  d = f32[2,5,6,32] convolution(n, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  b = f32[2,5,6,32] broadcast(c), dimensions={3} s = f32[2,5,6,32] add(d, b)
  m = pred[2,5,6,32] compare(s, b), direction=GT
  ROOT t = (f32[2,5,6,32], pred[2,5,6,32]) tuple(s, m) }
ENTRY e { x = bf16[2,5,6,36] parameter(0) k = bf16[3,3,36,32] parameter(1) c = f32[32] parameter(2)
  ROOT f = (f32[2,5,6,32], pred[2,5,6,32]) fusion(x, k, c), kind=kOutput, calls=fused }""",
}
FLAT = convolution(  # more taps than places
    "f32[24,1,7,32]",
    "f32[24,1,7,32]",
    "f32[3,3,32,32]",
    f"window={{size=1x7 pad=1_1x1_1}}, {GRADIENT}",
)
TAPS = {
    "wide": convolution(
        "f32[1,3,70,32]",
        "f32[1,3,70,32]",
        "f32[3,3,32,32]",
        f"window={{size=3x70 pad=1_1x1_1}}, {GRADIENT}",
    ),
    "many-features-bf16": convolution(
        "bf16[3,8,11,128]",
        "bf16[3,6,9,64]",
        "f32[3,3,128,64]",
        f"window={{size=6x9}}, {GRADIENT}",
    ),
    "five": convolution(
        "f32[4,6,7,32]",
        "f32[4,6,7,32]",
        "f32[5,5,32,32]",
        f"window={{size=6x7 pad=2_2x2_2}}, {GRADIENT}",
    ),
    "two-f16": convolution(
        "f16[4,5,8,64]",
        "f16[4,5,8,96]",
        "f32[3,2,64,96]",
        f"window={{size=5x8 pad=1_1x0_1}}, {GRADIENT}",
    ),
    "turned-out": convolution(
        "f32[3,6,8,64]",
        "f32[3,6,8,32]",
        "f32[32,64,3,3]",
        "window={size=6x8 pad=1_1x1_1}, dim_labels=f01b_i01o->fb01",
    ),
}
LONG = {
    "features-last": convolution(
        "f32[4,23,24,32]",
        "f32[4,23,24,32]",
        "f32[3,3,32,32]",
        f"window={{size=23x24 pad=1_1x1_1}}, {GRADIENT}",
    ),
    "features-first-bf16": convolution(
        "bf16[12,16,14,14]",
        "bf16[12,36,13,14]",
        "bf16[2,1,16,36]",
        "window={size=13x14}, dim_labels=fb01_io01->01bf",
    ),
}
SHARED = {
    "taps": convolution(
        "f32[2,23,24,64]",
        "f32[2,23,24,64]",
        "f32[3,3,64,64]",
        f"window={{size=23x24 pad=1_1x1_1}}, {GRADIENT}",
    ),
    "deep": convolution(
        "f32[1,5,7,130]", "f32[3,3,130,36]", "f32[1,5,7,36]", f"{SAME}, dim_labels=b01f_01io->b01f"
    ),
}
IMAGES = {
    "wide": convolution("f32[1,3,140,32]", "f32[3,3,32,40]", "f32[1,3,140,40]", f"{SAME}, {LAST}"),
    "strided": convolution(
        "f32[2,13,14,32]",
        "f32[3,3,32,36]",
        "f32[2,7,7,36]",
        f"window={{size=3x3 stride=2x2 pad=1_1x1_0}}, {LAST}",
    ),
    "dilated": convolution(
        "f32[2,13,14,128]",
        "f32[3,2,128,32]",
        "f32[2,9,12,32]",
        f"window={{size=3x2 rhs_dilate=2x2}}, {LAST}",
    ),
    "turned": convolution(
        "f32[2,9,9,64]",
        "f32[3,3,32,64]",
        "f32[2,9,9,32]",
        "window={size=3x3 pad=1_1x1_1 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f",
    ),
    "groups-bf16": convolution(
        "bf16[2,7,7,256]",
        "bf16[3,3,64,128]",
        "bf16[2,7,7,128]",
        f"{SAME}, {LAST}, feature_group_count=4",
    ),
    "deep": convolution("f32[1,5,7,512]", "f32[3,3,512,32]", "f32[1,5,7,32]", f"{SAME}, {LAST}"),
    "cropped": convolution(
        "f32[1,9,9,32]",
        "f32[3,3,32,32]",
        "f32[1,5,6,32]",
        f"window={{size=3x3 pad=-1_-1x0_-1}}, {LAST}",
    ),
}
DEPTHWISE = {
    "features-first": convolution(
        "f32[2,12,8,9]",
        "f32[12,1,3,3]",
        "f32[2,12,8,9]",
        f"{SAME}, {FIRST}, feature_group_count=12",
    ),
    "strided": convolution(
        "f32[2,12,8,8]",
        "f32[12,1,3,3]",
        "f32[2,12,4,4]",
        f"window={{size=3x3 stride=2x2 pad=1_1x1_1}}, {FIRST}, feature_group_count=12",
    ),
    "dilated-and-turned": convolution(
        "f32[2,12,4,4]",
        "f32[3,3,12,1]",
        "f32[2,12,8,8]",
        "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, "
        "dim_labels=bf01_01oi->bf01, feature_group_count=12",
    ),
    "bf16-other-order": convolution(
        "bf16[2,8,8,12]",
        "bf16[3,3,1,12]",
        "bf16[2,12,8,8]",
        f"{SAME}, dim_labels=b01f_01io->bf01, feature_group_count=12",
    ),
    "gradient": convolution(
        "f32[4,12,8,8]",
        "f32[4,12,8,8]",
        "f32[3,3,1,12]",
        "window={size=8x8 pad=1_1x1_1}, dim_labels=fb01_io01->01bf, batch_group_count=12",
    ),
    "gradient-of-strides": convolution(
        "f32[4,12,8,8]",
        "f32[4,12,4,4]",
        "f32[12,1,3,3]",
        "window={size=4x4 pad=1_0x1_0 rhs_dilate=2x2}, "
        "dim_labels=fb01_io01->fb01, batch_group_count=12",
    ),
    "gradient-features-last": convolution(
        "bf16[4,8,8,12]",
        "bf16[4,8,8,12]",
        "bf16[3,3,1,12]",
        "window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, batch_group_count=12",
    ),
}


def planned(programs: dict[str, str], fuse: str):
    plans = {name: h2g.plan(text, target="sm_90", fuse=fuse) for name, text in programs.items()}
    return plans, Kernels(list(plans.values()), precise=False)


@pytest.fixture(autouse=True, scope="module")
def small_ones_are_staged():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form, "FEWEST_FLOPS", 0)
        yield


@pytest.fixture(scope="module")
def staged():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form, "image_kernel", lambda _: None)
        return planned(STAGED | TAPS | {"flat": FLAT}, "none")


@pytest.fixture(scope="module")
def images():
    return planned(IMAGES, "none")


@pytest.fixture(scope="module")
def in_steps():
    return planned(LONG, "default")


@pytest.fixture(scope="module")
def shared():
    return planned(SHARED, "default")


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", [*STAGED, *TAPS, "flat"])
def test_staged_convolutions_agree_with_the_host(staged, name):
    plans, kernels = staged
    (source,) = kernels_of(plans[name]).values()
    assert "hlo::dynamic_shared" in source.text
    agree_with_the_host(plans[name], kernels, tf32=True)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", IMAGES)
def test_places_of_a_window_share_what_they_read(images, name):
    plans, kernels = images
    (source,) = kernels_of(plans[name]).values()
    assert "int row_a[" in source.text
    agree_with_the_host(plans[name], kernels, tf32=True)


def test_a_wrapped_kernel_has_the_same_clusters():
    (source,) = kernels_of(h2g.plan(SHARED["taps"], target="sm_90")).values()
    found = wrapped(source, "outer", lambda parameters: Outer(tuple(map(str, parameters)), ()))
    assert re.search(r"__launch_bounds__\(\d+, 1\) __cluster_dims__\(2\)\nouter\(", found.text)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", LONG)
def test_long_sums_are_taken_in_two_steps(in_steps, name):
    plans, kernels = in_steps
    sources = list(kernels_of(plans[name]).values())
    assert len(sources) == 2, "the kernel is turned on the way, not by itself"
    assert "hlo::dynamic_shared" in sources[0].text
    agree_with_the_host(plans[name], kernels, tf32=True)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", SHARED)
def test_blocks_of_a_cluster_share_sums(shared, name):
    plans, kernels = shared
    source = next(iter(kernels_of(plans[name]).values()))
    assert "__cluster_dims__(2)" in source.text
    agree_with_the_host(plans[name], kernels, tf32=True)


@pytest.mark.parametrize("name", LONG)
def test_two_steps_mean_the_same(name):
    module = h2g.parse(LONG[name])
    split = split_convolutions(module)
    assert "feature_group_count" in str(split)
    means_the_same(module, verify(split))


def means_the_same(before, after) -> None:
    plans = [h2g.plan(m, target="host") for m in (before, after)]
    arguments = random_inputs(plans[0].inputs, 0)
    (want,), (got,) = (HostExecutable(plan)(*arguments) for plan in plans)
    found = compare(got, want, tolerance_for(plans[0].outputs[0].shape.dtype), "r")
    assert found.ok, str(found)


@pytest.mark.parametrize("name", DEPTHWISE)
def test_convolutions_of_each_feature_are_sums(name):
    module = h2g.parse(DEPTHWISE[name])
    expanded = verify(expand_depthwise(module))
    assert all(i.opcode != "convolution" for i in expanded.entry.instructions)
    means_the_same(module, expanded)


@pytest.mark.slow
@needs_gxx
def test_convolutions_of_each_feature_run_as_loops_and_folds():
    plans, kernels = planned(DEPTHWISE, "default")
    for plan in plans.values():
        agree_with_the_host(plan, kernels, tf32=True)


@pytest.mark.parametrize(
    "attrs",
    [
        f"{SAME}, {FIRST}, feature_group_count=6",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, batch_group_count=2",
    ],
)
def test_other_groups_stay_convolutions(attrs):
    inputs = 2 if "feature" in attrs else 12
    out = "f32[2,12,8,8]" if "feature" in attrs else "f32[1,12,8,8]"
    text = convolution("f32[2,12,8,8]", f"f32[12,{inputs},3,3]", out, attrs)
    module = h2g.parse(text)
    assert expand_depthwise(module) is module


@pytest.mark.parametrize(
    "text",
    [
        STAGED["gradient"],
        LONG["features-last"].replace(
            "convolution(x, k),", "convolution(x, k), operand_precision={highest,highest},"
        ),
    ],
    ids=["short", "exact"],
)
def test_other_sums_are_left_whole(text):
    module = h2g.parse(text)
    assert split_convolutions(module) is module


def test_what_lies_as_it_will_is_copied_four_words_at_a_time():
    """Of a group's features too, whose number is a part of the feature's."""
    first, *_ = kernels_of(h2g.plan(LONG["features-last"], target="sm_90")).values()
    copies = [line for line in first.text.splitlines() if "hlo::copy_four(" in line]
    assert copies
    assert not any("%" in line for line in copies)
    assert "hlo::load(" not in first.text


@pytest.mark.parametrize("name", ["both-sides", "features-first", "odd"])
def test_what_does_not_goes_through_registers(name):
    (source,) = kernels_of(h2g.plan(STAGED[name], target="sm_90", fuse="none")).values()
    assert "hlo::copy_four(" not in source.text


@pytest.mark.parametrize("name", ["features-last", "gradient", "bf16", "features-first"])
def test_no_registers_are_spilt(name):
    plan = h2g.plan(STAGED[name], target="sm_90", fuse="none")
    (source,) = kernels_of(plan).values()
    assert spilt(source.text, "sm_90") == 0


@pytest.mark.parametrize("name", TAPS)
def test_taps_of_a_row_share_what_is_read(name):
    (source,) = kernels_of(h2g.plan(TAPS[name], target="sm_90", fuse="none")).values()
    assert "const int tap = " in source.text
    assert "hlo::load(" not in source.text
    assert spilt(source.text, "sm_90") == 0


def test_warps_share_the_sum_where_tiles_are_few(monkeypatch):
    monkeypatch.setattr(form, "image_kernel", lambda _: None)
    few, many = (
        next(iter(kernels_of(h2g.plan(text, target="sm_90", fuse="none")).values()))
        for text in (
            STAGED["features-last"],
            convolution(
                "f32[64,32,32,64]", "f32[3,3,64,64]", "f32[64,32,32,64]", f"{SAME}, {LAST}"
            ),
        )
    )
    assert few.threads >= 128
    assert many.grid[0] == 64 * 32 * 32 // 128
    assert np.log2(many.threads) == 7


def test_depthwise_convolutions_that_read_each_other_become_sums():
    attrs = f"{SAME}, {LAST}, feature_group_count=4"
    text = f"""HloModule m
    ENTRY e {{
      x = f32[2,6,5,4] parameter(0)
      k = f32[3,3,1,4] parameter(1)
      a = f32[2,6,5,4] convolution(x, k), {attrs}
      ROOT r = f32[2,6,5,4] convolution(a, k), {attrs}
    }}"""
    module = h2g.parse(text)
    made = verify(expand_depthwise(module))
    assert "convolution" not in {i.opcode for i in made.entry.instructions}
    plan = h2g.plan(text, target="host", fuse="default")
    given = random_inputs(plan.inputs, 0)
    (found,) = HostExecutable(plan)(*given)
    (want,) = h2g.compile(text, "host")(*given)
    shape = plan.outputs[0].shape
    assert compare(found, want, tolerance_for(shape.dtype), "r").ok
