"""What the values of constants and attributes may look like."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from parsing import constant, entry, one

from hlo2graph.errors import HloError
from hlo2graph.frontend import parse
from hlo2graph.hlo import (
    DTYPES,
    DimLabels,
    Literal,
    PaddingDim,
    Raw,
    SliceDim,
    Window,
    WindowDim,
)
from hlo2graph.hlo.aliases import IoAlias, io_aliases
from hlo2graph.hlo.metadata import op_name, source_line

# ***** literals *****


@pytest.mark.parametrize(
    ("shape", "literal", "expected"),
    [
        ("f32[]", "1", 1.0),
        ("f32[]", "-2.5e-3", -0.0025),
        ("f32[]", "1.", 1.0),
        ("f32[2]", "{-.5, 1E+2}", [-0.5, 100.0]),
        ("f32[2,2]", "{ { 1, 2 }, { 3, 4 } }", [[1, 2], [3, 4]]),
        ("f32[2,1,2]", "{{{1,2}},{{3,4}}}", [[[1, 2]], [[3, 4]]]),
        ("f32[3]", "{inf, -inf, nan}", [np.inf, -np.inf, np.nan]),
        ("f32[2]", "{ /*i0=0*/ 1, /*i0=1*/ 2 }", [1, 2]),
        ("f32[2]", "{1,2,}", [1, 2]),
        ("f32[2,2]", "5", [[5, 0], [0, 0]]),
        ("f64[2]", "{0.1, 1e300}", [0.1, 1e300]),
        ("bf16[2]", "{0.1, -3}", [ml_dtypes.bfloat16(0.1), -3]),
        ("f8e4m3fn[2]", "{0.1, 448}", [ml_dtypes.float8_e4m3fn(0.1), 448]),
        ("f4e2m1fn[2]", "{0.5, -6}", [0.5, -6]),
        ("s32[3]", "{-2147483648, 007, 2147483647}", [-(2**31), 7, 2**31 - 1]),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("s64[]", "-9223372036854775808", -(2**63)),
        ("s4[2]", "{7, -8}", [7, -8]),
        ("u2[2]", "{0, 3}", [0, 3]),
        ("pred[4]", "{true, false, 1, 0}", [True, False, True, False]),
        ("c64[2]", "{(1, -2), (nan, inf)}", [1 - 2j, complex(np.nan, np.inf)]),
        ("c128[]", "(0.1, 1e-300)", complex(0.1, 1e-300)),
        ("f32[0]", "{}", []),
        ("f32[2,0]", "{{}, {}}", [[], []]),
        ("s32[0,3]", "{...}", np.zeros((0, 3))),
    ],
)
def test_literals(shape: str, literal: str, expected: object) -> None:
    found = constant(shape, literal)
    assert found.dtype == DTYPES[shape.split("[")[0]].numpy
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


@pytest.mark.parametrize(
    ("shape", "literal", "bits"),
    [
        ("f32[3]", "{nan, -nan, -0.0}", "7fc00000 ffc00000 80000000"),
        ("f32[2]", "{nan(0x1), -nan(0x7fffff)}", "7f800001 ffffffff"),
        ("f16[3]", "{nan(0x1), -0.0, -0}", "7c01 8000 0000"),
        ("bf16[2]", "{-nan, nan(0x7f)}", "ffc0 7fff"),
        ("f64[1]", "{nan(0xdeadbeef)}", "7ff00000deadbeef"),
        ("f8e5m2[2]", "{nan, -nan(0x1)}", "7e fd"),
        ("c64[1]", "{(nan(0x1), -0.0)}", "800000007f800001"),
        ("f8e4m3fn[2]", "{nan, -nan}", "7f ff"),
        ("f32[2]", "{0.1, 3.4028235e38}", "3dcccccd 7f7fffff"),
    ],
)  # fmt: skip
def test_literals_to_the_bit(shape: str, literal: str, bits: str) -> None:
    found = constant(shape, literal)
    width = 2 * found.dtype.itemsize
    raw = found.view(f"u{found.dtype.itemsize}")
    assert " ".join(f"{int(value):0{width}x}" for value in raw) == bits


def test_tuples_of_literals() -> None:
    payload = one("c = (f32[], (s32[2], pred[])) constant((1, ({2, 3}, true)))").payload
    assert isinstance(payload, tuple)
    first, second = payload
    assert isinstance(second, tuple)
    values = [leaf.array for leaf in (first, *second) if isinstance(leaf, Literal)]
    assert [v.tolist() for v in values if v is not None] == [1.0, [2, 3], True]


def test_elided_literals_are_unknown() -> None:
    payload = one("c = (f32[4], s32[2]) constant({...})").payload
    assert isinstance(payload, tuple)
    assert all(isinstance(leaf, Literal) and leaf.is_elided for leaf in payload)
    with pytest.raises(HloError, match="expected"):
        one("c = f32[4] constant({..})")


# ***** attributes *****


@pytest.mark.parametrize(
    ("instruction", "name", "value"),
    [
        ("broadcast(x), dimensions={0, /*index=1*/2 }", "dimensions", (0, 2)),
        ("broadcast(x), dimensions={}", "dimensions", ()),
        ("compare(x, y), direction=LT", "direction", "LT"),
        ("iota(), iota_dimension=0", "iota_dimension", 0),
        ("slice(x), slice={[0:4], [1:9:2]}", "slice", (SliceDim(0, 4), SliceDim(1, 9, 2))),
        ("pad(x, y), padding=0_1x-2_3_1", "padding", (PaddingDim(0, 1), PaddingDim(-2, 3, 1))),
        (
            "convolution(x, y), dim_labels=b01f_01io->b01f, "
            "window={size=3x1 pad=1_2x0_0 rhs_reversal=1x0}",
            "window",
            Window((WindowDim(3, 1, 1, 2, reversal=True), WindowDim(1))),
        ),
        ("convolution(x, y), window={}, dim_labels=bf_io->bf", "window", Window(())),
        (
            "convolution(x, y), dim_labels=b01f_01io->b01f",
            "dim_labels",
            DimLabels("b01f", "01io", "b01f"),
        ),
        (r'custom-call(x), custom_call_target="a\"\n\303\251"', "custom_call_target", 'a"\né'),
        (
            "custom-call(x), custom_call_target='a', literal=s32[] 3",
            "literal",
            Raw("s32[] 3"),
        ),
        ("negate(x), backend_config=\"a}\\\"\"", "backend_config", Raw('"a}\\""')),
        (
            "negate(x), backend_config={\"a\": [1, {\"b\": \"}\"}, {\"c\": {\"d\": {}}}]}",
            "backend_config",
            Raw("{\"a\": [1, {\"b\": \"}\"}, {\"c\": {\"d\": {}}}]}"),
        ),
        ("negate(x), sharding={devices=[2,1]<=[2]}", "sharding", Raw("{devices=[2,1]<=[2]}")),
        ("negate(x), control-predecessors={%x, y}", "control-predecessors", ("x", "y")),
        (
            "all-gather(x), dimensions={0}, replica_groups=[1,2]<=[2,1]T(1,0)",
            "replica_groups",
            Raw("[1,2]<=[2,1]T(1,0)"),
        ),
        (
            "custom-call(x), custom_call_target=\"f\", operand_layout_constraints={f32[4]{0}}",
            "operand_layout_constraints",
            "{f32[4]{0}}",
        ),
    ],
)  # fmt: skip
def test_attributes(instruction: str, name: str, value: object) -> None:
    found = one(f"r = f32[4] {instruction}").attrs[name]
    if name == "operand_layout_constraints":
        assert isinstance(found, tuple)
        found = "{" + ", ".join(map(str, found)) + "}"
    assert found == value
    assert type(found) is type(value)


def test_multiline_json() -> None:
    config = one('r = f32[4] negate(x), backend_config={\n "kind": "odd } name",\n "l": [{}]\n}')
    assert str(config.attrs["backend_config"]).count("\n") == 3


def test_aliases() -> None:
    header = "HloModule m, input_output_alias={ {0}: (1, {}), {1,0}: (2, {3}, must-alias) }\n"
    body = "ENTRY e { x = (f32[], (f32[], f32[])) parameter(0) }"
    module = parse(header + body)
    assert io_aliases(module) == (IoAlias((0,), 1), IoAlias((1, 0), 2, (3,), must=True))
    assert io_aliases(entry()) == ()


def test_source_lines() -> None:
    module = parse(
        """HloModule m

FileNames
1 "/home/a user/model.py"

FunctionNames
1 "step.<locals>.<lambda>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=30 end_column=52}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=9 parent_frame_id=1}

ENTRY e { x = f32[] parameter(0), metadata={op_name="jit(f)/\\"x\\"" stack_frame_id=1} }
"""
    )
    metadata = str(module.entry.result.attrs["metadata"])
    assert op_name(metadata) == 'jit(f)/"x"'
    assert source_line(module.tables, metadata) == "/home/a user/model.py:4"
    assert source_line(module.tables, "{stack_frame_id=2}") is None
    assert source_line("", '{source_file="a.py" source_line=7}') == "a.py:7"
    assert source_line("", "{}") is None
    assert op_name("{}") is None


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_numbers_are_read_as_pairs(dtype):
    literal = "{{(1, -2e-1), (3,4)}, {(inf,0), (5 , 6)}}"
    found = constant(f"{dtype}[2,2]", literal)
    want = [[1 - 0.2j, 3 + 4j], [complex(np.inf, 0), 5 + 6j]]
    assert found.dtype == {"c64": np.complex64, "c128": np.complex128}[dtype]
    np.testing.assert_array_equal(found, np.array(want, found.dtype))


@pytest.mark.parametrize(
    "body", ["{{1,2},{3,4}}", "({1,2},(3,4)}", "{(1 2),(3,4)}", "{(1,2,3),(4)}"]
)
def test_what_is_no_pair_is_refused(body):
    with pytest.raises(HloError):
        constant("c64[2]", body)
