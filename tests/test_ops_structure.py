"""Calls, loops, branches, tuples, communication: their values on the host and their shape rules."""

import numpy as np
import pytest
from single import one_call, run_text
from xla import run_xla

from hlo2graph.errors import HloError, UnsupportedError, VerifyError
from hlo2graph.frontend import parse, verify
from hlo2graph.ops import FAMILIES, OPS
from hlo2graph.ops.collectives import COLLECTIVES
from hlo2graph.ops.evaluate import HostEvaluator, unsupported
from hlo2graph.ops.host_io import HOST_IO
from hlo2graph.ops.scalar_region import binary_reducer, is_elementwise_region
from hlo2graph.ops.spec import Lowering

LOOP = """HloModule m
less (s: (s32[], f32[4])) -> pred[] {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
step (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4]) tuple(next, y)
}
ENTRY e {
  i = s32[] parameter(0)
  x = f32[4] parameter(1)
  s = (s32[], f32[4]) tuple(i, x)
  ROOT w = (s32[], f32[4]) while(s), condition=less, body=step
}"""
BRANCHES = """HloModule m
up (x: f32[2]) -> f32[2] {
  x = f32[2] parameter(0)
  ROOT r = f32[2] exponential(x)
}
down (x: f32[2]) -> f32[2] {
  x = f32[2] parameter(0)
  ROOT r = f32[2] negate(x)
}
ENTRY e {
  p = SELECTOR[] parameter(0)
  x = f32[2] parameter(1)
  y = f32[2] parameter(2)
  ROOT r = f32[2] conditional(p, x, y), CALLED
}"""
X, Y = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


def scalar(value: int | bool) -> np.ndarray:
    return np.array(value, bool if isinstance(value, bool) else np.int32)


@pytest.mark.parametrize("start", [0, 4, 5, 9])
def test_while_agrees_with_xla(start: int) -> None:
    arguments = [scalar(start), np.arange(4, dtype=np.float32)]
    for got, want in zip(run_text(LOOP, arguments), run_xla(LOOP, arguments), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "called", "selectors"),
    [
        ("pred", "true_computation=up, false_computation=down", (True, False)),
        ("s32", "branch_computations={up, down}", (0, 1, 2, -1)),
    ],
)
def test_conditional_agrees_with_xla(kind: str, called: str, selectors: tuple[int, ...]) -> None:
    text = BRANCHES.replace("SELECTOR", kind).replace("CALLED", called)
    for selector in selectors:
        arguments = [scalar(selector), X, Y]
        [got], [want] = run_text(text, arguments), run_xla(text, arguments)
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str(selector))


def test_calls_and_fusions_run_their_computations() -> None:
    text = """HloModule m
inner (a: f32[2], b: f32[2]) -> (f32[2], f32[2]) {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1)
  d = f32[2] subtract(a, b)
  ROOT t = (f32[2], f32[2]) tuple(d, a)
}
ENTRY e {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1)
  f = (f32[2], f32[2]) fusion(b, a), kind=kLoop, calls=inner
  d = f32[2] get-tuple-element(f), index=0
  c = (f32[2], f32[2]) call(d, b), to_apply=inner
  ROOT o = (f32[2], f32[2]) opt-barrier(c)
}"""
    first, second = run_text(text, [X, Y])
    assert first.tolist() == [-1, -2]
    assert second.tolist() == [2, 2]


def test_asynchronous_pairs_hand_out_the_result() -> None:
    text = """HloModule m
work (a: f32[2]) -> f32[2] {
  a = f32[2] parameter(0)
  ROOT r = f32[2] negate(a)
}
ENTRY e {
  a = f32[2] parameter(0)
  s = ((f32[2]), f32[2], u32[]) async-start(a), calls=work
  u = ((f32[2]), f32[2], u32[]) async-update(s)
  d = f32[2] async-done(u)
  cs = (f32[2], f32[2], u32[]) copy-start(d)
  cd = f32[2] copy-done(cs)
  k = token[] after-all()
  k2 = token[] after-all(k)
  dep = f32[2] add-dependency(cd, k2)
  dom = f32[2] domain(dep), domain={kind="sharding", entry={}, exit={}}
  id = u32[] partition-id()
  rid = u32[] replica-id()
  ROOT t = (f32[2], u32[], u32[]) tuple(dom, id, rid)
}"""
    value, partition, replica = run_text(text, [X])
    assert value.tolist() == [-1, -2]
    assert (partition.item(), replica.item()) == (0, 0)


def test_constants_of_tuples() -> None:
    text = "HloModule m\nENTRY e {\n ROOT c = (s32[2], f32[]) constant(({1, 2}, 3))\n}"
    first, second = run_text(text, [])
    assert (first.tolist(), second.item()) == ([1, 2], 3.0)


def test_only_what_the_root_needs_runs() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  k = token[] after-all()
  o = token[] outfeed(x, k)
  ROOT r = f32[2] negate(x)
}"""
    module = verify(parse(text))
    assert HostEvaluator(module.computations)("e", [X]).tolist() == [-1, -2]


REGIONS = """HloModule m
add (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
less (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] subtract(b, a)
}
swapped (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(b, a)
}
twice (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, a)
}
argmax (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GE
  v = f32[] select(more, a, b)
  k = s32[] select(more, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}
nested (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  half = f32[] constant(0.5)
  c = f32[] call(a, b), to_apply=add
  ROOT r = f32[] multiply(c, half)
}
vector (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  w = f32[1] reshape(a)
  x = f32[1] negate(w)
  ROOT r = f32[] reshape(x)
}
ENTRY e {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] call(a, b), to_apply=nested
  d = f32[] call(a, b), to_apply=less
  f = f32[] call(a, b), to_apply=swapped
  g = f32[] call(a, b), to_apply=twice
  i = s32[] constant(1)
  h = (f32[], s32[]) call(a, i, b, i), to_apply=argmax
  ROOT v = f32[] call(a, b), to_apply=vector
}"""


def test_what_a_region_is() -> None:
    computations = verify(parse(REGIONS)).computations
    reducers = {name: binary_reducer(computations, name) for name in computations}
    assert reducers["add"] == "add"
    assert reducers["swapped"] == "maximum"
    assert reducers["less"] is reducers["twice"] is reducers["nested"] is None
    assert reducers["argmax"] is None
    found = {name for name in computations if is_elementwise_region(computations, name)}
    assert found == {"add", "less", "swapped", "twice", "argmax", "nested"}


def test_a_region_of_scalars_takes_arrays() -> None:
    evaluate = HostEvaluator(verify(parse(REGIONS)).computations)
    a, b = np.array([[1, 5, 3]], np.float32), np.array([[2, 4, np.nan]], np.float32)
    i, j = np.zeros((1, 3), np.int32), np.ones((1, 3), np.int32)
    values, indices = evaluate("argmax", [a, i, b, j])
    np.testing.assert_array_equal(values, [[2, 5, np.nan]])
    np.testing.assert_array_equal(indices, [[1, 0, 1]])
    np.testing.assert_array_equal(evaluate("nested", [a, b]), [[1.5, 4.5, np.nan]])


def nest(levels: int, calls: int) -> str:
    """Return a module in which each of `levels` computations calls the next `calls` times."""
    parts = ["n0 (a: f32[]) -> f32[] {\n a = f32[] parameter(0)\n ROOT r = f32[] negate(a)\n}"]
    for k in range(1, levels):
        body = "".join(
            f" c{i} = f32[] call({f'c{i - 1}' if i else 'a'}), to_apply=n{k - 1}\n"
            for i in range(calls)
        )
        parts.append(f"n{k} (a: f32[]) -> f32[] {{\n a = f32[] parameter(0)\n{body}}}")
    entry = f"ENTRY e {{\n a = f32[] parameter(0)\n r = f32[] call(a), to_apply=n{levels - 1}\n}}"
    return "\n".join(["HloModule m", *parts, entry])


def test_shared_callees_are_examined_once() -> None:
    computations = verify(parse(nest(60, calls=2))).computations
    assert is_elementwise_region(computations, "n59")


def test_calls_nested_too_deep_are_refused() -> None:
    one = np.array(1, np.float32)
    assert run_text(nest(150, calls=1), [one]) == [-1]
    with pytest.raises(UnsupportedError, match="e nests 3001 calls; at most 200"):
        run_text(nest(3000, calls=1), [one])


# A call and the shape it must have where the groups are of 4 devices.
COMMUNICATION = {
    "f32[8,4] all-gather(f32[2,4] a), dimensions={0}, replica_groups={{0,1,2,3}}": None,
    "f32[8,4] all-gather(f32[2,4] a), dimensions={0}, replica_groups=[2,4]<=[8]": None,
    "f32[6,4] all-gather(f32[2,4] a), dimensions={0}, replica_groups={{0,1,2,3}}": (
        "turns 2 elements into 6 in a group of 4"
    ),
    "(f32[8], s32[4]) all-gather(f32[2] a, s32[1] b), dimensions={0}, replica_groups=[1,4]<=[4]": (
        None
    ),
    "f32[2] all-reduce(f32[2] a), replica_groups={{0,1}}, to_apply=sum": None,
    "(f32[2], f32[3]) all-reduce(f32[2] a, f32[3] b), replica_groups={{0,1}}, to_apply=sum": None,
    "f32[2] all-reduce(s32[2] a), replica_groups={}, to_apply=sum": "s32[2]",
    "f32[2] reduce-scatter(f32[8] a), dimensions={0}, replica_groups=[1,4]<=[4], to_apply=sum": (
        None
    ),
    "f32[2] reduce-scatter(f32[7] a), dimensions={0}, replica_groups=[1,4]<=[4], to_apply=sum": (
        "cannot split the 7 elements of dimension 0 among 4"
    ),
    "f32[8,2] all-to-all(f32[8,2] a), dimensions={0}, replica_groups=[1,4]<=[4]": None,
    "f32[8,2] all-to-all(f32[8,2] a), dimensions={1}, replica_groups=[1,4]<=[4]": "cannot split",
    "(f32[2], f32[2]) all-to-all(f32[2] a, f32[2] b), replica_groups={{0,1}}": None,
    "(f32[2], f32[2]) all-to-all(f32[2] a, f32[2] b), replica_groups={{0,1,2}}": (
        "needs an operand for each of 3 devices, got 2"
    ),
    "f32[4] ragged-all-to-all(f32[3] a, f32[4] b, s32[2] c, s32[2] d, s32[2] f, s32[2] g), "
    "replica_groups={{0,1}}": None,
    "f32[2] collective-permute(f32[2] a), source_target_pairs={{0,1},{1,0}}": None,
    "f32[2] collective-broadcast(f32[2] a), replica_groups={{0,1}}": None,
    "(f32[2], token[]) infeed(token[] k)": None,
    "token[] outfeed(f32[2] a, token[] k)": None,
    "token[] outfeed(f32[2] a, f32[2] k)": "needs a token as its second operand, got f32[2]",
    "(f32[2], u32[], token[]) send(f32[2] a, token[] k), channel_id=1": None,
    "(f32[2], u32[], token[]) recv(token[] k), channel_id=1": None,
    "(f32[3], u32[], token[]) send(f32[2] a, token[] k), channel_id=1": None,
}
SUM = """HloModule m
sum (x: f32[], y: f32[]) -> f32[] {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
"""


@pytest.mark.parametrize(("call", "message"), COMMUNICATION.items(), ids=COMMUNICATION)
def test_communication_has_its_shape(call: str, message: str | None) -> None:
    module = parse(one_call(call).replace("HloModule m\n", SUM))
    if message is None:
        verify(module)
        found = unsupported(module.computations, module.entry_name)
        is_had = "all-reduce" in call or "collective-broadcast" in call
        assert [instr.name for instr, _ in found] == ([] if is_had else ["r"])
        return
    with pytest.raises(VerifyError) as caught:
        verify(module)
    assert message in str(caught.value)


def test_the_ends_of_asynchronous_communication() -> None:
    text = """HloModule m
ENTRY e {
  k = token[] parameter(0)
  x = f32[2] parameter(1)
  s = (f32[2], u32[], token[]) send(x, k), channel_id=1
  sd = token[] send-done(s), channel_id=1
  r = (f32[2], u32[], token[]) recv(sd), channel_id=2
  rd = (f32[2], token[]) recv-done(r), channel_id=2
  y = f32[2] get-tuple-element(rd), index=0
  g = (f32[2], f32[4]) all-gather-start(y), dimensions={0}, replica_groups={{0,1}}
  gd = f32[4] all-gather-done(g)
  p = (f32[4], f32[4]) collective-permute-start(gd), source_target_pairs={{0,1}}
  ROOT pd = f32[4] collective-permute-done(p)
}"""
    verify(parse(text))


def test_what_cannot_run_is_listed_with_its_reason() -> None:
    text = (
        SUM
        + """dead (x: f32[]) -> f32[] {
  x = f32[] parameter(0)
  s = f32[] all-reduce(x), replica_groups={{0,1}}, to_apply=sum
  ROOT r = f32[] collective-permute(s), source_target_pairs={{1,0}}
}
ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  c = f32[4] constant({...})
  a = f32[4] add(x, c)
  g = f32[4] all-to-all(a), replica_groups={{0,1}}, dimensions={0}
  r = f32[4] all-reduce(g), replica_groups={{0,1}}, to_apply=sum
  d = f32[<=4] set-dimension-size(r, n), dimensions={0}
  ROOT m = f32[<=4] negate(d)
}"""
    )
    module = verify(parse(text))
    found = {i.name: why for i, why in unsupported(module.computations, module.entry_name)}
    assert list(found) == ["c", "g", "d"]
    assert "{...}" in found["c"]
    assert "other devices" in found["g"]
    assert "known only at run time" in found["d"]
    assert len(unsupported(module.computations)) == 4  # the uncalled computation counts too


WRONG = {
    "while(s), condition=less, body=less": "expects less to return (s32[], f32[4]), but it returns",
    "while(s), condition=step, body=step": "expects step to return pred[], but it returns",
    "while(x), condition=less, body=step": "passes f32[4] as parameter 0 of less, which takes (s32",
}


@pytest.mark.parametrize(("call", "message"), WRONG.items(), ids=WRONG)
def test_loops_that_do_not_fit(call: str, message: str) -> None:
    text = LOOP.replace("while(s), condition=less, body=step", call)
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    assert message in caught.value.message
    assert "is defined here" in str(caught.value)
    assert str(caught.value).count("^") == 2


@pytest.mark.parametrize(
    ("kind", "called", "message"),
    [
        ("s32", "true_computation=up, false_computation=down", "expects pred[] as the selector"),
        ("pred", "branch_computations={up, down}", "expects s32[] as the selector"),
        ("f32", "branch_computations={up, down}", "expects s32[] as the selector"),
        ("pred", "true_computation=up", "needs branch_computations, or true_computation and"),
        ("s32", "branch_computations={up}", "has 1 branches, but 2 arguments"),
        ("s32", "branch_computations={up, down, up}", "has 3 branches, but 2 arguments"),
    ],
)
def test_conditionals_that_do_not_fit(kind: str, called: str, message: str) -> None:
    text = BRANCHES.replace("SELECTOR", kind).replace("CALLED", called)
    with pytest.raises(HloError) as caught:
        verify(parse(text))
    assert message in str(caught.value)


def test_a_wrong_tuple_element() -> None:
    text = LOOP.replace("get-tuple-element(s), index=1", "get-tuple-element(s), index=2")
    with pytest.raises(VerifyError, match="takes element 2 of a tuple of 2"):
        verify(parse(text))


def test_what_an_opcode_requires_it_takes() -> None:
    assert all(spec.required <= spec.attrs for spec in OPS.values())


def test_no_opcode_has_two_specs() -> None:
    assert len(OPS) == sum(len(family) for family in FAMILIES)


def test_all_communication_says_that_it_is() -> None:
    assert all(s.effect for s in (*COLLECTIVES, *HOST_IO))
    assert {s.lowering for s in COLLECTIVES} == {Lowering.COLLECTIVE}
    assert {s.lowering for s in HOST_IO} == {Lowering.HOST_IO}
