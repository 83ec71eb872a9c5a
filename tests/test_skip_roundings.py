"""What the host rounds to bfloat16, and where a conversion to float32 comes first, as in XLA."""

import ml_dtypes
import numpy as np
import pytest
from xla import run_xla

import hlo2graph
from hlo2graph.frontend.verify import verify
from hlo2graph.passes.skip_roundings import skip_roundings

_TEXT = """\
HloModule m
fused { p = bf16[8,8] parameter(0) q = bf16[8,8] multiply(p, p) ROOT r = f32[8,8] convert(q) }
ENTRY e {
  p = bf16[8,8] parameter(0)
  q = bf16[8,8] parameter(1)
  LINES
}
"""
_DOT = "dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_IMAGE = (
    "i = bf16[1,8,8] reshape(p) k = bf16[1,8,8] reshape(q) "
    "n = bf16[1,8,8] convolution(i, k), window={size=1}, dim_labels=b0f_0io->b0f "
    "ROOT r = f32[1,8,8] convert(n)"
)
_BOTH = "n = bf16[8,8] %s  c = f32[8,8] convert(n)  ROOT r = (f32[8,8], bf16[8,8]) tuple(c, n)"
UNROUNDED = (
    *(_BOTH % call for call in ("multiply(p, q)", "add(p, q)", "exponential(p)", "tanh(p)", _DOT)),
    "n = bf16[8,8] add(p, q)  m = bf16[8,8] multiply(n, q)  ROOT r = f32[8,8] convert(m)",
    "ROOT r = f32[8,8] fusion(p), kind=kLoop, calls=fused",
    _IMAGE,
)
ROUNDED = (
    "m = bf16[8,8] multiply(p, q)  n = bf16[8,8] copy(m)  ROOT r = f32[8,8] convert(n)",
    "m = bf16[8,8] multiply(p, q)  n = bf16[8,8] maximum(m, p)  ROOT r = f32[8,8] convert(n)",
    "m = bf16[8,8] multiply(p, q)  ROOT r = f64[8,8] convert(m)",
)


@pytest.mark.parametrize("lines", [*UNROUNDED, *ROUNDED])
def test_as_in_xla(lines: str) -> None:
    text = _TEXT.replace("LINES", lines)
    module = hlo2graph.parse(text)
    made = verify(skip_roundings(module))
    where = "fused" if "fused" in lines else "e"
    assert (made.computations[where] == module.computations[where]) is (lines in ROUNDED)
    draw = np.random.default_rng(0).standard_normal
    values = [draw((8, 8)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    run = hlo2graph.compile(text, backend="host")
    results = run(*values[: len(run.inputs)])
    for found, expected in zip(results, run_xla(text, values), strict=True):
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), 1e-5, 1e-6
        )
