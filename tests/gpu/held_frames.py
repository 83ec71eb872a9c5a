"""Does a tool let go of the frames of Python that lead to a driver call?

    compute-sanitizer --tool memcheck [--show-backtrace=device] python -m tests.gpu.held_frames

Launches a graph of one kernel from within two functions, with nothing of hlo2graph's but how the
driver is called, and counts what the outer one's variables held that is still alive. Exits with 1
if anything is: then what a program holds under that tool tells nothing of the program.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable

from hlo2graph.backends.cuda.compiler import compile_cubin
from hlo2graph.backends.cuda.driver import bound, call, cuda, open_device
from tests.gpu.while_node import kernel_node

LAUNCHES = 20
TEXT = 'extern "C" __global__ void nothing(int) {}\n'


class Held:
    """Something of which it can be told whether it is alive."""


def main() -> int:
    device = open_device()
    module = call(cuda.cuModuleLoadData, compile_cubin(TEXT, device.arch).cubin)
    graph = call(cuda.cuGraphCreate, 0)
    kernel = call(cuda.cuModuleGetFunction, module, b"nothing")
    kernel_node(graph, [], kernel, ((0,), (ctypes.c_int,)))
    execution = call(cuda.cuGraphInstantiate, graph, 0)
    stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
    handles = (ctypes.c_void_p(int(handle)) for handle in (execution, stream))
    launch = bound("cuGraphLaunch", *handles)
    refs = [outer(launch) for _ in range(LAUNCHES)]
    call(cuda.cuStreamSynchronize, stream)
    gc.collect()
    alive = sum(ref() is not None for ref in refs)
    print(f"{alive} of {LAUNCHES} are alive that only frames of finished calls held")
    return int(alive > 0)


def outer(launch: Callable[[], None]) -> weakref.ref[Held]:
    held = Held()
    inner(launch)
    return weakref.ref(held)


def inner(launch: Callable[[], None]) -> None:
    launch()


if __name__ == "__main__":
    sys.exit(main())
