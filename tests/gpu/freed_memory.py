"""Memory taken and given back, by the driver's API alone: does the device get it back?

    compute-sanitizer --tool memcheck python -m tests.gpu.freed_memory

Prints how many bytes the device holds more after 1,000 blocks of 32 KB have been taken and freed,
one at a time, and how many after 1,000 launches of a graph that is one kernel. memcheck keeps
what is freed, to tell later accesses to it: what a program holds is judged without it.
"""

from __future__ import annotations

import ctypes
import sys

from hlo2graph.backends.cuda.driver import call, cuda, open_device
from tests.gpu.soak import used
from tests.gpu.while_node import THREADS, kernel_node, kernels

TIMES, SIZE = 1_000, 32 << 10


def main() -> int:
    _, add, _ = kernels(open_device().arch)
    array = call(cuda.cuMemAlloc, 4 * THREADS)
    graph = call(cuda.cuGraphCreate, 0)
    kernel_node(graph, [], add, ((int(array),), (ctypes.c_void_p,)), THREADS)
    execution = call(cuda.cuGraphInstantiate, graph, 0)
    stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
    call(cuda.cuGraphLaunch, execution, stream)  # what a first one takes is not asked here
    call(cuda.cuStreamSynchronize, stream)
    before = used()
    for _ in range(TIMES):
        call(cuda.cuMemFree, call(cuda.cuMemAlloc, SIZE))
    freed = used()
    for _ in range(TIMES):
        call(cuda.cuGraphLaunch, execution, stream)
    call(cuda.cuStreamSynchronize, stream)
    print(f"{TIMES:,} blocks of {SIZE:,} bytes: {freed - before:+,}; ", end="")
    print(f"{TIMES:,} launches: {used() - freed:+,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
