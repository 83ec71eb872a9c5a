"""Several rounds of a stencil in one kernel: the same bits, from fewer kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops import sweeps
from hlo2graph.ops.stencil import stencil_of
from hlo2graph.ops.sweeps import part_of, sweeps_of
from hlo2graph.passes.fusion.why import RESULT, ROUND, STENCIL
from hlo2graph.passes.loops import sweep_rounds
from hlo2graph.pipeline import why
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_with_the_host


def loop(rounds: int, shapes: str, lines: str, given: int = 0) -> str:
    """Return a loop over arrays a0, a1, ..., whose next values are n0, n1, ... in `lines`.

    The last `given` of them stay what they are.
    """
    arrays = shapes.split()
    state = f"(s32[], {', '.join(arrays)})"
    taken = "\n".join(
        f"a{k} = {s} get-tuple-element(s), index={k + 1}" for k, s in enumerate(arrays)
    )
    changed = len(arrays) - given
    after = [f"n{k}" if k < changed else f"a{k}" for k in range(len(arrays))]
    entry = "\n".join(f"p{k} = {s} parameter({k})" for k, s in enumerate(arrays))
    begun = ", ".join(f"p{k}" for k in range(len(arrays)))
    parts = "\n".join(
        f"r{k} = {s} get-tuple-element(w), index={k + 1}" for k, s in enumerate(arrays[:changed])
    )
    results = ", ".join(f"r{k}" for k in range(changed))
    return f"""HloModule m
body {{
s = {state} parameter(0)
i = s32[] get-tuple-element(s), index=0
one = s32[] constant(1)
j = s32[] add(i, one)
{taken}
{lines}
ROOT t = {state} tuple(j, {", ".join(after)})
}}
cond {{
s = {state} parameter(0)
i = s32[] get-tuple-element(s), index=0
last = s32[] constant({rounds})
ROOT r = pred[] compare(i, last), direction=LT
}}
ENTRY e {{
{entry}
zero = s32[] constant(0)
b = {state} tuple(zero, {begun})
w = {state} while(b), condition=cond, body=body
{parts}
ROOT r = ({", ".join(arrays[:changed])}) tuple({results})
}}
"""


def bordered(rows: int, columns: int) -> str:
    """Return the mean of four neighbours, where the borders keep their values."""
    inner, side = f"f32[{rows - 2},{columns - 2}]", f"f32[{rows - 2},1]"
    near = [(0, 1), (2, 1), (1, 0), (1, 2)]
    taps = "\n".join(
        f"t{k} = {inner} slice(a0), slice={{[{r}:{r + rows - 2}], [{c}:{c + columns - 2}]}}"
        for k, (r, c) in enumerate(near)
    )
    return f"""{taps}
x0 = {inner} add(t0, t1)
x1 = {inner} add(x0, t2)
x2 = {inner} add(x1, t3)
q = f32[] constant(0.25)
qs = {inner} broadcast(q), dimensions={{}}
mid = {inner} multiply(x2, qs)
left = {side} slice(a0), slice={{[1:{rows - 1}], [0:1]}}
right = {side} slice(a0), slice={{[1:{rows - 1}], [{columns - 1}:{columns}]}}
row = f32[{rows - 2},{columns}] concatenate(left, mid, right), dimensions={{1}}
top = f32[1,{columns}] slice(a0), slice={{[0:1], [0:{columns}]}}
end = f32[1,{columns}] slice(a0), slice={{[{rows - 1}:{rows}], [0:{columns}]}}
n0 = f32[{rows},{columns}] concatenate(top, row, end), dimensions={{0}}"""


def turned(name: str, source: str, dtype: str, dims: list[int], along: int, by: int) -> str:
    """Return `source` moved by so many places along a dimension, around its ends."""
    size = dims[along]
    cut = (size - by) % size

    def part(suffix: str, low: int, high: int) -> tuple[str, str]:
        shape = ",".join(str(high - low if d == along else n) for d, n in enumerate(dims))
        places = ", ".join(
            f"[{low}:{high}]" if d == along else f"[0:{n}]" for d, n in enumerate(dims)
        )
        made = f"{name}.{suffix}"
        return made, f"{made} = {dtype}[{shape}] slice({source}), slice={{{places}}}"

    (last, one), (first, two) = part("z", cut, size), part("a", 0, cut)
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    joined = f"{name} = {shape} concatenate({last}, {first}), dimensions={{{along}}}"
    return f"{one}\n{two}\n{joined}"


def around(dtype: str, dims: list[int], ways: list[tuple[int, int]]) -> str:
    """Return sums with neighbours a few places off, around the ends."""
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    lines, total = [], "a0"
    for k, (along, by) in enumerate(ways):
        lines.append(turned(f"m{k}", "a0", dtype, dims, along, by))
        lines.append(f"x{k} = {shape} add({total}, m{k})")
        total = f"x{k}"
    part = 3 if dtype == "u8" else 0.25
    lines += [f"h = {dtype}[] constant({part})", f"hs = {shape} broadcast(h), dimensions={{}}"]
    return "\n".join([*lines, f"n0 = {shape} multiply({total}, hs)"])


WAVE = f"""{turned("m", "a0", "f32", [24, 40], 1, 1)}
{turned("k", "a0", "f32", [24, 40], 0, 23)}
y = f32[24,40] add(m, k)
z = f32[24,40] subtract(y, a1)
n0 = f32[24,40] multiply(z, a2)
n1 = f32[24,40] copy(a0)"""
PADDED = """zero = f32[] constant(0.5)
w = f32[306] pad(a0, zero), padding=2_4
lo = f32[300] slice(w), slice={[0:300]}
hi = f32[300] slice(w), slice={[6:306]}
x = f32[300] subtract(hi, lo)
n0 = f32[300] maximum(x, a0)"""
BEYOND = """two = f32[] constant(2)
w = f32[2,200] pad(a0, two), padding=1_0x0_0
x = f32[1,200] slice(w), slice={[0:1], [0:200]}
y = f32[1,200] add(x, a0)
n0 = f32[1,200] sqrt(y)"""
HEATED = """c = f32[38,68] slice(a0), slice={[1:39], [1:69]}
l = f32[38,68] slice(a0), slice={[1:39], [0:68]}
b = f32[38,68] slice(a0), slice={[2:40], [1:69]}
d = f32[38,68] subtract(l, c)
g = f32[38,68] multiply(d, b)
at = s32[2] constant({1, 1})
in = f32[40,70] scatter(a0, at, g), update_window_dims={0,1}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, to_apply=sum
first = s32[] constant(0)
last = s32[] constant(69)
edge = f32[40,1] slice(in), slice={[0:40], [1:2]}
left = f32[40,70] dynamic-update-slice(in, edge, first, first)
none = f32[] constant(0)
row = f32[40,1] broadcast(none), dimensions={}
n0 = f32[40,70] dynamic-update-slice(left, row, first, last)"""
REPLACED = f"""{bordered(40, 70).replace("n0 =", "all =")}
first = s32[] constant(0)
n0 = f32[40,70] dynamic-update-slice(a0, all, first, first), control-predecessors={{all}}"""
SUM = """sum {
p = f32[] parameter(0)
q = f32[] parameter(1)
ROOT r = f32[] add(p, q)
}
body {"""
CUBE = around("f32", [12, 10, 14], [(0, 1), (0, 11), (1, 1), (2, 2), (2, 13)])
PROGRAMS = {
    "borders": loop(11, "f32[40,70]", bordered(40, 70)),
    "around": loop(9, "f32[48,64]", around("f32", [48, 64], [(0, 1), (1, 63), (1, 2)])),
    "u8 around": loop(8, "u8[40,48]", around("u8", [40, 48], [(0, 39), (1, 1)])),
    "two states and one that stays": loop(9, "f32[24,40] f32[24,40] f32[24,40]", WAVE, 1),
    "added inside, with borders set": loop(9, "f32[40,70]", HEATED).replace("body {", SUM, 1),
    "replaced by what has to come before": loop(9, "f32[40,70]", REPLACED),
    "padded": loop(13, "f32[300]", PADDED),
    "cube": loop(7, "f32[12,10,14]", CUBE),
    "past a row": loop(8, "f32[1,200]", BEYOND),
    "a row of columns": loop(8, "f32[1,200]", around("f32", [1, 200], [(1, 1), (1, 198)])),
}
UNMOVED = """x = f32[40,70] reverse(a0), dimensions={0}
y = f32[40,70] slice(a0), slice={[0:40], [0:70]}
n0 = f32[40,70] add(x, y)"""
NARROW = loop(8, "bf16[40,48]", around("bf16", [40, 48], [(0, 39), (1, 1)]))
FEW = """c = f32[3,68] slice(a0), slice={[1:4], [1:69]}
l = f32[3,68] slice(a0), slice={[2:5], [0:68]}
d = f32[3,68] subtract(l, c)
at = s32[] constant(1)
n0 = f32[40,70] dynamic-update-slice(a0, d, at, at)"""
OTHERS = {
    "updated in a few rows": loop(40, "f32[40,70]", FEW),
    "mirrored": loop(11, "f32[40,70]", UNMOVED),
    "few rounds": loop(3, "f32[40,70]", bordered(40, 70)),
}


@pytest.fixture(scope="module", params=[(1,), (2,), (4, 1), (1, 2, 4)], ids=str)
def plans(request):
    """Plans whose parts are small, so that there are several of these arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "COLUMNS", request.param)
        patch.setattr(sweeps, "LINE_COLUMNS", request.param)
        patch.setattr(sweeps, "SHARED_BYTES", 9 << 10)
        patch.setattr(sweep_rounds, "NUMBERS", (3, 4))
        patch.setattr(sweep_rounds, "ENOUGH", 1000)
        sweeps._best.cache_clear()
        texts = PROGRAMS | {"narrow": NARROW}
        found = {name: h2g.plan(text, target="sm_90") for name, text in texts.items()}
        kernels = Kernels(list(found.values()))
    sweeps._best.cache_clear()
    return found, kernels


@pytest.mark.parametrize("name", PROGRAMS)
@needs_gxx
def test_results_have_the_same_bits(plans, name):
    found, kernels = plans
    plan = found[name]
    assert any("int done" in source.text for source in kernels_of(plan).values())
    check_support(plan)
    given = random_inputs(plan.inputs, 0)
    wanted = HostExecutable(h2g.plan(PROGRAMS[name], target="host"))(*given)
    assert same_bits(wanted, HostExecutable(plan)(*given))
    for backwards in (False, True):
        kernels.run_backwards(backwards)
        assert same_bits(wanted, EmulatedExecutable(plan, kernels)(*given))
    kernels.run_backwards(False)


@needs_gxx
def test_narrow_floats_are_rounded_between_rounds(plans):
    found, kernels = plans
    agree_with_the_host(found["narrow"], kernels)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_stencil_or_short_stays(name):
    plan = h2g.plan(OTHERS[name], target="sm_90")
    assert not any(sweeps_of(c) for c in plan.computations.values())


def once(lines: str, shape: str = "f32[40,70]"):
    """Return the computation of one round."""
    text = f"HloModule m\nENTRY e {{\na0 = {shape} parameter(0)\n{lines}\n}}\n"
    return h2g.parse(text.replace("\nn0", "\nROOT n0"), verify=False).entry


def test_how_far_it_reaches():
    near = stencil_of(once(bordered(40, 70)), 1)
    assert near is not None
    assert (near.low, near.high, near.around) == ((1, 1), (1, 1), (False, False))
    ring = stencil_of(once(around("f32", [40, 70], [(0, 2), (1, 69)])), 1)
    assert ring is not None
    assert (ring.low, ring.high, ring.around) == ((2, 0), (0, 1), (True, True))
    assert stencil_of(once(UNMOVED), 1) is None


def test_parts_hold_what_the_rounds_reach():
    stencil = stencil_of(once(bordered(512, 512), "f32[512,512]"), 1)
    assert stencil is not None
    part = part_of(stencil, [Shape(DTYPES["f32"], (512, 512))], 10)
    assert part is not None
    for along in part.dims:
        assert along.whole or along.held >= along.side + 20
    assert part_of(stencil, [Shape(DTYPES["f32"], (512, 512))], 200) is None


def test_patches_have_registers_for_their_elements():
    lines = around("f64", [512, 512], [(0, 1), (1, 2)])
    stencil = stencil_of(once(lines, "f64[512,512]"), 1)
    assert stencil is not None
    for rounds in (3, 10, 20):
        part = part_of(stencil, [Shape(DTYPES["f64"], (512, 512))], rounds)
        assert part is not None
        assert 2 * part.rows * part.columns <= sweeps.MOST_OWN
        assert part.patches <= sweeps.MOST_THREADS


def cube(far: int) -> Iterator[int]:
    """Yield the rounds of each kernel of sums with neighbours so far off in three dimensions."""
    ways = [(along, by) for along in range(3) for by in (far, 64 - far)]
    plan = h2g.plan(loop(48, "f32[64,64,64]", around("f32", [64] * 3, ways)), target="sm_90")
    return (found.rounds for c in plan.computations.values() if (found := sweeps_of(c)))


def test_three_dimensions_take_two_rounds_a_kernel():
    assert list(cube(1)) == [2]


def test_what_reads_much_around_it_is_left_in_pairs():
    assert not list(cube(16))


def test_blocks_that_may_share_a_multiprocessor_take_longer():
    stencil = stencil_of(once(bordered(512, 512), "f32[512,512]"), 1)
    assert stencil is not None
    across = sweeps.Along(512, 44, 10, 10)
    full = sweeps.Part(10, (sweeps.Along(512, 47, 10, 10), across), 9, 2)
    beside = sweeps.Part(10, (sweeps.Along(512, 52, 10, 10), across), 9, 2)
    assert (full.blocks, beside.blocks) == (132, 120)
    assert full.patches == beside.patches
    taken = sweeps.nanoseconds(stencil, beside, (4,))
    assert taken > 1.1 * sweeps.nanoseconds(stencil, full, (4,))


def test_it_is_told_why():
    made = why(PROGRAMS["padded"], target="sm_90").decisions
    kernels = [k for decisions in made for k in decisions.together if k.form == STENCIL]
    assert kernels
    assert [m.why for m in kernels[0].members[-2:]] == [ROUND, RESULT]
