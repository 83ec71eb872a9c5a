"""Exactly which copies are placed, and that sharing buffers is right afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Cells, groups, meaning, random_module

from hlo2graph.frontend import parse
from hlo2graph.program.copies import inits, place_copies, slots
from hlo2graph.program.drop_dead import drop_dead
from hlo2graph.program.lower import lower
from hlo2graph.program.thunks import Copy, Program, Sequence, Value
from hlo2graph.program.uses import nested

SAMPLES = Path(__file__).parent.parent / "samples"

EXPECTED = {
    "branch": [
        "out.branch_0: sum.copy of v4",
        "out.branch_1: x.copy of v1",
        "out.branch_1: ramp.copy of v5",
    ],
    "init_constant": ["zero.copy of v9", "ramp.copy of v10"],
    "init_given_twice": ["both.copy of v3"],
    "init_parameter": ["first.copy of v0", "x.copy of v1"],
    "init_used_later": ["kept.copy of v3"],
    "late_reader": ["zero.copy of v19", "loop.body: product.copy of v14"],
    "must_alias": ["product.copy of v2"],
    "nested_loops": ["zero.copy.1 of v16", "outer.body: zero.copy of v16"],
    "root": ["x.copy of v0", "ramp.copy of v1", "sum.copy of v2"],
    "rotated_state": [
        "loop.body: s.1.copy of v12",
        "loop.body: s.2.copy of v13",
        "loop.body: s.3.copy of v14",
        "loop.body: s.1.copy.copy of v22",
    ],
}


def placed(text: str) -> Program:
    return place_copies(drop_dead(lower(parse(text))))


def copies(sequence: Sequence[Value], where: str = "") -> Iterator[str]:
    for thunk in sequence.thunks:
        if isinstance(thunk, Copy):
            yield f"{where}{thunk.name} of v{thunk.source.id}"
        for label, inner in nested(thunk):
            yield from copies(inner, f"{thunk.name}.{label}: ")


def names(sequence: Sequence[Value]) -> list[str]:
    return [thunk.name for thunk in sequence.thunks]


def inside(program: Program, *path: str) -> Sequence[Value]:
    """Return the sequence at `thunk, label, thunk, label, ...`."""
    sequence = program.body
    for name, label in zip(path[::2], path[1::2], strict=True):
        [thunk] = [t for t in sequence.thunks if t.name == name]
        sequence = dict(nested(thunk))[label]
    return sequence


@pytest.mark.parametrize("case", EXPECTED)
def test_copies_of_the_samples(case):
    program = placed((SAMPLES / f"copies_{case}.hlo").read_text())
    assert list(copies(program.body)) == EXPECTED[case]


def test_every_sample_of_copies_has_its_case():
    assert {p.stem for p in SAMPLES.glob("copies_*.hlo")} == {f"copies_{c}" for c in EXPECTED}


def test_a_reader_of_old_state_moves_in_front_of_its_cheap_writer():
    body = inside(placed((SAMPLES / "copies_late_reader.hlo").read_text()), "loop", "body")
    assert names(body)[:2] == ["angle", "next"]


def test_a_scheduled_body_keeps_its_order_and_gets_a_copy():
    text = (SAMPLES / "copies_late_reader.hlo").read_text()
    text = text.replace("HloModule copies_late_reader", "HloModule m, is_scheduled=true")
    body = inside(placed(text), "loop", "body")
    assert names(body)[:2] == ["next", "angle"]
    assert names(body)[-2:] == ["next.copy", "product.copy"]


LOOP = """HloModule m{header}
body {{
  s = (f32[{n}], f32[{n}]) parameter(0)
  a = f32[{n}] get-tuple-element(s), index=0
  b = f32[{n}] get-tuple-element(s), index=1
{body}
}}
condition {{
  s = (f32[{n}], f32[{n}]) parameter(0)
  a = f32[{n}] get-tuple-element(s), index=0
  first = f32[1] slice(a), slice={{[0:1]}}
  x = f32[] reshape(first)
  zero = f32[] constant(0)
  ROOT again = pred[] compare(x, zero), direction=LT
}}
ENTRY main {{
  p = f32[{n}] parameter(0)
  q = f32[{n}] negate(p)
  r = f32[{n}] sine(p)
  init = (f32[{n}], f32[{n}]) tuple(q, r)
  ROOT loop = (f32[{n}], f32[{n}]) while(init), condition=condition, body=body
}}
"""


def body_of(lines: str, n: int = 4, header: str = "") -> Sequence[Value]:
    text = LOOP.format(body=lines.replace("N", str(n)), n=n, header=header)
    return inside(placed(text), "loop", "body")


SWAP = "  ROOT state = (f32[N], f32[N]) tuple(b, a)"
LEAVING_IN_PLACE = """  reversed = f32[N] reverse(a), dimensions={0}
  ROOT state = (f32[N], f32[N]) tuple(reversed, reversed)"""
CROSSED = """  x = f32[N] negate(b)
  y = f32[N] sine(a)
  ROOT state = (f32[N], f32[N]) tuple(x, y)"""


def test_swapping_takes_three_copies():
    body = body_of(SWAP)
    assert [(t.source.origin, t.target.origin) for t in body.thunks] == [
        ("s.0", "s.0.copy"),
        ("s.1", "s.1.copy"),
        ("s.0.copy", "s.0.copy.copy"),
    ]


def test_a_kernel_that_looks_elsewhere_does_not_overwrite_its_operand():
    assert names(body_of(LEAVING_IN_PLACE)) == ["reversed", "reversed.copy", "reversed.copy.1"]


def test_of_two_crossed_writers_one_is_in_place():
    assert names(body_of(CROSSED)) == ["y", "x", "y.copy"]


DEAR = """  y = f32[N] reverse(a), dimensions={0}
  x = f32[N] reverse(b), dimensions={0}
  z = f32[N] add(x, y)
  ROOT state = (f32[N], f32[N]) tuple(x, z)"""


def test_a_dear_writer_waits_for_a_reader_only_where_much_is_saved():
    assert names(body_of(DEAR, n=65536)) == ["y", "x", "z", "x.copy"]
    assert names(body_of(DEAR, n=4 << 20)) == ["y", "x", "z"]


ALIASED = """HloModule m, input_output_alias={{ {{0}}: (0, {{}}, {kind}-alias) }}
ENTRY main {{
  p = f32[4] parameter(0)
  q = f32[4] negate(p)
  late = f32[4] sine(p)
  ROOT out = (f32[4], f32[4]) tuple({results})
}}
"""


def test_a_must_alias_moves_late_readers_forward():
    assert names(placed(ALIASED.format(kind="must", results="q, late")).body) == ["late", "q"]


def test_a_may_alias_changes_nothing_where_it_is_not_free():
    assert names(placed(ALIASED.format(kind="may", results="q, late")).body) == ["q", "late"]


def test_a_parameter_that_is_its_own_alias_needs_no_copy():
    assert names(placed(ALIASED.format(kind="may", results="p, late")).body) == ["late"]


def test_a_parameter_at_another_result_than_its_alias_is_copied_first():
    assert names(placed(ALIASED.format(kind="must", results="q, p")).body) == ["p.copy", "q"]


def check(text: str) -> None:
    """Compare the text's meaning with the program's, values apart and then together."""
    module = parse(text)
    arguments = [("op", ("input", k)) for k in range(len(module.entry.parameters))]
    wanted = meaning(module, arguments)
    program = lower(module)
    assert Cells(program, lambda v: v.id, shared=False).run(arguments) == wanted
    done = place_copies(program)
    group = groups(done)
    results = {group[v.id] for v in done.body.results}
    assert len(results) == len(done.body.results), "two results would share a buffer"
    assert Cells(done, lambda v: group[v.id], shared=True).run(arguments) == wanted
    if module.is_scheduled:
        before = [n for n in names(done.body) if n in names(program.body)]
        assert before == names(program.body)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32))
def test_sharing_is_safe_in_random_programs(seed):
    check(random_module(random.Random(seed)))


@pytest.mark.parametrize(
    ("owner", "method", "broken"),
    [
        (slots._Slots, "_reaches", lambda *_: False),
        (inits._Inits, "_is_wanted", lambda *_: True),
    ],
)
def test_the_check_on_random_programs_finds_faults(monkeypatch, owner, method, broken):
    monkeypatch.setattr(owner, method, broken)

    def search() -> None:
        for seed in range(400):
            check(random_module(random.Random(seed)))

    with pytest.raises(AssertionError):
        search()


def test_a_kernel_that_reads_a_parameter_twice_does_not_write_over_it():
    text = """HloModule m, input_output_alias={ {1}: (0, {}, must-alias) }
both {
  a = s32[4] parameter(0)
  b = s32[4] parameter(1)
  x = s32[4] negate(a)
  y = s32[4] abs(b)
  ROOT t = (s32[4], s32[4]) tuple(x, y)
}
ENTRY main {
  p = s32[4] parameter(0)
  f = (s32[4], s32[4]) fusion(p, p), kind=kLoop, calls=both
  g = s32[4] get-tuple-element(f), index=0
  h = s32[4] get-tuple-element(f), index=1
  ROOT r = (s32[4], s32[4]) tuple(g, h)
}
"""
    placed = place_copies(lower(parse(text)))
    assert [type(thunk).__name__ for thunk in placed.body.thunks] == ["Kernel", "Copy"]
