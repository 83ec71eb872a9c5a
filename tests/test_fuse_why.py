"""`plan --why`: why kernels are together, and why others are not."""

import json

import pytest

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.passes.fusion.cost import MOST_REPEATED
from hlo2graph.passes.fusion.fuse import fuse
from hlo2graph.passes.order import PASSES
from hlo2graph.pipeline import plan as plan_of
from hlo2graph.pipeline import why
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


FOLDED = (
    "p = f32[64,512] parameter(0)\nz = f32[] constant(0)\n"
    "r = f32[64] reduce(p, z), dimensions={1}, to_apply=sum\n"
)
SPREAD = "q = f32[64,512] broadcast(r), dimensions={0}\nd = f32[64,512] subtract(p, q)\n"
APART = {
    "a library multiplies": "x = f32[8192,8192] parameter(0)\n"
    "d = f32[8192,8192] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = f32[8192,8192] tanh(d)",
    "no kernel form does both: a fold along columns and a loop over elements": f"{FOLDED}"
    "c = f32[512] reduce(p, z), dimensions={0}, to_apply=sum\n"
    "b = f32[64,512] broadcast(c), dimensions={1}\nROOT s = f32[64,512] subtract(p, b)",
    "the same dimensions throughout: here they are {1} of f32[64,512], there {0} of f32[64]": (
        f"{FOLDED}q = f32[64] tanh(r)\nROOT s = f32[] reduce(q, z), dimensions={{0}}, to_apply=sum"
    ),
    "here they are {1} of f32[64,512], there {0} of f32[64,512]": f"{FOLDED}{SPREAD}"
    "ROOT s = f32[512] reduce(d, z), dimensions={0}, to_apply=sum",
    "a fold along columns is whole when its kernel has ended": f"{FOLDED}"
    "c = f32[512] reduce(p, z), dimensions={0}, to_apply=sum\n"
    "b = f32[64,512] broadcast(c), dimensions={1}\nd = f32[64,512] subtract(p, b)\n"
    "ROOT s = f32[512] reduce(d, z), dimensions={0}, to_apply=sum",
    "keeps to its row": f"{FOLDED}{SPREAD}v = f32[64,512] reverse(d), dimensions={{0}}\n"
    "ROOT s = f32[64] reduce(v, z), dimensions={1}, to_apply=sum",
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


def test_long_rows_part_folds():
    text = module(f"{FOLDED}{SPREAD}ROOT s = f32[64] reduce(d, z), dimensions={{1}}, to_apply=sum")
    text = text.replace("64,512", "400,190000").replace("f32[64]", "f32[400]").replace("f32", "f64")
    (made,) = why(text, target="sm_90").decisions
    long = "rows of 95,000 elements are too long to be kept from one fold to the other"
    assert long in [pair.why for pair in made.apart]


def test_folds_of_two_values_are_weighed_too():
    best = """best { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2)
  j = s32[] parameter(3) more = pred[] compare(a, b), direction=GE m = f32[] select(more, a, b)
  n = s32[] select(more, i, j) ROOT t = (f32[], s32[]) tuple(m, n) }
"""
    both = "(f32[512], s32[512])"
    text = module(
        "p = f32[64,512] parameter(0)\nz = f32[] constant(0)\nk = s32[] constant(0)\n"
        "i = s32[64,512] iota(), iota_dimension=0\n"
        f"r = {both} reduce(p, i, z, k), dimensions={{0}}, to_apply=best\n"
        f"q = {both} reduce(p, i, z, k), dimensions={{0}}, to_apply=least\n"
        f"ROOT t = ({both}, {both}) tuple(r, q)"
    )
    least = best.replace("best", "least").replace("GE", "LE")
    plan = plan_of(text.replace(SUM, best + least), target="sm_90")
    assert len(plan.body.thunks) == 1


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
    said = cli("plan", path, "--target", "host", "--why")[1]
    assert said.startswith("Nothing is fused: the host runs what is written unless --fuse default")
    said = cli("plan", path, "--target", "sm_90", "--fuse", "none", "--why")[1]
    assert said == "Nothing is fused: fuse=none plans what is written; --fuse default fuses.\n"
    path.write_text(CHAIN.replace("HloModule m", "HloModule m, is_scheduled=true"))
    said = cli("plan", path, "--target", "sm_90", "--why")[1]
    assert said.startswith("Nothing is fused: XLA has scheduled the module")
    assert "sqrt_fusion" in cli("plan", path, "--target", "sm_90", "--fuse=default", "--why")[1]


def test_of_a_module_without_kernels_there_is_no_empty_section(cli, tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY main {\n  ROOT p = f32[4] parameter(0)\n}\n")
    said = cli("plan", path, "--target", "sm_90", "--why")[1]
    assert said == "Nothing is fused: there is no kernel to make.\n"


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


RESULTS = {
    "is the result",
    "what it makes is read by other kernels too: another result",
    "reads the same arrays: one pass over them",
}

PAIR = module(
    "p = f32[1000] parameter(0)\nw = s32[1000] parameter(1)\nz = s32[] constant(0)\n"
    "n = s32[] constant(1000)\nzs = s32[1000] broadcast(z), dimensions={}\n"
    "ns = s32[1000] broadcast(n), dimensions={}\nlow = pred[1000] compare(w, zs), direction=LT\n"
    "up = s32[1000] add(w, ns)\nat = s32[1000] select(low, up, w)\n"
    "g = f32[1000] tanh(p)\nh = f32[1000] convert(at)\ne = f32[1000] multiply(g, h)\n"
    "r = f32[1000] reverse(e), dimensions={0}\nb = pred[1000] compare(e, r), direction=NE\n"
    "ROOT t = (f32[1000], pred[1000]) tuple(e, b)"
)


def test_only_what_a_kernel_writes_is_a_result():
    (made,) = why(PAIR, target="sm_90").decisions
    (kernel,) = made.together
    reasons = {member.name: member.why for member in kernel.members}
    assert reasons == {
        **dict.fromkeys(("low", "up", "at", "g", "h", "r"), "read here only"),
        "e": "what it makes is read by other kernels too: another result",
        "b": "is the result",
    }


@pytest.mark.parametrize("sample", ["attention", "copies_rotated_state", "reductions", "scan"])
def test_results_and_copies_are_those_of_the_plan(sample):
    """As many members are results as the kernel has; as many kernels have a copy as it says."""
    import hlo2graph as h2g

    [path] = [p for p in SAMPLES if p.name == f"{sample}.hlo"]
    module = h2g.parse(path.read_text())
    for rewrite in PASSES["default"][: PASSES["default"].index(fuse) + 1]:
        module = rewrite(module)
    for made in why(path.read_text(), target="sm_90").decisions:
        members = [member for kernel in made.together for member in kernel.members]
        for kernel in made.together:
            parts = module.computations[made.computation][kernel.kernel]
            results = [m for m in kernel.members if m.why in RESULTS]
            if parts.opcode == "fusion":
                root = module.computations[str(parts.attrs["calls"])].result
                assert len(results) == (len(root.operands) if root.opcode == "tuple" else 1)
        for member in members:
            copies = sum(other.name == member.name for other in members)
            if "cheap enough" in member.why:
                assert copies > 1
                assert f" {copies} kernels" in member.why
            else:
                assert copies == 1


ROUNDS = f"""HloModule m
{SUM}
more {{
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT c = pred[] compare(i, n), direction=LT
}}
step {{
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z = f32[] constant(0)
  r = f32[64] reduce(x, z), dimensions={{1}}, to_apply=sum
  b = f32[64,64] broadcast(r), dimensions={{0}}
  y = f32[64,64] subtract(x, b)
  ROOT t = (s32[], f32[64,64]) tuple(next, y)
}}
ENTRY main {{
  z = s32[] constant(0)
  p = f32[64,64] parameter(0)
  t = (s32[], f32[64,64]) tuple(z, p)
  w = (s32[], f32[64,64]) while(t), condition=more, body=step
  ROOT y = f32[64,64] get-tuple-element(w), index=1
}}
"""


def test_rounds_of_a_loop_are_kept_apart_by_a_barrier():
    """The kernels of two rounds are named, not the barrier, which no plan has."""
    pairs = [pair for made in why(ROUNDS, target="sm_90").decisions for pair in made.apart]
    kernels = {k.kernel for d in why(ROUNDS, target="sm_90").decisions for k in d.together}
    assert pairs
    for pair in pairs:
        assert {pair.producer, pair.reader} <= kernels
        assert pair.why.startswith("a barrier between rounds of the loop")


def test_a_barrier_of_the_program_is_not_one_between_rounds():
    body = (
        "p = f32[64] parameter(0)\na = f32[64] tanh(p)\nt = f32[64] opt-barrier(a)\n"
        "q = f32[64] tanh(p), control-predecessors={t}\nROOT c = f32[64] sine(t)"
    )
    assert "a barrier of the program is between them" in apart(body)


def test_a_scatter_is_kept_apart_from_what_it_updates():
    whole = "{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }"
    body = (
        "p = s32[4096] parameter(0)\ni = s32[1024,1] parameter(1)\nu = s32[1024] parameter(2)\n"
        "a = s32[4096] negate(p)\nROOT s = s32[4096] scatter(a, i, u), update_window_dims={}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=whole"
    )
    text = module(body).replace("ENTRY", f"whole {whole}\nENTRY")
    (made,) = why(text, target="sm_90").decisions
    (pair,) = made.apart
    assert (pair.producer, pair.reader) == ("a", "s")
    assert pair.why == "a barrier before the scatter, which updates in place what is made here"


def test_a_view_that_others_have_too_says_so():
    body = (
        "p = f32[64] parameter(0)\nv = f32[8,8] reshape(p)\na = f32[8,8] tanh(v)\n"
        "b = f32[8,8] negate(a)\nROOT t = (f32[8,8], f32[8,8]) tuple(v, b)"
    )
    (made,) = why(module(body), target="sm_90").decisions
    (kernel,) = made.together
    assert [(m.name, m.why) for m in kernel.members] == [
        ("v", "a view, which costs nothing: others that read it have it too"),
        ("a", "read here only"),
        ("b", "is the result"),
    ]


@pytest.mark.parametrize("along", [None, 0, 1])
def test_what_each_reader_repeats_in_turn_is_no_kernel(along):
    """Each value is read at one index by two that are moved each its own way."""
    full = "f32[64,512]"
    steps = [f"a = {full} parameter(0)", "z = f32[] constant(0)", f"v0 = {full} sine(a)"]
    for k in range(20):
        steps += [
            f"l{k} = {full} negate(v{k})",
            f"m{k} = {full} abs(v{k})",
            f"x{k} = {full} pad(l{k}, z), padding=-1_1x0_0",
            f"y{k} = {full} pad(m{k}, z), padding=1_-1x0_0",
            f"v{k + 1} = {full} add(x{k}, y{k})",
        ]
    shape = full if along is None else ("f32[512]", "f32[64]")[along]
    fold = f"reduce(v20, z), dimensions={{{along}}}, to_apply=sum"
    text = module("\n".join([*steps, f"ROOT r = {shape} {'copy(v20)' if along is None else fold}"]))
    plan = plan_of(text, target="sm_90")
    assert 1 < len(plan.body.thunks) < 10
    assert all(len(source.text.splitlines()) < 12_000 for source in kernels_of(plan).values())
    (made,) = why(text, target="sm_90").decisions
    limit = f"the kernel would repeat instructions more than {MOST_REPEATED} times"
    assert limit in [pair.why for pair in made.apart]
