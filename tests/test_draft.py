"""A computation in the making: what is redirected, however often and in whatever order."""

from __future__ import annotations

import pytest
from rewriting import module_of

from hlo2graph.hlo import Instruction
from hlo2graph.passes.draft import Draft


def draft_of(body):
    module = module_of(body)
    return Draft(module.entry, module.computations, frozenset())


def tied():
    """Return a draft whose root reads a, b, and a again, all of which stay."""
    return draft_of(
        """a = f32[] parameter(0)
        b = f32[] parameter(1)
        c = f32[] parameter(2)
        ROOT t = (f32[], f32[], f32[]) tuple(a, b, a)"""
    )


@pytest.mark.parametrize(
    ("redirections", "operands"),
    [
        (("ac",), "cbc"),
        (("ab", "bc"), "ccc"),
        (("bc", "ab"), "bcb"),
        (("ab", "ba"), "aaa"),
        (("ab", "bc", "ca", "ab"), "bbb"),
        (("bc", "ab", "ca"), "bab"),
    ],
)
@pytest.mark.parametrize("looking", [False, True])
def test_readers_read_what_the_last_redirection_says(redirections, operands, looking):
    draft = tied()
    for name, value in redirections:
        draft.redirect(name, value)
        if looking:
            assert [u.name for u in draft.users_of(value)] == ["t"]
    users = {name: [u.name for u in draft.users_of(name)] for name in "abc"}
    assert users == {name: ["t"] if name in operands else [] for name in "abc"}
    assert draft.instructions["t"] is draft["t"]
    assert draft["t"].operands == tuple(operands)
    assert draft.done().instructions[-1].operands == tuple(operands)


def test_a_reader_of_many_values_is_written_once(monkeypatch):
    count = 50
    lines = [f"a{k} = f32[] negate(x)" for k in range(count)]
    types, names = ", ".join(["f32[]"] * count), ", ".join(f"a{k}" for k in range(count))
    draft = draft_of("\n".join(["x = f32[] parameter(0)", *lines, f"t = ({types}) tuple({names})"]))
    written = []
    reading = Instruction.reading
    monkeypatch.setattr(
        Instruction, "reading", lambda i, operands: written.append(i) or reading(i, operands)
    )
    for k in range(1, count):
        draft.redirect(f"a{k}", "a0")
    assert draft["t"].operands == ("a0",) * count
    assert len(written) == 1
    assert set(draft.instructions) == {"x", "a0", "t"}


def test_what_is_dropped_lets_go_of_what_it_was_redirected_to():
    draft = draft_of(
        """x = f32[] parameter(0)
        a = f32[] negate(x)
        b = f32[] abs(x)
        c = f32[] sine(a)
        ROOT r = f32[] add(c, x)"""
    )
    draft.redirect("a", "b")
    draft.redirect("c", "x")
    assert [i.name for i in draft.done().instructions] == ["x", "r"]
    assert [u.name for u in draft.users_of("x")] == ["r"]
