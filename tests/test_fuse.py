"""Loop fusion: what joins, what does not, and that no result changes."""

import pytest

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from hlo2graph.passes.fusion.cost import MOST_ARRAYS, MOST_INSTRUCTIONS
from hlo2graph.passes.fusion.fuse import fuse
from tests.conftest import RUNNABLE, SAMPLES

RECKONED_ANEW = frozenset({"batch_norm"})  # samples that are rewritten to sum in another way
DRAWN = {"random": (4,)}  # results of `rng`, whose bits depend on its name
SUM = "sum { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] add(a, b) }\n"
MOST = "most { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] maximum(a, b) }\n"


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


def test_what_is_dear_is_not_computed_twice():
    module = fused(
        "p = f32[512,512] parameter(0)\na = f32[512,512] exponential(p)\nz = f32[] constant(0)\n"
        "b = f32[512] reduce(a, z), dimensions={0}, to_apply=sum\n"
        "c = f32[512,512] transpose(a), dimensions={1,0}\n"
        "ROOT t = (f32[512], f32[512,512]) tuple(b, c)",
        before=SUM,
    )
    made = [name for inside in insides(module) for name in inside]
    assert (made + opcodes(module)).count("exponential") == 1


def test_what_is_cheap_goes_to_each_kernel_that_reads_it():
    module = fused(
        "p = f32[512] parameter(0)\nq = f32[64] parameter(1)\na = f32[512] negate(p)\n"
        "b = f32[64] slice(a), slice={[0:64]}\nc = f32[64] multiply(b, q)\n"
        "d = f32[64,512] broadcast(a), dimensions={1}\ne = f32[64,512] abs(d)\n"
        "ROOT t = (f32[64], f32[64,512]) tuple(c, e)"
    )
    assert all("negate" in inside for inside in insides(module))


def test_a_value_needed_outside_too_is_another_result():
    module = fused(
        "p = f32[512] parameter(0)\na = f32[512] exponential(p)\nb = f32[512] negate(a)\n"
        "ROOT t = (f32[512], f32[512]) tuple(a, b)"
    )
    assert insides(module) == [["exponential", "negate", "tuple"]]


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


def test_a_reduction_takes_in_what_it_folds_and_what_follows():
    module = fused(
        "p = f32[64,64] parameter(0)\nz = f32[] constant(0)\ns = f32[64,64] multiply(p, p)\n"
        "r = f32[64] reduce(s, z), dimensions={1}, to_apply=sum\nROOT n = f32[64] sqrt(r)",
        before=SUM,
    )
    assert insides(module) == [["constant", "multiply", "reduce", "sqrt"]]


SOFTMAX = """p = f32[64,256] parameter(0)
q = f32[64,256] parameter(1)
x = f32[64,256] add(p, q)
low = f32[] constant(-inf)
m = f32[64] reduce(x, low), dimensions={1}, to_apply=most
mb = f32[64,256] broadcast(m), dimensions={0}
d = f32[64,256] subtract(x, mb)
e = f32[64,256] exponential(d)
z = f32[] constant(0)
s = f32[64] reduce(e, z), dimensions={1}, to_apply=sum
sb = f32[64,256] broadcast(s), dimensions={0}
y = f32[64,256] divide(e, sb)
"""


def test_a_softmax_is_one_kernel():
    module = fused(SOFTMAX + "ROOT r = f32[64,256] negate(y)", before=SUM + MOST)
    assert opcodes(module) == ["fusion"]


def test_what_a_normalisation_reads_may_be_another_result():
    module = fused(SOFTMAX + "ROOT r = f32[64,256] add(y, x)", before=SUM + MOST)
    assert opcodes(module) == ["fusion"]
    module = fused(SOFTMAX + "ROOT t = (f32[64,256], f32[64,256]) tuple(y, x)", before=SUM + MOST)
    assert opcodes(module) == ["fusion", "get-tuple-element", "get-tuple-element"]


def test_siblings_read_what_they_share_once():
    module = fused(
        "p = f32[512,512] parameter(0)\nz = f32[] constant(0)\nlow = f32[] constant(-inf)\n"
        "a = f32[512] reduce(p, z), dimensions={1}, to_apply=sum\n"
        "b = f32[512] reduce(p, low), dimensions={1}, to_apply=most\n"
        "ROOT t = (f32[512], f32[512]) tuple(a, b)",
        before=SUM + MOST,
    )
    assert insides(module)[0].count("reduce") == 2


def test_siblings_that_share_little_stay_side_by_side():
    module = fused(
        "p = f32[512] parameter(0)\nq = f32[512,512] parameter(1)\nr = f32[512,512] parameter(2)\n"
        "pb = f32[512,512] broadcast(p), dimensions={1}\n"
        "a = f32[512,512] add(q, pb)\nb = f32[512,512] add(r, pb)\n"
        "ROOT t = (f32[512,512], f32[512,512]) tuple(a, b)"
    )
    assert len(insides(module)) == 2


def test_nobody_waits_longer_for_a_value_that_several_read():
    """The dot of a library would begin after all of the fold, if both were made at once."""
    module = fused(
        "p = f32[8192,8192] parameter(0)\nz = f32[] constant(0)\na = f32[8192,8192] tanh(p)\n"
        "r = f32[8192] reduce(a, z), dimensions={1}, to_apply=sum\n"
        "d = f32[8192,8192] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT t = (f32[8192], f32[8192,8192]) tuple(r, d)",
        before=SUM,
    )
    assert "tanh" in opcodes(module)


def test_an_update_in_place_stays_one():
    """With the slice inside, the kernel would read the buffer at another index."""
    module = fused(
        "p = f32[65536] parameter(0)\ni = s32[] parameter(1)\nj = s32[] parameter(2)\n"
        "s = f32[256] dynamic-slice(p, j), dynamic_slice_sizes={256}\nn = f32[256] negate(s)\n"
        "ROOT u = f32[65536] dynamic-update-slice(p, n, i)"
    )
    assert opcodes(module) == ["dynamic-slice", "fusion"]


def test_an_update_takes_in_what_it_writes():
    module = fused(
        "p = f32[65536] parameter(0)\nq = f32[256] parameter(1)\ni = s32[] parameter(2)\n"
        "n = f32[256] negate(q)\nROOT u = f32[65536] dynamic-update-slice(p, n, i)"
    )
    assert insides(module) == [["negate", "dynamic-update-slice"]]


def test_views_at_the_edges_stay_outside():
    module = fused(
        "p = f32[64,64] parameter(0)\nv = f32[4096] reshape(p)\na = f32[4096] negate(v)\n"
        "b = f32[4096] exponential(a)\nROOT w = f32[64,64] reshape(b)"
    )
    assert opcodes(module) == ["reshape", "fusion", "reshape"]


PAIR = """p = f32[8] parameter(0)
q = f32[8] parameter(1)
a = f32[8] negate(p)
b = f32[8] exponential(q)HELD
ROOT c = f32[8] add(a, b)"""


def test_what_control_dependencies_tie_stays():
    module = fused(PAIR.replace("HELD", ", control-predecessors={a}"))
    assert opcodes(module) == ["negate", "exponential", "add"]


def test_what_xla_has_scheduled_stays_unless_asked():
    text = f"HloModule m, is_scheduled=true\nENTRY e {{\n{PAIR.replace('HELD', '')}\n}}"
    assert len(h2g.plan(text, target="sm_90").body.thunks) == 3
    assert len(h2g.plan(text, target="sm_90", fuse="default").body.thunks) == 1


def test_what_reads_one_array_and_broadcasts_is_made_by_each_reader():
    """A broadcast that is still to join its reader counts as what it spreads."""
    sizes, ways = (640, 320, 480), [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    left = [",".join(str(n) for d, n in enumerate(sizes) if d not in way) for way in ways]
    lines = [
        f"r{k} = f32[{dims}] reduce(n, z), dimensions={{{','.join(map(str, way))}}}, to_apply=sum\n"
        for k, (way, dims) in enumerate(zip(ways, left, strict=True))
    ]
    module = fused(
        "p = f32[640,320,480] parameter(0)\nq = f32[320] parameter(1)\nz = f32[] constant(0)\n"
        "b = f32[640,320,480] broadcast(q), dimensions={1}\nn = f32[640,320,480] add(p, b)\n"
        f"{''.join(lines)}ROOT t = ({', '.join(f'f32[{dims}]' for dims in left)}) "
        f"tuple({', '.join(f'r{k}' for k in range(len(ways)))})",
        before=SUM,
    )
    assert opcodes(module).count("reduce") == 0
    assert all("add" in inside for inside in insides(module))


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
        drawn = DRAWN.get(sample.stem, ())
        for number, (ours, theirs) in enumerate(zip(joined, plain, strict=True)):
            if sample.stem in RECKONED_ANEW:
                assert compare(ours, theirs, tolerance_for(plans[0].outputs[number].shape.dtype)).ok
            else:
                assert number in drawn or same_bits([ours], [theirs])


XLA_FUSED = """HloModule m, is_scheduled=true

halves { x = f32[64] parameter(0)  h = f32[64] negate(x)  ROOT y = f32[64] abs(h) }

ENTRY e {
  p = f32[64] parameter(0)
  first = f32[64] fusion(p), kind=kLoop, calls=halves
  ROOT second = f32[64] fusion(first), kind=kLoop, calls=halves
}"""


def test_fusions_of_xla_stay_unless_asked():
    kept = h2g.plan(XLA_FUSED, target="sm_90")
    assert [t.name for t in kept.body.thunks] == ["first", "second"]
    anew = h2g.plan(XLA_FUSED, target="sm_90", fuse="default")
    assert len(anew.body.thunks) == 1
    args = random_inputs(kept.inputs, seed=0)
    assert same_bits(h2g.compile(anew, "host")(*args), h2g.compile(kept, "host")(*args))


def test_fusions_written_by_hand_stay():
    text = XLA_FUSED.replace(", is_scheduled=true", "")
    assert len(h2g.plan(text, target="sm_90").body.thunks) == 2


LOOP = """HloModule m
{SUM}
cond {{ s = (s32[], f32[4096]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)  ROOT c = pred[] compare(i, n), direction=LT }}
body {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  f = f32[] convert(i)
  w = f32[4096] broadcast(f), dimensions={{}}
  {READ}
  ROOT t = (s32[], f32[4096]) tuple(next, y)
}}
ENTRY e {{
  p = (s32[], f32[4096]) parameter(0)
  ROOT r = (s32[], f32[4096]) while(p), condition=cond, body=body
}}"""


def test_the_state_of_a_loop_is_written_over_where_it_can_be():
    """`next` merged with what reads `i` for every element would take a copy of `i`."""
    text = LOOP.format(SUM=SUM, READ="y = f32[4096] add(x, w)")
    module = fuse(h2g.parse(text))
    inside = [i.opcode for i in module.computations["body"].instructions]
    assert inside.count("fusion") == 1
    assert inside.count("add") == 1
    text = LOOP.format(SUM=SUM, READ="z = f32[4096] add(x, w)\n  y = f32[4096] tanh(z)")
    (loop,) = h2g.plan(text, target="sm_90").body.thunks[-1:]
    assert not any("copy" in t.name for t in loop.body.thunks)


def test_what_goes_into_a_product_reads_one_array():
    """Each tile of the product would read both arrays, and add them, again."""
    body = (
        "p = f32[256,256] parameter(0)\nq = f32[256,256] parameter(1)\n"
        "w = f32[256,256] parameter(2)\nx = f32[256,256] {MADE}\n"
        "ROOT d = f32[256,256] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    assert insides(fused(body.format(MADE="negate(p)"))) == [["negate", "dot"]]
    assert opcodes(fused(body.format(MADE="add(p, q)"))) == ["add", "dot"]


def test_what_is_folded_goes_into_no_product():
    """Each tile of the product would fold the same rows again."""
    body = (
        "p = f32[32,20,64] parameter(0)\nw = f32[64,1000] parameter(1)\nz = f32[] constant(0)\n"
        "s = f32[32,64] reduce(p, z), dimensions={1}, to_apply=sum\n"
        "ROOT d = f32[32,1000] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert opcodes(fused(body, before=SUM)) == ["constant", "reduce", "dot"]


@pytest.mark.parametrize(("rows", "kernels"), [(32, ["fusion"]), (128, ["transpose", "fusion"])])
def test_a_block_that_factors_reads_no_large_matrix_across_the_grain(rows, kernels):
    shape = f"f32[2,{rows},{rows}]"
    before = f"p = {shape} parameter(0)\nt = {shape} transpose(p), dimensions={{0,2,1}}\n"
    after = f"ROOT c = {shape} cholesky(s), lower=true"
    assert opcodes(fused(f"{before}s = {shape} add(p, t)\n{after}")) == kernels
    assert opcodes(fused(f"p = {shape} parameter(0)\ns = {shape} add(p, p)\n{after}")) == ["fusion"]


def test_what_follows_a_product_is_part_of_its_kernel_unless_a_library_multiplies():
    body = (
        "p = f32[{N},{N}] parameter(0)\nq = f32[{N},{N}] parameter(1)\n"
        "d = f32[{N},{N}] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        "e = f32[{N},{N}] add(d, q)\nROOT r = f32[{N},{N}] tanh(e)"
    )
    assert insides(fused(body.format(N=64))) == [["dot", "add", "tanh"]]
    assert opcodes(fused(body.format(N=8192))) == ["dot", "fusion"]


def test_a_kernel_has_a_largest_number_of_arrays():
    lines = [f"p{k} = f32[8] parameter({k})" for k in range(300)]
    lines += ["sum0 = f32[8] negate(p0)"]
    lines += [f"sum{k} = f32[8] add(sum{k - 1}, p{k})" for k in range(1, 300)]
    module = fused("\n".join(lines))
    fusions = [i for i in module.entry.instructions if i.opcode == "fusion"]
    assert len(fusions) == 3
    assert all(len(i.operands) < MOST_ARRAYS for i in fusions)


def test_what_is_needed_at_many_indices_is_not_written_out_without_bound():
    """Each step looks at three elements of the one before: 3^9 of the first."""
    lines = ["v0 = f32[64] parameter(0)", "z = f32[] constant(0)"]
    for k in range(9):
        lines += [
            f"l{k} = f32[64] pad(v{k}, z), padding=1_-1",
            f"r{k} = f32[64] pad(v{k}, z), padding=-1_1",
            f"a{k} = f32[64] add(l{k}, r{k})",
            f"v{k + 1} = f32[64] add(a{k}, v{k})",
        ]
    module = fused("\n".join(lines))
    assert 1 < opcodes(module).count("fusion") <= 4


def test_a_fold_that_each_thread_does_alone_is_no_part_of_a_kernel_of_rows():
    """It has too few steps for threads to fold together, and would be done for every element."""
    module = h2g.parse(
        """HloModule m
r { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[256,4096] parameter(0)
  parts = f32[28,4096] parameter(1)
  z = f32[] constant(0)
  short = f32[4096] reduce(parts, z), dimensions={0}, to_apply=r
  wide = f32[256,4096] broadcast(short), dimensions={1}
  moved = f32[256,4096] subtract(x, wide)
  square = f32[256,4096] multiply(x, x)
  long = f32[256] reduce(square, z), dimensions={1}, to_apply=r
  ROOT t = (f32[256,4096], f32[256]) tuple(moved, long)
}"""
    )
    fused = fuse(module)
    for computation in fused.computations.values():
        assert sum(i.opcode == "reduce" for i in computation.instructions) < 2


def test_quotients_of_features_are_computed_once_for_large_images():
    text = """HloModule m
ENTRY e { x = f32[32,56,56,64] parameter(0) v = f32[64] parameter(1) w = f32[64] parameter(2)
  one = f32[64] divide(v, w) two = f32[64] divide(one, w) three = f32[64] divide(two, v)
  b = f32[32,56,56,64] broadcast(three), dimensions={3}
  ROOT r = f32[32,56,56,64] multiply(x, b) }"""
    large, small = (
        h2g.plan(module, target="sm_90") for module in (text, text.replace("[32,56", "[1,56"))
    )
    assert [len(plan.body.thunks) for plan in (large, small)] == [2, 1]


def test_roots_of_folded_columns_are_taken_by_the_kernel_that_folds():
    """And not by each element, where no kernel more is needed for that."""
    text = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[512,64] parameter(0) z = f32[] constant(0)
  square = f32[512,64] multiply(x, x)
  total = f32[64] reduce(square, z), dimensions={0}, to_apply=sum
  root = f32[64] rsqrt(total)
  b = f32[512,64] broadcast(root), dimensions={1}
  ROOT r = f32[512,64] multiply(x, b) }"""
    inside = [set(names) for names in insides(fuse(h2g.parse(text)))]
    assert any({"reduce", "rsqrt"} <= names for names in inside)
    assert not any("rsqrt" in names and "reduce" not in names for names in inside)
    rows = text.replace("dimensions={0}, to", "dimensions={1}, to").replace("f32[64]", "f32[512]")
    rows = rows.replace("broadcast(root), dimensions={1}", "broadcast(root), dimensions={0}")
    assert len(h2g.plan(rows, target="sm_90").body.thunks) == 1


def test_but_not_where_that_makes_one_kernel_more():
    """A quotient of folds that are no one kernel is left to the elements that it is spread to."""
    text = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[98,256] parameter(0) y = f32[98,256] parameter(1) z = f32[] constant(0)
  one = f32[256] reduce(x, z), dimensions={0}, to_apply=sum
  two = f32[256] reduce(y, z), dimensions={0}, to_apply=sum
  part = f32[256] divide(one, two)
  b = f32[98,256] broadcast(part), dimensions={1}
  ROOT r = f32[98,256] multiply(x, b) }"""
    assert len(h2g.plan(text, target="sm_90").body.thunks) == 2
