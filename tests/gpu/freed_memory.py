"""Memory taken and given back, by the driver's API alone: does the device get it back?

    compute-sanitizer --tool memcheck python -m tests.gpu.freed_memory

Prints how many bytes the device holds more after blocks of 32 KB have been taken and freed, one at
a time: as they are, with something copied there, and read by a graph's kernel. The soak is judged
by what it holds without a tool, as a tool may keep what is freed.
"""

from __future__ import annotations

import ctypes
import sys

from hlo2graph.backends.cuda.driver import call, cuda, open_device
from tests.gpu.soak import used
from tests.gpu.while_node import THREADS, kernel_node, kernel_params, kernels

TIMES, SIZE = 500, 32 << 10


def main() -> int:
    _, add, _ = kernels(open_device().arch)
    first = call(cuda.cuMemAlloc, SIZE)
    graph = call(cuda.cuGraphCreate, 0)
    node = kernel_node(graph, [], add, at(first), THREADS)
    execution = call(cuda.cuGraphInstantiate, graph, 0)
    stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
    host = (ctypes.c_char * SIZE)()

    def take(*, copied: bool, read: bool) -> None:
        block = call(cuda.cuMemAlloc, SIZE)
        if copied:
            call(cuda.cuMemcpyHtoD, block, ctypes.addressof(host), SIZE)
        if read:
            params = kernel_params(add, at(block), THREADS)
            call(cuda.cuGraphExecKernelNodeSetParams, execution, node, params)
            call(cuda.cuGraphLaunch, execution, stream)
            call(cuda.cuStreamSynchronize, stream)
        call(cuda.cuMemFree, block)

    take(copied=True, read=True)  # what a first time takes is not asked here
    for copied, read in ((False, False), (True, False), (False, True), (True, True)):
        before = used()
        for _ in range(TIMES):
            take(copied=copied, read=read)
        how = [name for name, is_so in (("copied to", copied), ("read", read)) if is_so]
        grown = used() - before
        print(f"{TIMES} blocks of {SIZE:,} bytes, {' and '.join(how) or 'untouched'}: {grown:+,}")
    return 0


def at(block: object) -> tuple[tuple[int, ...], tuple[type, ...]]:
    return (int(block),), (ctypes.c_void_p,)


if __name__ == "__main__":
    sys.exit(main())
