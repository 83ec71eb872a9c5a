"""Routes of calls, tried out on an array of bytes: where arguments and results may share memory."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.ports import ports_of
from hlo2graph.backends.cuda.route import Brought, Move, Router, in_waves
from hlo2graph.backends.cuda.steps import StepSequence
from hlo2graph.errors import InputError

PROGRAM = """
HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }

ENTRY main {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  x = f32[16] parameter(2)
  y = f32[8] parameter(3)
  s = f32[8] slice(x), slice={[0:8]}
  r = f32[8] add(a, y)
  q = f32[8] multiply(b, s)
  p = f32[8] subtract(y, s)
  o = f32[16] negate(x)
  ROOT t = (f32[8], f32[8], f32[8], f32[16]) tuple(r, q, p, o)
}
"""
PLAN = h2g.plan(PROGRAM, target="sm_90", fuse="none")
PORTS = ports_of(PLAN, StepSequence((), ()))
OUTSIDE = 512  # bytes of the callers' own, first of all


class Machine:
    """Bytes, of which the plan's own memory comes behind the callers'."""

    def __init__(self, rng):
        self.bytes = np.frombuffer(rng.randbytes(8192), np.uint8).copy()
        bases, at = [], OUTSIDE
        for allocation in PLAN.allocations:
            bases.append(at)
            at += -(-allocation.size // 256) * 256
        self.home = Addresses(tuple(bases))
        self.router = Router(PLAN, PORTS, self.home)

    def read(self, address, size):
        return self.bytes[address : address + size].copy()

    def write(self, address, data):
        self.bytes[address : address + len(data)] = data

    def move(self, moves):
        """Copy in waves, each backwards, a circle through other memory."""
        waves, circle = in_waves(moves)
        for wave in waves:
            for m, n in product(wave, wave):
                source = self.bytes[m.source : m.source + m.size]
                assert not np.shares_memory(source, self.bytes[n.target : n.target + n.size])
            for m in reversed(wave):
                self.write(m.target, self.bytes[m.source : m.source + m.size])
        held = [self.read(m.source, m.size) for m in circle]
        for m, data in zip(circle, held, strict=True):
            self.write(m.target, data)

    def run(self, placement, rng):
        """Read what is overwritten, spoil all that is written, only then read the other inputs."""
        values = {}
        for written in (True, False):
            for port, at in zip(PORTS, placement, strict=True):
                if port.input is not None and port.is_written == written:
                    values[port.input] = self.read(at, port.size)
            if written:
                for port, at in zip(PORTS, placement, strict=True):
                    if port.is_written:
                        self.write(at, np.frombuffer(rng.randbytes(port.size), np.uint8))
        for port, at in zip(PORTS, placement, strict=True):
            assert at % port.alignment == 0
            if port.output is not None:
                self.write(at, computed(port.output, values))


def computed(output, values):
    """Return some bytes that depend on every input."""
    size = PLAN.outputs[output].slice.size
    total = sum((k + 2) * int(v.astype(int).sum()) for k, v in values.items())
    return ((np.arange(size) * (output + 3) + total) % 251).astype(np.uint8)


def places(rng, home, bound):
    """Return an address for a leaf: outside, or in the memory of the plan itself."""
    kind = rng.random()
    if kind < 0.6:
        return rng.randrange(0, OUTSIDE - bound.slice.size, rng.choice((4, 16)))
    other = rng.choice([*PLAN.inputs, *PLAN.outputs])
    return home.of(other.slice) + (rng.choice((0, 0, 16)) if other.slice.size < 200 else 0)


@pytest.mark.parametrize("first", range(0, 3000, 250))
def test_results_are_those_of_the_arguments(first):
    for seed in range(first, first + 250):
        try_one(Random(seed))


def try_one(rng):
    machine = Machine(rng)
    ins = [None if rng.random() < 0.2 else places(rng, machine.home, b) for b in PLAN.inputs]
    outs = [None if rng.random() < 0.6 else places(rng, machine.home, b) for b in PLAN.outputs]
    donated = tuple(k for k in PLAN.donated if rng.random() < 0.5)
    values = {
        k: np.frombuffer(rng.randbytes(b.slice.size), np.uint8)
        if ins[k] is None
        else machine.read(ins[k], b.slice.size)
        for k, b in enumerate(PLAN.inputs)
    }
    want = [computed(k, values) for k in range(len(PLAN.outputs))]
    before = machine.bytes.copy()
    try:
        route = machine.router.route(Brought(tuple(ins), tuple(outs), donated))
    except InputError:
        spans = [
            (machine.home.of(b.slice) if at is None else at, b.slice.size)
            for at, b in zip(outs, PLAN.outputs, strict=True)
        ]
        assert any(
            a < b + size and b < a + length
            for k, (a, length) in enumerate(spans)
            for b, size in spans[:k]
        )
        return
    machine.move(route.before)
    for k, at in enumerate(ins):
        if at is None:
            machine.write(route.inputs[k], values[k])
    machine.run(route.placement, rng)
    machine.move(route.after)
    for k, at in enumerate(route.results):
        assert np.array_equal(machine.read(at, len(want[k])), want[k])
        assert outs[k] is None or at == outs[k]
    may_change = [(at, b) for at, b in zip(outs, PLAN.outputs, strict=True) if at is not None]
    may_change += [(ins[k], PLAN.inputs[k]) for k in donated if ins[k] is not None]
    held = np.ones(OUTSIDE, bool)
    for at, bound in may_change:
        held[at : at + bound.slice.size] = False
    assert np.array_equal(machine.bytes[:OUTSIDE][held], before[:OUTSIDE][held])


ALIAS = PROGRAM[PROGRAM.index(", input_output") : PROGRAM.index("\n\nENTRY")]
PLAIN = h2g.plan(PROGRAM.replace(ALIAS, ""), target="sm_90", fuse="none")


def drawn(rng, home, leaves, end):
    """Return addresses for leaves: anywhere before `end`, some in their own memory."""
    chance = rng.choice((0.0, 0.1))
    return tuple(
        home.of(b.slice) if rng.random() < chance else rng.randrange(0, end, rng.choice((8, 16)))
        for b in leaves
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("plan", [PLAIN, PLAN], ids=["plain", "in place"])
def test_straight_routes_are_those_that_copy_nothing(plan, turned):
    ports = ports_of(plan, StepSequence((), ()))
    ports, found = ports[::-1] if turned else ports, Counter()
    for seed in range(2000):
        rng = Random(seed)
        begin = rng.choice((0, OUTSIDE))  # of the plan's memory
        home = Addresses(tuple(begin + 256 * k for k in range(len(plan.allocations))))
        router, end = Router(plan, ports, home), 256 * 8 * len(plan.allocations)
        inputs = drawn(rng, home, plan.inputs, end)
        results = drawn(rng, home, plan.outputs, end) if rng.random() < 0.5 else None
        donated = tuple(k for k in plan.donated if rng.random() < 0.7)
        if results is not None and plan.donated and rng.random() < 0.8:
            results = (*inputs[:2], *results[2:])
        straight = router.straight(inputs, results, donated)
        try:
            whole = router.route(Brought(inputs, results or (None,) * 4, donated))
        except InputError:
            assert straight is None
            continue
        copies = whole.before or whole.after or whole.inputs != inputs
        at_home = [*zip(results or (), plan.outputs, strict=False)]
        at_home += [(inputs[k], plan.inputs[k]) for k in plan.donated]
        near = any(abs(at - home.of(b.slice)) < b.slice.size for at, b in at_home)
        found[results is None, straight is not None] += 1
        assert straight == (None if copies or near else whole)
    assert len(found) == 4
    assert min(found.values()) > 20


def test_a_lone_donated_argument_is_used_where_it_lies():
    machine = Machine(Random(0))
    route = machine.router.route(Brought((0, None, None, None), (None,) * 4, (0,)))
    assert route.results[0] == 0
    assert not route.before
    kept = machine.router.route(Brought((0, None, None, None), (None,) * 4))
    assert kept.results[0] == machine.router.home[0]
    assert kept.before == (Move(0, machine.router.home[0], 32),)


def test_results_that_would_share_memory_are_refused():
    machine = Machine(Random(0))
    with pytest.raises(InputError, match="results q and p would share memory"):
        machine.router.route(Brought((None,) * 4, (None, 0, 16, None)))


def test_moves_of_a_circle_are_found():
    swap = (Move(0, 16, 16), Move(16, 0, 16))
    assert in_waves(swap) == ((), swap)
    chain = (Move(0, 16, 16), Move(16, 32, 16), Move(64, 48, 16))
    assert in_waves(chain) == ((chain[1:], chain[:1]), ())
