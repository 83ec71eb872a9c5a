"""What HLO text may look like, and what becomes of it."""

from __future__ import annotations

import gc

import pytest
from parsing import entry, one

from hlo2graph.errors import HloError, Source
from hlo2graph.frontend import parse, parse_computations, verify
from hlo2graph.hlo import (
    Module,
    Raw,
)

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
    assert list(module.computations) == ["_", "main"]
    assert module.computations["_"].root == "s"
    assert module.entry.result.attrs["to_apply"] == "_"
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


# ***** async sugar *****


def test_a_start_gets_a_computation_of_its_own() -> None:
    module = entry(
        's = ((f32[4]), f32[2], s32[]) slice-start(x), slice={[0:2]}, async_execution_thread="t",'
        ' control-predecessors={y}, metadata={op_name="cut"}',
        "u = ((f32[4]), f32[2], s32[]) slice-update(s)",
        "d = f32[2] slice-done(u)",
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
    module = entry("ROOT z = f32[4] add(x, y)")
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
