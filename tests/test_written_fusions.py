"""Whatever a written fusion holds, it runs on a GPU too: as a kernel, or taken apart."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import needs_gxx
from random_modules import random_module
from random_operations import random_arguments, random_operation

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES, Computation, Instruction, Literal, Module, Shape, TupleShape
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes.call_asyncs import call_asyncs
from tests.emulation import EmulatedExecutable

WORD = Shape(DTYPES["s32"])


def fused(module: Module) -> list[Instruction]:
    return [_call(module, "fusion", {"kind": "kCustom", "calls": module.entry_name})]


def called(module: Module) -> list[Instruction]:
    return [_call(module, "call", {"to_apply": module.entry_name})]


def held_back(module: Module) -> list[Instruction]:
    """What uses the call stands in the same kernel, if that is one."""
    *_, call = fused(module)
    return [call, Instruction("held", "opt-barrier", call.shape, (call.name,))]


def paired(module: Module) -> list[Instruction]:
    start = _call(module, "async-start", {"calls": module.entry_name})
    given = TupleShape(tuple(p.shape for p in module.entry.parameters))
    start = replace(start, shape=TupleShape((given, start.shape, WORD)))
    update = Instruction("update", "async-update", start.shape, (start.name,))
    return [start, update, Instruction("done", "async-done", start.shape.parts[1], ("update",))]


def chosen(module: Module) -> list[Instruction]:
    """A conditional whose branch takes a tuple, so that it has a fusion of a tuple too."""
    one = Instruction("one", "constant", WORD, payload=Literal(WORD, np.int32(1)))
    names = tuple(p.name for p in module.entry.parameters)
    whole = TupleShape(tuple(p.shape for p in module.entry.parameters))
    given = Instruction("given", "tuple", whole, names)
    branch = {"branch_computations": (f"of_tuple_{module.entry_name}",)}
    operands = (one.name, given.name)
    return [
        one,
        given,
        Instruction("chosen", "conditional", module.entry.result.shape, operands, branch),
    ]


def of_tuple(module: Module) -> Computation:
    """Return the entry as a fusion within a computation that takes a tuple."""
    whole = TupleShape(tuple(p.shape for p in module.entry.parameters))
    held = Instruction("held", "parameter", whole, payload=0)
    parts = [
        Instruction(p.name, "get-tuple-element", p.shape, ("held",), {"index": k})
        for k, p in enumerate(module.entry.parameters)
    ]
    [fusion] = fused(module)
    return Computation(f"of_tuple_{module.entry_name}", (held, *parts, fusion), fusion.name)


def _call(module: Module, opcode: str, attrs: dict) -> Instruction:
    names = tuple(p.name for p in module.entry.parameters)
    return Instruction("around", opcode, module.entry.result.shape, names, attrs)


def around(module: Module, way, name: str) -> Module:
    """Return a module whose entry, `name`, does what the module's does in another way."""
    added = way(module)
    computations = dict(module.computations)
    if way is chosen:
        inner = of_tuple(module)
        computations[inner.name] = inner
    instructions = (*module.entry.parameters, *added)
    computations[name] = Computation(name, instructions, added[-1].name)
    return replace(module, computations=computations, entry_name=name, attrs={})


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(st.integers(0, 2**32))
def test_any_written_fusion_has_kernels_and_the_same_results(seed):
    rnd = Random(seed)
    text = random_module(rnd, 4) if rnd.random() < 0.3 else random_operation(rnd)
    module, args = h2g.parse(text), random_arguments(text, rnd)
    want = HostExecutable(h2g.plan(module))(*args)
    # What an async-start calls has nothing but its root.
    ways = [*rnd.choices((fused, held_back, called, chosen), k=2), fused, paired]
    if rnd.random() < 0.5:
        ways.append(fused)
    for number, way in enumerate(ways):
        module = around(module, way, f"around_{number}")
    module = h2g.parse(format_module(module))
    for target, fuse in (("host", "none"), ("sm_90", "none"), ("sm_90", "default")):
        plan = h2g.plan(module, target=target, fuse=fuse)
        if target != "host":
            check_support(plan)
            kernels_of(plan)
        got = HostExecutable(plan)(*args)
        for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
            found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
            assert found.ok, f"{found}\n{text}"


PAIR = """HloModule m
double { x = f32[4] parameter(0)
  ROOT y = f32[4] add(x, x) }
ENTRY main { p = f32[4] parameter(0)
  start = ((f32[4]), f32[4], s32[]) async-start(p), calls=double
  beside = f32[4] negate(p), control-predecessors={start}
  update = ((f32[4]), f32[4], s32[]) async-update(start)
  behind = f32[4] abs(p), control-predecessors={update, start}
  end = f32[4] async-done(update)
  ROOT r = (f32[4], f32[4], f32[4]) tuple(end, beside, behind) }
"""


def test_a_pair_becomes_a_call_of_its_ends_name():
    entry = call_asyncs(h2g.parse(PAIR)).entry
    assert [i.opcode for i in entry.instructions] == ["parameter", "call", "negate", "abs", "tuple"]
    assert entry["end"].attrs == {"to_apply": "double"}
    for name in ("beside", "behind"):
        assert entry[name].attrs == {"control-predecessors": ("end",)}


@pytest.mark.parametrize("name", ["end", "beside"])
def test_what_was_begun_is_named_by_its_end(name):
    plan = h2g.plan(PAIR)
    assert name in [bound.name for bound in plan.outputs]


REGION = """HloModule m
goes { s = (s32[], f32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(i, n), direction=LT }
swaps { s = (s32[], f32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[] get-tuple-element(s), index=1
  y = f32[] get-tuple-element(s), index=2
  ROOT r = (s32[], f32[], f32[]) tuple(next, y, x) }
kept { v = f32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = (f32[], s32[]) tuple(v, one) }
turned { v = f32[] parameter(0)
  w = f32[] negate(v)
  two = s32[] constant(2)
  ROOT r = (f32[], s32[]) tuple(w, two) }
both { v = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(v), index=0
  b = f32[] get-tuple-element(v), index=1
  c = f32[] add(a, b)
  three = s32[] constant(3)
  ROOT r = (f32[], s32[]) tuple(c, three) }
region { a = f32[] parameter(0)
  b = f32[] parameter(1)
  k = s32[] parameter(2)
  zero = s32[] constant(0)
  init = (s32[], f32[], f32[]) tuple(zero, a, b)
  w = (s32[], f32[], f32[]) while(init), condition=goes, body=swaps
  x = f32[] get-tuple-element(w), index=1
  y = f32[] get-tuple-element(w), index=2
  pair = (f32[], f32[]) tuple(x, y)
  p = pred[] compare(x, y), direction=LT
  c = (f32[], s32[]) conditional(p, x, y), true_computation=kept, false_computation=turned
  d = (f32[], s32[]) conditional(k, x, y, pair), branch_computations={kept, turned, both}
  e = f32[] get-tuple-element(c), index=0
  f = f32[] get-tuple-element(d), index=0
  g = f32[] multiply(e, f)
  m = s32[] get-tuple-element(c), index=1
  n = s32[] get-tuple-element(d), index=1
  h = s32[] multiply(m, n)
  j = f32[] convert(h)
  ROOT r = f32[] add(g, j) }
ENTRY main { p = f32[7] parameter(0)
  q = f32[7] parameter(1)
  k = s32[7] parameter(2)
  ROOT r = f32[7] map(p, q, k), dimensions={0}, to_apply=region }
"""


@needs_gxx
def test_a_region_may_loop_and_choose():
    plan = h2g.plan(REGION, target="sm_90")
    rng = np.random.default_rng(0)
    p, q = rng.standard_normal((2, 7)).astype(np.float32)
    k = np.array([0, 1, 2, 3, -1, 2, 0], np.int32)
    (got,) = EmulatedExecutable(plan)(p, q, k)
    (want,) = HostExecutable(plan)(p, q, k)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_a_region_cannot_hold_is_named():
    sort = "  t = f32[1] reshape(g)\n  u = f32[1] sort(t), dimensions={0}, to_apply=less\n"
    less = "less { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
    less += "  ROOT c = pred[] compare(a, b), direction=LT }\n"
    text = REGION.replace("  m = s32[] get", f"{sort}  m = s32[] get").replace(
        "region {", f"{less}region {{"
    )
    with pytest.raises(h2g.HloError, match="a kernel of its own, for sort, and is in the middle"):
        check_support(h2g.plan(text, target="sm_90"))


def test_what_a_collective_would_reduce_with_is_not_asked_for():
    text = REGION.replace("k = s32[] parameter(2)", "k = s32[] constant(1)")
    text = text[: text.index("ENTRY")] + (
        "fused { p = f32[7] parameter(0)\n"
        "  n = f32[7] negate(p)\n"
        "  ROOT r = f32[7] all-reduce(n), replica_groups={{0}}, to_apply=region }\n"
        "ENTRY main { p = f32[7] parameter(0)\n"
        "  ROOT f = f32[7] fusion(p), kind=kLoop, calls=fused }\n"
    )
    check_support(h2g.plan(text, target="sm_90"))


TOKENS = """HloModule m
ordered { x = f32[4] parameter(0)
  before = token[] parameter(1)
  y = f32[4] negate(x)
  z = f32[4] add-dependency(y, before)
  after = token[] after-all(before)
  ROOT r = (f32[4], token[]) tuple(z, after) }
nothing { x = f32[4] parameter(0)
  ROOT r = () tuple() }
ENTRY main { p = f32[4] parameter(0)
  t = token[] after-all()
  f = (f32[4], token[]) fusion(p, t), kind=kLoop, calls=ordered
  g = () fusion(p), kind=kLoop, calls=nothing
  y = f32[4] get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  ROOT r = (f32[4], token[], ()) tuple(y, u, g) }
"""


@pytest.mark.parametrize("fuse", ["none", "default"])
def test_fusions_of_tokens_and_of_nothing_are_no_kernels(fuse):
    plan = h2g.plan(TOKENS, target="sm_90", fuse=fuse)
    check_support(plan)
    assert len(kernels_of(plan)) == 1
    given = np.arange(4, dtype=np.float32)
    assert np.array_equal(HostExecutable(plan)(given)[0], -given)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("(f32[4], s32[])", "(f32[4], s32[])"),
        ("(f32[2,3]{0,1}, token[])", "(f32[2,3]{1,0}, token[])"),
        ("token[]", "token[]"),
        ("()", "()"),
    ],
)
def test_a_copy_of_a_tuple_or_a_token_is_what_is_copied(given, made):
    text = f"HloModule m\nENTRY e {{ p = {given} parameter(0) ROOT r = {made} copy(p) }}"
    plan = h2g.plan(text, target="sm_90")
    check_support(plan)
    kernels_of(plan)
    args = [np.full(b.shape.dims, 3, b.shape.dtype.numpy) for b in plan.inputs]
    for ours, theirs in zip(HostExecutable(plan)(*args), args, strict=True):
        assert np.array_equal(ours, theirs)


def test_only_arrays_are_sent_to_other_devices():
    text = "HloModule m\nENTRY e { p = (f32[4]) parameter(0) ROOT r = (f32[4]) "
    with pytest.raises(h2g.HloError, match="needs an array"):
        h2g.parse(text + "collective-permute(p), source_target_pairs={{0,1}} }")


HANDED_ON = """HloModule m
fused {
  a = f32[4,2] parameter(0)
  b = s32[] parameter(1)
  both = (s32[], f32[4,2]) tuple(b, a)
  same = (s32[], f32[4,2]) WHAT
  x = f32[4,2] get-tuple-element(same), index=1
  ROOT n = f32[4,2] negate(x)
}
ENTRY e {
  a = f32[4,2] parameter(0)
  b = s32[] parameter(1)
  f = f32[4,2] fusion(a, b), kind=kLoop, calls=fused
  done = token[] after-all()
  all = (s32[], token[], f32[4,2]) tuple(b, done, f)
  given = (s32[], token[], f32[4,2]) custom-call(all), custom_call_target="Sharding"
  y = s32[] get-tuple-element(given), index=0
  z = f32[4,2] get-tuple-element(given), index=2
  ROOT r = (s32[], f32[4,2]) tuple(y, z)
}
"""


@needs_gxx
@pytest.mark.parametrize("what", ["copy(both)", 'custom-call(both), custom_call_target="Sharding"'])
def test_each_leaf_of_a_tuple_is_handed_on_inside_kernels(what):
    plan = h2g.plan(HANDED_ON.replace("WHAT", what), target="sm_90")
    a, b = np.arange(8, dtype=np.float32).reshape(4, 2), np.int32(7)
    for executable in (EmulatedExecutable(plan), HostExecutable(plan)):
        same, negated = executable(a, b)
        assert same == b
        assert np.array_equal(negated, -a)
