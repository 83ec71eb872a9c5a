"""Plans kept beside compiled kernels: found again by their text, and what they were."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph import pipeline
from hlo2graph.backends.cuda import cache
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.uses import walk
from hlo2graph.saved import kept
from hlo2graph.saved.kept import Found, place_of, planned_once
from tests.fake_cuda import fake

__all__ = ["fake"]  # a fixture

SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.hlo"))
TEXT = """
HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] exponential(x)
  ROOT b = f32[4] add(a, x)
}
"""
X = np.arange(4, dtype="f4")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(kept, "BEGUN", time.time() + 1)  # whoever edits our code while this runs
    digest = kept._code_digest
    digest.cache_clear()
    yield tmp_path
    digest.cache_clear()


def spans(plan):
    thunks = [thunk.span for thunk in walk(plan.body)]
    return [
        *thunks,
        *(i.span for c in plan.computations.values() for i in c.instructions),
    ]


@pytest.mark.parametrize("path", SAMPLES[::4], ids=lambda p: p.stem)
def test_a_plan_is_what_it_was(path, folder):
    text = path.read_text().split("// -----")[0]
    plan = h2g.plan(text, target="sm_90", filename="some.hlo")
    try:
        check_support(plan)
        kernels = kernels_of(plan)
    except h2g.HloError:
        kernels = {}
    place = place_of(text, "some.hlo", "sm_90")
    place.write(plan, kernels)
    found = place_of(text, "some.hlo", "sm_90").read()
    assert found == Found(plan, kernels)
    assert str(found.plan) == str(plan)
    assert list(found.kernels) == list(kernels)
    assert list(map(str, spans(found.plan))) == list(map(str, spans(plan)))


class Planned(Exception):
    pass


def unexpected(*args, **options):
    raise Planned


def test_the_second_compilation_parses_plans_and_writes_nothing(fake, folder, monkeypatch):
    fake(TEXT, fuse="default")
    first = h2g.compile(TEXT, "cuda")
    want = first(X)
    monkeypatch.setattr(pipeline, "plan", unexpected)
    second = h2g.compile(TEXT, "cuda")
    assert second.plan == first.plan
    assert same_bits(second(X), want)
    with pytest.raises(Planned):
        h2g.compile(TEXT, "cuda", schedule="serialize")
    with pytest.raises(Planned):
        h2g.compile(TEXT, "cuda", "highest")
    with pytest.raises(Planned):
        h2g.compile(TEXT.replace("exponential", "tanh"), "cuda")
    with pytest.raises(Planned):  # whoever watches the stages sees them
        h2g.compile(TEXT, "cuda", observe=lambda stage, text: None)


def test_values_for_elided_constants_are_no_others(fake, folder, monkeypatch):
    text = TEXT.replace("add(a, x)", "add(a, c)").replace(
        "a =", "c = f32[4] constant({...})\n  a ="
    )
    fake(TEXT, fuse="default")
    h2g.compile(text, "cuda", elided="zeros")
    monkeypatch.setattr(pipeline, "plan", unexpected)
    h2g.compile(text, "cuda", elided="zeros")
    with pytest.raises(Planned):  # kernels hold the values of constants
        h2g.compile(text, "cuda", elided="random:1")


def test_known_kernels_are_not_written_again():
    plan = h2g.plan(TEXT, target="sm_90", fuse="none")
    first, *others = kernels_of(plan).items()
    assert kernels_of(plan, known=dict([first])) == dict([first, *others])
    (key, _), (_, another) = first, others[0]
    names = [source.name for source in kernels_of(plan, known={key: another}).values()]
    assert names[0] == another.name
    assert len(set(names)) == len(names) == 2


def test_other_code_finds_nothing(folder, monkeypatch):
    made = []
    for digest in ("a", "a", "b", "a"):
        monkeypatch.setattr(kept, "_code_digest", lambda digest=digest: digest)
        plan = partial(h2g.plan, TEXT, target="sm_90")
        _, texts = planned_once(place_of(TEXT, "m"), lambda plan=plan: made.append(1) or plan())
        texts.keep(texts.known)
    assert len(made) == 2
    monkeypatch.setattr(kept, "_code_digest", lambda: "")
    assert place_of(TEXT, "m") is None


def test_code_that_changed_while_we_run_keeps_nothing(folder, monkeypatch):
    assert place_of(TEXT, "m") is not None
    kept._code_digest.cache_clear()
    monkeypatch.setattr(kept, "BEGUN", 0)
    assert place_of(TEXT, "m") is None


def test_code_that_cannot_be_looked_at_keeps_nothing(folder, tmp_path, monkeypatch):
    (tmp_path / "code" / "grammars").mkdir(parents=True)
    monkeypatch.setattr(kept, "files", lambda _: tmp_path / "code")
    assert place_of(TEXT, "m") is not None
    kept._code_digest.cache_clear()
    (tmp_path / "code" / ".#lock.py").symlink_to("nowhere")  # as editors leave while one writes
    assert place_of(TEXT, "m") is None


def test_an_empty_variable_keeps_nothing(folder, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    assert place_of(TEXT, "m") is None
    plan, texts = planned_once(None, partial(h2g.plan, TEXT, target="sm_90"))
    assert plan.target == "sm_90"
    assert texts.keep is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes(len(data)),
    ],
    ids=["empty", "cut", "flipped", "zeros"],
)
def test_a_damaged_plan_is_made_anew(folder, damage):
    place = place_of(TEXT, "m")
    place.write(h2g.plan(TEXT, target="sm_90"), {})
    assert place.read() is not None
    place.path.write_bytes(damage(place.path.read_bytes()))
    assert place.read() is None


@pytest.mark.parametrize("held", [b"", b"x", bytes(64), bytes(200), b"\x08" + bytes(71)])
def test_what_is_no_plan_is_none(folder, held):
    place = place_of(TEXT, "m")
    cache.store(place.path, held)
    assert cache.load(place.path) == held
    assert place.read() is None


def test_constants_keep_their_bits_and_large_ones_are_not_kept(folder, monkeypatch):
    numbers = ", ".join(f"{k}.5" for k in range(99))
    text = TEXT.replace("f32[4]", "f32[99]").replace("add(a, x)", "add(a, c)")
    text = text.replace("a =", f"c = f32[99] constant({{{numbers}}})\n  a =")
    place = place_of(text, "m")
    plan = h2g.plan(text, target="sm_90")
    place.write(plan, {})
    assert place.read().plan == plan
    place.path.unlink()
    for largest in (395, 999):  # less than the constant, and than all else
        monkeypatch.setattr(kept, "LARGEST", largest)
        place.write(plan, {})
        assert place.read() is None


def test_what_is_nested_too_deep_is_not_kept(folder, monkeypatch):
    def deep(*_):
        raise RecursionError

    monkeypatch.setattr(kept.Encoder, "__call__", deep)
    place = place_of(TEXT, "m")
    place.write(h2g.plan(TEXT, target="sm_90"), {})
    assert place.read() is None


def test_many_at_once_leave_one_whole_entry(folder):
    place, plan = place_of(TEXT, "m"), h2g.plan(TEXT, target="sm_90")

    def turn(_):
        place.write(plan, {})
        return place.read()

    with ThreadPoolExecutor(8) as pool:
        assert all(found is None or found.plan == plan for found in pool.map(turn, range(32)))
    assert [file.name for file in folder.iterdir()] == [place.path.name]
    assert place.read().plan == plan


def test_what_was_used_longest_ago_goes_first(folder, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 1000)
    for number in range(9):
        path = folder / f"{number:064}.cubin"
        cache.store(path, bytes(68))  # and 32 of its digest
        os.utime(path, (number, number))
    (folder / "notes.txt").write_text("theirs" * 999)
    (folder / f".{0:064}.plan.17.4").write_bytes(bytes(50))  # of one who was killed
    cache.trim(folder)
    assert len(list(folder.iterdir())) == 11, "all together are small enough"
    assert cache.load(folder / f"{0:064}.cubin") is not None  # it is used
    cache.store(folder / f"{9:064}.plan", bytes(68))
    cache.trim(folder)
    left = {file.name.lstrip("0.")[:1] for file in folder.iterdir()}
    assert {"n", "9", "8", "c"} <= left
    assert not left & {"1", "2"}


def test_sources_of_other_texts_are_left_out(folder):
    place = place_of(TEXT, "m")
    plan = h2g.plan(TEXT + "\n", target="sm_90")
    place.write(plan, {})
    assert not any(spans(place.read().plan))
