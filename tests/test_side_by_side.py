"""Small independent kernels as one launch: what joins, what does not, and that results stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import scalar_region
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda import kernels
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.loops import carried
from hlo2graph.passes.side_by_side import MOST_LEAVES, side_by_side
from hlo2graph.program.buffers import donate
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host
from tests.emulation.plans import planned

ADD = scalar_region("add", "add", "f32")
LESS = (
    "less { a = f32[] parameter(0) b = f32[] parameter(1) "
    "ROOT r = pred[] compare(a, b), direction=LT }\n"
)


def joined(body: str, before: str = "") -> Module:
    module = h2g.parse(f"HloModule m\n{before}\nENTRY main {{\n{body}\n}}\n")
    found = side_by_side(module)
    verify(h2g.parse(format_module(found)))
    return found


def parts(module: Module) -> list[list[str]]:
    """Return the opcodes of each join's parts."""
    found = []
    for instr in module.entry.instructions:
        if instr.opcode == "fusion":
            inside = module.computations[str(instr.attrs["calls"])]
            calls = [i for i in inside.instructions if i.opcode == "fusion"]
            found.append([module.computations[str(i.attrs["calls"])].result.opcode for i in calls])
    return found


def test_what_starts_at_once_joins():
    module = joined(
        "p = f32[8] parameter(0)\nq = s32[4,2] parameter(1)\na = f32[8] negate(p)\n"
        "b = s32[2,4] transpose(q), dimensions={1,0}\n"
        "ROOT t = (f32[8], s32[2,4]) tuple(a, b)"
    )
    assert parts(module) == [["negate", "transpose"]]


def test_each_depth_joins_on_its_own():
    module = joined(
        "p = f32[8] parameter(0)\nq = f32[8] parameter(1)\na = f32[8] negate(p)\n"
        "c = f32[8] abs(a)\nb = f32[8] sine(q)\nd = f32[8] cosine(b)\n"
        "ROOT t = (f32[8], f32[8]) tuple(c, d)"
    )
    assert parts(module) == [["negate", "sine"], ["abs", "cosine"]]


def test_what_waits_for_another_does_not_join_it():
    module = joined("p = f32[8] parameter(0)\na = f32[8] negate(p)\nROOT b = f32[8] abs(a)")
    assert parts(module) == []


def test_the_longest_way_does_not_grow():
    """The sort takes longer than what stands beside it, which much depends on."""
    slow = "s = f32[64] sort(p), dimensions={0}, to_apply=less\na0 = f32[8] negate(q)\n"
    rest = "".join(f"a{k + 1} = f32[8] negate(a{k})\n" for k in range(9))
    head = "p = f32[64] parameter(0)\nq = f32[8] parameter(1)\n"
    module = joined(head + slow + rest + "ROOT t = (f32[64], f32[8]) tuple(s, a9)", LESS)
    assert parts(module) == []
    module = joined(head + slow + "ROOT t = (f32[64], f32[8]) tuple(s, a0)", LESS)
    assert parts(module) == [["sort", "negate"]]


def test_what_fills_a_device_stays_alone():
    module = joined(
        "p = f32[1000,1000] parameter(0)\nq = f32[8] parameter(1)\na = f32[1000,1000] negate(p)\n"
        "b = f32[8] negate(q)\nROOT t = (f32[1000,1000], f32[8]) tuple(a, b)"
    )
    assert parts(module) == []


def test_control_dependencies_and_effects_stay():
    module = joined(
        "p = f32[8] parameter(0)\nq = f32[8] parameter(1)\na = f32[8] negate(p)\n"
        "b = f32[8] sine(q), control-predecessors={a}\nc = f32[8] abs(q)\n"
        "d = f32[8] cosine(p)\nROOT t = (f32[8], f32[8], f32[8], f32[8]) tuple(a, b, c, d)"
    )
    assert parts(module) == [["abs", "cosine"]]
    assert [i.opcode for i in module.entry.instructions].count("sine") == 1


def test_a_kernel_has_no_more_parameters_than_fit():
    count = 300
    lines = [f"p{k} = f32[3] parameter({k})\na{k} = f32[3] negate(p{k})" for k in range(count)]
    types = ", ".join(["f32[3]"] * count)
    names = ", ".join(f"a{k}" for k in range(count))
    module = joined("\n".join(lines) + f"\nROOT t = ({types}) tuple({names})")
    assert sum(map(len, parts(module))) == count
    for instr in module.entry.instructions:
        if instr.opcode == "fusion":
            assert len(instr.operands) + instr.shape.leaf_count <= MOST_LEAVES


PROGRAMS = {
    "kinds": (
        "p = f32[5,40] parameter(0)\nq = f32[40,6] parameter(1)\nk = s32[70] parameter(2)\n"
        "z = f32[] constant(0)\n"
        "a = f32[5,6] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "b = f32[5] reduce(p, z), dimensions={1}, to_apply=add\n"
        "c = f32[6] reduce(q, z), dimensions={0}, to_apply=add\n"
        "d = s32[70] negate(k)\ne = f32[7] broadcast(z), dimensions={}\n"
        "f = f32[5,40] sort(p), dimensions={1}, to_apply=less\n"
        "ROOT t = (f32[5,6], f32[5], f32[6], s32[70], f32[7], f32[5,40]) "
        "tuple(a, b, c, d, e, f)",
        ADD + LESS,
    ),
    "equal": (
        "".join(
            f"p{k} = f32[33] parameter({k})\nf{k} = f32[33] fusion(p{k}), kind=kLoop, calls=g{k}\n"
            for k in range(4)
        )
        + "ROOT t = (f32[33], f32[33], f32[33], f32[33]) tuple(f0, f1, f2, f3)",
        "".join(
            f"g{k} {{ x = f32[33] parameter(0) c = f32[] constant({k}.5) w = f32[33] broadcast(c), "
            "dimensions={} m = f32[33] multiply(x, w) ROOT r = f32[33] tanh(m) }\n"
            for k in range(4)
        ),
    ),
    "several-results": (
        "p = f32[9] parameter(0)\nq = f32[9,9] parameter(1)\n"
        "f = (f32[9], s32[9]) fusion(p), kind=kLoop, calls=two\n"
        "g = f32[9,9] cosine(q)\nx = f32[9] get-tuple-element(f), index=0\n"
        "y = s32[9] get-tuple-element(f), index=1\n"
        "ROOT t = (s32[9], f32[9], f32[9,9]) tuple(y, x, g)",
        "two { p = f32[9] parameter(0) a = f32[9] sine(p) b = s32[9] convert(p) "
        "ROOT t = (f32[9], s32[9]) tuple(a, b) }\n",
    ),
}


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_joined_kernels_agree_with_the_host(name):
    module = joined(*PROGRAMS[name])
    assert len(parts(module)) == 1
    plan = h2g.plan(module, target="sm_90", fuse="none")
    check_support(plan)
    assert len(plan.body.thunks) == 1
    kernels = Kernels([plan])
    text = f"HloModule m\n{PROGRAMS[name][1]}\nENTRY main {{\n{PROGRAMS[name][0]}\n}}\n"
    agree_with_the_host(plan, kernels, h2g.plan(text, target="host"))


def test_equal_parts_share_one_text():
    plan = h2g.plan(joined(*PROGRAMS["equal"]), target="sm_90", fuse="none")
    (source,) = kernels_of(plan).values()
    assert source.text.count("hlo::tanh") == 1
    assert source.text.count("case ") == 3


def test_a_part_in_a_loop_still_writes_in_place():
    """Else joining would cost the loop a copy for each leaf of its state."""
    module = joined(
        "n = s32[] parameter(0)\nx = f32[8] parameter(1)\nt = (s32[], f32[8]) tuple(n, x)\n"
        "ROOT w = (s32[], f32[8]) while(t), condition=more, body=step",
        "more { t = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(t), index=0 "
        "z = s32[] constant(9) ROOT r = pred[] compare(i, z), direction=LT }\n"
        "step { t = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(t), index=0 "
        "x = f32[8] get-tuple-element(t), index=1 o = s32[] constant(1) j = s32[] add(i, o) "
        "y = f32[8] negate(x) ROOT r = (s32[], f32[8]) tuple(j, y) }\n",
    )
    plan = h2g.plan(module, target="sm_90", fuse="none")
    (loop,) = [t for t in plan.body.thunks if hasattr(t, "body")]
    (kernel,) = loop.body.thunks
    assert kernel.reads == kernel.writes
    (found,) = h2g.compile(plan, "host")(np.int32(7), np.arange(8, dtype=np.float32))[1:]
    assert found.tolist() == np.arange(8).tolist()


def test_a_dot_of_more_operands_than_two_has_a_time():
    text = """HloModule more
ENTRY main {
  x = f32[16,16] parameter(0)
  ROOT d = f32[16,16] dot(x, x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    assert h2g.plan(text, target="sm_90", fuse="default").body.thunks


SCALED = """
HloModule m
ENTRY main {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  r = f32[64] parameter(2)
  s = f32[64] parameter(3)
  one = f32[] constant(1.5)
  ones = f32[64] broadcast(one), dimensions={}
  a = f32[64] multiply(p, ones)
  odd = f32[] constant(nan)
  nans = f32[64] broadcast(odd), dimensions={}
  b = f32[64] multiply(q, nans)
  two = f32[] constant(-2)
  twos = f32[64] broadcast(two), dimensions={}
  c = f32[64] multiply(r, twos)
  five = f32[] constant(5)
  fives = f32[64] broadcast(five), dimensions={}
  d = f32[64] add(s, fives)
  ROOT t = (f32[64], f32[64], f32[64], f32[64]) tuple(a, b, c, d)
}
"""


@needs_gxx
def test_parts_that_differ_in_constants_alone_are_written_once(monkeypatch):
    written = []
    write = kernels._written

    def counting(signature, computation, computations, inplace):
        written.append(computation.name)
        return write(signature, computation, computations, inplace)

    monkeypatch.setattr(kernels, "_written", counting)
    plan = h2g.plan(SCALED, target="sm_90")
    (source,) = kernels_of(plan).values()
    assert len(written) == 2
    assert source.text.count("switch (part_at") == 1
    args = random_inputs(plan.inputs, 0)
    assert same_bits(EmulatedExecutable(plan)(*args), HostExecutable(plan)(*args))


FACTOR = """factor { x = f32[5,5] parameter(0)
  y = f32[5,5] negate(x)
  ROOT r = (f32[5,5], s32[5], s32[5]) custom-call(y), custom_call_target="LuDecomposition" }
turned { x = f32[5,5] parameter(0)
  ROOT r = f32[5,5] transpose(x), dimensions={1,0} }
"""
BOTH = """x = f32[5,5] parameter(0)
  a = (f32[5,5], s32[5], s32[5]) fusion(x), kind=kCustom, calls=factor
  b = f32[5,5] fusion(x), kind=kLoop, calls=turned
  ROOT r = ((f32[5,5], s32[5], s32[5]), f32[5,5]) tuple(a, b)"""


@needs_gxx
def test_a_factor_given_as_a_part_has_its_headers():
    text = f"""HloModule m
{FACTOR}both {{ {BOTH} }}
ENTRY e {{ x = f32[5,5] parameter(0)
  ROOT r = ((f32[5,5], s32[5], s32[5]), f32[5,5]) fusion(x), kind=kCustom, calls=both }}"""
    plan = h2g.plan(text, target="sm_90", fuse="none")
    (source,) = kernels_of(plan).values()
    assert "hlo::factor_panel" in source.text
    agree_with_the_host(plan, Kernels([plan]))


def test_what_takes_all_registers_stays_alone():
    assert parts(joined(BOTH, FACTOR)) == [[], []]


@needs_gxx
def test_names_of_lanes_are_no_literals():
    """A ragged product keeps a variable's value in a constant, in each of the lanes."""

    def loss(x, w, sizes):
        return (jax.lax.ragged_dot(x, w, sizes) ** 2).sum()

    shapes = (((33, 8), jnp.float32), ((5, 8, 33), jnp.float32), ((5,), jnp.int32))
    given = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    with jax.enable_x64(False):
        traced = jax.jit(jax.grad(loss, (0, 1))).trace(*given)
    text = traced.lower(lowering_platforms=("cuda",)).as_text("hlo")
    with planned({"gradients": text}, DeviceFigures(1, 64, 1e9)) as (plans, built):
        plan = plans["gradients"]
        assert any("part_block" in s.text and "m6_1" in s.text for s in kernels_of(plan).values())
        arguments = (
            np.random.default_rng(0).standard_normal((33, 8)).astype(np.float32),
            np.random.default_rng(1).standard_normal((5, 8, 33)).astype(np.float32),
            np.array([10, 0, 7, 12, 4], np.int32),
        )
        got = EmulatedExecutable(plan, built)(*arguments)
        for ours, theirs in zip(got, HostExecutable(plan)(*arguments), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def trained(weights, x):
    def loss(weights):
        return (jnp.tanh(x @ weights[0]) @ weights[1]).mean()

    return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]


@pytest.mark.parametrize("much", [0, 1 << 30])
def test_weights_that_are_given_up_are_written_in_place_if_they_are_large(much, monkeypatch):
    """A layer's update is not joined with the product that reads the layer's old weights."""
    monkeypatch.setattr(carried, "MUCH_GIVEN_UP", much)
    monkeypatch.setattr(donate, "MUCH_GIVEN_UP", much)
    weights = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * 2
    x = jax.ShapeDtypeStruct((8, 64), jnp.float32)
    text = jax.jit(trained, donate_argnums=0).lower(weights, x).as_text("hlo")
    plan = h2g.plan(text, target="sm_90")
    dropped = [line for line in plan.aliases if "not honoured" in line]
    assert len(plan.aliases) == 2
    assert len(dropped) == (0 if not much else 1)
    given = random_inputs(plan.inputs, 0)
    wanted = HostExecutable(h2g.plan(text, target="host"))(*given)
    for found, want in zip(HostExecutable(plan)(*given), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
