"""Canonical text: XLA reads it as the module that it reads in the original."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from conftest import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from jax._src.lib import xla_client as xc

from hlo2graph.frontend import parse
from hlo2graph.hlo import DTYPES, Computation, Instruction, Kind, Literal, Module, Shape
from hlo2graph.hlo.printer import format_computation, format_instruction, format_module

TEXTS = {path.stem: path.read_text() for path in SAMPLES if path.suffix == ".hlo"}
TEXTS["header"] = """
HloModule header, is_scheduled=true, input_output_alias={ {}: (0, {}, must-alias) },
  entry_computation_layout={(f32[4]{0})->f32[4]{0}}, replica_count=2, num_partitions=2

FileNames
1 "my model.py"

FunctionNames
1 "f.<lambda>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=30 end_column=52}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY main {
  x = f32[4]{0} parameter(0), sharding={replicated}, metadata={op_name="x" stack_frame_id=1}
  ROOT y = f32[4]{0} negate(x), frontend_attributes={a="}",b={}}, backend_config={"k": [1, "}"]}
}
"""
TEXTS["nested"] = """
ENTRY main {
  x = f32[4]{0} parameter(0)
  y = multiply(f32[4] negate(x), exponential(add(x, x)),)
  z = f32[] constant(-0.0)
  ROOT r = f32[] subtract(z, cosine(f32[] constant(3e38)))
}
"""
TEXTS["attributes"] = """
HloModule attributes
ENTRY main {
  x = f32[8,8,8,8]{3,2,1,0:T(8,128)S(1)} parameter(0)
  w = f32[3,3,8,8]{0,1,2,3} parameter(1)
  c = f32[8,8,8,8] convolution(x, w), window={size=3x3 pad=1_1x1_1 rhs_reversal=1x0},
    dim_labels=b01f_01io->b01f, operand_precision={highest,default}
  s = f32[4,4,8,8] slice(c), slice={[0:4], [0:8:2], [0:8], [0:8]}
  p = f32[6,5,8,8] pad(s, f32[] constant(nan(0x1))), padding=1_1x0_1x0_0x0_0
  z = s32[] constant(0)
  d = f32[1,5,8,8] dynamic-slice(p, z, z, z, z), dynamic_slice_sizes={1,5,8,8}
  k = f32[4] custom-call(d), custom_call_target="a\\"\\n\\303\\251",
    api_version=API_VERSION_TYPED_FFI,
    operand_layout_constraints={f32[1,5,8,8]{3,2,1,0}}, custom_call_has_side_effect=true
  e = f32[4] reduce-precision(k), exponent_bits=5, mantissa_bits=4, control-predecessors={d, p}
  ROOT t = (f32[4], s32[], s32[], s32[], s32[], s32[]) tuple(e, z, z, z, z, /*index=5*/z)
}
"""
TEXTS["async"] = """
HloModule async
double { a = f32[4] parameter(0) ROOT b = f32[4] add(a, a) }
ENTRY main {
  x = f32[4] parameter(0)
  begin = ((f32[4]), f32[4], s32[]) call-start(x), to_apply=double, async_execution_thread="t"
  more = ((f32[4]), f32[4], s32[]) call-update(begin)
  middle = f32[4] negate(x)
  end = f32[4] call-done(more), control-predecessors={middle}
  cut = ((f32[4]), f32[2], s32[]) slice-start(end), slice={[0:2]}, metadata={op_name="cut"}
  ROOT done = f32[2] slice-done(cut)
}
"""


def canonical(text: str) -> str:
    """Return the module as XLA prints it."""
    return str(xc.hlo.hlo_module_from_text(text).to_string())


@pytest.mark.parametrize("name", TEXTS)
def test_xla_reads_the_same_module(name: str) -> None:
    printed = format_module(parse(TEXTS[name]))
    assert canonical(printed) == canonical(TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_parsing_reads_the_same_module(name: str) -> None:
    module = parse(TEXTS[name])
    printed = format_module(module)
    assert parse(printed) == module
    assert format_module(parse(printed)) == printed


def test_what_is_printed() -> None:
    module = parse(
        "HloModule m, is_scheduled=true\n"
        "f { a = f32[2] parameter(0) }, execution_thread='t'\n"
        "ENTRY e { p = (f32[2], f32[2]) parameter(0) x = f32[2]{0} get-tuple-element(p), index=1\n"
        "c = f32[2] constant({1, -0.5}) ROOT r = f32[2] fusion(add(x, c)), kind=kLoop, calls=f }"
    )
    assert format_module(module) == (
        """\
HloModule m, is_scheduled=true

%f (a: f32[2]) -> f32[2] {
  ROOT %a = f32[2] parameter(0)
}, execution_thread="t"

ENTRY %e (p: (f32[2], f32[2])) -> f32[2] {
  %p = (f32[2], f32[2]) parameter(0)
  %x = f32[2]{0} get-tuple-element(%p), index=1
  %c = f32[2] constant({1, -0.5})
  %add.anon = f32[2] add(%x, %c)
  ROOT %r = f32[2] fusion(%add.anon), kind=kLoop, calls=%f
}
"""
    )
    assert format_computation(module.computations["f"]).startswith("%f (a: f32[2])")
    assert format_instruction(module.entry["p"]) == "%p = (f32[2], f32[2]) parameter(0)"


def test_parameters_are_printed_by_number() -> None:
    module = parse("ENTRY e { b = f32[] parameter(1) a = s32[] parameter(0) }")
    assert "ENTRY %e (a: s32[], b: f32[]) -> s32[] {" in format_module(module)


# ***** literals *****

NUMBERS = [dtype for dtype in DTYPES.values() if dtype.kind not in (Kind.TOKEN, Kind.OPAQUE)]
PACKED = {"pred": 1, "s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4}
PACKED |= {"f4e2m1fn": 4, "f6e2m3fn": 6, "f6e3m2fn": 6}


def literal(dtype_name: str, raw: bytes) -> Literal:
    """Return the bytes as a constant; of sub-byte types the low bits count."""
    dtype = DTYPES[dtype_name]
    held = np.frombuffer(raw, np.uint8)
    if bits := PACKED.get(dtype_name):
        held = held & ((1 << bits) - 1)
        if dtype.kind is not Kind.FLOAT:
            signed = held.astype(np.int64) - ((held >> (bits - 1)).astype(np.int64) << bits)
            array = (signed if dtype.kind is Kind.SIGNED else held).astype(dtype.numpy)
            return Literal(Shape(dtype, array.shape), array)
    array = held.view(dtype.numpy)
    return Literal(Shape(dtype, array.shape), array)


def with_constant(held: Literal) -> Module:
    root = Instruction("c", "constant", held.shape, payload=held)
    return Module("m", {"e": Computation("e", (root,), "c")}, "e")


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_literals_keep_every_bit(dtype: object, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    size = count * DTYPES[str(dtype)].size
    held = literal(str(dtype), data.draw(st.binary(min_size=size, max_size=size)))
    module = with_constant(held)
    found = parse(format_module(module)).entry.result.payload
    assert isinstance(found, Literal)
    assert found == held


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "f8e5m2", "f8e4m3fn", "u8"])
def test_xla_reads_literals_to_the_bit(name: str) -> None:
    raw = bytes(range(256)) + bytes(reversed(range(256)))
    held = literal(name, raw)
    printed = format_module(with_constant(held))
    read = xc.hlo.hlo_module_from_text(printed).as_serialized_hlo_module_proto()
    array = held.array
    assert array is not None
    assert array.tobytes() in read


def test_shapes_of_literals() -> None:
    def shown(dims: tuple[int, ...]) -> str:
        array = np.arange(int(np.prod(dims)), dtype=np.int32).reshape(dims)
        return format_instruction(
            with_constant(Literal(Shape(DTYPES["s32"], dims), array)).entry.result
        )

    assert shown(()) == "%c = s32[] constant(0)"
    assert shown((3,)) == "%c = s32[3] constant({0, 1, 2})"
    assert shown((2, 2)) == "%c = s32[2,2] constant({{0, 1}, {2, 3}})"
    assert shown((0, 2)) == "%c = s32[0,2] constant({})"
    assert shown((2, 0)) == "%c = s32[2,0] constant({...})"


def test_numbers_are_as_short_as_can_be() -> None:
    array = np.array([0.1, 1, -0.0, 1e30, 16777216, 1e-45], np.float32)
    held = Literal(Shape(DTYPES["f32"], (6,)), array)
    text = format_instruction(with_constant(held).entry.result)
    assert text == "%c = f32[6] constant({0.1, 1, -0.0, 1e+30, 16777216, 1e-45})"
    half = ml_dtypes.bfloat16(0.1)
    held = Literal(Shape(DTYPES["bf16"]), np.array(half))
    assert parse(format_module(with_constant(held))).entry.result.payload == held
