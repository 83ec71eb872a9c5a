"""Where temporaries live: an arena of one's own, the graph's, or one that executables share."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.pointers import STRATEGIES
from hlo2graph.backends.cuda.temporaries.layout import layout_of
from hlo2graph.errors import BackendError
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import TEMPORARIES
from tests.blocks import put
from tests.fake_cuda import fake
from tests.placements import PROGRAMS, Caller
from tests.test_cuda_graph import DIAMOND, X, host

__all__ = ["fake"]  # a fixture

LARGE = """
HloModule large

ENTRY main {
  x = f32[50000] parameter(0)
  p = f32[50000] negate(x)
  ROOT q = f32[50000] abs(p)
}
"""
WIDE = np.linspace(-1, 1, 50000, dtype=np.float32)  # its arena is of several pieces of a shared one
OTHERS = [name for name in TEMPORARIES if name != "persistent"]


@pytest.mark.parametrize("temporaries", OTHERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls(fake, name, temporaries):
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    for seed, strategy in enumerate(STRATEGIES):
        options = {"library": seed % 2 == 0, "unroll_loops": ("auto", "never")[seed % 3 == 0]}
        capture = ("all", "temps")[seed % 2]
        _, exe = fake(
            PROGRAMS[name],
            seed=seed,
            pointers=strategy,
            temporaries=temporaries,
            capture=capture,
            **options,
        )
        caller = Caller(exe, reference, seed)
        for _ in range(4):
            caller.call()


@pytest.mark.parametrize("temporaries", TEMPORARIES)
def test_every_mode_has_the_bits_of_the_serial_stream(fake, temporaries):
    for capture in ("all", "temps"):
        _, exe = fake(PROGRAMS["nested"], temporaries=temporaries, capture=capture)
        args = [np.ones(shape, dtype) for _, dtype, shape in exe.inputs]
        found = {}
        for mode in ("serial", "chain", "graph", "graph"):
            exe.write_inputs(args)
            exe.poison()
            exe.execute(mode)
            found[mode] = exe.read_outputs()
        assert same_bits(found["graph"], found["serial"])
        assert same_bits(found["chain"], found["serial"])


def test_an_instance_has_no_arena_where_the_graph_allocates_it(fake):
    found, exe = fake(DIAMOND, temporaries="graph")
    (y,) = exe(put(X))
    assert np.array_equal(np.asarray(y), host(DIAMOND, X)[0])
    kinds = [node.kind for node in found.graphs[int(exe.graph.graph)].nodes.values()]
    assert (kinds[0], kinds[-1]) == ("alloc", "free")
    size = layout_of(exe.plan).size
    assert size
    own = fake(DIAMOND)[1].buffers.total
    assert exe.buffers.total == own - size


def test_a_graph_that_allocates_is_instantiated_anew_where_others_are_updated(fake):
    found, exe = fake(DIAMOND, temporaries="graph", pointers="recapture")
    for k in range(3):
        (y,) = exe(put(X + k))
        assert np.array_equal(np.asarray(y), host(DIAMOND, X + k)[0])
    assert "cuGraphExecUpdate" not in found.api
    assert found.api.count("cuGraphInstantiateWithParams") == 4


def two(fake, **options):
    """Return two executables of one driver, which share an arena; the second needs a larger one."""
    found, small = fake(DIAMOND, temporaries="shared", **options)
    plan = h2g.plan(LARGE, target="sm_90", fuse="none")
    found.load(plan)
    large = CudaExecutable(plan, temporaries="shared")
    return found, small, large


def test_one_arena_serves_all_that_share_it(fake):
    _, small, large = two(fake)
    temp = next(iter(layout_of(small.plan).offsets)), next(iter(layout_of(large.plan).offsets))
    assert small.addresses.bases[temp[0]] == large.addresses.bases[temp[1]]
    for k in range(3):
        assert np.array_equal(small(X + k)[0], host(DIAMOND, X + k)[0])
        assert np.array_equal(large(WIDE + k)[0], host(LARGE, WIDE + k)[0])


def test_a_shared_arena_goes_with_the_last_that_shares_it(fake):
    found, small, large = two(fake)
    arena = small.addresses.bases[next(iter(layout_of(small.plan).offsets))]
    del small
    gc.collect()
    assert found.is_live(arena, 1)
    del large
    gc.collect()
    assert not found.is_live(arena, 1)
    assert not found.created


def test_a_run_waits_for_the_one_before_it_in_the_arena(fake):
    found, small, large = two(fake)
    waits = []
    found.cuStreamWaitEvent = lambda stream, event, _: (
        waits.append(int(stream)) or (real.CUresult(0),)
    )
    small(put(X))
    assert not waits
    wide = put(WIDE)
    large(wide)
    large(wide)
    assert waits == [int(large.stream)]
    small.run([put(X)], stream=71)
    assert waits[1:] == [71, 71]  # for the instance's own stream, and for the arena


def test_threads_that_break_the_promise_take_turns(fake):
    found, small, large = two(fake)
    inside, most = [0], [0]
    run_exec = found.run_exec

    def slow(exec_):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        pause.wait(0.002)
        run_exec(exec_)
        inside[0] -= 1

    pause = threading.Event()
    found.run_exec = slow
    wrong = []

    def work(exe, args, want):
        results = [exe(*args)[0] for _ in range(10)]
        wrong.extend(exe.plan.name for result in results if not np.array_equal(result, want))

    threads = [
        threading.Thread(target=work, args=(small, [X], host(DIAMOND, X)[0])),
        threading.Thread(target=work, args=(large, [WIDE], host(LARGE, WIDE)[0])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert most == [1]


def test_a_shared_arena_that_the_gpu_has_no_room_for(fake):
    found, small = fake(DIAMOND, temporaries="shared")
    found.fail["cuMemCreate"] = [real.CUresult.CUDA_ERROR_OUT_OF_MEMORY] * 2
    plan = h2g.plan(LARGE, target="sm_90", fuse="none")
    found.load(plan)
    with pytest.raises(BackendError, match=r"OUT_OF_MEMORY .*adding 196,608 bytes to a shared"):
        CudaExecutable(plan, temporaries="shared")
    assert np.array_equal(small(X)[0], host(DIAMOND, X)[0])


def test_what_graphs_left_unused_is_given_back_first(fake):
    found, _ = fake(DIAMOND, temporaries="shared")
    found.fail["cuMemCreate"] = [real.CUresult.CUDA_ERROR_OUT_OF_MEMORY]
    plan = h2g.plan(LARGE, target="sm_90", fuse="none")
    found.load(plan)
    CudaExecutable(plan, temporaries="shared")
    assert "cuDeviceGraphMemTrim" in found.api


def test_memory_is_told_by_what_for(fake):
    own = fake(DIAMOND)[1].memory
    size = layout_of(h2g.plan(DIAMOND, target="sm_90", fuse="none")).size
    assert (own.parameters, own.results, own.temporaries) == (16, 16, size)
    assert (own.instances, own.graphs, own.shared, own.sharers) == (1, 1, 0, ())
    assert own.driver > 0
    inside = fake(DIAMOND, temporaries="graph")[1].memory
    assert (inside.temporaries, inside.total) == (0, own.total - size)
    assert inside.in_graphs > size
    _, small, large = two(fake)
    memory = large.memory
    assert (memory.temporaries, memory.sharers) == (0, ("diamond", "large"))
    assert memory.shared == small.memory.shared >= layout_of(large.plan).size
    exe = fake(DIAMOND)[1]
    _held = exe.run([put(X)], stream=71), exe.run([put(X)], stream=72)
    assert (exe.memory.instances, exe.memory.graphs) == (2, 2)
    assert exe.memory.total == 2 * own.total


def test_programs_without_temporaries_share_nothing(fake):
    text = "HloModule n\nENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }\n"
    for temporaries in TEMPORARIES:
        found, exe = fake(text, temporaries=temporaries)
        assert np.array_equal(exe(X)[0], -X)
        assert exe.memory.sharers == ()
        assert [n.kind for n in found.graphs[int(exe.graph.graph)].nodes.values()] == ["kernel"]


def test_temporaries_that_results_are_in_stay(fake):
    text = str(h2g.plan(DIAMOND, target="sm_90", fuse="none")).replace("live-out", "temp")
    plan = h2g.plan(text)
    seen = {bound.slice.allocation for bound in plan.outputs}
    assert seen.isdisjoint(layout_of(plan).offsets)
