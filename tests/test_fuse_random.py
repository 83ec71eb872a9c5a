"""Fusion of random programs: no cycles, no longer paths, nothing dear done again, same results."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_modules import random_module

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.region import region_of
from hlo2graph.passes.fusion.body import Body
from hlo2graph.passes.fusion.cost import (
    MOST_AGAIN,
    MOST_ARRAYS,
    MOST_INSTRUCTIONS,
    MOST_REPEATED,
    MOST_WRITTEN,
)
from hlo2graph.passes.fusion.fuse import fuse
from hlo2graph.passes.fusion.group import Group, Judge
from hlo2graph.passes.fusion.grow import Growth
from hlo2graph.passes.fusion.merge import Merging
from hlo2graph.passes.side_by_side import side_by_side

DIMS = ((64, 512), (512,), (64,), (2048, 512))
UNARY = ("tanh", "negate", "exponential", "abs")


def graph(choose) -> str:
    """Return a module of elementwise work, folds, broadcasts, library products and slices."""
    lines = [f"p{k} = f32[{','.join(map(str, d))}] parameter({k})" for k, d in enumerate(DIMS)]
    lines += ["z = f32[] constant(0)"]
    values = [(f"p{k}", dims) for k, dims in enumerate(DIMS)]
    for number in range(choose(1, 24)):
        name, dims = values[choose(0, len(values) - 1)]
        like = [v for v, d in values if d == dims]
        other = like[choose(0, len(like) - 1)]
        made, call = dims, f"{UNARY[choose(0, 3)]}({name})"
        match choose(0, 5):
            case 0:
                call = f"add({name}, {other})"
            case 1 if len(dims) == 2:
                axis = choose(0, 1)
                made = (dims[1 - axis],)
                call = f"reduce({name}, z), dimensions={{{axis}}}, to_apply=sum"
            case 2 if len(dims) == 1:
                made = {512: (64, 512), 64: (64, 512), 2048: (2048, 512)}[dims[0]]
                call = f"broadcast({name}), dimensions={{{made.index(dims[0])}}}"
            case 3 if dims == (2048, 512):
                made = (64, 512)
                call = f"slice({name}), slice={{[3:67], [0:512]}}"
            case 4 if dims == (2048, 512):
                made = (2048, 2048)
                call = (
                    f"dot({name}, {other}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
                )
            case _:
                pass
        if made == (2048, 2048):
            lines.append(f"v{number} = f32[2048,2048] {call}")
            call, made = f"slice(v{number}), slice={{[0:64], [0:512]}}", (64, 512)
            lines.append(f"w{number} = f32[64,512] {call}")
            values.append((f"w{number}", made))
            continue
        lines.append(f"v{number} = f32[{','.join(map(str, made))}] {call}")
        values.append((f"v{number}", made))
    wanted = [values[choose(0, len(values) - 1)] for _ in range(choose(1, 4))]
    shapes = ", ".join(f"f32[{','.join(map(str, d))}]" for _, d in wanted)
    lines.append(f"ROOT t = ({shapes}) tuple({', '.join(v for v, _ in wanted)})")
    body = "\n  ".join(lines)
    return (
        "HloModule m\nsum { a = f32[] parameter(0) b = f32[] parameter(1) "
        f"ROOT c = f32[] add(a, b) }}\nENTRY e {{\n  {body}\n}}\n"
    )


@st.composite
def graphs(draw):
    return graph(lambda low, high: draw(st.integers(low, high)))


def merged(text: str) -> tuple[Merging, int]:
    """Return the merging of a module's entry, merged, and how long all took before."""
    body = Body.of(h2g.parse(text).entry, frozenset())
    growth = Growth(body, Judge(body))
    merging = Merging.of(body, growth.judge, growth.run(), growth.stays)
    merging.set_slots()
    before = merging.horizon
    merging.run()
    return merging, before


@given(graphs())
def test_no_cycle_and_no_longer_path(text):
    merging, before = merged(text)
    waiting = {node: {merging.maker[v] for v in merging.reads(node)} for node in merging.in_order()}
    done = set()
    while waiting:
        ready = {node for node, needs in waiting.items() if needs <= done}
        assert ready, "kernels wait for each other in a circle"
        done |= ready
        waiting = {node: needs for node, needs in waiting.items() if node not in ready}
    merging.is_late = False
    merging.set_slots()
    assert merging.horizon <= before


@given(graphs())
def test_every_kernel_keeps_the_rules(text):
    merging, _ = merged(text)
    dear = {"tanh", "exponential", "reduce", "dot"}
    count: dict[str, int] = {}
    for group in merging.groups():
        cost = group.cost
        assert cost.instructions <= MOST_INSTRUCTIONS
        assert cost.written <= MOST_WRITTEN
        assert cost.written <= cost.repeated <= MOST_REPEATED
        assert cost.arrays <= MOST_ARRAYS
        assert cost.again <= MOST_AGAIN
        outline = merging.body.outline(group.members, group.results, "k").computation
        assert region_of(outline) == group.region or len(group.members) == 1
        for name in group.members:
            count[name] = count.get(name, 0) + 1
    for name, times in count.items():
        elements = merging.judge.facts[name].elements
        if merging.body[name].opcode in dear:
            assert times == 1 or elements * (times - 1) <= MOST_AGAIN


@given(graphs())
def test_random_graphs_stay_legal(text):
    verify(fuse(h2g.parse(text)))


@given(graphs())
def test_every_value_is_made_where_it_was_or_not_at_all(text):
    """What the module gives is what it gave: the same instructions behind the same results."""
    module = h2g.parse(text)
    args = random_inputs(h2g.plan(text, target="host").inputs, seed=0)
    plain = h2g.compile(text, "host", fuse="none")(*args)
    fused = h2g.compile(fuse(module), "host", fuse="none")(*args)
    assert same_bits(fused, plain)


@pytest.mark.parametrize("seed", range(60))
def test_random_modules_keep_their_results(seed):
    text = random_module(Random(seed), 20)
    module = fuse(verify(h2g.parse(text)))
    verify(module)
    plan = h2g.plan(text, target="host")
    args = random_inputs(plan.inputs, seed=seed)
    fused = h2g.compile(module, "host", fuse="none")(*args)
    assert same_bits(fused, h2g.compile(plan, "host")(*args))


def test_side_effects_keep_their_order_through_merges():
    """`first` reads what would be another result of a kernel that reads what `second` makes."""
    text = """HloModule m
ENTRY e {
  p = f32[512] parameter(0)
  a = f32[512] tanh(p)
  first = f32[512] custom-call(a), custom_call_target="f", custom_call_has_side_effect=true
  second = f32[512] custom-call(p), custom_call_target="g", custom_call_has_side_effect=true
  b = f32[512] add(a, second)
  ROOT t = (f32[512], f32[512]) tuple(first, b)
}"""
    module = fuse(h2g.parse(text))
    names = [i.name for i in module.entry.instructions]
    assert names.index("first") < names.index("second")
    verify(module)
    assert isinstance(merged(text)[0].maker["b"], Group)


def test_side_effects_keep_their_order_side_by_side():
    """Of equal depth by data, `a` and `b` wait for each other through the two effects."""
    text = """HloModule m
ENTRY e {
  p = f32[512] parameter(0)
  q = f32[64] parameter(1)
  w = f32[64] negate(q)
  x = f32[64] abs(w)
  a = f32[64] tanh(x)
  first = f32[64] custom-call(a), custom_call_target="f", custom_call_has_side_effect=true
  u = f32[512] bitcast(p)
  second = f32[512] custom-call(u), custom_call_target="g", custom_call_has_side_effect=true
  v = f32[64] slice(second), slice={[0:64]}
  b = f32[64] negate(v)
  ROOT t = (f32[64], f32[64]) tuple(first, b)
}"""
    module = side_by_side(h2g.parse(text))
    names = [i.name for i in module.entry.instructions]
    assert names.index("a") < names.index("first") < names.index("second") < names.index("b")


def test_what_only_others_read_costs_a_kernel_nothing():
    """A value that two kernels have, each for itself, may be left over where these become one."""
    text = "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n a = f32[8] sine(x)\n"
    text += " b = f32[8] negate(x)\n ROOT t = (f32[8], f32[8]) tuple(a, b)\n}\n"
    body = Body.of(h2g.parse(text).entry, frozenset())
    found = Judge(body).whole(frozenset({"a", "b"}), ("b",))
    assert found.cost.repeated == 1
