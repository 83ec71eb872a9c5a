"""The limit on what instantiated graphs take: nothing is lost, nothing grows."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda import budget as budgets
from hlo2graph.backends.cuda import built, kept_graph, owners
from hlo2graph.backends.cuda.budget import VARIABLE, GraphBudget, Holder, estimated_bytes
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import PlanMemory
from hlo2graph.backends.cuda.pointers import cache
from hlo2graph.backends.cuda.stamps import StampedGraph
from hlo2graph.errors import BackendError, InputError
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.cuda_runner import CudaRunner
from hlo2graph.options import POINTERS
from hlo2graph.program.plan import Allocation, AllocationKind
from tests.blocks import Block
from tests.fake_cuda import fake
from tests.placements import PROGRAMS, Caller
from tests.test_cuda_graph import DIAMOND, LOOP, X
from tests.test_temporaries import LARGE, WIDE

__all__ = ["fake"]  # a fixture

FULL = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
INSTANTIATE = "cuGraphInstantiateWithParams"
SEVERAL = """
HloModule several

ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] sine(a)
  c = f32[4] tanh(b)
  d = f32[4] cosine(c)
  e = f32[4] exponential(d)
  f = f32[4] copy(e)
  ROOT g = f32[4] add(f, a)
}
"""


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    """A budget of its own for each test: that of the process has graphs of other tests."""
    found = GraphBudget()
    for module in (budgets, built, cache, kept_graph):
        monkeypatch.setattr(module, "BUDGET", found)
    return found


@pytest.fixture
def several(fake):
    """Return a function that gives the driver and so many executables of one program."""

    def make(count, program=DIAMOND, **options):
        driver, first = fake(program, **options)
        plans = [replace(first.plan, name=f"m{k}") for k in range(count)]
        del first
        return driver, [CudaExecutable(plan, **options) for plan in plans]

    return make


def instantiated(driver):
    return driver.api.count(INSTANTIATE)


def test_two_hundred_modules_alive(several, budget):
    driver, exes = several(1)
    one = budget.size
    limit = 12 * one + 1
    h2g.set_graph_budget(limit)
    (want,) = exes[0](X)
    exes += [CudaExecutable(replace(exes[0].plan, name=f"m{k}")) for k in range(1, 200)]
    rng = Random(0)
    held = len(driver.memory)
    for _ in range(600):
        assert same_bits(rng.choice(exes)(X), [want])
        assert budget.size <= limit
        assert len(driver.execs) <= 12
    memory = h2g.graph_memory()
    assert memory.graphs == 12
    assert memory.size == budget.size <= memory.limit == limit
    assert memory.rebuilt > 400
    assert memory.dropped == 200 + memory.rebuilt - 12
    for exe in exes:
        assert same_bits(exe(X), [want])
    assert len(driver.memory) == held
    del exes, exe
    gc.collect()
    assert (h2g.graph_memory().graphs, len(driver.execs)) == (0, 0)


def test_the_one_not_launched_for_longest_goes(several, budget):
    driver, (a, b, c) = several(3)
    size = budget.size // 3
    for exe in (a, b, c, a):
        exe(X)
    h2g.set_graph_budget(2 * size)
    before = instantiated(driver)
    a(X)
    c(X)
    assert instantiated(driver) == before
    b(X)
    assert instantiated(driver) == before + 1
    c(X)
    assert instantiated(driver) == before + 1
    a(X)
    assert instantiated(driver) == before + 2


def test_lifting_it_drops_no_more(several, budget):
    driver, exes = several(4)
    h2g.set_graph_budget(0)
    assert budget.size == 0
    h2g.set_graph_budget(None)
    for _ in range(2):
        for exe in exes:
            exe(X)
    assert h2g.graph_memory().graphs == len(driver.execs) == 4
    assert h2g.graph_memory().rebuilt == 4


def test_never_in_the_middle_of_a_call(several, budget):
    _, (a, b) = several(2)
    with a._first.turn():  # as a call does
        h2g.set_graph_budget(0)
        assert h2g.graph_memory().graphs == 1
        b(X)
        assert a._first.graph.exec is not None
    h2g.set_graph_budget(0)
    assert h2g.graph_memory().graphs == 0


def test_who_calls_while_a_graph_is_dropped_waits(several):
    _, (exe,) = several(1)
    want, found = exe(X), []

    def call():
        exe.device.make_current()
        found.append(exe(X))

    with exe._first.holder.lock:  # as who drops it does
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(0.05)
        assert not found
    thread.join()
    assert same_bits(found[0], want)
    assert len(exe.strategies) == 1, "an instance more would stay for good"


def test_its_last_run_has_ended(several, budget, monkeypatch):
    driver, (a, b) = several(2)
    said = []
    holder = a._first.holder
    waiting = Holder(holder.name, holder.lock, lambda: said.append("wait"))
    a._first.graph.holder = waiting
    destroy = driver.cuGraphExecDestroy

    def watched(handle):
        said.append("destroy")
        return destroy(handle)

    monkeypatch.setattr(driver, "cuGraphExecDestroy", watched, raising=False)
    with b._first.turn():
        h2g.set_graph_budget(0)
    assert said == ["wait", "destroy"]


def test_calls_of_several_threads(several, budget):
    _, exes = several(24)
    h2g.set_graph_budget(3 * budget.size // 24)
    want = exes[0](X)
    wrong = []

    def work(seed):
        rng = Random(seed)
        exes[0].device.make_current()
        for _ in range(40):
            if not same_bits(rng.choice(exes)(X), want):
                wrong.append(seed)  # noqa: PERF401

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    h2g.set_graph_budget(budget.limit)
    assert budget.size <= budget.limit


@pytest.mark.parametrize("strategy", POINTERS)
@pytest.mark.parametrize("name", ["diamond", "loop", "nested", "donated", "matmuls"])
def test_graphs_that_go_at_every_call(name, strategy, fake, budget):
    """Each executable of two drops the other's graphs at each of its calls."""
    h2g.set_graph_budget(0)
    _, exe = fake(PROGRAMS[name], pointers=strategy, library=True)
    caller = Caller(exe, CudaExecutable(exe.plan), 3)
    for _ in range(15):
        caller.call()
    assert h2g.graph_memory().rebuilt > 12


@pytest.mark.parametrize(
    "options", [{"capture": "-copy"}, {"temporaries": "graph"}, {"temporaries": "shared"}], ids=str
)
def test_graphs_of_every_kind(options, fake, budget):
    _, exe = fake(SEVERAL, **options)
    other = CudaExecutable(exe.plan)
    want = exe(X)
    h2g.set_graph_budget(0)
    before = h2g.graph_memory().rebuilt
    for _ in range(3):
        assert same_bits(exe(X), want)
        assert same_bits(other(X), want)
    assert h2g.graph_memory().rebuilt > before + 4


def test_a_cache_grows_no_further_than_it(several, budget):
    driver, (exe, other) = several(2, pointers="cache")
    other(X)
    h2g.set_graph_budget(3 * budget.size // 2)
    want = exe(X)
    slab = Block(1 << 16)
    for k in range(40):
        x = slab.view(X, 256 * (k % 20))
        assert same_bits([np.asarray(exe(x)[0])], want)
        assert budget.size <= budget.limit
    assert len(driver.execs) == 3
    assert same_bits(other(X), want)


# ---- no memory ----------------------------------------------------------------------------------


def test_where_the_gpu_is_full_all_others_go_and_it_is_tried_once_more(several, budget):
    driver, (a, b, c) = several(3)
    h2g.set_graph_budget(0)
    h2g.set_graph_budget(None)
    a(X), b(X)
    driver.fail[INSTANTIATE] = [FULL, FULL]  # the driver's own pools are trimmed before that
    want = c(X)
    assert h2g.graph_memory().graphs == 1
    assert same_bits(a(X), want)


def test_then_it_names_who_holds_most(several, budget):
    driver, (a, b, c) = several(3)
    want = a(X)
    h2g.set_graph_budget(0)
    h2g.set_graph_budget(None)
    a(X)
    b(X)
    with a._first.turn():
        driver.fail[INSTANTIATE] = [FULL] * 4
        with pytest.raises(
            BackendError,
            match=r"OUT_OF_MEMORY.*about [\d,]+ bytes; .* are free; .*instantiated: m0 ",
        ):
            c(X)
    assert same_bits(c(X), want)
    driver.fail[INSTANTIATE] = [FULL] * 4
    with pytest.raises(BackendError, match=r"graphs that are instantiated: none"):
        b(X)
    assert same_bits(b(X), want)


@pytest.fixture
def held(monkeypatch):
    """Who holds memory; not what other tests left."""
    monkeypatch.setattr(owners, "_HELD", {})
    return lambda: {owner for owner, *_ in owners.largest_owners()}


def test_where_there_is_no_memory_it_says_how_much_is_asked_for_and_who_has_it(held, several):
    driver, (a, b) = several(2)
    driver.fail["cuMemAlloc"] = [FULL] * 2
    free, total = (f"{n:,}" for n in driver.cuMemGetInfo()[1:])
    with pytest.raises(BackendError) as found:
        CudaExecutable(a.plan)
    said, first = str(found.value), a.plan.allocations[0]
    assert f"allocating {first.size:,} bytes for {first.kind} {first.owner}" in said
    assert f"asked for {first.size:,} bytes; {free} of the GPU's {total} are free" in said
    each = f"{a.buffers.total:,} in {len(b.buffers.blocks)} blocks"
    assert f"of this process: m0 {each}, m1 {each}" in said


def test_of_many_owners_the_largest_are_named(held, several):
    several(0)
    for k in range(1, 7):
        owners.hold(k, f"m{k}", 1000 * k)
    assert "of this process: m6 6,000 in 1 block, m5 5,000 in 1 block, m4 4,000 in 1 block, " in (
        owners.room_text()
    )
    assert owners.room_text().endswith("others 6,000")


def test_memory_that_is_gone_is_nobodys(held, several):
    _, (a,) = several(1)
    assert "m0" in held()
    del a
    gc.collect()
    assert "m0" not in held()


def test_no_memory_for_results_beside_a_shared_arena(held, several):
    driver, (a,) = several(1, program=LARGE, temporaries="shared")
    inputs = a.put(WIDE)
    driver.fail["cuMemAlloc"] = [FULL] * 2
    message = (
        r"for result .*; asked for 200,000 bytes; .*: m0 .*, the shared arena [\d,]+ in 1 block$"
    )
    with pytest.raises(BackendError, match=message):
        a.run(inputs, out="fresh")
    del a, inputs
    gc.collect()
    assert "the shared arena" not in held()


def test_a_program_larger_than_the_gpu_names_what_is_largest():
    sizes = {"small": 4, "w": 4000, "x": 300, "y": 20}
    memory = [Allocation(size, AllocationKind.PARAMETER, name) for name, size in sizes.items()]
    message = (
        "take 4,324 bytes; this GPU has 4,000; the largest: 4,000 bytes for parameter w, "
        "300 bytes for parameter x, 20 bytes for parameter y$"
    )
    with pytest.raises(BackendError, match=message):
        PlanMemory(memory, 4000, None)


def test_full_while_a_graph_is_put_on_the_device(several, budget, monkeypatch):
    driver, (a, b) = several(2)
    b(X)
    h2g.set_graph_budget(0)
    h2g.set_graph_budget(None)
    b(X)
    fails = [FULL]
    monkeypatch.setattr(
        driver,
        "cuGraphUpload",
        lambda exec_, stream: (fails.pop() if fails else real.CUresult.CUDA_SUCCESS,),
        raising=False,
    )
    want = a(X)
    assert len(driver.execs) == 1
    assert same_bits(b(X), want)


def test_another_failure_is_not_tried_again(several, budget):
    driver, (a, b) = several(2)
    h2g.set_graph_budget(0)
    h2g.set_graph_budget(None)
    b(X)
    before = instantiated(driver)
    driver.fail[INSTANTIATE] = [real.CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(BackendError, match="INVALID_VALUE"):
        a(X)
    assert instantiated(driver) == before + 1
    assert h2g.graph_memory().graphs == 1


# ---- what measures and checks -------------------------------------------------------------------


def test_timing_goes_on_where_graphs_go(fake, budget):
    _, exe = fake(LOOP)
    h2g.set_graph_budget(0)
    other = CudaExecutable(exe.plan)
    args = [np.int32(0), X]
    runner = CudaRunner(exe, args)
    for mode in runner.modes:
        runner.prepare(mode)
        assert runner.launch(mode).device is not None
        other(*args)
        runner.throughput(mode, 3)


def test_an_executable_says_what_it_holds(several, budget):
    _, (a, b) = several(2)
    h2g.set_graph_budget(0)
    b(X)
    assert a.memory.graphs == a.memory.driver == 0
    assert b.memory.graphs == 1


def test_graphs_that_open_an_arena_count(fake, budget):
    """They cannot be dropped: the address of the arena is that of the others."""
    _, exe = fake(SEVERAL, temporaries="graph", capture="temps,min:1")
    want = exe(X)
    within = sum(graph.size for graph in exe.graph.graphs.values())
    around = 2 * estimated_bytes(0, 1)
    assert budget.size == exe.graph.size == within + around
    (owner,) = h2g.graph_memory().owners
    assert (owner.name, owner.graphs) == (exe.plan.name, len(exe.graph.graphs) + 2)
    assert exe.memory.graphs == owner.graphs
    h2g.set_graph_budget(0)
    assert (budget.size, exe.memory.graphs) == (around, 2)
    assert same_bits(exe(X), want)
    del exe
    gc.collect()
    assert budget.size == 0


def test_a_graph_that_writes_time_stamps_counts(fake, budget):
    driver, exe = fake(SEVERAL)
    driver.stamped = True
    before = budget.size
    stamped = StampedGraph(exe)
    assert budget.size > before
    assert [owner.graphs for owner in h2g.graph_memory().owners] == [2]
    assert stamped.run()
    del stamped
    gc.collect()
    assert budget.size == before


def test_memory_in_words(several, budget):
    _, exes = several(3)
    text = str(h2g.graph_memory())
    size = budget.size // 3
    head = f"{3 * size:,} bytes in 3 graphs, "
    assert text.startswith(head)
    assert " taken from the GPU; 0 dropped, 0 built again\n" in text
    assert f"  m0 {size:,} bytes in 1 graph\n" in text
    assert size == estimated_bytes(2, exes[0].graph.nodes)
    assert h2g.graph_memory().taken >= 3 * exes[0].memory.driver > 0
    h2g.set_graph_budget(10**6)
    assert " bytes of 1,000,000 in 3 graphs" in str(h2g.graph_memory())


@pytest.mark.parametrize(("sources", "lanes"), [(1, 1), (2, 2), (7, 7)])
def test_lanes_are_what_may_run_side_by_side(sources, lanes, fake):
    rows = "\n".join(f"  i{k} = f32[4] sine(x)\n  j{k} = f32[4] tanh(i{k})" for k in range(sources))
    results = ", ".join(f"j{k}" for k in range(sources))
    shapes = ", ".join(["f32[4]"] * sources)
    text = f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n{rows}\n"
    _, exe = fake(f"{text}  ROOT t = ({shapes}) tuple({results})\n}}")
    assert exe.graph.size == estimated_bytes(lanes, exe.graph.nodes)
    assert exe.chain.size == estimated_bytes(1, exe.chain.nodes)


# ---- setting it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "limit"), [("64KiB", 65536), ("1.5MB", 1500000), ("", None)])
def test_the_environment_sets_it(text, limit, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    assert h2g.graph_memory().limit == limit
    h2g.set_graph_budget(7)
    assert h2g.graph_memory().limit == 7


def test_an_environment_that_says_no_size(fake, monkeypatch):
    monkeypatch.setenv(VARIABLE, "lots")
    with pytest.raises(InputError, match=f"{VARIABLE}: 'lots' is no size; write bytes"):
        fake(DIAMOND)


@pytest.mark.parametrize("limit", [-1, 1.5, "64MiB", [3]])
def test_what_is_no_budget(limit):
    with pytest.raises(InputError, match="a graph budget is a number of bytes or None, not"):
        h2g.set_graph_budget(limit)


def test_without_a_gpu_it_can_be_set():
    h2g.set_graph_budget(np.int64(5))
    assert str(h2g.graph_memory()) == (
        "0 bytes of 5 in 0 graphs, 0 taken from the GPU; 0 dropped, 0 built again"
    )
