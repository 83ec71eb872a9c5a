"""Random modules: XLA, the program evaluated as written, and every way to plan and run it agree."""

from __future__ import annotations

import re
from contextlib import suppress
from random import Random

import numpy as np
from agreement import arguments_of, run_host
from fuzz.shrink import shrink
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_modules import random_module
from random_operations import (
    KINDS,
    UNDRAWN,
    UNDRAWN_TYPES,
    random_arguments,
    random_operation,
    with_calls,
)
from xla import run_xla

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import InputError
from hlo2graph.frontend import verify
from hlo2graph.hlo import DTYPES
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import compare, same_bits, tolerance_for
from hlo2graph.inspect.reference import host_results
from hlo2graph.ops import OPS
from hlo2graph.passes.sizes.settle_sizes import settle_sizes
from hlo2graph.program.text.plan import format_plan

WAYS = (
    {},
    {"fuse": "default"},
    {"max_buffer_reuse": -1},
    {"max_buffer_reuse": 2, "fuse": "default"},
    {"schedule": "serialize"},
)


def examples(count):
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def arena(module):
    return sum(a.size for a in h2g.plan(module).allocations if a.kind == "temp")


@examples(60)
@given(st.integers(0, 2**32))
def test_every_plan_and_order_gives_the_same_bits(seed):
    rnd = Random(seed)
    text = random_module(rnd, rnd.choice((4, 8, 20)))
    module, args = h2g.parse(text), arguments_of(text)
    want = run_host(text, [a.copy() for a in args])
    whole = {"memory_budget": arena(module)}
    plans = [h2g.plan(module, **options) for options in (*WAYS, whole)]
    with suppress(InputError):  # half may be less than what is alive at once
        plans.append(h2g.plan(module, memory_budget=whole["memory_budget"] // 2))
    for plan in plans:
        executable = HostExecutable(plan)
        assert same_bits(executable(*args), want)
        assert same_bits(executable.run_random(rnd, args), want)
        assert same_bits(executable.run_parallel(args, 2), want)
        assert h2g.plan(format_plan(plan)) == plan


@examples(25)
@given(st.integers(0, 2**32))
def test_xla_gives_the_same_bits(seed):
    text = random_module(Random(seed))
    args = arguments_of(text)
    _, _, body = text.partition("\n")  # aliases are no matter of values
    assert same_bits(run_host(text, args), run_xla(with_calls(f"HloModule m\n{body}"), args))


@examples(150)
@given(st.integers(0, 2**32))
def test_any_operation_gives_the_results_of_xla(seed):
    rnd = Random(seed)
    text = random_operation(rnd)
    args = random_arguments(text, rnd)
    want = run_xla(with_calls(text), args)
    module = h2g.parse(text)
    fused = HostExecutable(h2g.plan(module, fuse="default"))
    ours = host_results(settle_sizes(module), args), fused(*args)
    for leaf, theirs, *mine in zip(module.entry.result.shape.leaves(), want, *ours, strict=True):
        for got in mine:
            found = compare(np.asarray(got), theirs, tolerance_for(leaf.dtype))
            assert found.ok, f"{found}\n{text}"


def test_no_opcode_or_type_is_left_out_silently():
    """What is never drawn has its reason; a reason that no longer holds is taken away."""
    drawn = [random_module(Random(n), 20) for n in range(60)]
    drawn += [random_operation(Random(n), kind) for n, kind in enumerate(KINDS * 24)]
    text = "\n".join(drawn)
    opcodes = set(re.findall(r"[\]})] ([a-z][a-z0-9-]*)\(", text))
    assert opcodes ^ OPS.keys() == UNDRAWN.keys()
    types = set(re.findall(r"[ (]([a-z]\w*)\[", text)) | {"token"}
    assert types ^ DTYPES.keys() == UNDRAWN_TYPES.keys()


@examples(60)
@given(st.integers(0, 2**32))
def test_a_module_is_printed_as_it_reads(seed):
    printed = format_module(h2g.parse(random_module(Random(seed))))
    assert format_module(h2g.parse(printed)) == printed


def test_what_fails_shrinks_to_what_it_takes():
    """A planted fault, of what is reversed in a loop's body: all else goes."""
    seeds = (seed for seed in range(99) if _reverses(h2g.parse(random_module(Random(seed), 20))))
    module = h2g.parse(random_module(Random(next(seeds)), 20))
    least = shrink(module, _reverses)
    assert _reverses(least)
    assert verify(least) == least
    assert _size(least) < _size(module) / 3


def _size(module):
    return sum(len(c.instructions) for c in module.computations.values())


def _reverses(module):
    loops = {i.attrs.get("body") for c in module.computations.values() for i in c.instructions}
    bodies = [c for name, c in module.computations.items() if name in loops]
    return any(i.opcode == "reverse" and i.shape.elements for c in bodies for i in c.instructions)


def test_arguments_are_left_as_they_were():
    text = random_module(Random(5), 20)
    args = arguments_of(text)
    before = [a.tobytes() for a in args]
    HostExecutable(h2g.plan(text))(*args)
    assert [a.tobytes() for a in args] == before
