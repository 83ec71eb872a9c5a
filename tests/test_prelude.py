"""The headers of kernels: each builds on those it includes, and a kernel gets what it names."""

from __future__ import annotations

import re

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda import prelude
from hlo2graph.backends.cuda.compiler import compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import HEADER

HEADERS = dict(prelude.headers())
CALLED = re.compile(r"(?<![.\w:])(\w+)\s*[(<]")
GIVEN = re.compile(r"const \w+& (\w+)(?=[,)])|\bint (\w+) =")  # what a template is given, a local
COMMENT = re.compile(r"//.*")
EMPTY_GLOBAL = re.compile(r"\.global \.align .*")  # constants of structs that nothing reads


def included(header, found):
    for inner in prelude._INCLUDED.findall(HEADERS[header]):
        if inner not in found:
            included(inner, found | {inner})
            found |= {inner} | included(inner, found | {inner})
    return found


@pytest.mark.parametrize("header", sorted(HEADERS.keys() - {HEADER}))
def test_a_header_includes_what_it_calls(header):
    known = included(header, {header})
    declared = {name for h in known for name in prelude.declared(HEADERS[h])}
    text = COMMENT.sub("", HEADERS[header])
    given = {name for names in GIVEN.findall(text) for name in names}
    known = declared | given | {"operator", "Complex"}  # declared in types.cuh
    called = set(CALLED.findall(text)) - known
    assert not {name: prelude._owners()[name] for name in called & prelude._owners().keys()}


def least(text):
    return dict(prelude.headers_for(text))[HEADER]


def test_a_kernel_gets_the_headers_that_it_names():
    assert least("hlo::add(x, y);") == '#include "elementwise.cuh"\n'
    assert least("const hlo::f32 x = add(y);") == '#include "types.cuh"\n'
    assert least("hlo::add(x, hlo::load(p0[0]));").split()[1::2] == [
        '"types.cuh"',
        '"elementwise.cuh"',
    ]
    assert least("hlo::Store<hlo::f8e5m2>::of(x);").split()[1::2] == ['"types.cuh"', '"narrow.cuh"']
    assert '"complex.cuh"' in least("hlo::c64 x = hlo::add(y, z);")
    assert least("float x = 1;") == ""


MODULE = """
HloModule m
ENTRY e {{
  x = {0}[64] parameter(0)
  y = {0}[64] parameter(1)
  s = {0}[64] add(x, y)
  t = {0}[64] {1}(s)
  ROOT c = {2}[64] convert(t)
}}
"""


@pytest.mark.parametrize(
    "given",
    [("f32", "tanh", "bf16"), ("s32", "negate", "f8e4m3fn"), ("c64", "exponential", "c128")],
)
def test_the_machine_code_is_that_with_all_headers(given, monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    plan = h2g.plan(MODULE.format(*given), target="sm_90")
    (source,) = kernels_of(plan).values()
    found = ptx(source)
    monkeypatch.setattr(prelude, "_USED", re.compile(r"(\w+)"))
    every = "// " + " ".join(prelude._owners())
    assert least(every).count("#include") == HEADERS[HEADER].count("#include")
    assert ptx(source, every) == found


def ptx(source, more=""):
    text = compile_ptx(unit_text([source.text + more]), "sm_90")
    return EMPTY_GLOBAL.sub("", COMMENT.sub("", text)).split()


FACTORED = """
HloModule m
factor {
  x = f32[40,8] parameter(0)
  ROOT f = (f32[40,8], s32[8], s32[40]) custom-call(x), custom_call_target="LuDecomposition"
}
negate {
  x = f32[40,8] parameter(0)
  ROOT n = f32[40,8] negate(x)
}
both {
  x = f32[40,8] parameter(0)
  f = (f32[40,8], s32[8], s32[40]) fusion(x), kind=kCustom, calls=factor
  n = f32[40,8] fusion(x), kind=kLoop, calls=negate
  ROOT t = ((f32[40,8], s32[8], s32[40]), f32[40,8]) tuple(f, n)
}
ENTRY e {
  x = f32[40,8] parameter(0)
  ROOT t = ((f32[40,8], s32[8], s32[40]), f32[40,8]) fusion(x), kind=kCustom, calls=both
}
"""


def test_a_part_beside_others_has_its_headers():
    pytest.importorskip("cuda.bindings.nvrtc")
    (source,) = kernels_of(h2g.plan(FACTORED, target="sm_90", fuse="none")).values()
    assert {"hlo::factor_panel", "hlo::negate"} <= set(re.findall(r"hlo::\w+", source.text))
    assert ".entry" in ptx(source)
