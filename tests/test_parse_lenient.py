"""Faults that XLA's parser steps over: taken here too, by XLA's own word; and some it does not."""

import pytest
from jax._src.lib import xla_client as xc

from hlo2graph import parse
from hlo2graph.errors import ParseError
from hlo2graph.hlo.printer import format_module

_TEXT = """\
HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[2]{0} parameter(0)
  p = (f32[2], s32[]) parameter(1)
  o = opaque[] parameter(2)
  %s
}
"""


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"ROOT r = f32[2]{{0:{layout}}} negate(x)"
            for layout in (
                *(
                    "T",
                    "T(",
                    "T(2",
                    "T(2,",
                    "T(2)(",
                    "T(*)(*",
                    "T(2S(1)",
                    "D(D",
                    "L",
                    "L(1",
                    "#(u8",
                ),
                *("*(", "E", "E(4", "E(4S(1)", "E(4)S", "S(1 M(2)", "SC(0:1", "SC(0:1)(0", "M(1"),
                "T L # * E S SC M",
            )
        ),
        "ROOT r = f32[2] get-tuple-element(p), index=2",
        "ROOT r = s32[] get-tuple-element(p), index=-1",
        "ROOT r = f32[2] all-reduce(f32[2]), to_apply=sum",
        "ROOT r = f32[2] custom-call(x, f32[2], copy), custom_call_target='t'",
        "ROOT r = f32[2] custom-call(x, c64, token), custom_call_target='t'",
        "ROOT r = f32[2] all-reduce(x), to_apply=%sum%q = f32[2] negate(x)",
        "ROOT r = f32[] get-tuple-element((f32[2], s32[]) p:), index=0",
        "y = f32[2,?] copy(x) ROOT r = f32[3] reshape(y)",
        "ROOT r = f32[2]{0:E(18446744073709551615)} negate(x)",
        "ROOT r = f32[600,512] constant(7)",
        "i = s32[] get-tuple-element(p), index=1ROOT r = s32[] negate(i)",
        "i = s32[] get-tuple-element(p), index=1%r = s32[] negate(i)",
        "i = s32[] get-tuple-element(p), index=1y1 = s32[] negate(i)",
        "ROOT r = sort(x), dimensions={0}, to_apply=sum",
        "ROOT r = sort(x, x), dimensions={0}, to_apply=sum",
        "ROOT r = tuple(o, x)",
        "ROOT r = f32[4294967296,4294967296] custom-call(x), custom_call_target='t'",
        "ROOT r = add-dependency(o, x)",
    ],
)
def test_taken_as_by_xla(line: str) -> None:
    text = _TEXT % line
    printed = format_module(parse(text, verify=False))
    expected = xc.hlo.hlo_module_from_text(text).to_string()
    assert xc.hlo.hlo_module_from_text(printed).to_string() == expected


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"ROOT r = f32[2]{{0:{layout}}} negate(x)"
            for layout in ("TS(1)", "T(2,)", "E)", "E(4,5)", "SC(1)", "#(foo)", "D(D,)", "T(2)T(2)")
        ),
        "ROOT r = f32[?] constant(1)",
        "ROOT r = (f32[4294967296,2147483647]) custom-call(x), custom_call_target='t'",
        "ROOT r = f32[?] constant({1})",
        "ROOT r = f32[0,2] constant(1)",
        "ROOT r = f32[2,2] constant({1,2})",
        "ROOT r = broadcast(o), dimensions={0}",
        "ROOT r = f32[2] custom-call(%copy), custom_call_target='t'",
        "ROOT r = f32[2] custom-call(%c64), custom_call_target='t'",
        "ROOT r = f32[2] custom-call(c64:), custom_call_target='t'",
        "ROOT r = f32[2] custom-call(f32[2] c64), custom_call_target='t'",
        "ROOT r = f32[2] negate(%x:)",
        "ROOT r = f32[2] negate(f32[2] %x:)",
        "ROOT r = f32[2]{-9223372036854775809} negate(x)",
        "ROOT r = f32[2]{0:E(18446744073709551616)} negate(x)",
        "y = f32[?] copy(x) ROOT r = broadcast(y), dimensions={0}",
        "ROOT r = f32[2] ragged-dot(x, x, x), algorithm=dot_f32_f32_f32, lhs_contracting_dims={0}, "
        "rhs_contracting_dims={0}, lhs_ragged_dims={0}",
    ],
)
def test_refused_as_by_xla(line: str) -> None:
    text = _TEXT % line
    with pytest.raises(RuntimeError):
        xc.hlo.hlo_module_from_text(text)
    with pytest.raises(ParseError):
        parse(text, verify=False)


@pytest.mark.parametrize(
    "line",
    [
        "ROOT r = pred[] compare(p, p), direction=EQ",
        "ROOT r = pred[] compare(o, o), direction=EQ",
        "ROOT r = opaque[] copy(x)",
        "ROOT r = opaque[] map(x), to_apply=sum",
        "ROOT r = opaque[] reshape(o)",
        "ROOT r = f32[2]{0:L(0)} negate(x)",
    ],
)
def test_refused_where_xla_dies(line: str) -> None:
    with pytest.raises(ParseError):
        parse(_TEXT % line, verify=False)


def test_what_follows_a_channel_has_its_shape() -> None:
    text = (
        "ENTRY e { k = token[] parameter(0) r = (f32[2], u32[], token[]) recv(k), channel_id=1 "
        "d = () recv-done(r), channel_id=1 x = f32[2] get-tuple-element((f32[2], token[]) d), "
        "index=0 s = (f32[2], u32[], token[]) send(x, k), channel_id=2 "
        "ROOT t = f32[9] send-done(s), channel_id=2 }"
    )
    printed = format_module(parse(text, verify=False))
    expected = xc.hlo.hlo_module_from_text(text).to_string()
    assert xc.hlo.hlo_module_from_text(printed).to_string() == expected


@pytest.mark.parametrize("layout", ["f32[2]", "(f32[2])", ""])
@pytest.mark.parametrize("root", ["f32[2] negate(x)", "(f32[2]) tuple(x)"])
def test_aliases_are_of_what_the_root_is(layout: str, root: str) -> None:
    entry = f", entry_computation_layout={{(f32[2])->{layout}}}" if layout else ""
    header = f"HloModule m, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}{entry}"
    text = f"{header}\nENTRY e {{ x = f32[2] parameter(0) ROOT r = {root} }}"
    if "tuple" in root:
        xc.hlo.hlo_module_from_text(text)
        parse(text, verify=False)
        return
    with pytest.raises(RuntimeError):
        xc.hlo.hlo_module_from_text(text)
    with pytest.raises(ParseError):
        parse(text, verify=False)


def test_dots_stand_for_elements_in_too_few_braces_too() -> None:
    text = _TEXT % "ROOT r = f32[2,2] constant({1,...,2})"
    xc.hlo.hlo_module_from_text(text)
    parse(text, verify=False)
