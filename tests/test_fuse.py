"""Loop fusion: what joins, what does not, and that no result changes."""

import pytest

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.passes.fuse import MOST_INSTRUCTIONS, fuse
from tests.conftest import RUNNABLE, SAMPLES


def fused(body: str, header: str = "", before: str = "") -> h2g.parse:
    return fuse(h2g.parse(f"HloModule m{header}\n{before}\nENTRY main {{\n{body}\n}}\n"))


def opcodes(module) -> list[str]:
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "tuple")]


def insides(module) -> list[list[str]]:
    names = [str(i.attrs["calls"]) for i in module.entry.instructions if i.opcode == "fusion"]
    return [
        [i.opcode for i in module.computations[n].instructions if i.opcode != "parameter"]
        for n in names
    ]


def test_a_chain_becomes_one_fusion():
    module = fused(
        "p = f32[8] parameter(0)\na = f32[8] negate(p)\nb = f32[8] exponential(a)\n"
        "ROOT c = f32[8] add(b, p)"
    )
    assert opcodes(module) == ["fusion"]
    assert insides(module) == [["negate", "exponential", "add"]]


def test_a_value_with_two_kernels_behind_it_is_not_computed_twice():
    module = fused(
        "p = f32[8,8] parameter(0)\na = f32[8,8] exponential(p)\nb = f32[8,8] negate(a)\n"
        "d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT r = f32[8,8] abs(d)"
    )
    assert opcodes(module) == ["exponential", "negate", "dot", "abs"]


def test_a_diamond_of_one_consumer_joins():
    module = fused(
        "p = f32[8] parameter(0)\na = f32[8] exponential(p)\nb = f32[8] negate(a)\n"
        "c = f32[8] abs(a)\nROOT d = f32[8] add(b, c)"
    )
    assert opcodes(module) == ["fusion"]


def test_free_instructions_go_to_each_consumer():
    module = fused(
        "p = f32[8] parameter(0)\nq = f32[4] parameter(1)\none = f32[] constant(1)\n"
        "w = f32[8] broadcast(one), dimensions={}\na = f32[8] add(p, w)\nb = f32[8] negate(a)\n"
        "v = f32[4] broadcast(one), dimensions={}\nc = f32[4] add(q, v)\nd = f32[4] negate(c)\n"
        "ROOT t = (f32[8], f32[4]) tuple(b, d)"
    )
    assert [i for i in opcodes(module) if i == "fusion"] == ["fusion", "fusion"]
    assert all("constant" in inside and "broadcast" in inside for inside in insides(module))


def test_a_reduction_takes_its_input_in_and_is_a_root_only():
    module = fused(
        "p = f32[8,8] parameter(0)\nz = f32[] constant(0)\ns = f32[8,8] multiply(p, p)\n"
        "r = f32[8] reduce(s, z), dimensions={1}, to_apply=sum\nROOT n = f32[8] sqrt(r)",
        before="sum { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] add(a, b) }",
    )
    assert opcodes(module) == ["constant", "fusion", "sqrt"]
    assert insides(module) == [["constant", "multiply", "reduce"]]


@pytest.mark.parametrize("kept", ["control", "scheduled"])
def test_what_must_stay(kept):
    control = ", control-predecessors={a}" if kept == "control" else ""
    module = fused(
        "p = f32[8] parameter(0)\nq = f32[8] parameter(1)\na = f32[8] negate(p)\n"
        f"b = f32[8] exponential(q){control}\nROOT c = f32[8] add(a, b)",
        header=", is_scheduled=true" if kept == "scheduled" else "",
    )
    assert opcodes(module) == ["negate", "exponential", "add"]


def test_what_waits_for_something_is_not_made_twice():
    """Its copy inside would wait for an instruction that is not there."""
    module = fused(
        "p = f32[8] parameter(0)\nz = f32[] constant(0)\n"
        "f = f32[8] broadcast(z), dimensions={}, control-predecessors={p}\n"
        "a = f32[8] negate(p)\nROOT b = f32[8] add(a, f)"
    )
    assert opcodes(module) == ["constant", "broadcast", "fusion"]
    assert insides(module) == [["negate", "add"]]
    verify(h2g.parse(format_module(module)))


def test_a_fusion_has_a_largest_size():
    lines = ["v0 = f32[8] parameter(0)"]
    lines += [f"v{k + 1} = f32[8] negate(v{k})" for k in range(3 * MOST_INSTRUCTIONS)]
    module = fused("\n".join(lines))
    assert max(map(len, insides(module))) == MOST_INSTRUCTIONS
    assert opcodes(module) == ["fusion"] * 3


@pytest.mark.parametrize(
    "sample", [p for p in SAMPLES if p.suffix == ".hlo"], ids=lambda path: path.stem
)
def test_samples_stay_legal_and_keep_their_results(sample):
    text = sample.read_text()
    module = fuse(h2g.parse(text))
    verify(module)
    assert h2g.parse(format_module(module)) == module
    if sample in RUNNABLE:
        plans = [h2g.plan(text, target="sm_90", fuse=how) for how in ("none", "default")]
        args = random_inputs(plans[0].inputs, seed=0)
        plain, joined = (h2g.compile(plan, "host")(*args) for plan in plans)
        assert same_bits(joined, plain)
