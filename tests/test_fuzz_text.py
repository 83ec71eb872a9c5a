"""No text, however broken, gives anything but a plan or an HloError.

`make fuzz` runs the same mutations for as long as one likes.
"""

from __future__ import annotations

import random

import pytest
from conftest import SAMPLES
from fuzz.mutate import mutate
from fuzz.shrink import shrink_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hlo2graph as h2g
from hlo2graph.errors import HloError

TEXTS = [path.read_text() for path in SAMPLES]
SETTINGS = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def planned_or_refused(text):
    try:
        h2g.plan(text)
    except HloError as error:
        report = str(error)
    else:
        return
    assert report


@SETTINGS
@given(st.integers(0, 2**32))
def test_a_mutated_text_is_planned_or_refused(seed):
    rng = random.Random(seed)
    planned_or_refused(mutate(rng.choice(TEXTS), TEXTS, rng))


@SETTINGS
@given(st.text(max_size=40), st.sampled_from(["", "HloModule m\nENTRY e { ", "ThunkSequence m, "]))
def test_any_text_is_planned_or_refused(text, beginning):
    planned_or_refused(beginning + text)


def entry(body: str, header: str = "") -> str:
    return f"HloModule m{header}\nENTRY e {{ x = f32[] parameter(0) {body} }}"


def test_a_text_that_fails_shrinks_to_what_it_takes():
    long = max(TEXTS, key=len)
    text = f"{long}\n  a = f32[] planted(b, fault)\n{long}"
    assert shrink_text(text, lambda less: "planted" in less and "fault" in less) == "plantedfault"


DOUBLED = " ".join(f"t{k} = tuple(t{k - 1}, t{k - 1})" for k in range(1, 60))
NESTED = " ".join(f"t{k} = tuple(t{k - 1})" for k in range(1, 2000))
WIDE = "w = f32[9223372036854775807] parameter(1)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry("ROOT y = f32[] add(x, nagate(x))"), "unknown opcode nagate"),
        (entry(f"t0 = tuple(x, x) {DOUBLED}"), "the tuple has 131,072 leaves"),
        (entry(f"t0 = tuple(x) {NESTED}"), "tuples are nested more than 64 deep"),
        (entry(f"{WIDE} y = concatenate(w, w), dimensions={{0}}"), "2^63 elements or more"),
        (entry("ROOT y = " + "(" * 100_000), "is not closed"),
        (entry("ROOT y = f32[] negate(x), sharding=" + "{" * 100_000), "is never closed"),
        (entry("ROOT y = f32[] constant(" + "9" * 100_000 + ")"), "out of the range of 64 bits"),
        (entry("", ", input_output_alias={ {" + "0," * 100_000 + "}: (0, {}) }"), "names a part"),
        (entry("", ", input_output_alias={ {0}: (0, {})" + " " * 100_000), "is never closed"),
        ("HloModule " + "m" * 1_000_000, "the text ends too early"),
        ("HloModule m\n" + "x " * 500_000, "unexpected 'x'"),
        ("ThunkSequence m, version=1, target=host\n" + "{" * 100_000, "found '{'"),
    ],
    ids=lambda value: value if len(value) < 60 else "",
)
def test_extremes_are_refused_in_few_words(text, message):
    with pytest.raises(HloError) as refused:
        h2g.plan(text)
    assert message in refused.value.message
    assert len(str(refused.value)) < 2000
