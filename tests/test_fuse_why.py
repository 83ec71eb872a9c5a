"""`plan --why`: why kernels are together, and why others are not."""

import json

import pytest

from hlo2graph.passes.fusion.fuse import fuse
from hlo2graph.pipeline import PASSES, why
from tests.conftest import SAMPLES

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def module(body: str, header: str = "") -> str:
    return f"HloModule m{header}\n{SUM}ENTRY main {{\n{body}\n}}\n"


def apart(body: str) -> list[str]:
    (made,) = why(module(body), target="sm_90").decisions
    return [pair.why for pair in made.apart]


CHAIN = module(
    "p = f32[64,512] parameter(0)\nz = f32[] constant(0)\na = f32[64,512] tanh(p)\n"
    "r = f32[64] reduce(a, z), dimensions={1}, to_apply=sum\nROOT s = f32[64] sqrt(r)"
)


def test_each_member_has_its_reason():
    (made,) = why(CHAIN, target="sm_90").decisions
    (kernel,) = made.together
    assert kernel.form == "a fold along rows"
    assert [(m.name, m.why) for m in kernel.members] == [
        ("a", "read here only"),
        ("r", "read here only"),
        ("s", "is the result"),
    ]
    assert made.apart == ()


APART = {
    "a library multiplies": "x = f32[8192,8192] parameter(0)\n"
    "d = f32[8192,8192] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = f32[8192,8192] tanh(d)",
    "no kernel form does both": "p = f32[64,512] parameter(0)\nz = f32[] constant(0)\n"
    "r = f32[64] reduce(p, z), dimensions={1}, to_apply=sum\n"
    "q = f32[64] tanh(r)\nROOT s = f32[] reduce(q, z), dimensions={0}, to_apply=sum",
    "control dependencies tie it": "p = f32[64] parameter(0)\nq = f32[64] parameter(1)\n"
    "a = f32[64] tanh(p)\nb = f32[64] tanh(q), control-predecessors={a}\n"
    "ROOT c = f32[64] add(a, b)",
    "would begin later": "p = f32[8192,8192] parameter(0)\nz = f32[] constant(0)\n"
    "a = f32[8192,8192] tanh(p)\nr = f32[8192] reduce(a, z), dimensions={1}, to_apply=sum\n"
    "d = f32[8192,8192] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT t = (f32[8192], f32[8192,8192]) tuple(r, d)",
    "updates in place": "p = f32[65536] parameter(0)\ni = s32[] parameter(1)\n"
    "j = s32[] parameter(2)\ns = f32[256] dynamic-slice(p, j), dynamic_slice_sizes={256}\n"
    "n = f32[256] negate(s)\nROOT u = f32[65536] dynamic-update-slice(p, n, i)",
}


@pytest.mark.parametrize("reason", APART)
def test_each_pair_apart_has_its_reason(reason):
    assert any(reason in found for found in apart(APART[reason])), apart(APART[reason])


def test_kernels_of_one_launch_say_so():
    body = (
        "p = f32[64] parameter(0)\nq = f32[32] parameter(1)\na = f32[64] tanh(p)\n"
        "b = f32[32] tanh(q)\nROOT t = (f32[64], f32[32]) tuple(a, b)"
    )
    found = why(module(body), target="sm_90")
    assert len(set(found.launches.values())) == 1
    assert set(found.launches) == {("main", "a"), ("main", "b")}


def test_the_command_prints_text_and_json(cli, tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(CHAIN)
    code, out, _ = cli("plan", path, "--target", "sm_90", "--why")
    assert code == 0
    assert "kernel sqrt_fusion: a fold along rows\n  a  read here only" in out
    code, out, _ = cli("plan", path, "--target", "sm_90", "--why", "--json", "-")
    (entry,) = json.loads(out)["fusion"]
    assert entry["kernels"][0]["members"][0] == {"name": "a", "why": "read here only"}
    assert "fusion" not in json.loads(cli("plan", path, "--json", "-")[1])


def test_without_fusion_there_is_nothing_to_explain(cli, tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(CHAIN)
    assert "Nothing is fused" in cli("plan", path, "--target", "host", "--why")[1]
    path.write_text(CHAIN.replace("HloModule m", "HloModule m, is_scheduled=true"))
    assert "Nothing is fused" in cli("plan", path, "--target", "sm_90", "--why")[1]
    assert "sqrt_fusion" in cli("plan", path, "--target", "sm_90", "--fuse=default", "--why")[1]


def test_a_thunk_sequence_has_no_reasons(cli, add, tmp_path):
    path = tmp_path / "add.thunks"
    cli("plan", add, "-o", path)
    code, _, err = cli("plan", path, "--why")
    assert code == 2
    assert "planned already" in err


@pytest.mark.parametrize(
    "sample", [p for p in SAMPLES if p.suffix == ".hlo"], ids=lambda path: path.stem
)
def test_every_kernel_and_every_edge_between_kernels_is_explained(sample):
    """What the decisions name is what the module after fusion has."""
    import hlo2graph as h2g

    module = h2g.parse(sample.read_text())
    for rewrite in PASSES["default"][: PASSES["default"].index(fuse) + 1]:
        module = rewrite(module)
    for made in why(sample.read_text(), target="sm_90").decisions:
        computation = module.computations[made.computation]
        for kernel in made.together:
            assert kernel.kernel in computation
        explained = {(pair.producer, pair.reader) for pair in made.apart}
        fusions = [i for i in computation.instructions if i.opcode == "fusion"]
        pairs = {(o, f.name) for f in fusions for o in f.operands if computation[o] in fusions}
        assert pairs <= explained
