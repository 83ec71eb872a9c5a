"""A WHILE node made by the driver's API alone: does a tool bear it?

    compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.gpu.while_node

A kernel sets a counter, then 100 rounds of a body of two kernels: one adds to an array, one counts
and sets the condition. Of hlo2graph it takes only how NVRTC and the driver are called. Where a tool
fails this and names no access, what a program with a loop does under it tells nothing of it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from hlo2graph.backends.cuda.compiler import compile_cubin
from hlo2graph.backends.cuda.driver import call, cuda, open_device

ROUNDS, THREADS, RUNS = 100, 128, 3
TEXT = f"""\
typedef unsigned long long u64;
extern "C" __device__ void cudaGraphSetConditional(u64 handle, unsigned int value);
extern "C" __global__ void begin(u64 handle, int* counter) {{
  *counter = 0;
  cudaGraphSetConditional(handle, 1);
}}
extern "C" __global__ void add(float* array) {{ array[threadIdx.x] += 1.0f; }}
extern "C" __global__ void next(u64 handle, int* counter) {{
  cudaGraphSetConditional(handle, ++*counter < {ROUNDS});
}}
"""
Arguments = tuple[tuple[int, ...], tuple[Any, ...]]  # values and their types


def main() -> int:
    device = open_device()
    begin, add, following = kernels(device.arch)
    array, counter = call(cuda.cuMemAlloc, 4 * THREADS), call(cuda.cuMemAlloc, 4)
    call(cuda.cuMemsetD8, array, 0, 4 * THREADS)
    graph = call(cuda.cuGraphCreate, 0)
    handle = call(cuda.cuGraphConditionalHandleCreate, graph, device.context, 0, 0)
    by_handle: Arguments = (int(handle), int(counter)), (ctypes.c_uint64, ctypes.c_void_p)
    first = kernel_node(graph, [], begin, by_handle)
    body = while_node(graph, first, handle, device.context)
    work = kernel_node(body, [], add, ((int(array),), (ctypes.c_void_p,)), THREADS)
    kernel_node(body, [work], following, by_handle)
    execution = call(cuda.cuGraphInstantiate, graph, 0)
    stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
    for _ in range(RUNS):
        call(cuda.cuGraphLaunch, execution, stream)
        call(cuda.cuStreamSynchronize, stream)
    held = (ctypes.c_float * THREADS)()
    call(cuda.cuMemcpyDtoH, ctypes.addressof(held), array, 4 * THREADS)
    return int(set(held) != {float(ROUNDS * RUNS)})


def kernels(arch: str) -> list[Any]:
    """Return the three kernels, in the order of the text."""
    module = call(cuda.cuModuleLoadData, compile_cubin(TEXT, arch).cubin)
    names = (b"begin", b"add", b"next")
    return [call(cuda.cuModuleGetFunction, module, name) for name in names]


def kernel_node(
    graph: Any, after: list[Any], kernel: Any, arguments: Arguments, threads: int = 1
) -> Any:
    params = kernel_params(kernel, arguments, threads)
    return call(cuda.cuGraphAddKernelNode, graph, after, len(after), params)


def kernel_params(kernel: Any, arguments: Arguments, threads: int) -> Any:
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = kernel
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX, params.blockDimY, params.blockDimZ = threads, 1, 1
    params.kernelParams = arguments
    return params


def while_node(graph: Any, after: Any, handle: Any, context: Any) -> Any:
    """Add a WHILE node; return the graph of its body."""
    params = cuda.CUgraphNodeParams()
    params.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle
    params.conditional.type = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
    params.conditional.size = 1
    params.conditional.ctx = context
    call(cuda.cuGraphAddNode, graph, [after], None, 1, params)
    return params.conditional.phGraph_out[0]


if __name__ == "__main__":
    sys.exit(main())
