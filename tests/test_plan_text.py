"""Plans as text: what it looks like, and that reading it back gives the same plan."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import F32X4, counting_loop, plan_of, plans

import hlo2graph
from hlo2graph.errors import HloError
from hlo2graph.frontend import is_thunk_sequence, parse_plan
from hlo2graph.program.edges import with_edges
from hlo2graph.program.text.plan import format_plan
from hlo2graph.program.thunks import Collective, Edge, Hazard, Kernel, Library, Sequence, Slice

ODD_CONFIG = """
HloModule odd

ENTRY main {
  p = f32[4,4] parameter(0)
  ROOT c = f32[4,4] custom-call(p), custom_call_target="Sharding", backend_config={"a":1]"b":[{}}
}
"""

LOOP = """\
ThunkSequence test, version=1, target=host, fuse=none, schedule=concurrent

arena 1024, lower_bound=0, sum=0
allocation 0: 16, parameter 0, x
allocation 1: 4, live-out, n
allocation 2: 16, live-out, y
allocation 3: 1024, temp

parameter 0: x, f32[4], 0[0:16]
result 0: n, s32[], 1[0:4]
result 1: y, f32[4], 2[0:16]

{computations}

t0: fill zero.6, to=1[0:4], bytes={00 00 00 00}
t1: copy copy.7, from=0[0:16], to=2[0:16], metadata={op_name="f" source_file="a b.py" source_line=3}
t2: while loop.5, state={1[0:4], 2[0:16]}, predicate=3[0:1], trip_count=3 {
  condition {
    t3: kernel lt.1, calls=%less, reads={1[0:4]}, writes={3[0:1]}
  }
  body {
    t4: kernel add.2, calls=%next, reads={1[0:4]}, writes={1[0:4]}
    t5: kernel neg.3, calls=%negate, reads={2[0:16]}, writes={3[256:272]}
    t6: copy copy.4, from=3[256:272], to=2[0:16]
    edge t5 -> t6, raw 3[256:272]
  }
}
edge t0 -> t2, raw 1[0:4]
edge t1 -> t2, raw 2[0:16]
"""


def without(text, word):
    return "".join(line for line in text.splitlines(True) if not line.strip().startswith(word))


def test_text_of_a_loop():
    head, _, rest = format_plan(counting_loop()).partition("%negate")
    _, _, tail = rest.partition("\nt0:")
    expected_head, expected_tail = LOOP.split("{computations}\n\nt0:")
    assert (head, tail) == (expected_head, expected_tail)


def test_text_of_calls():
    a, b, c = (Slice(1, offset, 16) for offset in (0, 16, 32))
    x = Slice(0, 0, 16)
    thunks = (
        Kernel("both.1", "both", (x,), (a, b), effect=True),
        Library("d.2", "add", (a, a), (c,), workspace=(Slice(1, 64, 8),)),
        Collective("sum/3", "negate", (c,), (c,), after=("d.2",)),
    )
    edges = (Edge(0, 1, Hazard.RAW, a), Edge(1, 2, Hazard.EFFECT))
    plan = plan_of(Sequence(thunks, edges=edges), inputs=(("x", F32X4),))
    assert format_plan(plan).endswith("""
t0: kernel both.1, calls=%both, reads={0[0:16]}, writes={1[0:16], 1[16:32]}, effect=true
t1: library d.2, calls=%add, reads={1[0:16], 1[0:16]}, writes={1[32:48]}, workspace={1[64:72]}
t2: collective sum/3, calls=%negate, reads={1[32:48]}, writes={1[32:48]}, control-predecessors={d.2}
edge t0 -> t1, raw 1[0:16]
edge t1 -> t2, effect
""")


@settings(max_examples=100)
@given(plans())
def test_any_plan_reads_back_as_itself(plan):
    text = format_plan(plan)
    assert is_thunk_sequence(text)
    assert parse_plan(text) == plan
    assert format_plan(parse_plan(text)) == text


def test_str_is_the_text():
    plan = counting_loop()
    assert str(plan) == format_plan(plan)


def test_edges_are_inferred_where_there_are_none():
    plan = counting_loop()
    found = parse_plan(without(format_plan(plan), "edge "))
    assert found.body == with_edges(plan.body)
    assert found.body.edges
    assert found.body.thunks[2].body.edges


def test_a_serial_schedule_infers_a_chain():
    text = without(format_plan(replace(counting_loop(), schedule="serialize")), "edge ")
    hazards = {(e.src, e.dst): e.hazard for e in parse_plan(text).body.edges}
    assert hazards == {(0, 1): Hazard.ORDER, (1, 2): Hazard.RAW}


def test_edges_none_and_edges_in_part_stay():
    plan = counting_loop()
    partly = replace(plan, body=replace(plan.body, edges=()))
    assert parse_plan(format_plan(partly)) == partly
    none = plan_of(
        Sequence(plan.body.thunks[:2]), inputs=(("x", F32X4),), outputs=(("n", F32X4), ("y", F32X4))
    )
    text = format_plan(none)
    assert text.partition("\n")[0].endswith(", edges=none")
    assert parse_plan(text) == none


def test_order_of_statements_and_comments_play_no_part():
    plan = counting_loop()
    head, *lines = format_plan(plan).split("\n\n")
    shuffled = "\n/* a comment:\n%none { */\n".join([f"// first\n{head}", *reversed(lines)])
    assert parse_plan(shuffled) == plan


def test_names_may_have_a_percent_sign():
    text = format_plan(counting_loop())
    assert parse_plan(text.replace("kernel lt.1", "kernel %lt.1")) == counting_loop()


def test_a_missing_arena_is_measured():
    measured = parse_plan(without(format_plan(counting_loop()), "arena ")).arena
    assert (measured.size, measured.lower_bound, measured.sum) == (1024, 16, 17)


def test_defaults_of_the_head():
    plan = parse_plan("ThunkSequence empty, version=1")
    assert (plan.target, plan.fuse, plan.schedule) == ("host", "none", "concurrent")
    assert plan.body == Sequence(())


@pytest.mark.parametrize("path", sorted((ROOT / "samples").glob("*.thunks")), ids=lambda p: p.stem)
def test_samples(path):
    text = path.read_text()
    assert text.startswith("// ")
    plan = parse_plan(text, str(path))
    assert plan.body.edges
    assert parse_plan(format_plan(plan)) == plan


@settings(max_examples=150)
@given(st.data())
def test_no_text_gives_another_error(data):
    text = format_plan(counting_loop())
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    put = data.draw(st.sampled_from(["", "{", "}", '"', "%", ",", "9" * 5000, "t0", "\0", "/*"]))
    with suppress(HloError):
        parse_plan(text[:start] + put + text[end:])


def test_brackets_of_a_config_need_not_match():
    plan = hlo2graph.plan(ODD_CONFIG)
    assert '{"a":1]"b":[{}}' in format_plan(plan)
    assert parse_plan(format_plan(plan)) == plan


def test_a_config_of_several_lines_is_read_back():
    plan = hlo2graph.plan(ODD_CONFIG.replace('{"a":1]"b":[{}}', "{{{[\n}}}"))
    assert "{{{[\n}}}" in format_plan(plan)
    assert parse_plan(format_plan(plan)) == plan
