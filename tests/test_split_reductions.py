"""Reduces that are folded in two steps."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx
from rewriting import results

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes import split_reductions as rule
from hlo2graph.passes.split_reductions import split_reductions
from tests.emulation import EmulatedExecutable


def program(
    shape: str, reduced: str, left: str, dtype: str = "f32", opcode: str = "add", start: str = "3"
) -> str:
    return f"""HloModule m
r {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {opcode}(a, b) }}
ENTRY e {{
  x = {dtype}[{shape}] parameter(0)
  z = {dtype}[] constant({start})
  ROOT s = {dtype}[{left}] reduce(x, z), dimensions={{{reduced}}}, to_apply=r
}}"""


def opcodes(text: str) -> list[str]:
    module = verify(split_reductions(h2g.parse(text)))
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize(
    "given",
    [
        ("16000000", "0", ""),
        ("16000001", "0", ""),
        ("10666,1500", "0,1", ""),
        ("10666,1500", "0", "1500"),
        ("3,9000001", "1", "3"),
        ("128,16,8192", "0,2", "16"),
        ("96,144,56,56", "0,2,3", "144"),
    ],
)
def test_large_reduces_of_few_results_are_taken_apart(given):
    assert opcodes(program(*given)).count("reduce") >= 2


@pytest.mark.parametrize(
    "given",
    [
        ("16384,1024", "1", "16384"),
        ("1024,16384", "0", "16384"),
        ("4,32768", "1", "4"),
        ("0", "0", ""),
        ("9000000,0", "0", "0"),
        ("16000000", "0", "", "c64", "add", "(3, 0)"),
        ("16000000", "0", "", "f32", "subtract"),
    ],
)
def test_others_are_left_alone(given):
    assert opcodes(program(*given)) == ["parameter", "constant", "reduce"]


def test_rows_stay_whole_where_another_dimension_can_be_cut():
    text = str(split_reductions(h2g.parse(program("96,16,112,112", "0,2,3", "16"))))
    assert "f32[96,16]" in text
    assert "f32[96,1,16,112,112]" in text


def test_a_reduce_that_nobody_needs_is_left_alone():
    text = (
        program("16000000", "0", "")
        .replace("ROOT s", "s")
        .replace("\n}", "\n  ROOT r = f32[] negate(z)\n}")
    )
    assert opcodes(text) == ["parameter", "constant", "reduce", "negate"]


def test_narrow_floats_are_folded_wide():
    module = split_reductions(h2g.parse(program("16000001", "0", "", "bf16")))
    folded = [i for i in module.entry.instructions if i.opcode == "reduce"]
    assert {str(i.shape.dtype) for i in folded} == {"f32"}
    assert module.entry.result.opcode == "convert"


def test_layouts_are_kept():
    module = split_reductions(
        h2g.parse(
            program("16000,1000", "0,1", "").replace(
                "x = f32[16000,1000]", "x = f32[16000,1000]{0,1}"
            )
        )
    )
    (parts,) = [i for i in module.entry.instructions if i.opcode == "reshape"]
    assert parts.shape.layout.minor_to_major == (1, 0, 2)


SMALL = [
    ("1000", "0", ""),
    ("1009", "0", ""),
    ("37,40", "0,1", ""),
    ("97,41", "0", "41"),
    ("5,37", "1", "5"),
    ("7,3,50", "0,2", "3"),
    ("7,3,53", "0,2", "3"),
]
KINDS = [
    ("f32", "add", "3"),
    ("bf16", "add", "3"),
    ("s32", "multiply", "3"),
    ("f32", "maximum", "-inf"),
    ("f16", "minimum", "2"),
    ("u8", "and", "255"),
    ("s64", "or", "1"),
    ("pred", "and", "true"),
    ("u32", "xor", "9"),
]


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(rule, "GAIN_NS", -1)
    monkeypatch.setattr(rule, "PARTS", 24)
    monkeypatch.setattr(rule, "PART_BYTES", 1)
    monkeypatch.setattr(rule, "ACCESS_BYTES", 4)


def hold_alike(split: Module, whole: Module) -> None:
    """Check that two modules, evaluated as written, give the same."""
    plan = h2g.plan(whole, target="host")
    arguments = random_inputs(plan.inputs, 0)
    (found,), (want,) = (results(module, arguments) for module in (split, whole))
    close = compare(found, want, tolerance_for(plan.outputs[0].shape.dtype), "s")
    assert close.ok, str(close)


@pytest.mark.parametrize("given", SMALL)
@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_give_what_one_gives(always, given, kind):
    text = program(*given, *kind)
    module = verify(split_reductions(h2g.parse(text)))
    assert sum(i.opcode == "reduce" for i in module.entry.instructions) >= 2
    hold_alike(module, h2g.parse(text))


def worked(shape: str, reduced: str, left: str) -> str:
    """Return a reduce with elementwise work before it."""
    return (
        program(shape, reduced, left)
        .replace(
            "ROOT s =",
            f"""one = f32[] constant(1)
  ones = f32[{shape}] broadcast(one), dimensions={{}}
  e = f32[{shape}] exponential(x)
  y = f32[{shape}] add(e, ones)
  w = f32[{shape}] divide(y, e)
  ROOT s =""",
        )
        .replace("reduce(x,", "reduce(w,")
    )


@pytest.mark.parametrize("given", SMALL)
def test_work_in_front_stays_with_each_step(always, given):
    text = worked(*given)
    module = verify(split_reductions(h2g.parse(text)))
    readers = [i for i in module.entry.instructions if "w" in i.operands]
    assert len(readers) == 1
    hold_alike(module, h2g.parse(text))


def test_two_kernels_do_it_all():
    plan = h2g.plan(worked("16000001", "0", ""), target="sm_90")
    assert len(plan.body.thunks) == 2


@pytest.mark.parametrize(
    ("shape", "left", "dtype", "first"),
    [
        ("1550387,129", "129", "bf16", "f32[44,1032]"),
        ("66655,6001", "6001", "u8", "u8[2,96016]"),
        ("10,155038,3,43", "3,43", "bf16", "f32[44,1032]"),
        ("66640,1501", "1501", "f32", "f32[5,6004]"),
        ("66640,1500", "1500", "f32", "f32[28,1500]"),
        ("8192,50257", "50257", "bf16", "f32[2,402056]"),
    ],
)
def test_rows_that_end_within_an_access_are_folded_side_by_side(shape, left, dtype, first):
    reduced = "0,1" if shape.count(",") == 3 else "0"
    plan = h2g.plan(program(shape, reduced, left, dtype), target="sm_90")
    one, _ = plan.body.thunks
    assert str(plan.computations[one.computation].result.shape) == first
    (source,) = [s for k, s in kernels_of(plan).items() if k.computation == one.computation]
    rounds = source.text.partition("for (")[2].partition("__shared__")[0]
    assert "assume_aligned" in source.text
    assert "%" not in rounds, rounds


def test_rows_beside_which_more_is_read_by_its_index_stay_apart():
    text = program("66640,1501", "0", "1501").replace(
        "ROOT s =",
        """b = f32[1501] parameter(1)
  w = f32[66640,1501] broadcast(b), dimensions={1}
  y = f32[66640,1501] multiply(x, w)
  ROOT s =""",
    )
    module = split_reductions(h2g.parse(text.replace("reduce(x,", "reduce(y,")))
    (parts,) = [i for i in module.entry.instructions if i.opcode == "reshape"]
    assert parts.shape.dims[-1] == 1501


def test_the_sign_of_zero_is_kept(always):
    text = program("1009", "0", "", start="-0.0")
    split = h2g.plan(verify(split_reductions(h2g.parse(text))), target="host")
    (found,) = HostExecutable(split)(np.full(1009, -0.0, np.float32))
    assert np.signbit(found)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("given", SMALL[1::2])
def test_two_steps_run_as_kernels(always, given):
    plan = h2g.plan(program(*given), target="sm_90")
    arguments = random_inputs(plan.inputs, 0)
    (found,), (want,) = EmulatedExecutable(plan)(*arguments), HostExecutable(plan)(*arguments)
    close = compare(found, want, tolerance_for(plan.outputs[0].shape.dtype), "s")
    assert close.ok, str(close)


def test_rows_that_one_kernel_normalises_stay_whole():
    text = """HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[2,{0}] parameter(0)
  z = f32[] constant(0)
  s = f32[2] reduce(x, z), dimensions={{1}}, to_apply=add
  n = f32[2] negate(s)
  w = f32[2,{0}] broadcast(n), dimensions={{0}}
  ROOT r = f32[2,{0}] divide(x, w)
}}"""
    assert len(h2g.plan(text.format(60000), target="sm_90").body.thunks) == 1
    assert len(h2g.plan(text.format(150000), target="sm_90").body.thunks) == 1
    assert len(h2g.plan(text.format(600000), target="sm_90").body.thunks) == 3
    assert len(h2g.plan(text.format(150000), target="sm_80").body.thunks) == 3
    of_two = text.format(150000).replace("divide(x, w)", "divide(y, w)")
    of_two = of_two.replace("z = f32[]", "y = f32[2,150000] parameter(1)\n  z = f32[]", 1)
    assert len(h2g.plan(of_two, target="sm_90").body.thunks) == 3


STATISTICS = """HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{0},16] parameter(0)
  z = f32[] constant(0)
  n = f32[] constant({0})
  s = f32[16] reduce(x, z), dimensions={{0}}, to_apply=add
  ns = f32[16] broadcast(n), dimensions={{}}
  mean = f32[16] divide(s, ns)
  means = f32[{0},16] broadcast(mean), dimensions={{1}}
  d = f32[{0},16] subtract(x, means)
  d2 = f32[{0},16] multiply(d, d)
  v = f32[16] reduce(d2, z), dimensions={{0}}, to_apply=add
  variance = f32[16] divide(v, ns)
  root = f32[16] rsqrt(variance)
  roots = f32[{0},16] broadcast(root), dimensions={{1}}
  ROOT r = f32[{0},16] multiply(d, roots)
}}"""


@needs_gxx
def test_readers_fold_a_few_parts_themselves():
    """Three kernels: the parts of sums, those of squares, and what is made of both."""
    plan = h2g.plan(STATISTICS.format(4096), target="sm_90")
    assert len(plan.body.thunks) == 3
    arguments = random_inputs(plan.inputs, 0)
    (found,), (want,) = EmulatedExecutable(plan)(*arguments), HostExecutable(plan)(*arguments)
    close = compare(found, want, tolerance_for(plan.outputs[0].shape.dtype), "r")
    assert close.ok, str(close)


def test_many_readers_leave_parts_to_a_kernel():
    """To fold them for each element would take longer than a launch."""
    assert len(h2g.plan(STATISTICS.format(1 << 20), target="sm_90").body.thunks) == 5
