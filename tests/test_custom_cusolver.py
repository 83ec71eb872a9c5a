"""XLA:GPU's call of cuSOLVER for Cholesky factors: the factor, workspace, info."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import misfits
from lapack_programs import definite

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError

MODULE = """HloModule m
ENTRY e {{
  a = {0}[2,4,4]{{2,1,0}} parameter(0)
  call = ({0}[2,4,4]{{2,1,0}}, u8[64], s32[2]) custom-call(a),
    custom_call_target="__cusolver$cholesky", backend_config={{"lower":{1}}}
  factor = {0}[2,4,4]{{2,1,0}} get-tuple-element(call), index=0
  info = s32[2] get-tuple-element(call), index=2
  ROOT t = ({0}[2,4,4]{{2,1,0}}, s32[2]) tuple(factor, info)
}}"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_one_triangle_is_factored_in_place(dtype: str, lower: bool, target: str) -> None:
    given = definite(dtype)
    given[1] = np.eye(4) * -1
    text = MODULE.format(dtype, str(lower).lower())
    factor, info = hlo2graph.compile(text, backend="host", target=target)(given)
    want = np.linalg.cholesky(given[0])
    kept, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    k = 1 if lower else -1
    np.testing.assert_allclose(kept(factor[0]), want if lower else want.conj().T, rtol=1e-4)
    np.testing.assert_array_equal(other(factor[0], k), other(given[0], k))
    assert info[0] == 0
    assert info[1] > 0


def test_the_device_has_a_kernel_for_it() -> None:
    check_support(hlo2graph.plan(MODULE.format("f32", "true"), target="sm_90"))


def test_what_does_not_fit_is_refused() -> None:
    text = MODULE.format("f32", "true")
    misfits(text.replace("s32[2]", "s32[3]"), "info for each matrix")
    misfits(text.replace("a = f32[2,4,4]", "a = f32[2,4,3]"), "square matrices")
    with pytest.raises(UnsupportedError, match="which triangle"):
        hlo2graph.compile(text.replace('"lower":true', '"lower":"yes"'), backend="host")
