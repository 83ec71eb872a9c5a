"""Every sample in random topological orders and on a pool gives program order's very bits.

The bytes are real and poisoned before each run, so this finds a missing edge without a GPU; the
second half takes edges away and sees that it does.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.thunks import Hazard

OPTIONS = {
    "default": {},
    "fused": {"fuse": "default"},
    "reuse": {"max_buffer_reuse": -1},
    "serialize": {"schedule": "serialize"},
}
ORDERED_BY_DATA = (Hazard.RAW, Hazard.WAR, Hazard.WAW, Hazard.REUSE, Hazard.INPLACE)
TRIES = 40


def ready(path, options):
    """Return the sample's plan, an executable and inputs; skip what only a GPU or a fleet runs."""
    if path.suffix == ".thunks" and options:
        pytest.skip("thunk sequences are planned already")
    plan = h2g.plan(path.read_text(), filename=path.name, **options)
    try:
        executable = HostExecutable(plan, elided="random:0")
    except UnsupportedError as refused:
        pytest.skip(refused.message)
    return plan, executable, random_inputs(plan.inputs, 0)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_any_order_gives_the_same_bits(path, options):
    _, executable, args = ready(path, options)
    want = executable(*args)
    rng = Random(0)
    for _ in range(8):
        assert same_bits(executable.run_random(rng, args), want)
    for threads in (1, 2, 4):
        assert same_bits(executable.run_parallel(args, threads), want)
    assert same_bits(executable(*args), want)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_an_edge_taken_away_is_noticed(path):
    """Without any one edge that orders data, some order gives other bits."""
    plan, executable, args = ready(path, {})
    want = executable(*args)
    for edge in plan.body.edges:
        if edge.hazard in ORDERED_BY_DATA:
            assert notices(without(plan, edge), args, want), f"{edge} is not needed"


def without(plan, edge):
    """Return the plan without `edge`, but with all order that only led through it.

    Edges are transitively reduced: taking one away must not free others.
    """
    body = plan.body
    through = [
        replace(edge, src=src, dst=dst)
        for src, dst in [
            *((e.src, edge.dst) for e in body.edges if e.dst == edge.src),
            *((edge.src, e.dst) for e in body.edges if e.src == edge.dst),
        ]
    ]
    kept = tuple(e for e in body.edges if e is not edge)
    return replace(plan, body=replace(body, edges=(*kept, *through)))


def notices(plan, args, want):
    executable = HostExecutable(plan, elided="random:0")
    rng = Random(0)
    return any(not same_bits(executable.run_random(rng, args), want) for _ in range(TRIES))
