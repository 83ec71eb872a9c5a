"""Whole texts that XLA's parser takes or refuses: shapes, literals, names, headers, structure."""

import pytest
from jax._src.lib import xla_client as xc

from hlo2graph import parse
from hlo2graph.errors import ParseError
from hlo2graph.hlo.printer import format_module

_BODY = "ENTRY e { x = f32[4] parameter(0) y = f32[4] parameter(1) ROOT r = f32[4] add(x, y) }"
_TABLES = "FileNames {} FunctionNames {} FileLocations {} StackFrames {}\n"
_SHAPES = (
    "f32_[4] f32[4]_{0} f32/*c*/[4]/*c*/{0} f32[_4_] f32[<=_4] f32[?] f32[4,4]{0,0} f32[4]{7} "
    "b(f32[4]{7}) f32[4,4]{-1,0} f32[]{:} f32[]{:S(1)} f32[4]{0:T(8,*)} f32[4]{0:T()} "
    "f32[4]{0:M(4)} f32[4]{0:SC(0:1,2)(1:)} f32[4,4]{1,0:D(H,C+~)} f32[4]{0:L(2)#(u32)*(u8)} "
    "b(f32[4]) b_(_f32[4]{0:T(8)}_) (b(f32[4]),_f32[]) u1[2] f4e2m1fn[2] f8e8m0fnu[2] "
    "f6e2m3fn[2] f6e3m2fn[2]"
)
_BAD_SHAPES = (
    "f32[4]{:T(8)} f32[4]{0:T(8,)} f32[4]{0:S(a)} f32[4]{0:P(f32[4])} f32[4]{0:SC(0)} f32[4]{} "
    "f32[4]{0,1} f32[4,] f32[-1] f32[18446744073709551615] F32[4] b() (f32[4]{7}) b((f32[4])) "
    "b(b(f32[4]))"
)
_LITERALS = [
    *(("f32[2]", text) for text in ("{1 2}", "{1,,2}", "{,1,2,}", "{1-2}", "{-0, -0.0}")),
    *(("f32[2]", text) for text in ("{18446744073709551615, 1}", "{1e19, 0.1}", "7")),
    *(("f32[2,2]", text) for text in ("{{1,2}{3,4}}", "{{1 2}/*c*/{3 4},}")),
    *(("s32[]", text) for text in ("18446744073709551615", "-00000000000000000000000012")),
    *(("s64[]", text) for text in ("9223372036854775808", "-9223372036854775808")),
    ("u64[2]", "{-1, 18446744073709551615}"),
    ("f16[]", "nan(0x8000000000000)"),
    ("(f32[], s32[])", "(1 2)"),
]
_BAD_LITERALS = [
    *(("f32[2]", text) for text in ("{1}", "{1;2}", "{{1,2}}", "{...,1}", "1 2")),
    *(("f32[]", text) for text in ("{...}", "...", "1,", ",1", "1e999", "18446744073709551616")),
    *(("s64[]", text) for text in ("18446744073709551616", "-9223372036854775809", "1.0")),
    ("u32[]", "-1"),
    ("f8e4m3fn[]", "nan(0x1)"),
    ("f32[]", "nan(0x10000000000000)"),
    ("f32[2,2]", "{{...}}"),
]
TAKEN = [
    *(f"ENTRY e {{ ROOT r = {shape} constant({text}) }}" for shape, text in _LITERALS),
    *(
        f"ENTRY e {{ {name} = f32[] parameter(0) }}"
        for name in ("x", "%x", "x:", "%true", "true:", "%manual", "__xla_x", "tuple", "x-1.y_z")
    ),
    *(f"ENTRY {name} {{ x = f32[] parameter(0) }}" for name in ("e:", "%ENTRY", "%replicated")),
    "ENTRY e (x f32[4], %y f32[4], z: f32[]) -> f32[] { x = f32[] parameter(0) }",
    "//c\rENTRY e { x = f32[] parameter(0) // c\r}",
    *(
        f"HloModule m, {attribute}\n{_BODY}"
        for attribute in (
            "input_output_alias={ {}: (0, {}, may-alias), {}: (1, {}), }",
            "input_output_alias={ /*c*/ {}: (7, {3,}) }",
            "buffer_donor={ (0, {}), (1, {2,}), }",
            "entry_computation_layout={(f32[4]{0}, f32[4],)->f32[4]{0}}",
            "allow_spmd_sharding_propagation_to_output={true,false}",
            "frontend_attributes={a='b', c={\"d\": [1]}}",
            "replica_count=/*c*/2, num_partitions= 3",
            "origin_recovery_table={{'a' {0}} : {'b'}}",
        )
    ),
    *(
        f"HloModule m\n{_TABLES.format(*rows)}{_BODY}"
        for rows in (
            ("", "", "", ""),
            ("1 2 'a' 3", "1", "", ""),
            ("-1 'a'", "1 'f'", "", "1 {parent_frame_id=1, file_location_id=2}"),
        )
    ),
    *(
        f"ENTRY e {{ x = f32[4] parameter(0) y = f32[4] parameter(1) ROOT r = {call} }}"
        for call in (
            "f32[4] add(,x,,y,)",
            "f32[] custom-call(,), custom_call_target='t'",
            "dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
            "f32[4] add(x, y), metadata={op_name='a//b/*c*/' /*d*/ source_line=1//e\n}",
            'f32[4] add(x, y), backend_config={"it\'s": \'a//b\', "c": "}"}',
            "f32[4] add(x, y), backend_config={it's}",
            "f32[4] slice(x), slice={[-1 : 4 : /*c*/ -2]}",
            "f32[] custom-call(x), custom_call_target='t', window={size=3pad=1_1 rhs_reversal=2}",
            "f32[4] custom-call(x), custom_call_target='\\x41\\u00e9', literal=(f32[] 1, pred[] 1)",
            "f32[4] custom-call(x), literal=f32[2]{0} {1, 2}, custom_call_target='t'",
            "f32[4] add(x, y), sharding={mesh['a'=2,'b'=2], [{'a', ?}], unreduced={'b'}}",
            "f32[4] add(x, y), sharding={maximal_mesh[device_id=1], metadata={op_name='a'}}",
        )
    ),
]
REFUSED = [
    *(f"ENTRY e {{ ROOT r = {shape} constant({text}) }}" for shape, text in _BAD_LITERALS),
    *(
        f"ENTRY e {{ {name} = f32[] parameter(0) }}"
        for name in ("true", "manual", "%f32", "f32:", "%x:", "x :", "__x", "%__x")
    ),
    "ENTRY e { x=f32[] parameter(0) }",
    "ENTRY e { x = f32[4] parameter(0) k = token[] after-all() s = (f32[4], u32[], token[]) "
    "send(x, k), channel_id=1 ROOT d = token[] send-done(s), channel_id=2 }",
    "ENTRY maximal { x = f32[] parameter(0) }",
    "ENTRY e (%x: f32[]) -> f32[] { x = f32[] parameter(0) }",
    "ENTRY e (x: f32[],) -> f32[] { x = f32[] parameter(0) }",
    *(
        f"HloModule m, {attribute}\n{_BODY}"
        for attribute in (
            "input_output_alias={ {0}: (0, {}) }",
            "input_output_alias={ {}: (-1, {}) }",
            "input_output_alias={ {}: (0) }",
            "allow_spmd_sharding_propagation_to_output={1}",
            "replica_count=18446744073709551616",
        )
    ),
    *(
        f"{header}{_TABLES.format(*rows)}{_BODY}"
        for header, rows in (
            ("", ("", "", "", "")),
            ("HloModule m\n", ("1 a", "", "", "")),
            ("HloModule m\n", ("", "", "1 {file_name_id=1}", "")),
            ("HloModule m\n", ("", "", "", "1 {file_location_id=1 parent_frame_id=a}")),
        )
    ),
    *(
        f"ENTRY e {{ x = f32[4] parameter(0) y = f32[4] parameter(1) i = s32[] constant(0) "
        f"ROOT r = {call} }}"
        for call in (
            "slice(x), slice={[0:4]}",
            "f32[4] add(x, y), metadata={op_name='\\q'}",
            "f32[4] add(x, y), metadata={source_line=2147483648}",
            "f32[4] add(x, y), control-predecessors={}",
            "f32[4] add(x, y), statistics={a=0.5}",
            "f32[4] add(x, y), parameter_replication={true,false}",
            "f32[4] convolution(x, y), dim_labels=b0f_0io->bf",
            "(f32[4]) tuple(x, y)",
            "f32[4] dynamic-slice(x, i, i), dynamic_slice_sizes={1}",
            "f32[4] conditional(i, x, y), true_computation=e, false_computation=e",
            "f32[4] dot(x, y), algorithm=rng_default",
            "f32[4] infeed(x)",
            "f32[4] async-done(x)",
            "f32[4] custom-call(x), custom_call_target='t', operand_layout_constraints={}",
            "f32[4] custom-call(x), custom_call_target='t', literal=f32[] a",
        )
    ),
]
SINGLE = [
    "x = f32[4] add(f32[4] a, f32[4] %b), metadata={op_name='z'}",
    "f32[4] add(f32[4], f32[4]{0:T(4)})",
    "ROOT %x = f32[4] negate(f32[4] a)",
    "x = f32[4] add(f32[4] a, f32[4] a)",
    "x = add(f32[4], f32[4])",
    "get-tuple-element = s32[] get-tuple-element((f32[], s32[]) t), index=1",
]
NOT_SINGLE = [
    "add(f32[4], f32[4])",
    "x = f32[4] add(a, b)",
    "x = f32[4] add(f32[4] a, f32[5] a)",
    "x = f32[4] negate(f32[4] a) y = f32[4] negate(x)",
    "x= f32[4] negate(f32[4] a)",
]
_ASYNC = """
one { ROOT a = f32[4] parameter(0) }
two { ROOT a = f32[4] parameter(0) }
ENTRY e {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4], s32[]) async-start(x), calls=one, async_execution_thread="t"
  n = ((f32[4]), f32[4], s32[]) negate-start(x), output_to_operand_aliasing={{}: (0, {})}
  ROOT r = %s
}
"""
ASYNC = [
    ("f32[4] async-done(s), calls=one", True),
    ('f32[4] async-done(s), async_execution_thread="t"', True),
    ("f32[4] negate-done(n)", True),
    ("((f32[4]), f32[4], s32[]) async-start(x), calls=two", True),
    ("((f32[4]), f32[4], s32[]) async-start(x), calls=one", False),
    ("f32[4] async-done(s), calls=two", False),
    ('f32[4] async-done(s), async_execution_thread="main"', False),
    ("f32[4] sine-done(n)", False),
    ("((f32[5]), f32[4], s32[]) async-update(s)", False),
    ("async-done(s)", False),
]


def _xla(text: str) -> str | None:
    """Return what XLA reads, or None."""
    try:
        return xc.hlo.hlo_module_from_text(text).to_string()
    except RuntimeError:
        return None


def agree(text: str, taken: bool) -> None:
    """Check that XLA and we take a text, and mean the same, or that neither does."""
    expected = _xla(text)
    assert (expected is not None) is taken
    if taken:
        assert _xla(format_module(parse(text, verify=False))) == expected
        return
    with pytest.raises(ParseError) as refused:
        parse(text, verify=False)
    assert refused.value.span


@pytest.mark.parametrize("text", [*TAKEN, *SINGLE])
def test_taken(text: str) -> None:
    agree(text, taken=True)


@pytest.mark.parametrize("text", [*REFUSED, *NOT_SINGLE])
def test_refused(text: str) -> None:
    agree(text, taken=False)


@pytest.mark.parametrize("shape", _SHAPES.split())
@pytest.mark.parametrize(
    "text",
    [
        "ENTRY e (r: %s) -> %s { ROOT r = %s parameter(0) }",
        "HloModule m, entry_computation_layout={(%s)->%s}\nENTRY e { r = %s parameter(0) }",
        "ENTRY e { p = %s parameter(0) ROOT r = %s copy(%s p) }",
    ],
)
def test_shapes_taken(shape: str, text: str) -> None:
    agree(text.replace("%s", shape.replace("_", " ")), taken=True)


@pytest.mark.parametrize("shape", _BAD_SHAPES.split())
def test_shapes_refused(shape: str) -> None:
    agree(f"ENTRY e {{ ROOT r = {shape} parameter(0) }}", taken=False)


@pytest.mark.parametrize(("line", "taken"), ASYNC)
def test_async(line: str, taken: bool) -> None:
    agree(_ASYNC.replace("%s", line), taken)


def test_elided_values_among_others_make_all_unknown() -> None:
    text = "ENTRY e { ROOT r = f32[8] constant({1, 2, ...}) }"
    assert _xla(text)
    assert "constant({...})" in str(parse(text))
