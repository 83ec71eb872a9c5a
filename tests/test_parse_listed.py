"""Lists of computations, some written out in the place of their names, as XLA prints them too."""

from __future__ import annotations

import numpy as np
import pytest
from jax._src.lib import xla_client as xc
from xla import run_xla

import hlo2graph
from hlo2graph.errors import ParseError

_MODULE = """\
HloModule m
b0 { x = f32[4] parameter(0) ROOT r = f32[4] negate(x) }
ENTRY e {
  k = s32[] parameter(0)
  p = f32[4] parameter(1)
  ROOT r = f32[4] conditional(k, p, p), branch_computations=%s
}
"""
_INNER = "{ x = f32[4] parameter(0) ROOT r = f32[4] abs(x) }"
_CALLING = f"{{ x = f32[4] parameter(0) ROOT r = f32[4] call(x), to_apply={_INNER} }}"


@pytest.mark.parametrize(
    "listed",
    [
        f"{{ {_INNER}, b0 }}",
        f"{{%b0,{_INNER}}}, metadata={{op_name='a'}}",
        f"{{\n{_CALLING},\n{_INNER}\n}}",
    ],
)
def test_taken(listed: str) -> None:
    text = _MODULE % listed
    x = np.array([-2, -1, 0, 3], np.float32)
    for k in (np.int32(0), np.int32(1)):
        [want] = run_xla(text, [k, x])
        [found] = hlo2graph.compile(text, backend="host")(k, x)
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (f"{{ {_INNER}, b9 }}", "no computation is named b9"),
        (f"{{ {_INNER} {_INNER} }}", "unexpected '{', expected ','"),
        (f"{{ {_INNER}, }}", "unexpected '}'"),
        (f"{{ {_INNER}, {{}} }}", "expected an instruction"),
        (f"{{ {_INNER}, b0", "too early"),
    ],
)
def test_refused(listed: str, message: str) -> None:
    with pytest.raises(RuntimeError, match="Syntax error"):
        xc.hlo.hlo_module_from_text(_MODULE % listed)
    with pytest.raises(ParseError, match=message):
        hlo2graph.parse(_MODULE % listed, verify=False)


def test_what_xla_prints_without_names() -> None:
    text = _MODULE % "{b0, b0}"
    printed = xc.hlo.hlo_module_from_text(text).to_string(xc.hlo.HloPrintOptions.canonical())
    assert "branch_computations={\n  {" in printed
    assert len(hlo2graph.parse(printed).computations) == 4
