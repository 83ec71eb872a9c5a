"""Calls of a cuda executable: what is checked, where results are, threads, streams, failures."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as real

from hlo2graph.backends.cuda import call, dlpack, executable, kept_alive
from hlo2graph.backends.cuda import ours as ours_module
from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.memory import DeviceMemory, Event
from hlo2graph.errors import BackendError, InputError
from hlo2graph.hlo import DTYPES, Layout, Shape
from tests.blocks import Block, View, put
from tests.fake_cuda import fake
from tests.placements import DONATED
from tests.test_cuda_graph import DIAMOND, LOOP, X, host

__all__ = ["fake"]  # a fixture

S = np.arange(64, dtype=np.float32)


def diamond(x):
    return host(DIAMOND, x)[0]


def ours(exe, value):
    """Return a device array of the executable's kind that is not its own."""
    leaf = exe.plan.inputs[0]
    block = DeviceMemory(leaf.slice.size, "")
    array = DeviceArray(block.address, leaf.shape, exe.device, exe.stream, block)
    array.fill(value)
    return array


def test_arguments_that_did_not_change_are_recognised(fake):
    found, exe = fake(DIAMOND, pointers="update")
    arrays = exe.put(X)
    exe(*arrays)
    before = len(found.api)
    (y,) = exe(*arrays)
    assert found.api[before:] == ["cuGraphLaunch"]
    assert np.array_equal(np.asarray(y), diamond(X))


def test_results_of_a_program_without_arguments_are_on_the_host_at_each_call(fake):
    _, exe = fake("""HloModule m
ENTRY e { ROOT i = s32[4] iota(), iota_dimension=0 }
""")
    for _ in range(3):
        (found,) = exe()
        assert isinstance(found, np.ndarray)
        assert found.tolist() == [0, 1, 2, 3]
        (fresh,) = exe.run((), out="fresh")
        assert type(fresh) is DeviceArray


def test_sets_of_arrays_that_take_turns_are_recognised_and_not_kept_alive(fake, monkeypatch):
    _, exe = fake(DIAMOND, pointers="cache")
    sets = [ours(exe, X), ours(exe, X + 1)]
    for array in (*sets, *sets):
        exe(array)
    with monkeypatch.context() as without:
        without.setattr(call.ArgumentReader, "__call__", None)
        without.setattr(ours_module.Ours, "addresses", None)
        for value, array in zip((X, X + 1, X), (*sets, sets[0]), strict=True):
            assert np.array_equal(np.asarray(exe(array)[0]), diamond(value))
    second = weakref.ref(sets.pop())
    del array
    for _ in range(2):  # what earlier calls used is let go at a later one
        exe(X)
    gc.collect()
    assert second() is None


def test_an_array_that_another_stream_wrote_since_is_waited_for(fake, monkeypatch):
    _, exe = fake(DIAMOND, pointers="update")
    x, waits = ours(exe, X), []
    monkeypatch.setattr(call, "let_wait", lambda waiting, running: waits.append(waiting))
    exe(x)
    exe(x)
    assert waits == []
    exe.run([put(X)], out=[x], stream=71)
    assert waits == [71]
    for calls in (2, 3):  # it stays with that stream
        exe(x)
        assert waits[1:] == [int(exe.stream)] * (calls - 1)


def test_an_array_that_was_written_since_is_read_anew(fake):
    _, exe = fake(DIAMOND)
    x = put(X)
    exe(x)
    x.set(X + 1)
    assert np.array_equal(np.asarray(exe(x)[0]), diamond(X + 1))


class OfJax:
    """An array as JAX has them, that lends what one of ours holds."""

    def __init__(self, array, ready=True):
        self.array, self.ready, self.lent, self.gone = array, ready, 0, False

    def is_deleted(self):
        return self.gone

    def is_ready(self):
        return self.ready

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        if self.gone:
            raise RuntimeError("it was deleted")
        assert self.ready or stream is not None
        self.lent += 1
        return self.array.__dlpack__(stream=stream)


OfJax.__module__ = "jaxlib._jax"


def test_an_array_of_jax_is_recognised_until_it_is_deleted(fake):
    _, exe = fake(DIAMOND, pointers="update")
    x = OfJax(ours(exe, X))
    for _ in range(3):
        assert np.array_equal(np.asarray(exe(x)[0]), diamond(X))
    assert x.lent == 1
    x.gone = True
    with pytest.raises(InputError, match="OfJax does not hand it over: RuntimeError: it was"):
        exe(x)
    x.gone = False
    exe(x)
    assert x.lent == 2
    gone = weakref.ref(x)
    del x
    exe(X)
    exe(X)
    assert gone() is None


def test_an_array_of_jax_that_is_not_ready_is_waited_for(fake):
    _, exe = fake(DIAMOND)
    assert np.array_equal(np.asarray(exe(OfJax(ours(exe, X), ready=False))[0]), diamond(X))


@pytest.mark.parametrize("strides", [True, False])
def test_what_a_capsule_says_is_held_against_the_leaf(fake, monkeypatch, strides):
    _, exe = fake("HloModule m\n\nENTRY e {\n  x = f32[2,3]{1,0} parameter(0)\n"
                  "  ROOT y = f32[2,3]{1,0} negate(x)\n}")  # fmt: skip
    block = DeviceMemory(64, "")

    def lent(dtype, dims, order):
        layout = Shape(DTYPES[dtype], dims, Layout(order))
        array = DeviceArray(block.address, layout, exe.device, exe.stream, block)
        capsule = array.__dlpack__()
        if not strides:
            place = dlpack._python.PyCapsule_GetPointer(capsule, dlpack.NAME)
            dlpack._Managed.from_address(place).tensor.strides = None
        return OfJax(SimpleNamespace(__dlpack__=lambda stream: capsule))

    with monkeypatch.context() as without:
        without.setattr(dlpack, "read_capsule", None)
        exe(lent("f32", (2, 3), (1, 0)))
    for other, message in (
        (("s32", (2, 3), (1, 0)), "takes dtype float32, got int32"),
        (("f32", (3, 2), (1, 0)), r"takes shape \(2, 3\), got \(3, 2\)"),
        (("f32", (6,), (0,)), r"takes shape \(2, 3\), got \(6,\)"),
    ):
        with pytest.raises(InputError, match=message):
            exe(lent(*other))
    if strides:
        with pytest.raises(InputError, match=r"strides \(12, 4\) in bytes; the device .* \(4, 8\)"):
            exe(lent("f32", (2, 3), (0, 1)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (lambda: put(np.zeros(4, np.float64)), "takes dtype float32, got float64"),
        (lambda: put(np.zeros(5, np.float32)), r"takes shape \(4,\), got \(5,\)"),
        (lambda: put(X, strides=(8,)), r"laid out with strides \(4,\) in bytes"),
        (lambda: np.zeros(3, np.float32), r"takes shape \(4,\), got \(3,\)"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(fake, array, message):
    found, exe = fake(DIAMOND)
    with pytest.raises(InputError, match=message):
        exe(array())
    assert "cuGraphLaunch" not in found.api
    assert np.array_equal(exe(X)[0], diamond(X))


def interface(**changes):
    """Return an array on the device that describes itself otherwise; None leaves a word out."""
    array = put(X)
    found = array.__cuda_array_interface__ | changes
    array.__cuda_array_interface__ = {k: v for k, v in found.items() if v is not None}
    return array


class Lender:
    """An array that does not hand over what it holds."""

    def __init__(self, where=(2, 0), given=None):
        self.where, self.given = where, given

    def __dlpack_device__(self):
        return self._or_raised(self.where)

    def __dlpack__(self, stream=None):
        return self._or_raised(self.given)

    def _or_raised(self, given):
        if isinstance(given, Exception):
            raise given
        return given


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (lambda: interface(data=None), "View does not hand it over: KeyError: 'data'"),
        (lambda: interface(data=("x", False)), "View does not hand it over: ValueError"),
        (lambda: interface(data=(0, False)), "got an array at address 0"),
        (lambda: interface(shape=None), "View does not hand it over: KeyError: 'shape'"),
        (lambda: interface(strides=(4, 4)), "got an array of 2 strides"),
        (lambda: interface(typestr="zz"), "got data type 'zz' not understood"),
        (lambda: interface(stream=-5), "View does not hand it over: OverflowError"),
        (lambda: interface(mask=put(X)), "got an array with a mask"),
        (lambda: Lender(), "Lender does not hand it over: ValueError"),
        (lambda: Lender(given=RuntimeError("deleted")), "not hand it over: RuntimeError: deleted"),
        (lambda: Lender(given=BufferError("needs a gradient")), "got needs a gradient"),
        (lambda: Lender(where=(2, 1)), "got an array on GPU 1, not on GPU 0"),
        (lambda: Lender(where=RuntimeError("gone")), "Lender does not tell where it is: gone"),
        (lambda: Lender(where=None), "Lender does not tell where it is"),
        (lambda: np.ma.masked_array(X, X > 1), "a masked array has no values"),
    ],
)
def test_an_array_that_cannot_be_had_is_refused(fake, array, message):
    found, exe = fake(DIAMOND)
    with pytest.raises(InputError, match=message):
        exe(array())
    assert "cuGraphLaunch" not in found.api


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (None, {}, "the arguments are a sequence of arrays, not NoneType"),
        ([X], {"out": 5}, "out is fresh, or an array or None for each result, not 5"),
        ([X], {"donate": 1.5}, "donate is true, false or positions of inputs, not 1.5"),
        ([X], {"stream": -1}, "stream is a handle or has __cuda_stream__, not -1"),
        ([X], {"stream": 1 << 64}, "stream is a handle"),
        ([X], {"stream": 2.5}, "stream is a handle or has __cuda_stream__, not 2.5"),
        ([X], {"out": [X.astype(">f4")]}, r"got float32\[4\] in the other byte order"),
        ([X], {"out": [np.broadcast_to(X[:1], 4)]}, r"got read-only float32\[4\]"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(fake, args, options, message):
    _, exe = fake(DIAMOND)
    with pytest.raises(InputError, match=message):
        exe.run(args, **options)


def test_arguments_come_in_any_sequence(fake):
    _, exe = fake(DIAMOND)
    for args in ([X], (X,), iter([X]), np.stack([X])):
        assert np.array_equal(exe.run(args)[0], diamond(X))


@pytest.mark.parametrize(("count", "times"), [(1, 1), (2, 3)])
def test_where_there_are_other_gpus_each_call_makes_its_own_current(
    fake, monkeypatch, count, times
):
    monkeypatch.setattr(executable, "device_count", lambda: count)
    found, exe = fake(DIAMOND)
    made, set_current = [], found.cuCtxSetCurrent
    found.cuCtxSetCurrent = lambda context: made.append(context) or set_current(context)
    for _ in range(3):
        exe(X)
    assert len(made) == times


def test_an_address_that_is_not_on_the_gpu_is_refused(fake):
    _, exe = fake(DIAMOND)
    x = put(X)
    x.__cuda_array_interface__["data"] = (X.ctypes.data, False)
    with pytest.raises(InputError, match=r"input 0 .* got an array elsewhere, not on this GPU"):
        exe(x)


def test_results_stay_until_the_next_call(fake):
    _, exe = fake(DIAMOND)
    (x,) = exe.put(X)
    (y,) = exe(x)
    (z,) = exe(put(X + 1))
    assert z is y
    assert np.array_equal(np.asarray(y), diamond(X + 1))


def test_fresh_results_stay(fake):
    _, exe = fake(DIAMOND, pointers="update")
    results = [exe.run([put(X + k)], out="fresh")[0] for k in range(5)]
    for k, result in enumerate(results):
        assert np.array_equal(np.asarray(result), diamond(X + k))


def test_results_go_where_they_are_wanted(fake):
    found, exe = fake(DIAMOND, pointers="update")
    out = put(np.zeros_like(X))
    assert exe.run([put(X)], out=[out]) == (out,)
    assert np.array_equal(out.get(), diamond(X))
    on_host = np.zeros_like(X)
    assert exe.run([X + 1], out=[on_host])[0] is on_host
    assert np.array_equal(on_host, diamond(X + 1))
    assert found.api.count("cuGraphInstantiateWithParams") == 1


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("stale", "out is fresh, or an array"),
        ([], "out has 0 arrays; the program has 1 results"),
        ([np.zeros(3, np.float32)], r"writable array of float32\[4\], got float32\[3\]"),
        ([7], "goes to an array that can be written, not to int"),
    ],
)
def test_results_cannot_go_anywhere(fake, out, message):
    _, exe = fake(DIAMOND)
    with pytest.raises(InputError, match=message):
        exe.run([X], out=out)


def test_results_do_not_go_to_read_only_arrays(fake):
    _, exe = fake(DIAMOND)
    frozen = np.zeros_like(X)
    frozen.flags.writeable = False
    for out in (frozen, put(X, read_only=True)):
        with pytest.raises(InputError, match="writ"):
            exe.run([X], out=[out])


def test_only_what_is_donated_is_overwritten(fake):
    _, exe = fake(DONATED, pointers="update")
    s, x, y = put(S), put(S + 1), put(S + 2)
    exe.run([s, x, y])
    assert np.array_equal(s.get(), S)
    a, _ = exe.run([s, x, y], donate=[0])
    assert a.address == s.address
    assert np.array_equal(s.get(), S + S + 1)
    a, _ = exe.run([s, x, y], donate=True)
    assert np.array_equal(np.asarray(a), S + S + 1 + S + 1)
    with pytest.raises(InputError, match="donate names input 3; the program has 3"):
        exe.run([s, x, y], donate=[3])


def test_a_numpy_argument_is_never_written(fake):
    _, exe = fake(DONATED)
    mine = S.copy()
    exe.run([mine, S + 1, S + 2], donate=True)
    assert np.array_equal(mine, S)


def test_results_of_donated_arrays_keep_them_alive(fake):
    found, exe = fake(DONATED, pointers="update")
    s = put(S)
    a, _ = exe.run([s, put(S), put(S)], donate=[0])
    address = s.address
    del s
    exe(S, S, S)
    gc.collect()
    assert found.is_live(address, 256)
    assert np.array_equal(np.asarray(a), S + S)


@pytest.mark.parametrize("strategy", ["copy", "update", "table"])
def test_a_state_that_is_handed_on_keeps_nothing_else_alive(fake, strategy):
    _, exe = fake(DONATED, pointers=strategy)
    state, gone = put(S), []
    for _ in range(40):
        batch = put(S)
        gone.append(weakref.ref(batch))
        state, _ = exe.run([state, batch, put(S)], donate=True)
    exe.synchronize()
    exe(S, S, S)
    del batch
    gc.collect()
    assert sum(ref() is not None for ref in gone) <= 2
    assert np.array_equal(np.asarray(state), 41 * S)


@pytest.mark.parametrize(("size", "most"), [(1 << 20, 2 * kept_alive.AT_ONCE), (1, 2)])
def test_arrays_of_ours_are_let_go_together_if_they_are_small(fake, monkeypatch, size, most):
    monkeypatch.setattr(kept_alive, "HELD_BYTES", size)
    _, exe = fake(DIAMOND, pointers="update")
    gone = []
    for k in range(40):
        x = ours(exe, X + k)
        gone.append(weakref.ref(x))
        (y,) = exe(x)
        assert sum(ref() is not None for ref in gone) <= most + 1
    assert np.array_equal(np.asarray(y), diamond(X + 39))
    assert gone[-1]() is x


@pytest.mark.parametrize("kind", [ours, lambda _, value: put(value)], ids=["ours", "theirs"])
def test_the_host_waits_only_where_many_calls_are_under_way(fake, monkeypatch, kind):
    found, exe = fake(DIAMOND, pointers="update")
    found.cuEventQuery = lambda _: (real.CUresult.CUDA_ERROR_NOT_READY,)
    waits = []
    monkeypatch.setattr(Event, "synchronize", lambda event: waits.append(event))
    for k in range(kept_alive.IN_FLIGHT):
        exe(kind(exe, X + k))
    assert not waits
    for k in range(kept_alive.IN_FLIGHT):
        exe(kind(exe, X + k))
    assert waits


def test_arguments_live_until_the_call_has_run(fake):
    found, exe = fake(DIAMOND, pointers="update")
    found.cuEventQuery = lambda _: (real.CUresult.CUDA_ERROR_NOT_READY,)
    x = put(X)
    gone = weakref.ref(x)
    exe(x)
    del x
    gc.collect()
    exe.put(X)
    assert gone() is not None
    del found.cuEventQuery
    exe.put(X)
    assert gone() is None


def test_an_executable_is_freed_with_its_last_reference(fake):
    found, exe = fake(DIAMOND)
    before = len(found.execs)
    gc.collect()
    gc.disable()
    try:
        del exe
        assert len(found.execs) == before - 1
    finally:
        gc.enable()


def test_results_outlive_their_executable(fake):
    _, exe = fake(DIAMOND)
    (y,) = exe(put(X))
    del exe
    gc.collect()
    assert np.array_equal(np.asarray(y), diamond(X))


def test_each_thread_keeps_its_results(fake):
    _, exe = fake(DIAMOND, instances=2)
    mine = exe(put(X))[0]
    theirs, ready, go = {}, threading.Barrier(4), threading.Event()

    def work(k):
        theirs[k] = exe(put(X + k))[0]
        ready.wait(10)
        go.wait(10)

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for thread in threads:
        thread.start()
    ready.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(exe.strategies) == 2
    assert np.array_equal(np.asarray(mine), diamond(X))
    for k, result in theirs.items():
        assert np.array_equal(np.asarray(result), diamond(X + k))
    addresses = {mine.address} | {r.address for r in theirs.values()}
    assert len(addresses) == 4


def test_who_waits_for_an_instance_that_is_dropped_gets_another(fake):
    """Many threads, each with a result in its hands, and two instances."""
    _, exe = fake(DIAMOND, instances=2)
    held = [exe(put(X))]

    def work(k):
        held.append(exe(put(X + k)))

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len({result.address for (result,) in held}) == 13


def test_streams_have_instances_of_their_own(fake):
    found, exe = fake(DIAMOND)
    a = exe.run([put(X)], stream=71)[0]
    b = exe.run([put(X + 1)], stream=72)[0]
    assert exe.run([put(X + 2)], stream=71)[0] is a
    assert found.api.count("cuGraphInstantiateWithParams") == 2
    assert int(a.stream), int(b.stream) == (71, 72)
    assert np.array_equal(np.asarray(b), diamond(X + 1))


def test_any_stream_object_will_do(fake):
    class Theirs:
        def __cuda_stream__(self):
            return 0, 99

    _, exe = fake(DIAMOND)
    (y,) = exe.run([X], stream=Theirs(), out="fresh")
    assert isinstance(y, DeviceArray)
    assert int(y.stream) == 99
    with pytest.raises(InputError, match="stream is a handle or has __cuda_stream__, not 'fast'"):
        exe.run([X], stream="fast")


def test_a_failed_launch_leaves_the_executable_usable(fake):
    found, exe = fake(DIAMOND)
    found.fail["cuGraphLaunch"] = [real.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(BackendError, match="cuGraphLaunch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        exe(X)
    assert np.array_equal(exe(X)[0], diamond(X))


def test_a_lost_context_is_said_aloud(fake):
    found, exe = fake(DIAMOND)
    found.fail["cuGraphLaunch"] = [real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(BackendError, match="can no longer use the GPU: start it anew"):
        exe(X)


def test_no_room_for_another_instance(fake):
    found, exe = fake(DIAMOND)
    full = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    mine = exe.run([put(X)], stream=71)[0]
    found.fail["cuGraphInstantiateWithParams"] = [full] * 4  # twice, and with other graphs gone
    with pytest.raises(BackendError, match="OUT_OF_MEMORY"):
        exe.run([put(X + 1)], stream=72)
    assert np.array_equal(np.asarray(mine), diamond(X))
    del mine
    assert np.array_equal(np.asarray(exe.run([put(X)], stream=72)[0]), diamond(X))


def test_views_of_one_block(fake):
    _, exe = fake(LOOP, pointers="update")
    block = Block(4096)
    start, x = block.view(np.asarray(2, np.int32), 8), block.view(X, 16)
    n, y = exe(start, x)
    want = host(LOOP, np.int32(2), X)
    assert np.array_equal(np.asarray(n), want[0])
    assert np.array_equal(np.asarray(y), want[1])
    assert isinstance(x, View)
