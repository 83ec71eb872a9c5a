"""Loops that read across the grain, through tiles in shared memory: against the host."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agreement import module
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.uses import computing
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.agreement import agree_exactly
from tests.emulation.plans import FLAT, choose_for

EXACT = {"f32": "negate", "bf16": "negate", "f16": "abs", "f64": "negate", "u8": "not"} | {
    "s8": "negate",
    "pred": "not",
    "f8e4m3fn": "negate",
    "s4": "copy",
    "c128": "negate",
}
SIZES = (1, 2, 16, 17, 20, 32, 33, 36, 64, 65, 68)


@pytest.fixture
def always_tiled(monkeypatch):
    """Let small arrays go through tiles too."""
    choose_for(FLAT, monkeypatch)


def planned(text: str):
    return hlo2graph.plan(text, target="sm_90", fuse="none")


def text_of(plan) -> str:
    (source,) = kernels_of(plan).values()
    return source.text


def fused(lines: list[str]) -> str:
    """Return a module whose entry calls a fusion of these lines with its own parameters."""
    parameters = [line for line in lines if " parameter(" in line]
    names = ", ".join(line.partition(" = ")[0] for line in parameters)
    shape = lines[-1].partition(" = ")[2]
    shape = shape[: shape.index(")") + 1] if shape.startswith("(") else shape.partition(" ")[0]
    inner = "f {\n" + "\n".join([*lines[:-1], f"ROOT {lines[-1]}"]) + " }"
    entry = "\n".join(parameters)
    return module(f"{entry}\nROOT r = {shape} fusion({names}), kind=kLoop, calls=f", inner)


def shape_of(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]{{{','.join(map(str, order))}}}"


@st.composite
def turned(draw) -> str:
    """Return a fusion of a transpose with elementwise work before and after, in any layouts."""
    dtype = draw(st.sampled_from(list(EXACT)))
    dims = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=4)))
    while len(dims) > 2 and _product(dims) > 40_000:
        dims = dims[1:]
    rank = len(dims)
    order, front, back = (tuple(draw(st.permutations(range(rank)))) for _ in range(3))
    if draw(st.booleans()):
        front = back = tuple(reversed(range(rank)))
    result = tuple(dims[d] for d in order)
    x, y = shape_of(dtype, dims, front), shape_of(dtype, result, back)
    lines = [f"x = {x} parameter(0)", f"y = {y} parameter(1)"]
    value = "x"
    if draw(st.booleans()):
        lines.append(f"early = {x} {EXACT[dtype]}({value})")
        value = "early"
    turn = f"transpose({value}), dimensions={{{','.join(map(str, order))}}}"
    lines.append(f"t = {y} {turn}")
    which = f"pred[{','.join(map(str, result))}]{{{','.join(map(str, back))}}}"
    match draw(st.integers(0, 2)):
        case 1:
            lines += [f"c = {which} compare(t, y), direction=EQ", f"s = {y} select(c, y, t)"]
        case 2:
            lines += [f"late = {y} {EXACT[dtype]}(t)", f"both = ({y}, {y}) tuple(late, t)"]
        case _:
            pass
    return fused(lines)


def _product(dims: tuple[int, ...]) -> int:
    found = 1
    for n in dims:
        found *= n
    return found


@pytest.mark.slow
@needs_gxx
def test_turned_elements_agree_with_the_host(always_tiled):
    tiled = 0

    @settings(max_examples=6, phases=(Phase.generate,))  # each one is compiled
    @given(st.lists(turned(), min_size=10, max_size=10))
    def check(texts):
        nonlocal tiled
        plans = [planned(text) for text in texts]
        kernels = Kernels(plans)
        for plan in plans:
            tiled += "__syncthreads" in text_of(plan)
            agree_exactly(plan, kernels)

    check()
    assert tiled


@needs_gxx
def test_tiles_of_all_sizes_agree_with_the_host(always_tiled):
    """Squares of 1, 2 and 4 elements, tiles of all sizes, past the ends too, several strips.

    Rows of results begin anywhere in a sector of memory, or at one.
    """
    sides = ((64, 128), (256, 1064), (1100, 36), (33, 1070), (2112, 132), (191, 255))
    plans = [
        planned(
            module(
                f"x = {t}[{a},{b}] parameter(0) "
                f"ROOT r = {t}[{b},{a}] transpose(x), dimensions={{1,0}}"
            )
        )
        for t in ("f32", "bf16", "u8", "f8e4m3fn")
        for a, b in sides
    ]
    plans.append(planned(_both("u8", 260, 1100)))
    assert all("__syncthreads" in text_of(plan) for plan in plans)
    assert len({"& 31) / 4" in text_of(plan) for plan in plans}) == 2
    assert len({"hlo::word_at" in text_of(plan) for plan in plans}) == 2
    assert len({"hlo::turn_square" in text_of(plan) for plan in plans}) == 2
    kernels = Kernels(plans)
    for plan in plans:
        agree_exactly(plan, kernels)


THIN = (
    ("u8", (7, 64, 44, 3), (0, 3, 1, 2)),
    ("f32", (7, 64, 44, 3), (0, 3, 1, 2)),
    ("bf16", (7, 64, 33, 5), (0, 3, 1, 2)),
    ("f32", (900, 8), (1, 0)),
    ("bf16", (901, 8), (1, 0)),
    ("f64", (900, 2), (1, 0)),
    ("u8", (40, 130, 2, 3), (0, 2, 3, 1)),
    ("f32", (900, 2, 4), (1, 2, 0)),
)
FITTED = (
    *(("bf16", (9, 197, 211), (0, 2, 1)), ("u8", (3, 197, 211), (0, 2, 1))),
    *(("bf16", (3000, 24), (1, 0)), ("f32", (20, 2000), (1, 0)), ("u8", (18, 1001), (1, 0))),
    *(("f32", (70, 20, 21), (1, 2, 0)), ("f64", (40, 40, 41), (0, 2, 1))),
)


@needs_gxx
def test_tiles_that_fit_small_sides_agree_with_the_host(always_tiled):
    """Threads that are no multiple of a tile's side leave some without work."""
    plans = [planned(permuted(*program)) for program in FITTED]
    texts = [text_of(plan) for plan in plans]
    assert all("__syncthreads" in text for text in texts)
    assert len({"if (rank < " in text for text in texts}) == 2
    kernels = Kernels(plans)
    for plan in plans:
        agree_exactly(plan, kernels)


@needs_gxx
def test_thin_sides_agree_with_the_host(always_tiled):
    """A thread takes all elements of the side that has few, where the other one has many."""
    plans = [planned(permuted(*program)) for program in THIN]
    assert not any("__syncthreads" in text_of(plan) for plan in plans)
    kernels = Kernels(plans)
    for plan in plans:
        agree_exactly(plan, kernels)


def permuted(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    """Return a transpose between elementwise work, which two results are of."""
    result = tuple(dims[d] for d in order)
    x, y = (f"{dtype}[{','.join(map(str, shape))}]" for shape in (dims, result))
    return fused(
        [
            f"x = {x} parameter(0)",
            f"y = {y} parameter(1)",
            f"early = {x} {EXACT[dtype]}(x)",
            f"t = {y} transpose(early), dimensions={{{','.join(map(str, order))}}}",
            f"late = {y} maximum(t, y)",
            f"both = ({y}, {y}) tuple(late, t)",
        ]
    )


@pytest.mark.parametrize(("dims", "stores"), [((224, 224, 3), 3 * 8), ((24, 20, 3), 3 * 4)])
def test_a_thread_takes_all_of_a_thin_side(dims, stores):
    """Of rows that words divide it takes as many places as fill one."""
    shape = (400, *dims)
    order = (0, 3, 1, 2)
    source, target = (",".join(map(str, s)) for s in (shape, [shape[d] for d in order]))
    call = "transpose(x), dimensions={0,3,1,2}"
    found = text_of(planned(fused([f"x = u8[{source}] parameter(0)", f"r = u8[{target}] {call}"])))
    assert found.count("] = ") == stores


FORMS = {  # programs, and whether their loop goes through tiles
    "two dimensions": ("f32[999,1001]", "f32[1001,999]", "transpose(x), dimensions={1,0}", True),
    "batches": ("f32[40,99,101]", "f32[40,101,99]", "transpose(x), dimensions={0,2,1}", True),
    "images": ("f32[9,50,50,64]", "f32[9,64,50,50]", "transpose(x), dimensions={0,3,1,2}", True),
    "layouts": ("f32[999,1001]{0,1}", "f32[999,1001]", "copy(x)", True),
    "same in memory": (
        "f32[999,1001]{0,1}",
        "f32[1001,999]",
        "transpose(x), dimensions={1,0}",
        False,
    ),
    "rows stay": ("f32[90,99,101]", "f32[99,90,101]", "transpose(x), dimensions={1,0,2}", False),
    "pairs": ("f32[500000,2]", "f32[2,500000]", "transpose(x), dimensions={1,0}", False),
    "small": ("f32[99,101]", "f32[101,99]", "transpose(x), dimensions={1,0}", False),
}


@pytest.mark.parametrize("name", FORMS)
def test_which_loops_go_through_tiles(name):
    source, target, call, tiled = FORMS[name]
    text = fused([f"x = {source} parameter(0)", f"n = {source} negate(x)", f"r = {target} {call}"])
    text = text.replace("(x)", "(n)", 2).replace("negate(n)", "negate(x)")
    assert ("__syncthreads" in text_of(planned(text))) == tiled


def _both(dtype: str, rows: int, columns: int) -> str:
    """Return a sum of two transposes and of what lies as the result."""
    source, target = f"{dtype}[{rows},{columns}]", f"{dtype}[{columns},{rows}]"
    return fused(
        [
            f"x = {source} parameter(0)",
            f"y = {source} parameter(1)",
            f"z = {target} parameter(2)",
            f"t = {target} transpose(x), dimensions={{1,0}}",
            f"u = {target} transpose(y), dimensions={{1,0}}",
            f"s = {target} add(t, u)",
            f"a = {target} add(s, z)",
        ]
    )


def test_several_inputs_go_through_tiles_together():
    found = text_of(planned(_both("u8", 2000, 2002)))
    assert found.count("__shared__") == 2
    assert found.count("__syncthreads") == 1


@pytest.mark.parametrize(("dtype", "blocks"), [("f32", ""), ("bf16", ", 4"), ("u8", "")])
def test_threads_that_wait_for_much_get_the_registers_for_it(dtype, blocks):
    call = "transpose(x), dimensions={1,0}"
    lines = [f"x = {dtype}[4012,4004] parameter(0)", f"r = {dtype}[4004,4012] {call}"]
    (bounds,) = re.findall(r"__launch_bounds__\(\d+(.*)\)", text_of(planned(fused(lines))))
    assert bounds == blocks


@needs_gxx
@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32"])
def test_sums_go_in_place_of_an_operand(always_tiled, dtype):
    """What two squares have is written once: it would else be added twice."""
    x, y = f"{dtype}[129,197]", f"{dtype}[197,129]"
    lines = [
        f"x = {x} parameter(0)",
        f"y = {y} parameter(1)",
        f"t = {y} transpose(x), dimensions={{1,0}}",
        f"r = {y} add(t, y)",
    ]
    text = fused(lines).replace(
        "HloModule m", "HloModule m, input_output_alias={ {}: (1, {}, must-alias) }", 1
    )
    plan = planned(text)
    (thunk,) = computing(plan.body)
    assert thunk.writes[0] in thunk.reads
    arguments = [np.ones(b.shape.dims, b.shape.dtype.numpy) for b in plan.inputs]
    (got,) = EmulatedExecutable(plan, Kernels([plan]))(*arguments)
    assert (got.astype(np.float32) == 2).all()
