"""What HLO text may look like, and what becomes of it."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo2graph.errors import HloError, Source
from hlo2graph.frontend import parse, parse_computations, verify
from hlo2graph.hlo import (
    DTYPES,
    DimLabels,
    Instruction,
    Literal,
    Module,
    PaddingDim,
    Raw,
    SliceDim,
    TupleShape,
    Window,
    WindowDim,
)
from hlo2graph.hlo.aliases import IoAlias, io_aliases
from hlo2graph.hlo.metadata import op_name, source_line
from hlo2graph.hlo.printer import format_module

TEXTS = [path.read_text() for path in SAMPLES if path.suffix == ".hlo"]


def entry(*lines: str) -> Module:
    """Parse instructions as an entry computation, which has f32[4] parameters x and y."""
    head = ["ENTRY main {", "x = f32[4] parameter(0)", "y = f32[4] parameter(1)"]
    return parse("\n".join([*head, *lines, "}"]))


def one(*lines: str) -> Instruction:
    """Parse instructions and return the last."""
    return entry(*lines).entry.instructions[-1]


def constant(shape: str, literal: str) -> np.ndarray[Any, Any]:
    payload = one(f"c = {shape} constant({literal})").payload
    assert isinstance(payload, Literal)
    assert payload.array is not None
    return payload.array


# ***** modules and computations *****


def test_a_whole_module() -> None:
    module = parse(
        """\
HloModule jit_f.3, is_scheduled=true, entry_computation_layout={(f32[4]{0}, f32[])->f32[]},
    frontend_attributes={owner="a, b={c}"}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main.7 (x: f32[4], zero: f32[]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %zero = f32[] parameter(1)
  ROOT %r = f32[] reduce(f32[4]{0} %x, f32[] %zero), dimensions={0}, to_apply=%add
}, execution_thread="main"
"""
    )
    assert (module.name, module.entry_name, list(module.computations)) == (
        "jit_f.3",
        "main.7",
        ["add", "main.7"],
    )
    assert module.is_scheduled
    assert module.attrs["frontend_attributes"] == '{owner="a, b={c}"}'
    assert module.entry.execution_thread == "main"
    root = module.entry.result
    assert (root.name, root.operands, list(root.called())) == ("r", ("x", "zero"), ["add"])
    assert root.attrs == {"dimensions": (0,), "to_apply": "add"}
    assert str(root.shape) == "f32[]"


def test_no_header_no_entry_no_root() -> None:
    module = parse("f { a = f32[] parameter(0) } g { b = f32[] parameter(0) n = f32[] sine(b) }")
    assert (module.name, module.entry_name, module.entry.root) == ("module_g", "g", "n")


def test_entry_may_come_first() -> None:
    module = parse("ENTRY f { a = f32[] parameter(0) } g { b = f32[] parameter(0) }")
    assert module.entry_name == "f"


def test_blanks_and_comments_may_stand_anywhere() -> None:
    module = parse(
        "/* a /* b */HloModule m // x\r\n\tENTRY/**/main/**/{/**/ROOT/**/r/**/=/**/f32[2 , 3]"
        " { 1 , 0 }/**/parameter/**/( /**/0 )/**/, /**/metadata=/**/{op_name='a'}// end\r\n}"
    )
    root = module.entry.result
    assert str(root.shape) == "f32[2,3]{1,0}"
    assert root.attrs == {"metadata": Raw("{op_name='a'}")}
    assert root.payload == 0


def test_names_may_look_like_types_and_words() -> None:
    module = entry("f32_ = f32[4] negate(x)", "%ROOT = f32[4] sine(f32_)", "add: = f32[4] add(x,y)")
    assert [i.name for i in module.entry.instructions[2:]] == ["f32_", "ROOT", "add"]


def test_operands_may_be_typed_trailed_and_marked() -> None:
    assert one(
        "t = (f32[4], (f32[4])) parameter(2)",
        "r = (f32[4], (f32[4], (f32[4]))) tuple(f32[4]{0} %x, (f32[4], /*index=1*/(f32[4])) t, )",
    ).operands == ("x", "t")


def test_elements_of_tuples_may_be_operands() -> None:
    module = entry("t = (f32[4], s32[]) parameter(2)", "r = f32[4] add(t#0, %t#0)")
    *_, first, second, root = module.entry.instructions
    assert (first.opcode, first.operands, first.attrs) == (
        "get-tuple-element",
        ("t",),
        {"index": 0},
    )
    assert root.operands == (first.name, second.name)
    verify(module)


def test_instructions_may_nest_in_operands() -> None:
    module = entry("r = f32[4] multiply(f32[4] negate(x), exponential(add(x, y)))")
    found = [(i.name, i.operands, str(i.shape)) for i in module.entry.instructions[2:]]
    assert found == [
        ("negate.anon", ("x",), "f32[4]"),
        ("add.anon", ("x", "y"), "f32[4]"),
        ("exponential.anon", ("add.anon",), "f32[4]"),
        ("r", ("negate.anon", "exponential.anon"), "f32[4]"),
    ]


def test_nested_instructions_avoid_names_that_come_later() -> None:
    module = entry("a = f32[4] sine(negate(x))", "negate.anon = f32[4] negate(negate(y))")
    assert [i.name for i in module.entry.instructions[2:]] == [
        "negate.anon.1",
        "a",
        "negate.anon.2",
        "negate.anon",
    ]


def test_shapes_may_be_left_to_the_operands() -> None:
    assert str(one("r = add(x, y)").shape) == "f32[4]"
    assert str(one("r = compare(x, y), direction=LT").shape) == "pred[4]"


def test_a_computation_may_stand_in_the_place_of_its_name() -> None:
    module = entry(
        "z = f32[] constant(0)",
        "r = f32[] reduce(x, z), dimensions={0}, to_apply={",
        "  x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }",
    )
    assert list(module.computations) == ["r.to_apply", "main"]
    assert module.computations["r.to_apply"].root == "s"
    assert module.entry.result.attrs["to_apply"] == "r.to_apply"
    verify(module)


def test_spans_cover_name_to_last_attribute() -> None:
    text = 'ENTRY e {\n  ROOT %x = f32[4]{0} parameter(0), metadata={op_name="x"}\n}'
    span = parse(text, "f.hlo").entry.result.span
    assert span
    assert str(span) == "f.hlo:2:9"
    assert text[span.start : span.end] == 'x = f32[4]{0} parameter(0), metadata={op_name="x"}'


def test_computations_may_stand_in_a_larger_text() -> None:
    text = (
        "Plan\n%f (a: f32[]) -> f32[] { %a = f32[] parameter(0) }\ng { b = f32[] parameter(0) }\n."
    )
    source = Source("p", text)
    computations = parse_computations(source, 5, len(text) - 1)
    assert list(computations) == ["f", "g"]
    assert str(computations["g"].instructions[0].span) == "p:3:5"
    assert parse_computations(source, 0, 0) == {}
    with pytest.raises(HloError, match="p:4:1: error: unexpected"):
        parse_computations(source, 5, len(text))


def test_the_collector_runs_again_after_a_fault() -> None:
    with pytest.raises(HloError):
        parse("ENTRY {")
    assert gc.isenabled()


# ***** shapes *****


@pytest.mark.parametrize(
    "text",
    [
        "f32[]",
        "f32[4,<=8,?]",
        "s32[2,3]{0,1}",
        "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}",
        "s4[16]{0:E(4)}",
        "token[]",
        "()",
        "(f32[2]{0}, (s32[], (pred[])), /*index=2*/token[])",
        "(u8[], u8[], u8[], u8[], u8[], /*index=5*/u8[])",
    ],
)
def test_shapes_are_kept(text: str) -> None:
    shape = one(f"p = {text} parameter(2)").shape
    assert str(shape) == text.replace("/*index=2*/", "")


def test_equal_shapes_are_one_object() -> None:
    module = entry("a = f32[4]{0} negate(x)", "b = f32[4]{0} negate(y)")
    assert module.entry["a"].shape is module.entry["b"].shape


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
        ("f16[2]", "{nan(0x1), -0}", "7c01 8000"),
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
    module = parse(header + "ENTRY e { x = f32[] parameter(0) }")
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


# ***** async sugar *****


def test_a_start_gets_a_computation_of_its_own() -> None:
    module = entry(
        's = ((f32[4]), f32[2], s32[]) slice-start(x), slice={[0:2]}, async_execution_thread="t",'
        ' control-predecessors={y}, metadata={op_name="cut"}',
        "u = ((f32[4]), f32[2], s32[]) slice-update(s)",
        "d = slice-done(u)",
    )
    wrapped = module.computations["async_s"]
    assert (wrapped.result.opcode, wrapped.execution_thread) == ("slice", "t")
    assert list(wrapped.result.attrs) == ["slice", "metadata"]
    start, update, done = module.entry.instructions[2:]
    assert [i.opcode for i in (start, update, done)] == [
        "async-start",
        "async-update",
        "async-done",
    ]
    assert list(start.attrs) == [
        "calls",
        "async_execution_thread",
        "control-predecessors",
        "metadata",
    ]
    assert str(done.shape) == "f32[2]"
    verify(module)


def test_ops_that_have_a_start_keep_it() -> None:
    assert one("s = (f32[4], f32[4], u32[]) copy-start(x)").opcode == "copy-start"


# ***** verify *****


def test_verify_returns_the_module() -> None:
    module = parse(TEXTS[0])
    assert verify(module) is module


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["r = f32[4] add(x, x, x)"], "add takes 2 operands, got 3"),
        (["t = (f32[4]) tuple(x)", "r = f32[4] get-tuple-element(t), index=1"], "get-tuple-elem"),
        (["r = f32[4,4] broadcast(x), dimensions={2}"], "broadcast"),
        (["p = f32[] parameter(3)"], "main has a parameter 3, but no parameter 2"),
    ],
)
def test_verify_refuses(lines: list[str], message: str) -> None:
    with pytest.raises(HloError) as refused:
        verify(entry(*lines))
    assert refused.value.message.startswith(message)
    assert refused.value.span


def test_verify_refuses_recursion() -> None:
    module = parse(
        "f { a = f32[] parameter(0) }"
        "ENTRY e { a = f32[] parameter(0) ROOT r = f32[] call(a), to_apply=f }"
    )
    looped = {"f": module.computations["e"], "e": module.computations["e"]}
    with pytest.raises(HloError, match="called before it is defined, or calls itself"):
        verify(Module("m", looped, "e"))


# ***** any text *****

FRAGMENTS = (
    *"{}()[]\"'%#=,:?-\\\n\x00é",
    *("/*", "*/", "//", "{...}", "ROOT ", "ENTRY ", "f32[2]", "f32[", "<=", "->", "nan", "1e99"),
    *("constant(", "parameter(", "metadata={", "to_apply={", "calls=%", "T(8", "9" * 20),
)  # fmt: skip


def outcome(text: str) -> tuple[Module | None, HloError | None]:
    """Return the module, or why there is none; anything else that is raised is a fault of ours."""
    try:
        return parse(text), None
    except HloError as refused:
        return None, refused


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Draw a sample with a few places cut out, doubled or overwritten."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 2, 5, 20, 100])))
        inserted = draw(st.sampled_from(["", text[start:end] * 2, *FRAGMENTS]))
        text = text[:start] + inserted + text[end:]
    return text


@settings(max_examples=150, deadline=None)
@given(damaged())
def test_damaged_text_gives_a_module_or_a_report(text: str) -> None:
    module, refused = outcome(text)
    if module:
        assert parse(format_module(module)) == module
        with suppress(HloError):
            verify(module)
    else:
        assert str(refused)


@settings(max_examples=100, deadline=None)
@given(st.text() | st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_any_text_gives_a_report(text: str) -> None:
    with pytest.raises(HloError) as refused:
        parse(text)
    assert str(refused.value)


DEEP = 20_000


@pytest.mark.parametrize(
    "line",
    [
        "r = f32[4] " + "negate(" * DEEP + "x" + ")" * DEEP,
        "r = f32[4] " + "negate(" * DEEP,
        "r = " + "(" * DEEP + "f32[]" + ")" * DEEP + " tuple()",
        "r = " + "(" * DEEP,
        "r = f32[4] negate(x), backend_config=" + "{" * DEEP + "}" * DEEP,
        "r = f32[4] negate(x), backend_config=" + '{["a' * DEEP,
        "r = f32[4] negate(x), origin=" + "(" * DEEP,
        "r = f32[4] call(x), to_apply={ r = f32[4] call(x), " * DEEP,
        "c = f32[4] constant(" + "{" * DEEP + ")",
        "c = f32[4] constant(" + "(" * DEEP + ")",
        "c = s32[] constant(" + "9" * DEEP + ")",
        "y = f32[" + "9" * DEEP + "] parameter(1)",
        "y = f32[4]{" + "9" * DEEP + "} parameter(1)",
        "y = f32[4]{0:" + "T(" * DEEP + "} parameter(1)",
        "r = f32[4] pad(x, x), padding=" + "0_0x" * DEEP,
        "/* " * DEEP,
        "'" * DEEP,
        "," * DEEP,
    ],
    ids=lambda line: line[:40],
)
def test_deep_and_long_text_ends(line: str) -> None:
    text = f"ENTRY main {{\nx = f32[4] parameter(0)\n{line}\n}}"
    module, refused = outcome(text)
    assert module or len(str(refused)) < 1000


def test_deep_tuples_within_the_limit() -> None:
    shape = one("p = " + "(" * 64 + "f32[]" + ")" * 64 + " parameter(2)").shape
    assert isinstance(shape, TupleShape)
