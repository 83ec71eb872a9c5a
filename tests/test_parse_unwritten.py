"""Shapes that are left out, or written where nothing of theirs is: as XLA's parser takes them."""

from __future__ import annotations

import pytest
from jax._src.lib import xla_client as xc

from hlo2graph import parse
from hlo2graph.errors import ParseError, VerifyError
from hlo2graph.frontend import verify

_TEXT = """\
HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  k = s32[] parameter(1)
  ROOT r = %s
}
"""


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("broadcast(x), dimensions={3,1}", "f32[3,1,4]"),  # sizes, where no shape is written
        ("broadcast(k), dimensions={}", "s32[]"),
        ("broadcast(k)", "s32[]"),
        ("after-all(x)", "token[]"),
        ("add-dependency(k, x)", "s32[]"),
    ],
)
def test_what_follows_from_the_operands(call: str, shape: str) -> None:
    text = _TEXT % call
    assert f"%r = {shape}" in xc.hlo.hlo_module_from_text(text).to_string()
    assert str(parse(text, verify=False).entry.result.shape) == shape


@pytest.mark.parametrize(
    "call",
    [
        "broadcast(x), dimensions={-1}",
        "broadcast(x)",
        "f32[4] f32[4] negate(x)",
        "f32[4] s32[]negate(x)",
        "negate(f32[4] f32[4] negate(x))",
    ],
)
def test_refused(call: str) -> None:
    with pytest.raises(RuntimeError, match="Syntax error"):
        xc.hlo.hlo_module_from_text(_TEXT % call)
    with pytest.raises(ParseError):
        parse(_TEXT % call, verify=False)


@pytest.mark.parametrize(
    "call",
    [
        "f32[4] get-tuple-element(x), index=2",
        "f32[4]{4294967296} negate(x)",
        "f32[-0] negate(x)",
    ],
)
def test_left_to_the_verifier(call: str) -> None:
    xc.hlo.hlo_module_from_text(_TEXT % call)
    module = parse(_TEXT % call, verify=False)
    with pytest.raises(VerifyError):
        verify(module)


@pytest.mark.parametrize("shape", ["s32[\x85]", "s32[]{\u2028:T(1)}", "s32[2]{0\x85}"])
def test_a_blank_that_is_none(shape: str) -> None:
    text = _TEXT.replace("s32[]", shape) % "negate(x)"
    with pytest.raises(RuntimeError, match="Syntax error"):
        xc.hlo.hlo_module_from_text(text)
    with pytest.raises(ParseError, match="expected"):
        parse(text, verify=False)
