"""What is said of broken text: every file in tests/errors has the report beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hlo2graph.errors import HloError, ParseError
from hlo2graph.frontend import parse, split, verify

ERRORS = Path(__file__).parent / "errors"
BROKEN = sorted(path.stem for path in ERRORS.glob("*.hlo"))


def report(text: str, filename: str = "<string>") -> str:
    """Return what is said of a text that must be refused."""
    with pytest.raises(HloError) as refused:
        verify(parse(text, filename))
    return str(refused.value)


def refuse(text: str, line: int, column: int, message: str) -> None:
    """Check that a text is refused at this place, the message beginning like this."""
    with pytest.raises(HloError) as refused:
        verify(parse(text))
    span = refused.value.span
    assert span
    assert (*span.source.locate(span.start), refused.value.message[: len(message)]) == (
        line,
        column,
        message,
    )


@pytest.mark.parametrize("name", BROKEN)
def test_report(name: str, pytestconfig: pytest.Config) -> None:
    expected = ERRORS / f"{name}.txt"
    found = report((ERRORS / f"{name}.hlo").read_text(encoding="utf-8"), f"{name}.hlo") + "\n"
    if pytestconfig.getoption("--update-golden") and not os.environ.get("CI"):
        expected.write_text(found)
    assert expected.exists(), f"{expected.name} is missing: pytest {__file__} --update-golden"
    assert found == expected.read_text()


def test_no_report_is_left_over() -> None:
    assert {path.stem for path in ERRORS.glob("*.txt")} == set(BROKEN)


def entry(*lines: str) -> str:
    return "\n".join(["ENTRY main {", "  x = f32[4] parameter(0)", *lines, "}"])


@pytest.mark.parametrize(
    ("lines", "line", "column", "message"),
    [
        (["  y = f32[4] nagate(x)"], 3, 14, "unknown opcode nagate"),
        (["  y = f32[4] negate(q)"], 3, 21, "no instruction here is named q"),
        (["  y = f32[4] negate(%q)"], 3, 22, "no instruction here is named q"),
        (["  y = f32[4] negate(f32[5] %x)"], 3, 21, "operand x is said to be f32[5]"),
        (["  y = f32[4] negate(x),", "      to_aply=f"], 4, 7, "negate has no attribute to_aply"),
        (["  y = f32[9,4] broadcast(x), dimensions={ 1, a }"], 3, 46, "expected an integer"),
        (["  c = s32[2]{0} constant({1,", "    -2147483649})"], 4, 5, "'-2147483649' is out of"),
        (["  c = f32[2,2] constant({{1, 2}, {3, 4x}})"], 3, 38, "expected a number of type f32"),
        (["  y = (f32[4], f31[4]) tuple(x, x)"], 3, 16, "unknown element type f31"),
        (["  y = f32[4] negate(x), metadata={op_name=", "  'a}"], 4, 3, "this string is never"),
        (["  y = f32[4] negate(x)", "  é = f32[4] negate(x)"], 4, 3, "unexpected 'é'"),
        (["  y =\tf32[4] negate(x))"], 3, 23, "unexpected ')'"),
        (["  y = f32[4] negate(x)", "  // a note", "  z = f32[4] sin(y)"], 5, 14, "unknown opcode"),
    ],
)
def test_place(lines: list[str], line: int, column: int, message: str) -> None:
    refuse(entry(*lines), line, column, message)


def test_places_count_lines_that_end_as_in_dos() -> None:
    refuse(entry("  y = f32[4] nagate(x)").replace("\n", "\r\n"), 3, 14, "unknown opcode nagate")


def test_places_in_a_part_are_those_of_the_whole() -> None:
    good = entry()
    parts = split(f"{good}\n// -----\n{good}\n  // -----\n{entry('  y = f32[4] nagate(x)')}")
    assert len(parts) == 3
    parse(parts[1])
    refuse(parts[2], 11, 14, "unknown opcode nagate")


def test_the_caret_stands_below_its_text_in_a_huge_line() -> None:
    huge = "x = f32[4] parameter(0), backend_config={" + '"a": 1, ' * 100_000 + "}"
    lines = report(f"ENTRY main {{ {huge} y = f32[4] negate(nothing) }}").splitlines()
    at = lines[2].index("^")
    assert lines[1][at : at + 7] == "nothing"
    assert max(map(len, lines)) < 200


@pytest.mark.parametrize(
    ("before", "columns"),
    [
        ("ab", 2),
        ("\t\t", 2),  # shown as a space each
        ("行列", 4),
        ("Ａ한か゚", 6),
        ("e\N{COMBINING ACUTE ACCENT}x\N{COMBINING ENCLOSING CIRCLE}", 2),
        ("\N{GRINNING FACE}", 2),
    ],
)
def test_the_caret_stands_below_what_is_wide_or_narrow(before: str, columns: int) -> None:
    told = report(entry(f"  /*{before}*/ y = f32[4] negate(行e\N{COMBINING TILDE}b)"))
    place, _, marker = told.splitlines()[:3]
    code = "  /**/ y = f32[4] negate("
    assert int(place.split(":")[2]) == len(code) + len(before) + 1  # characters, not columns
    assert marker.index("^") == 2 + len(code) + columns
    assert marker.strip() == "^~~~"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "<string>: the text is empty"),
        (" \n\t", "<string>: the text is empty"),
        ("// only a remark\n", "the text has nothing but comments"),
        ("ML\xefR\x03StableHLO", "this is MLIR bytecode"),
        ("#loc = loc(unknown)\nmodule @f {\n}", "this is StableHLO"),
        ("func.func @main() {\n}", "this is StableHLO"),
        ("PK\x03\x04arg0.npy", "this is a zip archive"),
        ("\x1f\udc8b\x08\0", "this is gzip data"),
        ("\x93NUMPY\x01", "this is a .npy array"),
        ("\n\x05jit_f\x12\x04main\x00", "this is binary data, perhaps a serialized HloModuleProto"),
        ("BufferAssignment:\nallocation 0: size 4", "this is a dump of XLA's buffer assignment"),
        ("000: kKernel\tfusion", "this is a dump of XLA's thunk sequence"),
        ("digraph g {\n}", "this is a graph in DOT"),
        ("<!DOCTYPE html>", "this is HTML"),
        ("{ lambda ; a:f32[4]. let b = neg a in (b,) }", "this is a jaxpr"),
        ('hlo_module {\n  name: "m"', "this is a protobuf as text"),
        ("; ModuleID = 'm'", "this is LLVM IR"),
        ('{"plan": []}', "this is JSON"),
        ("import jax\n", "this is Python"),
        ("ThunkSequence m, version=1", "this is thunk-sequence text"),
        ("what is this", "this is no HLO text"),
        ("f32[4] addd(f32[4], f32[4])", "unknown opcode addd"),
        ("(f32[4], pred[]) tupl(f32[4], pred[])", "unknown opcode tupl"),
        ("ENTRY \ud800 {", "a byte here is no UTF-8"),
    ],
)
def test_other_files_are_named(text: str, what: str) -> None:
    with pytest.raises(ParseError) as refused:
        parse(text)
    assert refused.value.message.startswith(what)
    str(refused.value)
