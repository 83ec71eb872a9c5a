"""Samples and random programs in graphs in part: the bits of the serial stream and of one graph."""

from __future__ import annotations

from random import Random

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.device_check import poisoned_run
from hlo2graph.options import TEMPORARIES
from tests.agreement import arguments_of
from tests.fake_cuda import fake
from tests.placements import PROGRAMS
from tests.random_modules import random_module
from tests.test_cuda_samples import RUNNING, SAMPLES

__all__ = ["fake"]  # a fixture

POLICIES = ("temps", "loops:1", "-while,-conditional", "-kernel", "copy,kernel", "-copy", "-fill")


def agrees(exe, args):
    """The graphs and lone thunks give the bits of one graph and of the serial stream."""
    want = poisoned_run(exe, "serial", args)
    assert same_bits(poisoned_run(exe, "chain", args), want)
    for _ in range(2):
        assert same_bits(poisoned_run(exe, "graph", args), want)


@pytest.mark.parametrize("at", range(len(RUNNING)), ids=lambda at: RUNNING[at].stem)
def test_samples(fake, at):
    program = h2g.parse(RUNNING[at].read_text(), RUNNING[at].name)
    for k in range(3):
        _, exe = fake(
            program,
            seed=k,
            fuse=("none", "default")[k % 2],
            capture=f"{POLICIES[(at + 2 * k) % len(POLICIES)]},min:{1 + k}",
            temporaries=TEMPORARIES[(at + k) % 3],
        )
        agrees(exe, random_inputs(exe.plan.inputs, k))


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(fake, seed):
    rng = Random(seed)
    text = random_module(rng, rng.choice((4, 8, 16)))
    args = arguments_of(text)
    for k in range(3):
        _, exe = fake(
            text,
            seed=k,
            fuse=rng.choice(("none", "default")),
            unroll_loops=rng.choice(("auto", "never")),
            capture=f"{rng.choice(POLICIES)},min:{rng.choice((1, 2, 4))}",
            temporaries=rng.choice(TEMPORARIES),
        )
        agrees(exe, args)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.thunks")), ids=lambda p: p.stem)
def test_thunk_sequences(fake, path):
    """Their results may lie among temporaries, and those of branches elsewhere than they should."""
    found, _ = fake(PROGRAMS["diamond"])
    plan = h2g.plan(path.read_text())
    found.load(plan)
    for k, capture in enumerate((*POLICIES, "all")):
        exe = CudaExecutable(plan, capture=f"{capture},min:1", temporaries=TEMPORARIES[k % 3])
        agrees(exe, random_inputs(plan.inputs, k))
