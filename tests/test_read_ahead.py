"""Reads move in front of a barrier where their places are known before it."""

from __future__ import annotations

from agreement import module

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms.read_ahead import read_ahead
from hlo2graph.backends.cuda.kernels import kernels_of

BODY = """
    const int i7 = i3 + 128;
    const hlo::f32 v8 = hlo::load(p2[i7]);
    hlo::f32 m9 = {};
    for (int w = 0; w < 4; ++w) m9 = hlo::add(m9, sums[w][across]);
    const hlo::s32 v10 = hlo::load(p3[0]);
    const int i11 = hlo::clamped_index(v10, 7);
    const float v12 = hlo::load(p4[i11 * 8 + i7]);
    const int i13 = hlo::clamped_index(m9, 7);
    const hlo::f32 v14 = hlo::load(p2[i13]);
    if (i7 < 4) {
      const hlo::f32 v15 = hlo::load(p2[i7]);
    }
    const hlo::f32 v16 = hlo::add(v8, v14);
""".strip("\n").split("\n")


def test_what_is_known_before_is_read_before():
    ahead, left = read_ahead(BODY, "stores")
    assert [line.strip() for line in ahead] == [
        "const int i7 = i3 + 128;",
        "const hlo::f32 v8 = stores ? hlo::load(p2[i7]) : hlo::f32{};",
        "const hlo::s32 v10 = stores ? hlo::load(p3[0]) : hlo::s32{};",
        "const int i11 = hlo::clamped_index(v10, 7);",
        "const float v12 = stores ? hlo::load(p4[i11 * 8 + i7]) : float{};",
    ]
    assert left == [BODY[k] for k in (2, 3, 7, 8, 9, 10, 11, 12)]


def test_a_bias_is_under_way_while_the_sums_are_made():
    text = module("""x = f32[16,256] parameter(0) w = f32[256,256] parameter(1)
      b = f32[256] parameter(2) bias = f32[16,256] broadcast(b), dimensions={1}
      d = f32[16,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[16,256] add(d, bias)""")
    [source] = kernels_of(h2g.plan(text, target="sm_90")).values()
    before, barrier, behind = source.text.partition("__syncthreads();")
    assert barrier
    assert "hlo::load(" not in behind
    assert before.count("hlo::load(") > 1


def test_what_several_results_of_a_thread_read_stands_together():
    text = module("""x = f32[50176,24] parameter(0) w = f32[24,144] parameter(1)
      b = f32[50176,144] parameter(2)
      d = f32[50176,144] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[50176,144] multiply(d, b)""")
    [source] = kernels_of(h2g.plan(text, target="sm_90")).values()
    loop = source.text.partition("for (int slot = ")[2]
    reads, _, sums = loop.partition("hlo::add(")
    assert reads.count("hlo::load(p2[") == 4
    assert "hlo::load(" not in sums
