"""Products whose operands meet in shared memory: whatever lies in front of them and behind."""

from __future__ import annotations

import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms import dot_staged
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.plan import Plan
from tests.emulation import Kernels
from tests.emulation.agreement import agree_with_the_host

AS_WRITTEN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CASES = {
    "rows times columns": f"""
  a = bf16[64,256] parameter(0) b = bf16[256,96] parameter(1)
  ROOT r = bf16[64,96] dot(a, b), {AS_WRITTEN}""",
    "both turned": """
  a = f16[192,80] parameter(0) b = f16[48,192] parameter(1)
  ROOT r = f32[80,48] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}""",
    "nothing divides": f"""
  a = bf16[37,131] parameter(0) b = bf16[131,45] parameter(1)
  ROOT r = bf16[37,45] dot(a, b), {AS_WRITTEN}""",
    "f32": f"""
  a = f32[48,160] parameter(0) b = f32[160,72] parameter(1)
  ROOT r = f32[48,72] dot(a, b), {AS_WRITTEN}""",
    "what is done behind it": """
  a = bf16[2,32,128] parameter(0) b = bf16[128,64] parameter(1) c = bf16[64] parameter(2)
  x = bf16[2,32,64] parameter(3)
  d = bf16[2,32,64] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  e = bf16[2,32,64] broadcast(c), dimensions={2}
  f = bf16[2,32,64] add(d, e) g = bf16[2,32,64] tanh(f) h = bf16[2,32,64] add(g, x)
  ROOT r = (bf16[2,32,64], bf16[2,32,64]) tuple(h, f)""",
    "what is done in front of it": f"""
  a = f32[40,128] parameter(0) b = bf16[128,64] parameter(1)
  c = bf16[40,128] convert(a)
  ROOT r = bf16[40,64] dot(c, b), {AS_WRITTEN}""",
    "one that is only seen otherwise": f"""
  a = bf16[2,4,32,64]{{3,1,2,0}} parameter(0) b = bf16[256,64] parameter(1)
  t = bf16[2,32,4,64]{{3,2,1,0}} transpose(a), dimensions={{0,2,1,3}}
  c = bf16[64,256] reshape(t)
  ROOT r = bf16[64,64] dot(c, b), {AS_WRITTEN}""",
    "several": """
  a = bf16[3,32,128] parameter(0) b = bf16[3,40,128] parameter(1)
  ROOT r = bf16[3,32,40] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, \
lhs_contracting_dims={2}, rhs_contracting_dims={2}""",
}


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dot_staged, "FEWEST_FLOPS", 1)
        return {
            name: h2g.plan(f"HloModule m\nENTRY e {{{body}\n}}", target="sm_90")
            for name, body in CASES.items()
        }


@pytest.mark.parametrize("name", CASES)
def test_operands_are_copied_where_they_lie_as_they_will(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(dot_staged, "FEWEST_FLOPS", 1)
    [source] = kernels_of(plans[name]).values()
    assert "hlo::mma" in source.text
    goes_by_registers = name in ("nothing divides", "what is done in front of it")
    assert ("hlo::copy_four" in source.text) != goes_by_registers


@pytest.mark.slow
@needs_gxx
def test_it_computes_what_the_host_does(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dot_staged, "FEWEST_FLOPS", 1)
    kernels = Kernels(list(plans.values()), precise=False)
    for plan in plans.values():
        agree_with_the_host(plan, kernels, tf32=True)
