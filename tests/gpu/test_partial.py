"""Plans in graphs in part, and where temporaries live, on a real GPU: against one whole graph."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.driver import call
from hlo2graph.backends.cuda.memory import Stream, cuda, free_bytes
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import POINTERS, TEMPORARIES
from tests.placements import PROGRAMS, Caller
from tests.test_cuda_graph import DIAMOND, X

CAPTURES = ("temps", "loops:0", "-while,-conditional", "-kernel", "kernel,min:1")


def compiled(program, **options):
    return h2g.compile(program, "cuda", **options)


@pytest.mark.parametrize("capture", ["all", *CAPTURES])
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls(name, capture):
    """With a third of the ways to deal with arrays that move, and each home of temporaries once."""
    first = list(PROGRAMS).index(name) + CAPTURES.index(capture) if capture != "all" else 0
    for k, temporaries in enumerate(TEMPORARIES):
        pointers = POINTERS[(first + 2 * k) % len(POINTERS)]
        options = {
            "fuse": ("none", "default")[k % 2],
            "unroll_loops": ("auto", "never")[k % 3 == 0],
        }
        plain = compiled(PROGRAMS[name], **options)
        exe = compiled(
            PROGRAMS[name], pointers=pointers, capture=capture, temporaries=temporaries, **options
        )
        caller = Caller(exe, plain, k)
        for _ in range(10):
            caller.call()
        refusals = {n for s in exe.strategies for n in s.tally.notes}
        assert not refusals or pointers == "recapture", refusals


@pytest.mark.parametrize("temporaries", TEMPORARIES)
def test_every_mode_has_the_bits_of_the_serial_stream(temporaries):
    for capture in ("all", *CAPTURES):
        exe = compiled(PROGRAMS["nested"], fuse="none", temporaries=temporaries, capture=capture)
        args = [np.ones(shape, dtype) for _, dtype, shape in exe.inputs]
        found = {}
        for mode in ("serial", "chain", "graph"):
            exe.write_inputs(args)
            exe.poison()
            exe.execute(mode)
            found[mode] = exe.read_outputs()
        assert same_bits(found["graph"], found["serial"])
        assert same_bits(found["chain"], found["serial"])


def chain(name, size, length):
    """A program whose arena is of `length` arrays of `size` floats, each in use until the end."""
    lines = [f"HloModule {name}", "ENTRY main {", f"  x = f32[{size}] parameter(0)"]
    lines += [f"  v{k} = f32[{size}] {'sine' if k % 2 else 'cosine'}(x)" for k in range(length)]
    last = "v0"
    for k in range(1, length):
        lines.append(f"  sum{k} = f32[{size}] add({last}, v{k})")
        last = f"sum{k}"
    return "\n".join([*lines, f"  ROOT r = f32[{size}] negate({last})", "}"])


def test_threads_and_streams_take_turns_in_a_shared_arena():
    sizes = {1 << 12: 3, 1 << 16: 9, 1 << 20: 5}
    programs = {n: chain(f"c{n}", n, length) for n, length in sizes.items()}
    exes = {n: compiled(p, fuse="none", temporaries="shared") for n, p in programs.items()}
    args = {n: np.linspace(-1, 1, n, dtype=np.float32) for n in sizes}
    want = {n: compiled(p, fuse="none")(args[n]) for n, p in programs.items()}
    wrong = []

    def work(n, k):
        exe = exes[n]
        exe.device.make_current()
        stream = Stream() if k % 2 else None
        x = exe.put(args[n])[0] if k == 0 else args[n]
        for _ in range(40):
            (y,) = exe.run([x], stream=stream, out="fresh")
            if not same_bits([np.asarray(y)], want[n]):
                wrong.append((n, k))

    threads = [threading.Thread(target=work, args=(n, k)) for n in sizes for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    memory = exes[1 << 20].memory
    assert memory.sharers == tuple(sorted(f"c{n}" for n in sizes))
    assert memory.temporaries == 0
    assert memory.shared >= 5 * 4 << 20


def test_a_shared_arena_gives_its_memory_back():
    compiled(DIAMOND)(X)
    gc.collect()
    call(cuda.cuCtxSynchronize)
    free = free_bytes()
    exe = compiled(chain("big", 1 << 22, 8), fuse="none", temporaries="shared")
    exe(np.ones(1 << 22, np.float32))
    assert free_bytes() <= free - (8 << 24)
    del exe
    gc.collect()
    assert free_bytes() >= free - (8 << 20)


def test_graphs_that_allocate_hold_nothing_of_their_own_between_runs():
    program = chain("big", 1 << 22, 8)
    exes = [compiled(program, fuse="none", temporaries="graph") for _ in range(4)]
    x = np.linspace(-1, 1, 1 << 22, dtype=np.float32)
    want = compiled(program, fuse="none")(x)
    stream = Stream()  # on one stream graphs get the same memory, one after another
    for exe in exes:
        (y,) = exe.run([x], stream=stream, out="fresh")
        assert same_bits([np.asarray(y)], want)
    one = 9 << 24  # bytes of an arena
    assert exes[0].memory.temporaries == 0
    assert exes[0].memory.in_graphs < 2 * one
