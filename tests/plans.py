"""Plans for tests: a few by hand, and a strategy for any plan there can be."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hlo2graph.errors import Source
from hlo2graph.frontend import parse_computations
from hlo2graph.hlo import DTYPES, Literal, Shape
from hlo2graph.program.plan import Allocation, AllocationKind, ArenaSize, Bound, Plan
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Edge,
    Fill,
    Hazard,
    Kernel,
    Library,
    Sequence,
    Slice,
    While,
)

HLO = """\
%negate (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} negate(%x)
}
%add (x: f32[4], y: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
  ROOT %z = f32[4]{0} add(%x, %y)
}
%both (x: f32[4]) -> (f32[4], f32[4]) {
  %x = f32[4]{0} parameter(0)
  %y = f32[4]{0} negate(%x)
  ROOT %z = (f32[4]{0}, f32[4]{0}) tuple(%x, %y)
}
%less (i: s32[]) -> pred[] {
  %i = s32[] parameter(0)
  %n = s32[] constant(3)
  ROOT %p = pred[] compare(%i, %n), direction=LT
}
%next (i: s32[]) -> s32[] {
  %i = s32[] parameter(0)
  %n = s32[] constant(1)
  ROOT %p = s32[] add(%i, %n)
}
"""
COMPUTATIONS = parse_computations(Source("test.hlo", HLO), 0, len(HLO))
CALLS = {"negate": ([16], [16]), "add": ([16, 16], [16]), "both": ([16], [16, 16])}
F32X4 = Shape(DTYPES["f32"], (4,))
S32 = Shape(DTYPES["s32"])


def plan_of(body, *, inputs=(), outputs=(), temp=1024, target="host", fuse="none", extra=()):
    """Return a plan with an allocation for each input and output, then one temp, then `extra`."""
    kinds = [AllocationKind.PARAMETER] * len(inputs) + [AllocationKind.LIVE_OUT] * len(outputs)
    bounds = [
        Bound(name, shape, Slice(index, 0, shape.size))
        for index, (name, shape) in enumerate((*inputs, *outputs))
    ]
    allocations = [
        Allocation(bound.shape.size, kind, bound.name)
        for bound, kind in zip(bounds, kinds, strict=True)
    ]
    allocations += [Allocation(temp, AllocationKind.TEMP), *extra]
    params, results = bounds[: len(inputs)], bounds[len(inputs) :]
    return Plan(
        name="test",
        target=target,
        fuse=fuse,
        schedule="concurrent",
        allocations=tuple(allocations),
        computations=COMPUTATIONS,
        inputs=tuple(params),
        outputs=tuple(results),
        body=Sequence(
            body.thunks,
            tuple(b.slice for b in params),
            tuple(b.slice for b in results),
            body.edges,
        ),
        arena=ArenaSize(temp, 0, 0),
    )


def counting_loop(trip_count=3):
    """Return a plan: a loop that counts in s32[] and negates f32[4] at each turn."""
    count, held, going, spare = Slice(1, 0, 4), Slice(2, 0, 16), Slice(3, 0, 1), Slice(3, 256, 16)
    condition = Sequence((Kernel("lt.1", "less", (count,), (going,)),), (count, held), (going,))
    body = Sequence(
        (
            Kernel("add.2", "next", (count,), (count,)),
            Kernel("neg.3", "negate", (held,), (spare,)),
            Copy("copy.4", spare, held),
        ),
        (count, held),
        (count, held),
        (Edge(1, 2, Hazard.RAW, spare),),
    )
    loop = While("loop.5", (count, held), (count, held), condition, body, trip_count)
    start = (
        Fill("zero.6", b"\0\0\0\0", count),
        Copy(
            "copy.7",
            Slice(0, 0, 16),
            held,
            metadata='{op_name="f" source_file="a b.py" source_line=3}',
        ),
        loop,
    )
    edges = (Edge(0, 2, Hazard.RAW, count), Edge(1, 2, Hazard.RAW, held))
    return plan_of(
        Sequence(start, edges=edges),
        inputs=(("x", F32X4),),
        outputs=(("n", S32), ("y", F32X4)),
    )


# ***** any plan *****

TEMP = 4096
hlo_names = st.from_regex(
    r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}(/[A-Za-z_][A-Za-z0-9_.\-]{0,4})?", fullmatch=True
)
names = hlo_names | st.text(max_size=8)
texts = st.text(max_size=12)
metadata = (
    st.just("")
    | texts
    | st.just('{op_name="a{b\\"}" profile={1 {2}}}')
    | st.sampled_from(['{"', "{/*}", "{\n%x (}", "{*/}"])
)


def slices(size):
    return st.integers(0, TEMP - size).map(lambda offset: Slice(0, offset, size))


def all_slices(sizes):
    return st.tuples(*map(slices, sizes))


@st.composite
def literals(draw):
    dtype = DTYPES[draw(st.sampled_from(["f32", "s32", "pred", "bf16", "u8", "f64"]))]
    shape = Shape(dtype, tuple(draw(st.lists(st.integers(1, 3), max_size=3))))
    if draw(st.booleans()):
        return Literal(shape, None)
    values = draw(st.lists(st.integers(0, 1), min_size=shape.elements, max_size=shape.elements))
    return Literal(shape, np.array(values).astype(dtype.numpy).reshape(shape.dims))


@st.composite
def leaf_thunks(draw, name, after):
    kind = draw(st.sampled_from([Kernel, Library, Collective, Copy, Fill]))
    rest = {"after": after, "metadata": draw(metadata)}
    if kind is Copy:
        size = draw(st.sampled_from([0, 4, 100]))
        return Copy(name, draw(slices(size)), draw(slices(size)), **rest)
    if kind is Fill:
        pattern = draw(
            st.sampled_from([1, 2, 4, 8, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
        )
        return Fill(name, pattern, draw(slices(len(pattern) * draw(st.integers(0, 9)))), **rest)
    computation = draw(st.sampled_from(sorted(CALLS)))
    reads, writes = (draw(all_slices(sizes)) for sizes in CALLS[computation])
    if kind is Kernel:
        rest["effect"] = draw(st.booleans())
    if kind is Library:
        rest["workspace"] = draw(all_slices(draw(st.lists(st.sampled_from([8, 300]), max_size=2))))
    return kind(name, computation, reads, writes, **rest)


@st.composite
def whiles(draw, name, after, depth):
    state = draw(all_slices(draw(st.lists(st.sampled_from([4, 16]), max_size=3))))
    predicate = draw(slices(1))
    return While(
        name,
        state,
        state,
        draw(sequences(state, (predicate,), depth - 1)),
        draw(sequences(state, state, depth - 1)),
        draw(st.none() | st.integers(0, 10**9)),
        after,
        draw(metadata),
    )


@st.composite
def conditionals(draw, name, after, depth):
    sizes = draw(st.lists(st.sampled_from([4, 16]), max_size=3))
    results = draw(all_slices(sizes))
    wide = draw(st.booleans())
    branches = [
        draw(sequences((), results if draw(st.booleans()) else draw(all_slices(sizes)), depth - 1))
        for _ in range(draw(st.integers(1, 3)) if wide else 2)
    ]
    selector = draw(slices(4 if wide else 1))
    return Conditional(name, selector, tuple(branches), results, after, draw(metadata))


@st.composite
def edges(draw, count):
    dst = draw(st.integers(1, count - 1))
    src = draw(st.integers(0, dst - 1))
    hazard = draw(st.sampled_from(Hazard))
    plain = hazard in (Hazard.CONTROL, Hazard.EFFECT, Hazard.ORDER)
    return Edge(src, dst, hazard, None if plain else draw(slices(draw(st.integers(1, 99)))))


@st.composite
def sequences(draw, params, results, depth):
    thunks = []
    known = draw(st.lists(names, max_size=4, unique=True))
    for name in known:
        after = tuple(t.name for t in thunks if draw(st.integers(0, 5)) == 0)
        kind = draw(st.integers(0, 5)) if depth else 9
        made = {0: whiles, 1: conditionals}.get(kind)
        if made is None:
            thunks.append(draw(leaf_thunks(name, after)))
        else:
            thunks.append(draw(made(name, after, depth)))
    found = draw(st.lists(edges(len(thunks)), max_size=4)) if len(thunks) > 1 else []
    return Sequence(tuple(thunks), params, results, tuple(found))


@st.composite
def allocations(draw):
    kind = draw(st.sampled_from(AllocationKind))
    literal = draw(literals()) if kind is AllocationKind.CONSTANT else None
    size = draw(st.integers(0, 10**12)) + (literal.shape.size if literal else 0)
    return Allocation(size, kind, draw(names), literal)


@st.composite
def plans(draw):
    """Any plan: allocation 0 is the arena, 1 and 2 hold parameters; the rest are not used."""
    ports = [Bound(draw(names), F32X4, Slice(index, 0, 16)) for index in (1, 2)]
    inputs = tuple(ports[: draw(st.integers(0, 2))])
    outputs = tuple(draw(st.lists(st.sampled_from(ports), max_size=2)))
    held = [Allocation(16, AllocationKind.PARAMETER, port.name) for port in ports]
    params, results = (tuple(b.slice for b in bounds) for bounds in (inputs, outputs))
    return Plan(
        name=draw(names),
        target=draw(st.sampled_from(["host", "sm_80", "sm_90a"])),
        fuse=draw(st.sampled_from(["none", "default"])),
        schedule=draw(st.sampled_from(["concurrent", "serialize"])),
        allocations=(
            Allocation(TEMP, AllocationKind.TEMP),
            *held,
            *draw(st.lists(allocations(), max_size=3)),
        ),
        computations=COMPUTATIONS,
        inputs=inputs,
        outputs=outputs,
        body=draw(sequences(params, results, depth=3)),
        arena=ArenaSize(*draw(st.tuples(*[st.integers(0, 10**15)] * 3))),
        aliases=tuple(draw(st.lists(texts, max_size=2))),
    )
