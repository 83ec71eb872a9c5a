"""What XLA's parser takes and what it refuses, by XLA's own word where it can be asked."""

import pytest
from jax._src.lib import xla_client as xc

from hlo2graph import parse
from hlo2graph.errors import ParseError
from hlo2graph.hlo import Literal
from hlo2graph.hlo.printer import format_module

_TEXT = """\
HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
same { ROOT a = f32[4,6] parameter(0) }
ENTRY e {
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  zero = f32[] constant(0)
  ROOT r = f32[4,6] %s
}
"""
_ADD, _REDUCE = "add(x, y), ", "all-reduce(x), to_apply=sum, "
_CALL, _DOT = "custom-call(x), custom_call_target='t', ", "dot(x, y), "

TAKEN = [
    *(
        f"{_ADD}sharding={{{text}}}"
        for text in (
            "",
            "{replicated},{maximal device=1}",
            " replicated ",
            "replicated metadata={op_name='a'} shard_as 1",
            "maximal device=0",
            "maximal devices=[1,1]0",
            "device=1 maximal",
            "devices=[2,1]0, 1",
            "devices=[2,1,2]<=[4] last_tile_dim_replicate",
            "devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={manual}",
            "mesh['x'=2,'y'=2], [{'x'}, {}]",
            "mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'y':(1)2}, {'x'}]",
            "mesh[], [{}]",
        )
    ),
    *(
        f"{_REDUCE}replica_groups={text}"
        for text in (
            "{}",
            "{{0,1}, {2}}",
            "[2,4]<=[8]",
            "[ 2,4 ] <= [4,2] T(1,0)",
            "mesh['a'=2,'b'=4] {'a','b'}",
            "mesh['a'=2,'b'=4], device_ids=([8]) {'a'}",
            "mesh['a'=4]{'a':(1)2}",
            "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}",
        )
    ),
    *(
        f"{_ADD}metadata={{{text}}}"
        for text in (
            "op_name='a', source_line=1",
            ",op_name='a'op_type='b'",
            "profile_type={1} stack_frame_id=-1",
        )
    ),
    *(
        f"{_ADD}origin={{{text}}}"
        for text in ("", "{}", "{'a' {0}}", "({'a'}, ({'b' {1,2}}, {}))", "[synthetic_call]")
    ),
    f"{_ADD}frontend_attributes={{a='b',c={{d={{e=1}}}}}}",
    f"{_ADD}statistics={{visualizing_index=1,stat-0=-33.5}}",
    f"{_ADD}backend_config={{'a':[1]}}",
    f"{_DOT}operand_precision={{HIGH,default}}",
    f"{_DOT}algorithm=dot_bf16_bf16_f32_x9",
    f"{_CALL}output_to_operand_aliasing={{{{}}: (0, {{}})}}",
    f"{_CALL}api_version=API_VERSION_TYPED_FFI",
    "convolution(x, y), dim_labels=bf_io->bf, convolution_kind=fprop",
    "exponential(x), result_accuracy={mode=HIGHEST}",
    "exponential(x), result_accuracy={tolerance={rtol=0.1,atol=0,ulps=10}}",
    "ragged-all-to-all(x, y)",
    "rng-bit-generator(x, y), algorithm=rng_default",
    "get-dimension-size(x), dimensions={0,1}",
    "negate(x), backend_config={'a': {}}",
    "reduce-window(x, zero), to_apply={ a = f32[] parameter(0) ROOT b = f32[] negate(a) }",
    "collective-permute(x, y, zero, zero), source_target_pairs={{0,1}}, slice_sizes={{1,2}}",
]
REFUSED = [
    *(
        f"{_ADD}sharding={text}"
        for text in (
            "replicated",
            "{bogus}",
            "{maximal}",
            "{devices=[2,1]}",
            "{devices=[2,1]0}",
            "{devices=[2,1]<=[1,2]}",
            "{replicated devices=[2,1]0,1}",
            "{replicated, maximal}",
            "{{replicated} {replicated}}",
            "{{replicated},}",
        )
    ),
    *(
        f"{_REDUCE}replica_groups={text}"
        for text in ("{0,1}", "{{a}}", "[2]<=[2]", "[2,4]<=[8]T(0)", "[2,4]", "<=[8]", "{{0},}")
    ),
    *(
        f"{_ADD}metadata={text}"
        for text in (
            "a",
            "{bogus='a'}",
            "{op_name=a}",
            "{op_name='a' op_name='b'}",
            '{op_name="a"op_name="a"}',
        )
    ),
    *(f"{_ADD}origin={text}" for text in ("{v}", "[synthetic_call]", "{'a'}", "{{'a', 'b'}}")),
    *(f"{_ADD}frontend_attributes={text}" for text in ("{a=b}", "{a='b' c='d'}", "{a='b',}")),
    f"{_ADD}statistics={{a=b}}",
    f"{_ADD}backend_config=3",
    f"{_ADD}control-predecessors=x",
    f"{_DOT}operand_precision={{bogus}}",
    f"{_DOT}algorithm=bogus",
    f"{_CALL}output_to_operand_aliasing={{{{}}: 0}}",
    f"{_CALL}called_computations=sum",
    f"{_CALL}schedule=LATEST",
    "exponential(x), result_accuracy={mode=bogus}",
    "collective-permute(x), source_target_pairs={{0}}",
    "compare(x, y), direction=lt",
    "compare(x, y)",
    "fusion(x), kind=kBogus, calls=same",
    "fusion(x), kind=kLoop",
    "fft(x), fft_type=XFFT, fft_length={6}",
    "conditional(zero, x, y)",
    "conditional(zero, x, y), true_computation=same",
    "while(x), body=same",
    "reduce(x, zero), to_apply=sum",
    "slice-start(x)",
    "custom-call(x)",
    "add(x)",
    "negate(x, y)",
    "dynamic-reshape()",
    "ragged-all-to-all(x, x, x, x, x, x), dimensions={0,1}",
    "copy-start(x), cross_program_prefetch_index=4294967296",
]
# XLA's process ends over these.
DEADLY = [
    *(
        f"{_ADD}sharding={{{text}}}"
        for text in (
            "devices=[2,1]0,1 last_tile_dim_replicate last_tile_dims={manual}",
            "devices=[-2,1]0,1",
            "devices=[2]0,1 last_tile_dims={manual,replicated}",
            "mesh[], manual",
            "mesh['a'=2,'a'=2], [{}]",
            "mesh['a'=2,'b'=2], device_ids=(0,1,2,3), [{}]",
            "mesh['a'=2,'b'=2], [{'a','b'}, {'b'}]",
            "mesh['a'=2,'b'=2], [{'a':(1)2}, {}]",
        )
    ),
    f"{_ADD}parameter_replication={{true}}",
    "dot(x), lhs_contracting_dims={1}",
    "exponential(x), result_accuracy={tolerance={rtol=-1}}",
    "get-dimension-size(x), dimensions={}",
    "rng-bit-generator(), algorithm=rng_default",
]


def _xla_takes(text: str) -> bool:
    try:
        xc.hlo.hlo_module_from_text(text)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("line", TAKEN)
def test_taken(line: str) -> None:
    text = _TEXT % line
    assert _xla_takes(text)
    printed = format_module(parse(text, verify=False))
    assert xc.hlo.hlo_module_from_text(printed).to_string() == (
        xc.hlo.hlo_module_from_text(text).to_string()
    )


@pytest.mark.parametrize("line", REFUSED)
def test_refused(line: str) -> None:
    text = _TEXT % line
    assert not _xla_takes(text)
    with pytest.raises(ParseError):
        parse(text, verify=False)


@pytest.mark.parametrize("line", DEADLY)
def test_refused_where_xla_dies(line: str) -> None:
    with pytest.raises(ParseError):
        parse(_TEXT % line, verify=False)


@pytest.mark.parametrize(
    "line",
    [
        "reshape(f32[4] x)",
        "map(f32[4] x), to_apply={ ROOT a = f32[] parameter(0) }",
        "recv(token[] x), channel_id=1",
        "tuple(f32[4] x)",
        "partition-id()",
    ],
)
def test_results_that_xla_dies_of_are_refused(line: str) -> None:
    with pytest.raises(ParseError):
        parse(f"token[] {line}", verify=False)


@pytest.mark.parametrize(
    ("written", "call"),
    [
        ("f32[]", "add-dependency(x, k)"),
        ("f32[]", "outfeed(x, k)"),
        ("(f32[4], u32[])", "send(x, k), channel_id=1"),
        ("(f32[4], u32[])", "recv(k), channel_id=1"),
        ("(s8[2])", "infeed(k)"),
    ],
)
def test_some_shapes_are_made_anew(written: str, call: str) -> None:
    """As XLA does: what is written there does not count."""
    before = "ENTRY e { x = f32[4] parameter(0) k = token[] after-all()"
    text = f"{before} r = {written} {call} ROOT y = f32[4] negate(x) }}"
    printed = format_module(parse(text))
    assert f"= {written} " not in printed
    assert xc.hlo.hlo_module_from_text(printed).to_string() == (
        xc.hlo.hlo_module_from_text(text).to_string()
    )


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("f32[2,3]{1,0:T(8,128)(2,1)E(4)S(1)}", True),
        ("f32[2,3]{1,0:D(D+,C~)}", True),
        ("f32[2,3]{1,0:S(1)T(8)}", False),
        ("f32[2,3]{1,0:T(8)T(2)}", False),
        ("f32[4]{0:#(s32)}", True),
        ("(f32[4]{0:#(u32)})", False),
        ("(f32[4]{0:SC(0:1,3)})", True),
        ("(f32[4]{0:SC(0:4)})", False),
        ("(f32[]{})", False),
        ("f32[]{}", False),
        ("f32[2,3]{1,0:Q(1)}", False),
        ("(f32[],)", False),
    ],
)
def test_shapes(text: str, taken: bool) -> None:
    module = f"ENTRY e {{ ROOT r = {text} parameter(0) }}"
    assert _xla_takes(module) is taken
    if taken:
        parse(module, verify=False)
        return
    with pytest.raises(ParseError):
        parse(module, verify=False)


@pytest.mark.parametrize(
    "text",
    [
        "ENTRY e { x = f32[] parameter(0) ROOT r = f32[] parameter(0) }",
        "ENTRY e { x = f32[] parameter(1) }",
        "c { x = f32[] parameter(1) } ENTRY e { x = f32[] parameter(0) }",
        "%x = f32[] add(f32[] x, f32[] y)",
        "((f32[4]), f32[4], s32[]) broadcast-start(f32[4] x)",
        "((f32[4], token[]), f32[4], s32[]) send-start(f32[4] x, token[] k), channel_id=1",
        "HloModule m, buffer_donor={ 0 }\nENTRY e { ROOT r = f32[] parameter(0) }",
        "HloModule m, frontend_attributes={a=b}\nENTRY e { ROOT r = f32[] parameter(0) }",
    ],
)
def test_refused_modules(text: str) -> None:
    assert "parameter(1)" in text or not _xla_takes(text)  # XLA dies of a gap
    with pytest.raises(ParseError):
        parse(text, verify=False)


@pytest.mark.parametrize("shape", ["token[2]", "token[]{:S(1)}", "opaque[2]{0}", "f32[4]{0:T(-8)}"])
def test_shapes_that_xla_dies_of_are_refused(shape: str) -> None:
    with pytest.raises(ParseError):
        parse(f"ENTRY e {{ ROOT r = {shape} parameter(0) }}", verify=False)


def test_a_type_without_infinity_holds_its_largest() -> None:
    module = parse("ENTRY e { ROOT r = f4e2m1fn[2] constant({3.5e38, -1e300}) }")
    literal = module.entry.result.payload
    assert isinstance(literal, Literal)
    assert literal.array is not None
    assert literal.array.astype(float).tolist() == [6, -6]


def test_any_number_but_zero_is_true() -> None:
    module = parse("ENTRY e { ROOT r = pred[3] constant({2, 0, -1}) }")
    literal = module.entry.result.payload
    assert isinstance(literal, Literal)
    assert literal.array is not None
    assert literal.array.tolist() == [True, False, True]


def test_a_size_without_a_bound_fits_any() -> None:
    text = "ENTRY e (x: f32[?]) -> f32[?] { x = f32[4] parameter(0) }"
    assert _xla_takes(text)
    parse(text, verify=False)
