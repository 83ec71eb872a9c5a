"""Loops whose elements go their own ways: one kernel, whatever the number of rounds."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.thunks import Kernel, While
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host


def loop(state: list[str], body: str, until: str, inits: list[str], results: list[int]) -> str:
    """Return a loop of the state x0, x1, ..., of which `body` makes n0, n1, ..."""
    shape = f"({', '.join(state)})"
    taken = "\n".join(
        f"x{k} = {part} get-tuple-element(s), index={k}" for k, part in enumerate(state)
    )
    after = ", ".join(f"n{k}" if f"n{k} =" in body else f"x{k}" for k in range(len(state)))
    entry = "\n".join(
        f"p{k} = {part} {init}" for k, (part, init) in enumerate(zip(state, inits, strict=True))
    )
    begun = ", ".join(f"p{k}" for k in range(len(state)))
    parts = "\n".join(f"r{k} = {state[k]} get-tuple-element(w), index={k}" for k in results)
    shapes = ", ".join(state[k] for k in results)
    return f"""HloModule m
sum {{
a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT c = f32[] add(a, b)
}}
either {{
a = pred[] parameter(0)
b = pred[] parameter(1)
ROOT c = pred[] or(a, b)
}}
body {{
s = {shape} parameter(0)
{taken}
{body}
ROOT t = {shape} tuple({after})
}}
more {{
s = {shape} parameter(0)
{taken}
{until}
}}
ENTRY e {{
{entry}
b = {shape} tuple({begun})
w = {shape} while(b), condition=more, body=body
{parts}
ROOT r = ({shapes}) tuple({", ".join(f"r{k}" for k in results)})
}}
"""


def counted(rounds: int) -> str:
    """Return the condition of a loop whose first state counts."""
    return f"last = s32[] constant({rounds})\nROOT c = pred[] compare(x0, last), direction=LT"


COUNT = "one = s32[] constant(1)\nn0 = s32[] add(x0, one)\n"


def waving(dtype: str, dims: str) -> str:
    """Return rounds of cosines of products."""
    shape = f"{dtype}[{dims}]"
    body = f"""{COUNT}h = {dtype}[] constant(0.75)
hs = {shape} broadcast(h), dimensions={{}}
v = {shape} multiply(x1, hs)
a = {shape} abs(v)
y = {shape} sqrt(a)
n1 = {shape} subtract(y, x2)
n2 = {shape} multiply(x2, hs)"""
    inits = ["constant(0)", "parameter(0)", "parameter(1)"]
    return loop(["s32[]", shape, shape], body, counted(301), inits, [1, 0])


HALVES = """two = s32[] constant(2)
one = s32[] constant(1)
n0 = s32[] divide(x0, two)
n1 = s32[] add(x1, one)"""
UNTIL = "last = s32[] constant(1)\nROOT c = pred[] compare(x0, last), direction=GT"
WANTED = """y = f32[30] multiply(x0, x0)
d = f32[30] subtract(y, x2)
e = f32[30] abs(d)
near = f32[] constant(0.0001)
nears = f32[30] broadcast(near), dimensions={}
far = pred[30] compare(e, nears), direction=GT
m = s32[] constant(40)
ms = s32[30] broadcast(m), dimensions={}
few = pred[30] compare(x1, ms), direction=LT
on = pred[30] and(far, few)
"""
CLOSER = f"""{WANTED}q = f32[30] divide(x2, x0)
z = f32[30] add(x0, q)
h = f32[] constant(0.5)
hs = f32[30] broadcast(h), dimensions={{}}
half = f32[30] multiply(z, hs)
n0 = f32[30] select(on, half, x0)
one = s32[] constant(1)
ones = s32[30] broadcast(one), dimensions={{}}
k = s32[30] add(x1, ones)
n1 = s32[30] select(on, k, x1)"""
ANY = f"""{WANTED}no = pred[] constant(false)
ROOT c = pred[] reduce(on, no), dimensions={{0}}, to_apply=either"""
ROOTS = ["parameter(0)", "parameter(1)", "parameter(2)"]
MAPPED = loop(["f32[30]", "s32[30]", "f32[30]"], CLOSER, ANY, ROOTS, [0, 1])
PROGRAMS = {
    "any": MAPPED,
    "f32": waving("f32", "300"),
    "bf16": waving("bf16", "7,50"),
    "scalars": loop(["s32[]", "s32[]"], HALVES, UNTIL, ["parameter(0)", "constant(0)"], [0, 1]),
}
TOTAL = f"""{COUNT}z = f32[] constant(0)
whole = f32[] reduce(x1, z), dimensions={{0}}, to_apply=sum
ts = f32[40] broadcast(whole), dimensions={{}}
n1 = f32[40] subtract(x1, ts)"""
LOOKING = "z = f32[] constant(0)\nROOT c = pred[] compare(x1, z), direction=GT"
SMALLER = """h = f32[] constant(0.5)
hs = f32[9] broadcast(h), dimensions={}
n0 = f32[9] multiply(x0, hs)
z = f32[1] slice(x0), slice={[3:4]}
n1 = f32[] reshape(z)"""
OTHERS = {
    "one that goes on by itself": MAPPED.replace("select(on, k, x1)", "add(x1, ones)"),
    "another wish": MAPPED.replace("constant(0.0001)", "constant(0.001)", 1),
    "folded": loop(["s32[]", "f32[40]"], TOTAL, counted(301), ["constant(0)", "parameter(0)"], [1]),
    "an element tells when it ends": loop(
        ["f32[9]", "f32[]"], SMALLER, LOOKING, ["parameter(0)", "parameter(1)"], [0]
    ),
}


@pytest.fixture(scope="module")
def plans():
    found = {name: h2g.plan(text, target="sm_90") for name, text in PROGRAMS.items()}
    return found, Kernels(list(found.values()))


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_same_bits(plans, name):
    found, kernels = plans
    plan = found[name]
    assert [type(thunk) for thunk in plan.body.thunks] == [Kernel]
    check_support(plan)
    given = random_inputs(plan.inputs, 0)
    wanted = HostExecutable(h2g.plan(PROGRAMS[name], target="host"))(*given)
    assert same_bits(wanted, HostExecutable(plan)(*given))
    if name == "bf16":  # which kernels round less often
        agree_with_the_host(plan, kernels)
    else:
        assert same_bits(wanted, EmulatedExecutable(plan, kernels)(*given))


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay(name):
    plan = h2g.plan(OTHERS[name], target="sm_90")
    assert any(isinstance(thunk, While) for thunk in plan.body.thunks)
