"""What is said of a thunk sequence that is wrong, and where."""

from __future__ import annotations

import json

import pytest

from hlo2graph.errors import HloError, ParseError, VerifyError
from hlo2graph.frontend import parse_plan
from hlo2graph.inspect.dot import dot

GOOD = """\
ThunkSequence good, version=1, target=host
allocation 0: 16, parameter 0, x
allocation 1: 64, temp
allocation 2: 16, constant, c, f32[4] constant({1, 2, 3, 4})
parameter 0: x, f32[4], 0[0:16]
result 0: y, f32[4], 1[0:16]
%negate (x: f32[4]) -> f32[4] {
  x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x)
}
%less (x: f32[4]) -> pred[] {
  x = f32[4] parameter(0)
  ROOT y = pred[] custom-call(x), custom_call_target="f"
}
t0: kernel a, calls=%negate, reads={0[0:16]}, writes={1[0:16]}
t1: copy b, from=1[0:16], to=1[16:32]
t2: fill c, to=1[32:48], bytes={00 00 80 3f}
t3: while d, state={1[0:16]}, predicate=1[48:49] {
  condition { t4: kernel e, calls=%less, reads={1[0:16]}, writes={1[48:49]} }
  body { t5: kernel f, calls=%negate, reads={1[0:16]}, writes={1[0:16]} }
}
t6: conditional g, selector=1[48:49], results={1[0:16]} {
  branch_0 { t7: copy h, from=1[16:32], to=1[0:16] }
  branch_1 { t8: copy i, from=1[32:48], to=1[0:16] }
}
edge t0 -> t1, raw 1[0:16]
edge t0 -> t3, raw 1[0:16]
"""

# old text, new text, line, column, words of the message
WRONG = [
    # ***** the head *****
    ("ThunkSequence good, version=1", "ThunkSequence good", 1, 1, "says version=1"),
    ("version=1", "version=2", 1, 21, "reads version 1; a newer hlo2graph does"),
    ("version=1", "version=x", 1, 21, "version holds a number"),
    ("target=host", "target=gpu", 1, 32, "target holds host or sm_NN"),
    ("target=host", "fuse=all", 1, 32, "fuse is one of none, default"),
    ("target=host", "schedule=fast", 1, 32, "schedule is one of concurrent, serialize"),
    ("target=host", "traget=host", 1, 32, "ThunkSequence has no attribute traget"),
    ("target=host", "edges=none", 1, 32, "edges=none, but there are edges"),
    ("target=host", "version=1", 1, 32, "version is given twice"),
    ("ThunkSequence", "ThunkSequenze", 1, 1, "expected ThunkSequence"),
    # ***** memory *****
    ("allocation 1:", "allocation 7:", 3, 12, "found allocation 7, expected allocation 1 next"),
    ("64, temp", "64, tmp", 3, 19, "expected parameter, constant, live-out or temp"),
    ("64, temp", "64, temp 3", 3, 24, "only a parameter has a number, not temp"),
    ("16, parameter 0", "16, parameter 1", 2, 29, "parameter 1 is not in allocation 0"),
    ("f32[4] constant", "f99[4] constant", 4, 32, "f99"),
    ("{1, 2, 3, 4}", "{1, 2, 3, x}", 4, 58, "x"),
    ("f32[4] constant({1, 2, 3, 4})", "f32[5] constant({...})", 4, 32, "f32[5] has 20 bytes"),
    ("64, temp", "64, temp, t, f32[] constant(1)", 3, 28, "only a constant has a value"),
    ("x, f32[4], 0[0:16]", "x, f32[5], 0[0:16]", 5, 25, "f32[5] has 20 bytes, not 16"),
    ("x, f32[4], 0[0:16]", "x, f32[4], 1[0:16]", 5, 25, "but 1 is temp"),
    ("result 0", "result 1", 6, 8, "found result 1, expected result 0 next"),
    ("parameter 0: x", "arena 1\nparameter 0: x", 5, 1, "arena needs lower_bound="),
    # ***** computations *****
    ("negate(x)", "negate(z)", 9, 26, "z"),
    ("negate(x)", "not(x)", 9, 8, "f32"),
    ("calls=%negate, reads={0", "calls=%negat, reads={0", 15, 15, "there is no computation negat"),
    ("%less (x", "%negate (x", 11, 2, "negate"),
    ("%less (x: f32[4]) -> pred[] {", "%less (x: f32[4]) -> pred[]", 12, 3, "expected '{'"),
    # ***** thunks *****
    ("kernel a,", "kernal a,", 15, 5, "kernal is no kind of thunk"),
    ("t1: copy", "t0: copy", 16, 1, "two thunks have the id t0"),
    ("copy b", "copy a", 16, 10, "two thunks have the name a"),
    ("from=1[0:16]", "from=4[0:16]", 16, 18, "there is no allocation 4, the last is 2"),
    ("from=1[0:16]", "from=1[60:76]", 16, 18, "allocation 1 has 64 bytes"),
    ("from=1[0:16]", "from=1[16:0]", 16, 18, "ends before it begins"),
    ("from=1[0:16]", "from=1[0:12]", 16, 27, "one size, not 12 and 16 bytes"),
    ("from=1[0:16]", "from=x", 16, 13, "from holds bytes, as in 0[0:64]"),
    ("from=1[0:16], ", "", 16, 5, "copy needs from="),
    ("from=1[0:16]", "form=1[0:16]", 16, 13, "copy has no attribute form"),
    ("bytes={00 00 80 3f}", "bytes={00 00 80}", 17, 26, "1, 2, 4, 8 or 16 bytes, not 3"),
    ("bytes={00 00 80 3f}", "bytes={ \x8500}", 17, 26, "bytes in hexadecimal"),
    ("bytes={00 00 80 3f}", "bytes={0g}", 17, 26, "bytes in hexadecimal"),
    ("to=1[32:48]", "to=1[32:47]", 17, 26, "no whole number of 4-byte patterns"),
    ("reads={0[0:16]}, w", "reads={}, w", 15, 30, "reads has 0 entries, but negate takes 1"),
    ("reads={0[0:16]}, w", "reads={0[0:8]}, w", 15, 30, "reads[0] has 8 bytes, but x is f32[4]"),
    ("reads={0[0:16]}, w", "reads={0[0:8], 9[0:1]}, w", 15, 45, "there is no allocation 9"),
    ("reads={0[0:16]}, w", "reads={0[0:16],}, w", 15, 30, "bytes in braces"),
    ("to=1[16:32]", 'to=1[16:32], metadata="\\q"', 16, 49, "bad escape"),
    ("to=1[16:32]", "to=1[16:32], control-predecessors={c}", 16, 10, "no thunk before this"),
    ("kernel a,", "kernel a, effect=maybe,", 15, 15, "effect is one of true, false"),
    # ***** loops and branches *****
    ("predicate=1[48:49]", "predicate=1[48:52]", 18, 31, "1 byte, not 4"),
    ("  body {", "  bode {", 20, 3, "found bode, expected body here"),
    ("  condition { t4", "  body { t4", 19, 3, "found body, expected condition here"),
    ("  branch_1 {", "  branch_7 {", 24, 3, "found branch_7, expected branch_1 here"),
    ("selector=1[48:49]", "selector=1[48:50]", 22, 20, "1 or 4 bytes, not 2"),
    ("branch_0 {", "branch_0, results={} {", 23, 13, "the conditional's sizes: 16"),
    ("branch_0 {", "branch_0, state={} {", 23, 13, "branch_0 has no attribute state"),
    ("to=1[16:32]\n", "to=1[16:32] { body { } }\n", 16, 41, "a copy has nothing nested"),
    # ***** edges *****
    ("edge t0 -> t1", "edge t0 -> t9", 26, 12, "there is no thunk t9"),
    ("edge t0 -> t1", "edge t1 -> t0", 26, 12, "leads forward"),
    ("edge t0 -> t1", "edge t0 -> t5", 26, 12, "t5 is in another sequence"),
    ("t1, raw 1", "t1, rew 1", 26, 16, "rew is no hazard"),
    ("t1, raw 1[0:16]", "t1, raw", 26, 16, "raw needs the bytes"),
    ("t1, raw 1", "t1, effect 1", 26, 23, "effect is about no bytes"),
    ("t1, raw 1[0:16]", "t1, raw 1[0:99]", 26, 20, "allocation 1 has 64 bytes"),
    # ***** syntax *****
    ("t1: copy", "t1 copy", 16, 4, "found 'copy', expected ':'"),
    ("t1: copy", "$: copy", 16, 1, "found '$'"),
    ("edge t0 -> t3, raw 1[0:16]\n", "edge t0 ->", 27, 11, "found the end of the text"),
    ("64, temp", "9" * 400 + ", temp", 3, 15, "expected a number"),
    ("condition { t4", "condition { t4: while z { ", 19, 29, "found"),
]


def test_the_good_one():
    assert len(parse_plan(GOOD).body.thunks) == 5


@pytest.mark.parametrize(("old", "new", "line", "column", "message"), WRONG)
def test_error(old, new, line, column, message):
    assert GOOD.count(old) >= 1
    with pytest.raises((ParseError, VerifyError)) as caught:
        parse_plan(GOOD.replace(old, new, 1), "f.thunks")
    assert message in str(caught.value)
    place = caught.value.span.source.locate(caught.value.span.start)
    assert place == (line, column)


def test_the_report_shows_the_line_and_both_places():
    with pytest.raises(HloError) as caught:
        parse_plan(GOOD.replace("copy b", "copy a"), "f.thunks")
    assert (
        str(caught.value)
        == """\
f.thunks:16:10: error: two thunks have the name a
  t1: copy a, from=1[0:16], to=1[16:32]
           ^
f.thunks:15:12: note: the first is here
  t0: kernel a, calls=%negate, reads={0[0:16]}, writes={1[0:16]}
             ^"""
    )


def nested(levels):
    opening = "".join(
        f"t{i}: while w, state={{}}, predicate=0[0:1] {{ condition {{ }} body {{ "
        for i in range(levels)
    )
    return f"ThunkSequence deep, version=1\nallocation 0: 1, temp\n{opening}{'} } ' * levels}"


def test_nesting_has_an_end():
    plan = parse_plan(nested(100))
    assert str(plan).count("while w") == dot(plan).count('label="while w"') == 100
    assert json.dumps(plan.to_json()).count('"while"') == 100
    with pytest.raises(ParseError, match="nested more than 100 deep"):
        parse_plan(nested(101))


@pytest.mark.parametrize(
    "text", ["", "\n", "// only a comment\n", "ThunkSequence", "{", "/*", "\0"]
)
def test_texts_that_are_nothing(text):
    with pytest.raises(ParseError, match="expected"):
        parse_plan(text)
