"""The limit on what instantiated graphs take, and compiled files, on a real GPU."""

from __future__ import annotations

import gc
from random import Random

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.cache import VARIABLE
from hlo2graph.backends.cuda.memory import free_bytes
from hlo2graph.inspect.compare import same_bits
from tests.placements import PROGRAMS
from tests.test_cuda_graph import DIAMOND, X

MODULES = 200


@pytest.fixture(autouse=True)
def unlimited():
    gc.collect()
    yield
    h2g.set_graph_budget(None)


def test_two_hundred_modules_alive():
    plan = h2g.plan(DIAMOND, target="sm_90")
    exes = [h2g.compile(plan, "cuda")]
    (want,) = exes[0](X)
    h2g.set_graph_budget(1 << 20)
    exes += [h2g.compile(plan, "cuda") for _ in range(MODULES - 1)]
    rng = Random(0)
    for _ in range(MODULES):
        assert same_bits(rng.choice(exes)(X), [want])
    before = free_bytes()
    for _ in range(1000):
        assert same_bits(rng.choice(exes)(X), [want])
        assert h2g.graph_memory().size <= 1 << 20
    print(h2g.graph_memory().graphs, "graphs;", f"{before - free_bytes():,} bytes more after")
    assert before - free_bytes() < 8 << 20
    assert all(same_bits(exe(X), [want]) for exe in exes)


def test_results_on_the_device_outlive_the_graph_that_made_them():
    a, b = (h2g.compile(DIAMOND, "cuda") for _ in range(2))
    want = a(X)
    inputs = a.put(X), b.put(X)
    h2g.set_graph_budget(0)
    for _ in range(50):
        found = [exe(*given) for exe, given in zip((a, b), inputs, strict=True)]
        assert all(same_bits([np.asarray(x) for x in got], want) for got in found)


@pytest.mark.parametrize("pointers", ["copy", "table"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_files(name, pointers, tmp_path, monkeypatch):
    executable = h2g.compile(PROGRAMS[name], "cuda", pointers=pointers)
    path = tmp_path / "model.h2g"
    h2g.save(executable, path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    monkeypatch.setattr("hlo2graph.backends.cuda.compiler._compile", None)
    loaded = h2g.load(path)
    rng = np.random.default_rng(0)
    args = [
        np.asarray(rng.integers(0, 3, s), d) if np.dtype(d) != bool else np.bool_(True)
        for _, d, s in executable.inputs
    ]
    for _ in range(3):
        assert same_bits(loaded(*args), executable(*args))
