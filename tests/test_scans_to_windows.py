"""Scans that are cumulative become windows; long windows that accumulate are taken apart."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx
from xla import run_xla

import hlo2graph
from hlo2graph.frontend import parse, verify
from hlo2graph.passes.large.split_scans import split_scans
from hlo2graph.passes.scans_to_windows import scans_to_windows
from tests.emulation import EmulatedExecutable, Kernels

TEXT = """HloModule m
step {
  x = f32[3] parameter(0)
  carry = f32[3] parameter(1)
  r = f32[3] OPCODE(x, carry)
  ROOT t = (f32[3], f32[3]) tuple(r, r)
}
logs {
  x = f32[3] parameter(0)
  carry = f32[3] parameter(1)
  high = f32[3] maximum(carry, x)
  low = f32[3] minimum(carry, x)
  apart = f32[3] subtract(low, high)
  e = f32[3] exponential(apart)
  l = f32[3] log-plus-one(e)
  r = f32[3] add(high, l)
  ROOT t = (f32[3], f32[3]) tuple(r, r)
}
other {
  x = f32[3] parameter(0)
  carry = f32[3] parameter(1)
  r = f32[3] add(x, carry)
  ROOT t = (f32[3], f32[3]) tuple(carry, r)
}
ENTRY e {
  x = f32[3,90] parameter(0)
  c = f32[3] parameter(1)
  half = f32[] constant(0.5)
  h = f32[3] broadcast(half), dimensions={}
  ROOT s = (f32[3,90], f32[3]) scan(x, INIT), dimensions={1}, num_carries=1, ATTRS
}
"""


def program(init: str, attrs: str, opcode: str = "add") -> str:
    return TEXT.replace("INIT", init).replace("ATTRS", attrs).replace("OPCODE", opcode)


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, (3, 90)).astype(np.float32), np.float32([0.5, 2, 1])]


WINDOWS = [
    program(init, f"{attrs}is_associative=true, to_apply=step", opcode)
    for init in ("h", "c")
    for attrs in ("", "is_reverse=true, ")
    for opcode in ("add", "multiply", "maximum")
]
WINDOWS.append(program("h", "is_associative=true, to_apply=logs"))
LOOPS = [
    program("h", "to_apply=step"),  # floats in the order that is written
    program("h", "is_associative=true, to_apply=other"),
    program("h", "is_associative=true, is_reverse=true, to_apply=logs"),
    program("c", "is_associative=true, to_apply=logs"),
    program("h", "is_associative=true, to_apply=step", "subtract").replace(
        "=true, to", "=false, to"
    ),
]


@pytest.mark.parametrize("text", [*WINDOWS, *LOOPS])
def test_scans_give_what_xla_gives(text: str) -> None:
    want = run_xla(text, arguments())
    module = scans_to_windows(verify(parse(text)))
    opcodes = {i.opcode for i in verify(module).entry.instructions}
    assert ("reduce-window" in opcodes, "scan" in opcodes) == (text in WINDOWS, text in LOOPS)
    found = [
        hlo2graph.compile(text, "host", fuse=fuse)(*arguments()) for fuse in ("none", "default")
    ]
    for results in found:
        for a, b in zip(results, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5)


@needs_gxx
@pytest.mark.parametrize("text", [WINDOWS[0], WINDOWS[4], WINDOWS[6], WINDOWS[-1]])
def test_the_first_carry_counts_once_on_a_gpu(text: str) -> None:
    plan = hlo2graph.plan(text, target="sm_90")
    found = EmulatedExecutable(plan, Kernels([plan]))(*arguments())
    for a, b in zip(found, run_xla(text, arguments()), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


LONG = """HloModule long
step { a = DTYPE[] parameter(0)  b = DTYPE[] parameter(1)  ROOT r = DTYPE[] OPCODE(a, b) }
ENTRY e {
  x = DTYPE[DIMS] parameter(0)
  init = DTYPE[] constant(0)
  ROOT w = DTYPE[DIMS] reduce-window(x, init), window={size=SIZE pad=PAD}, to_apply=step
}
"""
CASES = [
    ("s32", "20000", "20000", "19999_0", "add", (20000,)),
    ("s32", "32768", "32768", "0_32767", "add", (32768,)),
    ("f32", "2,30001", "1x30001", "0_0x30000_0", "maximum", (2, 30001)),
    ("s32", "17001,2", "17001x1", "0_17000x0_0", "add", (17001, 2)),
]


@needs_gxx
@pytest.mark.parametrize("case", CASES)
def test_long_rows_are_taken_apart(case: tuple) -> None:
    dtype, dims, size, pad, opcode, shape = case
    text = LONG.replace("DTYPE", dtype).replace("DIMS", dims).replace("SIZE", size)
    text = text.replace("PAD", pad).replace("OPCODE", opcode)
    module = split_scans(verify(parse(text)))
    opcodes = [i.opcode for i in verify(module).entry.instructions]
    assert opcodes.count("reduce-window") == 2
    given = (
        np.random.default_rng(1)
        .integers(-9, 9, shape)
        .astype({"s32": np.int32, "f32": np.float32}[dtype])
    )
    (want,) = run_xla(text, [given])
    plan = hlo2graph.plan(text, target="sm_90")
    (found,) = EmulatedExecutable(plan, Kernels([plan]))(given)
    np.testing.assert_array_equal(found, want)


def test_short_or_many_rows_stay_whole() -> None:
    for dims, size, pad in (("9000", "9000", "8999_0"), ("120,20000", "1x20000", "0_0x19999_0")):
        text = LONG.replace("DTYPE", "s32").replace("DIMS", dims).replace("SIZE", size)
        module = verify(parse(text.replace("PAD", pad).replace("OPCODE", "add")))
        assert split_scans(module) is module
