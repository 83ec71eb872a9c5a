"""Whatever the text: a module or a report, in good time."""

from __future__ import annotations

from contextlib import suppress

import pytest
from conftest import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import one

from hlo2graph.errors import HloError
from hlo2graph.frontend import parse, verify
from hlo2graph.hlo import (
    Module,
    TupleShape,
)
from hlo2graph.hlo.printer import format_module

TEXTS = [path.read_text() for path in SAMPLES if path.suffix == ".hlo"]


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
