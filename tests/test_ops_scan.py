"""scan against XLA, and scaled-dot, which XLA:CPU lacks, against a dot of what was scaled."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import run_host
from needs import needs_gxx
from xla import run_xla

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import ParseError, VerifyError
from hlo2graph.frontend import parse, verify
from hlo2graph.passes.expand_scans import expand_scans
from tests.emulation import EmulatedExecutable, Kernels

BODIES = """HloModule m
both {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  sum = f32[] add(a, b)
  difference = f32[] subtract(a, b)
  ROOT r = (f32[], f32[]) tuple(difference, sum)
}
rows {
  a = f32[3] parameter(0)
  b = f32[3] parameter(1)
  sum = f32[3] add(a, b)
  ROOT r = (f32[3], f32[3]) tuple(b, sum)
}
mixed {
  a = f32[] parameter(0)
  k = s32[] parameter(1)
  b = f32[] parameter(2)
  n = s32[] parameter(3)
  sum = f32[] add(a, b)
  count = s32[] add(k, n)
  ROOT r = (f32[], f32[], s32[]) tuple(b, sum, count)
}
last { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] subtract(a, b) }
grow { b = f32[] parameter(0)  c = f32[] add(b, b)  ROOT r = (f32[], f32[]) tuple(b, c) }
ENTRY e {
  x = f32[4] parameter(0)
  y = s32[4] parameter(1)
  z = f32[4,3] parameter(2)
  w = f32[3] parameter(3)
  f = f32[] parameter(4)
  n = s32[] parameter(5)
  ROOT result = CALL
}
"""
SCANS = (
    "(f32[4], f32[]) scan(x, f), dimensions={0}, num_carries=1, to_apply=both",
    "(f32[4], f32[]) scan(x, f), dimensions={0}, num_carries=1, is_reverse=true, to_apply=both",
    "(f32[4,3], f32[3]) scan(z, w), dimensions={0}, num_carries=1, to_apply=rows",
    "(f32[4], f32[], s32[]) scan(x, y, f, n), dimensions={0}, num_carries=2, to_apply=mixed",
    "f32[] scan(x, f), dimensions={0}, num_carries=1, to_apply=last",
    "(f32[]) scan(x, f), dimensions={0}, num_carries=1, to_apply=last",
    "f32[4] scan(x, x), dimensions={0}, num_carries=0, to_apply=last",
    "(f32[5], f32[]) scan(f), dimensions={0}, num_carries=1, to_apply=grow",
)
WRONG = {
    "(f32[4], f32[]) scan(x, f), dimensions={1}, num_carries=1, to_apply=both": "out of range",
    "(f32[5], f32[]) scan(x, f), dimensions={0}, num_carries=1, to_apply=both": "f32[5]",
    "(f32[4], f32[]) scan(x, n), dimensions={0}, num_carries=1, to_apply=both": "passes s32[]",
    "(f32[4], f32[]) scan(x, f), dimensions={0}, num_carries=3, to_apply=both": "3 carries",
}


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.standard_normal(4).astype(np.float32),
        np.arange(4, dtype=np.int32),
        rng.standard_normal((4, 3)).astype(np.float32),
        rng.standard_normal(3).astype(np.float32),
        np.float32(0.5),
        np.int32(7),
    ]


@pytest.mark.parametrize("call", SCANS)
def test_scans_agree_with_xla(call: str) -> None:
    text = BODIES.replace("CALL", call)
    given = arguments()
    want = run_xla(text, given)
    for found in (
        run_host(text, given),
        hlo2graph.compile(text, backend="host")(*given),
        hlo2graph.compile(text, backend="host", fuse="default")(*given),
    ):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("call", SCANS)
def test_scans_become_loops_that_are_legal(call: str) -> None:
    module = expand_scans(verify(parse(BODIES.replace("CALL", call))))
    opcodes = [i.opcode for i in verify(module).entry.instructions]
    assert "scan" not in opcodes
    assert opcodes.count("while") == 1
    assert parse(str(module)) == module


def test_layouts_of_scans_are_kept() -> None:
    call = "(f32[4,3], f32[3]) scan(z, w), dimensions={0}, num_carries=1, to_apply=rows"
    text = BODIES.replace("CALL", call.replace("[4,3]", "[4,3]{0,1}"))
    text = text.replace("z = f32[4,3]", "z = f32[4,3]{0,1}")
    given = arguments()
    for a, b in zip(hlo2graph.compile(text)(*given), run_host(text, given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_scans_in_scans_become_loops_in_loops() -> None:
    text = BODIES.replace(
        "ENTRY",
        """outer {
  row = f32[3] parameter(0)
  carry = f32[] parameter(1)
  ROOT r = (f32[3], f32[]) scan(row, carry), dimensions={0}, num_carries=1, to_apply=both
}
ENTRY""",
    )
    call = "(f32[4,3], f32[]) scan(z, f), dimensions={0}, num_carries=1, to_apply=outer"
    text, given = text.replace("CALL", call), arguments()
    want = run_xla(text, given)
    for a, b in zip(hlo2graph.compile(text, backend="host")(*given), want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("call", SCANS)
def test_scans_run_as_kernels_in_a_loop(call: str) -> None:
    text, given = BODIES.replace("CALL", call), arguments()
    plan = hlo2graph.plan(text, target="sm_90")
    check_support(plan)
    found = EmulatedExecutable(plan, Kernels([plan]))(*given)
    for a, b in zip(found, run_host(text, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@needs_gxx
def test_a_scan_inside_a_fusion_becomes_a_loop_on_the_device() -> None:
    text = BODIES.replace(
        "ENTRY",
        """fused {
  x = f32[4] parameter(0)
  f = f32[] parameter(1)
  ROOT r = f32[] scan(x, f), dimensions={0}, num_carries=1, to_apply=last
}
ENTRY""",
    ).replace("CALL", "f32[] fusion(x, f), kind=kLoop, calls=fused")
    given = arguments()
    want = run_host(text, given)
    np.testing.assert_array_equal(hlo2graph.compile(text, backend="host")(*given), want)
    plan = hlo2graph.plan(text, target="sm_90")
    check_support(plan)
    np.testing.assert_array_equal(EmulatedExecutable(plan, Kernels([plan]))(*given), want)


@pytest.mark.parametrize(("call", "message"), WRONG.items(), ids=WRONG)
def test_scans_that_do_not_fit(call: str, message: str) -> None:
    with pytest.raises((ParseError, VerifyError)) as caught:
        verify(parse(BODIES.replace("CALL", call)))
    assert message in caught.value.message


def test_scan_needs_its_attributes() -> None:
    with pytest.raises(ParseError, match="scan needs the attribute num_carries"):
        parse(BODIES.replace("CALL", "f32[] scan(x, f), dimensions={0}, to_apply=last"))


def scaled(lhs: str, scale: str) -> str:
    return (
        "HloModule m\nENTRY e {\n"
        f"  a = {lhs} parameter(0)\n  b = f8e4m3fn[64,2] parameter(1)\n"
        f"  s = {scale} parameter(2)\n  t = f8e8m0fnu[2,2] parameter(3)\n"
        "  ROOT r = f32[3,2] scaled-dot(a, b, s, t), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n}\n"
    )


@pytest.mark.parametrize("scale", [(3, 2), (1, 1), ()])
def test_scaled_dot_scales_blocks(scale: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    text = scaled("f8e4m3fn[3,64]", f"f8e8m0fnu[{','.join(map(str, scale))}]")
    shapes = {p.name: p.shape for p in parse(text).entry.parameters}
    types = {name: shape.dtype.numpy for name, shape in shapes.items()}
    a, b = (rng.standard_normal(dims) for dims in ((3, 64), (64, 2)))
    s, t = (2.0 ** rng.integers(-2, 3, dims) for dims in (scale, (2, 2)))
    given = [np.asarray(v).astype(types[k]) for k, v in zip("abst", (a, b, s, t), strict=True)]
    a, b, s, t = (v.astype(np.float64) for v in given)
    for axis in range(s.ndim):
        s = np.repeat(s, a.shape[axis] // s.shape[axis], axis)
    [found] = hlo2graph.compile(text, backend="host")(*given)
    np.testing.assert_allclose(found, (a * s) @ (b * np.repeat(t, 32, 0)), rtol=1e-5)


@pytest.mark.parametrize("scale", ["f8e8m0fnu[3,5]", "f8e8m0fnu[3]"])
def test_scales_must_divide_the_operand(scale: str) -> None:
    with pytest.raises(VerifyError, match="does not divide"):
        verify(parse(scaled("f8e4m3fn[3,64]", scale)))
