"""What one step costs that waits for the one before it, by kind: what depth adds to a kernel.

Each probe is a kernel of one block that does nothing but such steps, on data that its registers and
shared memory have: none is a kernel of hlo2graph's. Two lengths are timed; the difference over the
difference in steps is what one takes.

    fold        to another lane of the warp, and an addition: a fold, a scan
    exchange    the same with the smaller or the larger: a sorting network within a warp
    barrier     through shared memory, with a barrier of 256 threads
    look        a key of shared memory at a place that the last one told, a comparison: a search
    column      a reciprocal root, to the other lanes, a product, a difference: a column of a factor
    row         to the other lanes, a product, a difference: a row of a substitution
    butterfly   a complex product and a sum: a stage of radix two
    mma         a product of the tensor cores (m16n8k8 of TF32) onto the last one's sums
"""

from __future__ import annotations

import ctypes
import statistics
from typing import Any

SHORT, LONG, REPEATS = 1 << 12, 1 << 15, 9
UNROLLED = 16

_ALONE = {  # what a step is, of x in each thread; `lane` and `k` are its number and the step's
    "fold": "x += __shfl_xor_sync(~0u, x, 1 << k % 5);",
    "exchange": """const float y = __shfl_xor_sync(~0u, x, 1 << k % 5);
      x = (lane >> k % 5 & 1) ? fmaxf(x, y) : fminf(x, y);""",
    "barrier": """held[k % 2][threadIdx.x] = x;
      __syncthreads();
      x += held[k % 2][threadIdx.x ^ 33];""",
    "look": "at += places[at] < lane ? 1 << k % 5 : 0;",
    "column": """float share;
      asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(x));
      share = __shfl_sync(~0u, share, k % 32);
      x = fmaf(y * share, -(y * share), x);""",
    "row": """const float known = __shfl_sync(~0u, x * y, k % 32);
      x = fmaf(known, -y, x);""",
    "butterfly": """const float re = fmaf(x, y, -(z * w)), im = fmaf(x, w, z * y);
      x = y + re;
      z = w + im;""",
    "mma": """asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
        : "+f"(x), "+f"(y), "+f"(z), "+f"(w) : "r"(lane));""",
}
_THREADS = {"barrier": 256}


def step_seconds() -> dict[str, float]:
    """Return what a step of each kind takes on this process's device, in seconds."""
    from hlo2graph.backends.cuda.compiler import compile_cubin
    from hlo2graph.backends.cuda.driver import call, cuda, open_device
    from hlo2graph.backends.cuda.memory import DeviceMemory, Stream

    device, stream = open_device(), Stream()
    memory = DeviceMemory(4 * 256, "for probes")
    module = call(cuda.cuModuleLoadData, compile_cubin(text(), device.arch).cubin)
    found = {}
    for kind in _ALONE:
        function = call(cuda.cuModuleGetFunction, module, kind.encode())
        short, long = (_seconds(function, memory, stream, kind, steps) for steps in (SHORT, LONG))
        found[kind] = (long - short) / (LONG - SHORT)
    call(cuda.cuModuleUnload, module)
    return found


def text() -> str:
    """Return the CUDA C++ of all probes."""
    return "\n".join(_probe(kind, step) for kind, step in _ALONE.items())


def _probe(kind: str, step: str) -> str:
    return f"""extern "C" __global__ void {kind}(float* data, int steps) {{
  __shared__ float held[2][256];
  __shared__ int places[256];
  const int lane = threadIdx.x % 32;
  int at = lane;
  for (int k = threadIdx.x; k < 256; k += blockDim.x) places[k] = 32;
  float x = data[threadIdx.x], y = x + 1, z = x + 2, w = x + 3;
  __syncthreads();
  for (int done = 0; done < steps; done += {UNROLLED}) {{
#pragma unroll
    for (int k = 0; k < {UNROLLED}; ++k) {{
      {step}
    }}
  }}
  data[threadIdx.x] = x + y + z + w + at;
}}
"""


def _seconds(function: Any, memory: Any, stream: Any, kind: str, steps: int) -> float:
    """Return what a run of a probe takes on the device."""
    from hlo2graph.backends.cuda.driver import call, cuda
    from hlo2graph.backends.cuda.memory import Event

    start, end = Event(timed=True), Event(timed=True)
    values, kinds = (memory.address, steps), (ctypes.c_void_p, ctypes.c_int)
    samples = []
    for _ in range(REPEATS):
        start.record(stream.handle)
        shape = (1, 1, 1, _THREADS.get(kind, 32), 1, 1)
        call(cuda.cuLaunchKernel, function, *shape, 0, stream.handle, (values, kinds), 0)
        end.record(stream.handle)
        stream.synchronize("timing a probe")
        samples.append(end.since(start))
    return statistics.median(samples[2:])
