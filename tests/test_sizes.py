"""Arrays of a size that only a run knows: the same elements as from XLA on the CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
from random_sizes import BOUNDED, TRUE, Program
from xla import run_xla

import hlo2graph as h2g
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError
from hlo2graph.frontend import parse, verify
from hlo2graph.hlo.printer import format_module
from hlo2graph.ops import OPS
from hlo2graph.ops.dynamic import UNSIZED
from hlo2graph.passes.draft import is_settled
from hlo2graph.passes.sizes.rules import CALLS, RULES
from hlo2graph.passes.sizes.settle_sizes import settle_sizes

LINE = np.arange(1, 9, dtype=np.float32)
TABLE = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
REGIONS = """
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=GE }
larger_of_pairs { a = f32[] parameter(0)
 b = f32[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 ROOT c = pred[] compare(a, b), direction=GT }
largest { a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 q = pred[] compare(a, b), direction=GE
 v = f32[] select(q, a, b)
 k = s32[] select(q, i, j)
 ROOT t = (f32[], s32[]) tuple(v, k) }
total { x = f32[<=8] parameter(0)
 z = f32[] constant(0)
 ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }
three { x = f32[8] parameter(0)
 c = s32[] constant(3)
 ROOT r = f32[<=8] set-dimension-size(x, c), dimensions={0} }
six { x = f32[8] parameter(0)
 c = s32[] constant(6)
 m = f32[8] negate(x)
 ROOT r = f32[<=8] set-dimension-size(m, c), dimensions={0} }
few { s = (f32[<=8], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=1
 k = s32[] constant(3)
 ROOT c = pred[] compare(i, k), direction=LT }
double { s = (f32[<=8], s32[]) parameter(0)
 x = f32[<=8] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 o = s32[] constant(1)
 j = s32[] add(i, o)
 y = f32[<=8] add(x, x)
 ROOT t = (f32[<=8], s32[]) tuple(y, j) }
shorten { s = (f32[<=8], s32[]) parameter(0)
 x = f32[<=8] get-tuple-element(s), index=0
 i = s32[] get-tuple-element(s), index=1
 o = s32[] constant(1)
 j = s32[] add(i, o)
 g = s32[] get-dimension-size(x), dimensions={0}
 h = s32[] subtract(g, o)
 e = s32[] constant(8)
 w = f32[8] set-dimension-size(x, e), dimensions={0}
 y = f32[<=8] set-dimension-size(w, h), dimensions={0}
 ROOT t = (f32[<=8], s32[]) tuple(y, j) }
"""
ONE = """ p = f32[8] parameter(0)
 n = s32[] parameter(1)
 x = f32[<=8] set-dimension-size(p, n), dimensions={0}
"""
TWO = """ p = f32[3,4] parameter(0)
 n = s32[] parameter(1)
 x = f32[3,<=4] set-dimension-size(p, n), dimensions={1}
"""
BOTH = """ p = f32[3,4] parameter(0)
 n = s32[] parameter(1)
 h = s32[] constant(2)
 w = f32[3,<=4] set-dimension-size(p, n), dimensions={1}
 x = f32[<=3,<=4] set-dimension-size(w, h), dimensions={0}
"""
INDEX = """ i = s32[8,1] constant({{0},{4},{0},{1},{2},{3},{5},{7}})
 j = s32[<=8,1] set-dimension-size(i, n), dimensions={0}
"""

# What comes of x, of size n; a bounded result by its number of elements that count.
# fmt: off
LINES = {  # n = 5
    "reduce": ("f32[] reduce(x, z), dimensions={0}, to_apply=add", 1),
    "reduce from 3": ("f32[] reduce(x, three), dimensions={0}, to_apply=add", 1),
    "reduce a pair":
        ("(f32[], s32[]) reduce(x, numbers, z, zero), dimensions={0}, to_apply=largest", 1),
    "negate": ("f32[<=8] negate(x)", 5),
    "add a whole": ("f32[<=8] add(p, x)", 5),
    "add a shorter": ("f32[<=8] add(x, short)", 3),
    "add a single": ("f32[<=8] add(x, single)", 5),
    "select": ("f32[<=8] select(flags, x, p)", 5),
    "clamp": ("f32[<=8] clamp(z, x, three)", 5),
    "convert": ("s32[<=8] convert(x)", 5),
    "bitcast-convert": ("s32[<=8] bitcast-convert(x)", 5),
    "map": ("f32[<=8] map(x, p), dimensions={0}, to_apply=add", 5),
    "pad": ("f32[<=12] pad(x, three), padding=1_3", 9),
    "pad inside": ("f32[<=19] pad(x, three), padding=1_3_1", 13),
    "cut": ("f32[<=6] pad(x, three), padding=-1_-1", 3),
    "concatenate": ("f32[<=24] concatenate(x, p, x), dimensions={0}", 18),
    "broadcast": ("f32[2,<=8] broadcast(x), dimensions={1}", 10),
    "broadcast major": ("f32[<=8,2] broadcast(x), dimensions={0}", 10),
    "reverse": ("f32[<=8] reverse(x), dimensions={0}", 5),
    "sort": ("f32[<=8] sort(x), dimensions={0}, to_apply=larger", 5),
    "sort pairs":
        ("(f32[<=8], s32[<=8]) sort(x, numbers), dimensions={0}, to_apply=larger_of_pairs", 5),
    "slice": ("f32[<=4] slice(x), slice={[2:6]}", 3),
    "slice in steps": ("f32[<=3] slice(x), slice={[1:7:2]}", 2),
    "dynamic-reshape": ("f32[2,<=4] dynamic-reshape(x, two, two)", 4),
    "windows": ("f32[<=7] reduce-window(x, z), window={size=2}, to_apply=add", 4),
    "windows in steps":
        ("f32[<=4] reduce-window(x, z), window={size=2 stride=2}, to_apply=add", 2),
    "gather": ("f32[8] gather(x, i), offset_dims={}, collapsed_slice_dims={0},"
               " start_index_map={0}, index_vector_dim=1, slice_sizes={1}", 8),
    "gather some": ("f32[<=8] gather(p, j), offset_dims={}, collapsed_slice_dims={0},"
                    " start_index_map={0}, index_vector_dim=1, slice_sizes={1}", 5),
    "scatter some": ("f32[8] scatter(p, j, x), update_window_dims={}, inserted_window_dims={0},"
                     " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add", 8),
    "scatter into": ("f32[<=8] scatter(x, i, p), update_window_dims={}, inserted_window_dims={0},"
                     " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add", 5),
    "dynamic-slice": ("f32[4] dynamic-slice(x, two), dynamic_slice_sizes={4}", 4),
    "dynamic-slice clamped": ("f32[4] dynamic-slice(x, n), dynamic_slice_sizes={4}", 4),
    "dynamic-update-slice": ("f32[<=8] dynamic-update-slice(x, part, two)", 5),
    "select-and-scatter": ("f32[<=8] select-and-scatter(x, part, z), window={size=4 stride=4},"
                           " select=larger, scatter=add", 5),
    "call": ("f32[] call(x), to_apply=total", 1),
    "call for a size": ("f32[<=8] call(p), to_apply=three", 3),
    "conditional": ("f32[<=8] conditional(truth, p, p), true_computation=three,"
                    " false_computation=six", 3),
    "loop": ("(f32[<=8], s32[]) while(state), condition=few, body=double", 5),
    "loop that shortens": ("(f32[<=8], s32[]) while(state), condition=few, body=shorten", 2),
    "size": ("s32[] get-dimension-size(x), dimensions={0}", 1),
    "whole again": ("f32[8] set-dimension-size(x, eight), dimensions={0}", 8),
}
TABLES = {  # n = 3, of f32[3,<=4]
    "reduce": ("f32[3] reduce(x, z), dimensions={1}, to_apply=add", 3),
    "reduce others": ("f32[<=4] reduce(x, z), dimensions={0}, to_apply=add", 3),
    "negate": ("f32[3,<=4] negate(x)", 9),
    "column-major": ("f32[3,<=4]{0,1} negate(x)", 9),
    "transpose": ("f32[<=4,3] transpose(x), dimensions={1,0}", 9),
    "slice": ("f32[2,<=4] slice(x), slice={[1:3], [0:4]}", 6),
    "reshape": ("f32[1,3,<=4] reshape(x)", 9),
    "merge": ("f32[<=12] reshape(x)", 9),
    "dynamic-reshape": ("f32[<=12] dynamic-reshape(x, nine)", 9),
    "concatenate": ("f32[6,<=4] concatenate(x, p), dimensions={0}", 18),
    "dot": ("f32[3,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 6),
    "dot of both": ("f32[3,3] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}", 9),
    "dot free": ("f32[<=4,3] dot(x, o), lhs_contracting_dims={0}, rhs_contracting_dims={0}", 9),
    "gather": ("f32[2,<=4] gather(x, k), offset_dims={1}, collapsed_slice_dims={0},"
               " start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}", 6),
    "features": ("f32[3,1] convolution(x, v), dim_labels=bf_io->bf", 3),
}
# fmt: on
MORE_LINE = """ z = f32[] constant(0)
 three = f32[] constant(3)
 zero = s32[] constant(0)
 one = s32[] constant(1)
 two = s32[] constant(2)
 few_ = s32[] constant(3)
 eight = s32[] constant(8)
 numbers = s32[8] iota(), iota_dimension=0
 short = f32[<=8] set-dimension-size(p, few_), dimensions={0}
 single = f32[<=8] set-dimension-size(p, one), dimensions={0}
 threes = f32[<=8] broadcast(three), dimensions={}
 flags = pred[<=8] compare(x, threes), direction=GT
 part = f32[2] constant({-1, -2})
 truth = pred[] compare(two, few_), direction=LT
 state = (f32[<=8], s32[]) tuple(x, zero)
"""
MORE_TABLE = """ z = f32[] constant(0)
 nine = s32[] constant(9)
 w = f32[4,2] constant({{1,2},{3,4},{5,6},{7,8}})
 v = f32[4,1] constant({{1},{2},{3},{4}})
 o = f32[3,3] constant({{1,2,3},{4,5,6},{7,8,9}})
 k = s32[2,1] constant({{1},{2}})
"""


def module(body: str) -> str:
    return f"HloModule m\n{REGIONS}\nENTRY e {{\n{body}\n}}"


def line(call: str) -> str:
    return _used(ONE + INDEX + MORE_LINE, call)


def table(call: str) -> str:
    return _used(TWO + MORE_TABLE, call)


def _used(lines: str, call: str) -> str:
    """Keep the lines that the call needs: XLA follows sizes through all that there are."""
    kept, wanted = [f" ROOT r = {call}"], set(re.findall(r"\w+", call)) | {"p", "n"}
    for text in reversed(lines.splitlines()):
        if text.split()[0] in wanted:
            kept.append(text)
            wanted |= set(re.findall(r"\w+", text.split("=", 1)[1]))
    return module("\n".join(reversed(kept)))


def settled(text: str) -> str:
    """Return the text after the pass; what it leaves is legal, and has no size left open."""
    made = settle_sizes(verify(parse(text)))
    verify(made)
    assert all(is_settled(i.shape) for c in made.computations.values() for i in c.instructions)
    return format_module(made)


def agree(text: str, arguments: list[np.ndarray], count: int) -> None:
    """Hold both ways to plan against XLA, in the elements that count; all of it has kernels."""
    check_support(h2g.plan(text, target="sm_90"))
    want = run_xla(text, arguments)
    for fuse in ("none", "default"):
        got = h2g.compile(settled(text), backend="host", fuse=fuse)(*arguments)
        for mine, its in zip(got, want, strict=True):
            mine = np.asarray(mine)
            assert mine.shape == its.shape
            np.testing.assert_array_equal(mine.ravel()[:count], its.ravel()[:count])
            assert not mine.ravel()[count:].any()


@pytest.mark.parametrize("call", LINES)
def test_a_line(call: str) -> None:
    text, count = LINES[call]
    agree(line(text), [LINE, np.asarray(5, np.int32)], count)


@pytest.mark.parametrize("call", TABLES)
def test_a_table(call: str) -> None:
    text, count = TABLES[call]
    agree(table(text), [TABLE, np.asarray(3, np.int32)], count)


def test_two_sizes() -> None:
    given = [TABLE, np.asarray(3, np.int32)]
    agree(module(BOTH + " ROOT r = f32[<=3,<=4] negate(x)"), given, 6)
    total = " z = f32[] constant(0)\n ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=add"
    agree(module(BOTH + total), given, 1)


WHOLE = """ whole = f32[<=8] constant({8, 7, 6, 5, 4, 3, 2, 1})
 token_ = token[] after-all()
"""

# What XLA on the CPU refuses, or gets wrong.
OURS = {
    "f32[<=8] reduce-window(x, z), window={size=3 pad=1_1}, to_apply=add": [3, 6, 9, 12, 9],
    "f32[<=8] reduce-window(x, z), window={size=8 pad=7_0}, to_apply=add": [1, 3, 6, 10, 15],
    "f32[<=4,2] reshape(x)": [1, 2, 3, 4],
    "f32[10] dynamic-update-slice(b, x, two)": [0, 0, 1, 2, 3, 4, 5, 0, 0, 0],
    "f32[] fusion(x), kind=kLoop, calls=total": [15],
    "(f32[3], s32[3]) topk(x), k=3, largest=true": [5, 4, 3],
    "f32[<=8] opt-barrier(x)": [1, 2, 3, 4, 5],
    "f32[<=8] all-reduce(x), to_apply=add": [1, 2, 3, 4, 5],
    "f32[<=8] add(x, whole)": [9, 9, 9, 9, 9],
    "f32[<=8] add-dependency(x, token_)": [1, 2, 3, 4, 5],
}


@pytest.mark.parametrize("call", OURS)
def test_what_xla_does_not_compute(call: str) -> None:
    body = ONE + MORE_LINE + WHOLE + f" b = f32[10] broadcast(z), dimensions={{}}\n ROOT r = {call}"
    text = settled(module(body))
    got = np.asarray(h2g.compile(text, backend="host")(LINE, np.asarray(5, np.int32))[0]).ravel()
    want = OURS[call]
    np.testing.assert_array_equal(got[: len(want)], want)
    assert not got[len(want) :].any()


@pytest.mark.parametrize(("size", "count"), [(0, 16), (8, 24)])
def test_a_dimension_of_at_most_one_takes_what_a_whole_one_leaves(size: int, count: int) -> None:
    body = ONE + " y = f32[8,<=1] reshape(x)\n o = f32[] constant(1)\n"
    text = settled(module(body + " ROOT r = f32[8,<=3] pad(y, o), padding=0_0x2_0"))
    (got,) = h2g.compile(text, backend="host")(LINE, np.asarray(size, np.int32))
    assert np.count_nonzero(got) == count


@pytest.mark.parametrize(("size", "count"), [(0, 8), (1, 20)])
def test_what_one_of_at_most_one_leaves_goes_where_a_size_is_asked_for(
    size: int, count: int
) -> None:
    body = """ p = f32[3,1,4] parameter(0)
 n = s32[] parameter(1)
 two = s32[] constant(2)
 h = f32[3,1,<=4] set-dimension-size(p, two), dimensions={2}
 x = f32[3,<=1,<=4] set-dimension-size(h, n), dimensions={1}
 y = f32[<=3,<=4] reshape(x)
 o = f32[] constant(1)
 ROOT r = f32[<=5,<=6] pad(y, o), padding=0_2x2_0"""
    text = settled(module(body))
    given = np.ones((3, 1, 4), np.float32)
    (got,) = h2g.compile(text, backend="host")(given, np.asarray(size, np.int32))
    assert np.count_nonzero(got) == count


NORMALIZED = """ p = {0}[4,3] parameter(0)
 n = s32[] parameter(1)
 s = {0}[3] parameter(2)
 x = {0}[<=4,3] set-dimension-size(p, n), dimensions={{0}}
 t = ({0}[<=4,3], {0}[3], {0}[3]) batch-norm-training(x, s, s), epsilon=0.5, feature_index=1
 y = {0}[<=4,3] get-tuple-element(t), index=0
 m = {0}[3] get-tuple-element(t), index=1
 v = {0}[3] get-tuple-element(t), index=2
 g = ({0}[<=4,3], {0}[3], {0}[3]) batch-norm-grad(x, s, m, v, y), epsilon=0.5, feature_index=1
 gx = {0}[<=4,3] get-tuple-element(g), index=0
 gs = {0}[3] get-tuple-element(g), index=1
 go = {0}[3] get-tuple-element(g), index=2
 ROOT r = ({0}[<=4,3], {0}[3], {0}[3], {0}[<=4,3], {0}[3], {0}[3]) tuple(y, m, v, gx, gs, go)"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_means_are_of_what_counts(dtype: str) -> None:
    given = np.random.default_rng(0).standard_normal((4, 3)).astype(f"float{dtype[1:]}")
    scale = given[0] * 2
    text = module(NORMALIZED.format(dtype))
    got = h2g.compile(settled(text), backend="host")(given, np.asarray(3, np.int32), scale)
    static = text.replace("<=4,3]", "3,3]").replace("[4,3]", "[3,3]")
    static = re.sub(r"set-dimension-size\(p, n\), dimensions=\{0\}", "negate(p)", static)
    want = h2g.compile(static, backend="host")(-given[:3], np.asarray(3, np.int32), scale)
    by_xla = run_xla(text, [given, np.asarray(3, np.int32), scale])
    for mine, true, its in zip(got, want, by_xla, strict=True):
        for other in (np.ravel(true), np.ravel(its)[: np.size(true)]):
            np.testing.assert_allclose(np.ravel(mine)[: np.size(true)], other, 1e-4, 1e-5)


CONVOLVED = """ l = f32[1,<=8,1] reshape(x)
 w = f32[3,1,1] constant({{{1}}, {{1}}, {{1}}})
 ROOT r = f32[1,<=8,1] convolution(l, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"""


@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_a_window_over_a_line(size: int) -> None:
    text = settled(module(ONE + CONVOLVED))
    (got,) = h2g.compile(text, backend="host")(LINE, np.asarray(size, np.int32))
    want = np.convolve(LINE[:size], [1, 1, 1], "same")[:size] if size else []
    np.testing.assert_array_equal(np.asarray(got).ravel()[:size], want)


def test_what_a_sort_leaves_out_stays_as_it_was() -> None:
    text = f"""HloModule m
    {REGIONS}
    ENTRY e {{
      x = f32[8] parameter(0)
      n = s32[] constant(4)
      b = f32[<=8] set-dimension-size(x, n), dimensions={{0}}
      s = f32[<=8] sort(b), dimensions={{0}}, to_apply=larger
      a = s32[] constant(8)
      ROOT r = f32[8] set-dimension-size(s, a), dimensions={{0}}
    }}"""
    (found,), (want,) = h2g.compile(text, backend="host")(LINE), run_xla(text, [LINE])
    np.testing.assert_array_equal(found, want)


def test_infinities_outside_do_not_show() -> None:
    rows = np.array([[1, 2, np.inf, np.nan]] * 3, np.float32)
    text = settled(table(TABLES["dot"][0]))
    (got,) = h2g.compile(text, backend="host")(rows, np.asarray(2, np.int32))
    np.testing.assert_array_equal(got, [[7, 10]] * 3)


@pytest.mark.parametrize("size", [-3, 0, 12])
def test_a_size_out_of_bounds_does_no_harm(size: int) -> None:
    for call in LINES:
        text = settled(line(LINES[call][0]))
        h2g.compile(text, backend="host")(LINE, np.asarray(size, np.int32))


def test_calls_of_the_padding_pass() -> None:
    body = """ p = f32[2,4] parameter(0)
 n = s32[] parameter(1)
 two = s32[] constant(2)
 x = f32[2,<=4] custom-call(p, two, n), custom_call_target="SliceToDynamic"
 y = f32[2,<=4] negate(x)
 t = (f32[2,4], s32[], s32[]) custom-call(y), custom_call_target="PadToStatic"
 c = s32[] get-tuple-element(t), index=2
 ROOT r = (f32[2,<=4], s32[]) tuple(y, c)"""
    text = settled(module(body))
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = h2g.compile(text, backend="host")(given, np.asarray(3, np.int32))
    np.testing.assert_array_equal(got[0], [[0, -1, -2, -4], [-5, -6, 0, 0]])
    assert got[1] == 3


REFUSED = {
    "c64[<=8] fft(c), fft_type=FFT, fft_length={8}": "fft: takes no array whose size",
    'f32[8] custom-call(x), custom_call_target="other"': 'custom-call "other"',
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_sizes_are_not_followed_through_is_planned_and_refused_by_name(call: str) -> None:
    text = module(f"{ONE} c = c64[<=8] convert(x)\n ROOT r = {call}")
    plan = h2g.plan(text)
    assert plan.body
    with pytest.raises(UnsupportedError) as caught:
        h2g.compile(text, backend="host")
    assert REFUSED[call] in str(caught.value)


def test_calls_too_deep_to_follow_are_refused() -> None:
    text = "HloModule m\n" + "".join(
        f"c{k}_ {{ x = f32[<=8] parameter(0)\n ROOT r = f32[<=8] call(x), to_apply=c{k - 1}_ }}\n"
        if k
        else "c0_ { x = f32[<=8] parameter(0)\n ROOT r = f32[<=8] negate(x) }\n"
        for k in range(300)
    )
    text += f"ENTRY e {{\n{ONE} ROOT r = f32[<=8] call(x), to_apply=c299_\n}}"
    with pytest.raises(UnsupportedError, match="known only at run time"):
        h2g.compile(text, backend="host")


def test_a_bounded_parameter_is_planned_and_refused_by_name() -> None:
    text = "HloModule m\nENTRY e {\n p = f32[<=8] parameter(0)\n ROOT r = f32[<=8] negate(p)\n}"
    h2g.plan(text)
    with pytest.raises(UnsupportedError, match="known only at run time"):
        h2g.compile(text, backend="host")


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_compute_what_they_do_with_true_sizes(seed: int) -> None:
    program = Program(seed)
    want = h2g.compile(program.text(TRUE), backend="host")(*program.arguments[TRUE])
    for fuse in ("none", "default"):
        executable = h2g.compile(settled(program.text(BOUNDED)), backend="host", fuse=fuse)
        got = executable(*program.arguments[BOUNDED])
        for mine, true, (_, dims) in zip(got, want, program.results, strict=True):
            line, count = np.ravel(mine), np.size(true)
            np.testing.assert_array_equal(line[:count], np.ravel(true))
            assert not any(d.open for d in dims) or not line[count:].any()


def test_every_opcode_is_followed_or_named() -> None:
    without_arrays = {"after-all", "constant", "iota", "parameter", "partition-id", "replica-id"}
    rest = without_arrays | {"rng", "rng-get-and-update-state"}
    assert set(OPS) == {*RULES, *CALLS, *UNSIZED, *rest}
    assert UNSIZED.isdisjoint({*RULES, *CALLS})
