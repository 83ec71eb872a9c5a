"""Arguments given up are read before they are overwritten, whatever the order of the text."""

from __future__ import annotations

import random

import numpy as np
import pytest
from programs import Cells, groups, meaning, random_module

import hlo2graph as h2g
from hlo2graph.frontend.parse import parse
from hlo2graph.program.copies import place_copies
from hlo2graph.program.lower import lower
from hlo2graph.program.read_first import read_first

ALIAS = "{ {0}: (0, {}, may-alias) }"


def module(lines: str, result: str, size: int = 2048, aliases: str = ALIAS) -> str:
    """Return a step that makes `new` of p, and of p's old value something else."""
    body = "\n  ".join(line.strip() for line in lines.strip().splitlines())
    text = f"""HloModule step, input_output_alias={aliases}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY main {{
  p = f32[N,N] parameter(0)
  g = f32[N,N] parameter(1)
  zero = f32[] constant(0)
  {body}
  ROOT out = (f32[N,N], {result}) tuple(new, old)
}}
"""
    return text.replace("[N,N]", f"[{size},{size}]")


NORM = """sq = f32[N,N] multiply(p, p)
old = f32[] reduce(sq, zero), dimensions={0,1}, to_apply=add"""
UPDATE_FIRST = f"new = f32[N,N] subtract(p, g)\n{NORM}"


def verdict(text: str, target: str = "host") -> str:
    (line,) = h2g.plan(text, target=target).aliases
    return line


@pytest.mark.parametrize("target", ["host", "sm_90"])
@pytest.mark.parametrize("lines", [UPDATE_FIRST, f"{NORM}\nnew = f32[N,N] subtract(p, g)"])
def test_readers_behind_the_update_in_the_text_come_before_it(lines, target):
    assert verdict(module(lines, "f32[]"), target).endswith(": honoured")


def test_smaller_arguments_wait_for_no_reader_that_the_text_has_behind():
    """To wait costs more than their memory is worth, however much is given up in all."""
    both = "{ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"
    text = module(f"{UPDATE_FIRST}\nother = f32[N,N] add(g, g)", "f32[]", 1024, both)
    text = text.replace("tuple(new, old)", "tuple(new, other, old)")
    text = text.replace("(f32[1024,1024], f32[])", "(f32[1024,1024], f32[1024,1024], f32[])")
    first, second = h2g.plan(text, target="host").aliases
    assert "not honoured" in first
    assert second.endswith(": honoured")


def test_a_reader_that_needs_the_result_stays_behind():
    text = module(
        """new = f32[N,N] subtract(p, g)
        both = f32[N,N] multiply(p, new)
        old = f32[] reduce(both, zero), dimensions={0,1}, to_apply=add""",
        "f32[]",
    )
    assert "still read" in verdict(text)
    program = lower(parse(text))
    assert read_first(program) is program


def test_small_arguments_keep_the_order_of_the_text():
    program = lower(parse(module(UPDATE_FIRST, "f32[]", size=64)))
    assert read_first(program) is program


def test_of_two_that_read_each_other_the_one_that_the_text_allows_is_kept():
    text = module(
        """new = f32[N,N] subtract(p, g)
        old = f32[N,N] multiply(g, p)""",
        "f32[N,N]",
        aliases="{ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }",
    )
    program = lower(parse(text))
    assert read_first(program) is program
    first, second = h2g.plan(text, target="host").aliases
    assert "not honoured" in first
    assert second.endswith(": honoured")


def test_two_that_both_come_too_late_are_no_cycle():
    text = module(
        """new = f32[N,N] subtract(q, g)
        old = f32[N,N] multiply(q, p)
        both = f32[N,N] add(p, g)""",
        "f32[N,N], f32[N,N]",
        aliases="{ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }",
    )
    text = text.replace("tuple(new, old)", "tuple(new, old, both)")
    text = text.replace("  zero =", "  q = f32[2048,2048] parameter(2)\n  zero =")
    program = read_first(lower(parse(text)))
    assert [thunk.name for thunk in program.body.thunks] == ["both", "new", "old"]
    first, second = h2g.plan(text, target="host").aliases
    assert "not honoured" in first
    assert second.endswith(": honoured")


def test_a_schedule_is_kept():
    text = module(UPDATE_FIRST, "f32[]").replace("step,", "step, is_scheduled=true,")
    program = lower(parse(text))
    assert read_first(program) is program


def is_moved(seed: int) -> bool:
    """Hold a random program in its new order against its text; tell whether it has one."""
    held = parse(random_module(random.Random(seed)))
    program = lower(held)
    ordered = read_first(program)
    arguments = [("op", ("input", k)) for k in range(len(held.entry.parameters))]
    wanted = meaning(held, arguments)
    done = place_copies(ordered)
    group = groups(done)
    assert Cells(ordered, lambda v: v.id, shared=False).run(arguments) == wanted
    assert Cells(done, lambda v: group[v.id], shared=True).run(arguments) == wanted
    names, before = ([t.name for t in p.body.thunks] for p in (ordered, program))
    assert sorted(names) == sorted(before)
    return names != before


def test_another_order_means_the_same_in_random_programs(monkeypatch):
    monkeypatch.setattr("hlo2graph.program.read_first.MUCH_GIVEN_UP", -1)
    assert sum(map(is_moved, range(400))) > 5


def test_what_was_moved_gives_the_same_results():
    text = module(UPDATE_FIRST, "f32[]", size=1100)
    executable = h2g.compile(text, backend="host")
    rng = np.random.default_rng(0)
    p, g = (rng.standard_normal((1100, 1100)).astype(np.float32) for _ in range(2))
    new, old = executable(p, g)
    np.testing.assert_array_equal(new, p - g)
    np.testing.assert_allclose(old, (p.astype(np.float64) ** 2).sum(), rtol=1e-5)
