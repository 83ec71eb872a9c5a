"""Driver calls that fail in the middle of a run: told, and the calls after it are right."""

from __future__ import annotations

from random import Random

import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda import budget as budgets
from hlo2graph.backends.cuda import built, kept_graph
from hlo2graph.backends.cuda.budget import GraphBudget
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.pointers import STRATEGIES, cache
from tests.fake_cuda import FakeDriver, FakeLibrary, fake
from tests.placements import PROGRAMS, Caller

__all__ = ["fake"]  # a fixture

ERRORS = (
    real.CUresult.CUDA_ERROR_OUT_OF_MEMORY,
    real.CUresult.CUDA_ERROR_NOT_SUPPORTED,
    real.CUresult.CUDA_ERROR_UNKNOWN,
)
NEVER = ("Free", "Destroy", "GetErrorString", "Query")  # nobody looks, or it is no failure there
PATIENCE = 12  # driver calls until one fails


class Faults:
    """Lets one driver call fail, so many calls ahead, while calls are made through `run`."""

    def __init__(self, seed):
        self.rng, self.ahead, self.failed = Random(seed), None, ""
        self.arity = {}  # how many values a function of the driver gives

    def install(self, monkeypatch):
        for kind in (*FakeDriver.__mro__[:-1], FakeLibrary):
            for name, inner in list(vars(kind).items()):
                if name.startswith("cu") and not any(word in name for word in NEVER):
                    monkeypatch.setattr(kind, name, self.wrapped(name, inner))

    def wrapped(self, name, inner):
        def call(driver, *args):
            if self.is_due(name, driver):
                error = self.rng.choice(ERRORS)
                if isinstance(driver, FakeLibrary):
                    return int(error)
                return (error, *[None] * (self.arity[name] - 1))
            found = inner(driver, *args)
            self.arity[name] = len(found) if isinstance(found, tuple) else 1
            return found

        return call

    def is_due(self, name, driver):
        if self.ahead is None or name not in self.arity:
            return False
        self.ahead -= 1
        if self.ahead >= 0:
            return False
        self.ahead, self.failed = None, name
        return True

    def around(self, run):
        def faulty(*args, **options):
            self.failed = ""
            self.ahead = self.rng.choice((None, self.rng.randrange(PATIENCE)))
            try:
                return run(*args, **options)
            finally:
                self.ahead = None

        return faulty


FEWEST = 8  # calls of 80 that a fault must have reached, or this tests little


def calls_with_faults(exe, name, faults, other=None):
    """Call with arrays in all sorts of places while driver calls fail; return how many refused."""
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    caller = Caller(exe, reference, 3)
    rival = None if other is None else Caller(other, reference, 4)
    for _ in range(20):
        caller.call()
    exe.run = faults.around(exe.run)
    refused = 0
    for turn in range(80):
        if rival is not None and turn % 2:
            rival.call()
        try:
            caller.call()
        except (h2g.BackendError, h2g.HloError):
            assert faults.failed
            refused += 1
            caller.results = None
    return refused


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["donated", "switch", "copies", "matmuls"])
def test_any_driver_call_may_fail(fake, monkeypatch, name, strategy):
    faults = Faults(4)
    faults.install(monkeypatch)
    _, exe = fake(PROGRAMS[name], pointers=strategy, library=True, instances=3)
    assert calls_with_faults(exe, name, faults) >= FEWEST


@pytest.mark.parametrize("options", [{}, {"capture": "-copy"}, {"temporaries": "graph"}], ids=str)
@pytest.mark.parametrize("name", ["donated", "loop"])
def test_also_where_each_call_drops_the_graphs_of_another(fake, monkeypatch, name, options):
    faults = Faults(5)
    faults.install(monkeypatch)
    budget = GraphBudget()
    for module in (budgets, built, cache, kept_graph):
        monkeypatch.setattr(module, "BUDGET", budget)
    h2g.set_graph_budget(0)
    _, exe = fake(PROGRAMS[name], pointers="auto", **options)
    assert calls_with_faults(exe, name, faults, CudaExecutable(exe.plan)) >= FEWEST
    assert budget.memory().rebuilt > 20
