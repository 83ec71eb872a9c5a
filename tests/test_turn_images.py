"""Images turned around large convolutions: what is, what is not, and that results stay the same."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms.products import convolution as form
from hlo2graph.backends.host import HostExecutable
from hlo2graph.frontend.verify import verify
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes import turn_images as turning
from hlo2graph.passes.simplify import simplify
from hlo2graph.passes.turn_images import turn_images
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

SAME = "window={size=3x3 pad=1_1x1_1}"
IMAGES = "f32[3,32,8,6]"
NET = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }}
ge {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }}
ENTRY e {{
  x = {IMAGES} parameter(0)
  k = f32[32,32,3,3] parameter(1)
  c = f32[32] parameter(2)
  zero = f32[] constant(0)
  y = {IMAGES} convolution(x, k), {SAME}, dim_labels=bf01_oi01->bf01
  b = {IMAGES} broadcast(c), dimensions={{1}}
  s = {IMAGES} add(y, b)
  m = f32[3,32,4,3] reduce-window(s, zero), window={{size=1x1x2x2 stride=1x1x2x2}}, to_apply=max
  g = {IMAGES} select-and-scatter(s, m, zero), window={{size=1x1x2x2 stride=1x1x2x2}}, select=ge, scatter=add
  t = f32[32] reduce(g, zero), dimensions={{0,2,3}}, to_apply=add
  w = f32[3,3,32,32] convolution(x, g), window={{size=8x6 pad=1_1x1_1}}, dim_labels=fb01_io01->01bf
  flat = f32[3,384] reshape(m)
  ROOT r = (f32[32], f32[3,3,32,32], f32[3,384], {IMAGES}) tuple(t, w, flat, g)
}}
"""  # noqa: E501


@pytest.fixture(autouse=True)
def small_ones_count():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turning, "FEWEST_FLOPS", 0)
        patch.setattr(form, "FEWEST_FLOPS", 0)
        yield


def turned(text: str = NET):
    return verify(simplify(turn_images(h2g.parse(text))))


def opcodes(module):
    return [i.opcode for i in module.entry.instructions]


def test_transposes_are_left_at_arguments_and_what_is_no_image_alone():
    made = turned().entry
    moved = [i for i in made.instructions if i.opcode == "transpose"]
    assert sorted(i.operands[0].partition(".")[0] for i in moved) == ["g", "m", "x"]
    labels = {str(i.attrs["dim_labels"].lhs) for i in made.instructions if "dim_labels" in i.attrs}
    assert labels == {"b01f", "f01b"}


def test_results_stay_the_same():
    module = h2g.parse(NET)
    plans = [h2g.plan(m, target="host") for m in (module, verify(turn_images(module)))]
    arguments = random_inputs(plans[0].inputs, 0)
    want, got = (HostExecutable(plan)(*arguments) for plan in plans)
    for k, result in enumerate(plans[0].outputs):
        found = compare(got[k], want[k], tolerance_for(result.shape.dtype), f"r{k}")
        assert found.ok, str(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("32,8,6]", "16,8,6]"),  # few features
        (f"{SAME}, dim", f"{SAME}, feature_group_count=32, dim"),
        (f"{SAME}, dim", f"{SAME}, operand_precision={{highest,highest}}, dim"),
    ],
)
def test_other_images_lie_as_they_did(before, after):
    text = f"""HloModule m
ENTRY e {{ x = {IMAGES} parameter(0) k = f32[32,32,3,3] parameter(1)
  ROOT y = {IMAGES} convolution(x, k), {SAME}, dim_labels=bf01_oi01->bf01 }}"""
    assert "transpose" in opcodes(turn_images(h2g.parse(text)))
    text = text.replace(before, after)
    if "group" in after or "16" in after:
        inputs = 1 if "group" in after else 16
        text = text.replace("f32[32,32,3,3]", f"f32[{16 if inputs == 16 else 32},{inputs},3,3]")
    module = h2g.parse(text)
    assert turn_images(module) is module


@pytest.mark.slow
@needs_gxx
def test_kernels_of_turned_images_agree_with_the_host():
    # Which element a window selects may be another one where a sum was rounded otherwise.
    lines = [
        f"  g = {IMAGES} multiply(s, s)" if "select-and-scatter" in line else line
        for line in NET.splitlines()
    ]
    plan = h2g.plan("\n".join(lines), target="sm_90")
    agree_with_the_host(plan, Kernels([plan], precise=False), tf32=True)
