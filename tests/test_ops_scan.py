"""scan against XLA, and scaled-dot, which XLA:CPU lacks, against a dot of what was scaled."""

from __future__ import annotations

import numpy as np
import pytest
from xla import run_xla

import hlo2graph
from hlo2graph.errors import ParseError, VerifyError
from hlo2graph.frontend import parse, verify

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
    "(f32[4], f32[]) scan(x, f), dimensions={0}, num_carries=3, to_apply=both": "carries 3 values",
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
    found = hlo2graph.compile(text, backend="host")(*given)
    for a, b in zip(found, run_xla(text, given), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("call", "message"), WRONG.items(), ids=WRONG)
def test_scans_that_do_not_fit(call: str, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
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
