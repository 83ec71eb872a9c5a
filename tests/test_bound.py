"""The bound of a plan: the longest way through it, each node at the best that was measured."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from test_guard_rounds import arguments, searching

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.budget.bound import bound
from hlo2graph.inspect.budget.traffic import traffic_of
from hlo2graph.program.device_figures import DEVICES, Measured, Steps
from hlo2graph.program.thunks import While

H200 = DEVICES["h200"]
BEST = Measured(
    bytes_per_second=1e12,
    vector_flops=1e13,
    product_flops={2: 4e14, 4: 2e14},
    launch=100e-6,
    elementwise=1e-6,
    fold=2e-6,
    columns=2.5e-6,
    products={2: {64: 2e-6, 128: 4e-6}, 4: {64: 3e-6, 128: 5e-6}},
    steps=Steps(
        fold=10e-9,
        exchange=20e-9,
        barrier=40e-9,
        look=50e-9,
        column=60e-9,
        row=70e-9,
        butterfly=80e-9,
    ),
)
ADD = "sum { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] add(a, b) }\n"


def planned(*lines: str, before: str = ""):
    *others, last = lines
    text = "\n".join([*others, f"ROOT {last}"])
    return h2g.plan(f"HloModule m\n{before}\nENTRY e {{\n{text}\n}}", target="sm_90", fuse="none")


def seconds(plan, runs=None) -> float:
    return bound(plan, H200, BEST, runs).seconds - BEST.launch


def test_a_chain_is_its_nodes_and_branches_are_the_longest():
    x = "x = f32[64] parameter(0)"
    chain = planned(x, "a = f32[64] negate(x)", "b = f32[64] sine(a)", "c = f32[64] negate(b)")
    assert seconds(chain) == pytest.approx(3e-6)
    assert [name for name, _ in bound(chain, H200, BEST).path] == ["a", "b", "c"]
    side = planned(x, "a = f32[64] negate(x)", "b = f32[64] sine(x)", "c = f32[64] add(a, b)")
    assert seconds(side) == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["x = f32[2048] parameter(0)", "z = f32[] constant(0)",
          "r = f32[] reduce(x, z), dimensions={0}, to_apply=sum"], 2e-6),
        (["x = f32[2048,64] parameter(0)", "z = f32[] constant(0)",
          "r = f32[64] reduce(x, z), dimensions={0}, to_apply=sum"], 2.5e-6),
        (["x = f32[8,96] parameter(0)", "y = f32[96,8] parameter(1)",
          "d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"],
         4e-6),
        (["x = bf16[8,16] parameter(0)", "y = bf16[16,8] parameter(1)",
          "d = bf16[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"], 2e-6),
        (["x = f32[8,300] parameter(0)", "y = f32[300,8] parameter(1)",
          "d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"], 5e-6),
        (["x = bf16[4096,4096] parameter(0)",
          "d = bf16[4096,4096] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"],
         2 * 4096**3 / 4e14),
        (["x = f32[50000000] parameter(0)", "n = f32[50000000] negate(x)"], 400e-6),
        (["x = f32[50000000] parameter(0)", "i = s32[] parameter(1)",
          "d = f32[8] dynamic-slice(x, i), dynamic_slice_sizes={8}"], 1e-6),
    ],
    ids=["fold", "columns", "product", "short product", "deep product", "large product",
         "large", "slice"],
)  # fmt: skip
def test_a_node_takes_what_is_larger(lines, wanted):
    assert seconds(planned(*lines, before=ADD)) == pytest.approx(wanted)


LESS = """less { a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER }"""


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (["x = f32[64,64] parameter(0)", "c = f32[64,64] cholesky(x), lower=true"],
         64 * 60e-9 + 40e-9),
        (["x = f32[96,96] parameter(0)", "b = f32[96,8] parameter(1)",
          "s = f32[96,8] triangular-solve(x, b), left_side=true, lower=true, "
          "transpose_a=NO_TRANSPOSE"], 96 * 70e-9 + 2 * 40e-9),
        (["x = c64[4096] parameter(0)", "f = c64[4096] fft(x), fft_type=FFT, fft_length={4096}"],
         12 * 80e-9 + 2 * 40e-9),
        # By passes: a network has 15 * 16 / 2 steps, many of them with a barrier.
        (["x = f32[32768] parameter(0)", "s = f32[32768] sort(x), dimensions={0}, to_apply=less"],
         4 * (8 * 10e-9 + 2 * 40e-9 + 8 * 20e-9 + 2 * 40e-9)),
        # As few are best compared one with the other.
        (["x = f32[1024] parameter(0)", "s = f32[1024] sort(x), dimensions={0}, to_apply=less"],
         2 * 1024**2 / 5e12 + 40e-9),
        (["x = f32[4,8192] parameter(0)",
          "t = (f32[4,16], s32[4,16]) topk(x), k=16, largest=true"],
         4 * (8 * 10e-9 + 2 * 40e-9)),
    ],
    ids=["factor", "substitution", "transform", "sort", "short sort", "top"],
)  # fmt: skip
def test_what_has_steps_by_its_nature_takes_them(lines, steps):
    plan = planned(*lines, before=LESS)
    assert seconds(plan) == pytest.approx(max(BEST.fold, BEST.elementwise + steps))
    assert bound(plan, H200, BEST, flat=True).seconds - BEST.launch == pytest.approx(BEST.fold)


@pytest.mark.parametrize(("shape", "step"), [("f32[64]", 10e-9), ("f32[8,64]", 40e-9)])
def test_rounds_of_a_stencil_take_a_step_each(shape, step):
    plan = planned(
        f"x = {shape} parameter(0)",
        f"f = {shape} fusion(x), kind=kCustom, calls=swept",
        before=f"""once {{ p = {shape} parameter(0)\nROOT n = {shape} negate(p) }}
        swept {{ p = {shape} parameter(0)\na = {shape} call(p), to_apply=once
        b = {shape} call(a), to_apply=once\nROOT c = {shape} call(b), to_apply=once }}""",
    )
    assert seconds(plan) == pytest.approx(BEST.elementwise + 3 * step)
    assert bound(plan, H200, BEST, flat=True).seconds - BEST.launch == pytest.approx(1e-6)


def test_an_update_in_place_moves_what_is_put_there():
    update = """update {
      p = f32[1000,100] parameter(0)
      u = f32[1,100] parameter(1)
      i = s32[] parameter(2)
      z = s32[] constant(0)
      ROOT d = f32[1000,100] dynamic-update-slice(p, u, i, z)
    }"""
    plan = planned("x = f32[4] parameter(0)", "n = f32[4] negate(x)", before="")
    module = h2g.parse(f"HloModule m\n{update}\nENTRY e {{ ROOT p = f32[4] parameter(0) }}")
    found = traffic_of(module.computations["update"], plan.computations)
    assert found.read == (0, 400, 4)
    assert found.written == (400,)
    assert found.updated == {0: 0}


def test_a_loop_is_the_rounds_that_it_ran():
    plan = h2g.plan(searching(), target="sm_90")
    [loop] = [t for t in plan.body.thunks if isinstance(t, While)]
    longest = []
    for rounds in (4, 40):
        host = HostExecutable(plan)
        host.write_inputs(arguments(rounds))
        runs = Counter(id(stamp.thunk) for stamp in host.execute_stamped(1))
        assert runs[id(loop)] == 1
        longest.append(seconds(plan, runs))
    bodies = (40 - 4) // 4
    each = (longest[1] - longest[0]) / bodies
    fewest = len(loop.condition.thunks) * BEST.elementwise
    assert fewest < each < BEST.fold * (len(loop.body.thunks) + 1)
    assert seconds(plan) < longest[0] + each


@pytest.mark.parametrize(("taken", "wanted"), [(0, 2e-6), (1, 4e-6)])
def test_a_conditional_is_the_branch_that_was_taken(taken, wanted):
    branches = """short { p = f32[64] parameter(0)
      ROOT n = f32[64] negate(p) }
    long { p = f32[64] parameter(0)
      a = f32[64] sine(p)
      b = f32[64] cosine(a)
      ROOT n = f32[64] negate(b) }"""
    plan = planned(
        "x = f32[64] parameter(0)",
        "k = s32[] parameter(1)",
        "two = s32[] constant(2)",
        "least = s32[] minimum(k, two)",
        "c = f32[64] conditional(least, x, x), branch_computations={short, long}",
        before=branches,
    )
    host = HostExecutable(plan)
    host.write_inputs([np.zeros(64, np.float32), np.array(taken, np.int32)])
    runs = Counter(id(stamp.thunk) for stamp in host.execute_stamped(1))
    assert seconds(plan, runs) == pytest.approx(wanted)
    assert seconds(plan) == pytest.approx(4e-6)
