"""Strategies for arrays that move, on a CUDA driver that runs on the host."""

from __future__ import annotations

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.pointers import STRATEGIES
from tests.fake_cuda import fake
from tests.placements import PROGRAMS, Caller

__all__ = ["fake"]  # a fixture


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls(fake, name, strategy):
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    for seed in range(3):
        for options in ({}, {"unroll_loops": "never", "multiprocessors": 0}):
            _, exe = fake(PROGRAMS[name], seed=seed, pointers=strategy, **options)
            caller = Caller(exe, reference, seed)
            for _ in range(15):
                caller.call()
