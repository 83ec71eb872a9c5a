// Time stamps that kernels write when a run is profiled: when the first block of a launch began and
// when the last one ended, for the latest launches of each node.
#pragma once

namespace hlo {

const unsigned int STAMPED_LAUNCHES = 256;

struct Stamps {
  unsigned int launches, blocks_done;
  unsigned long long times[2 * STAMPED_LAUNCHES];  // nanoseconds: begin, end
};

__device__ inline unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ inline bool is_first_thread() {
  return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
}

// Launches of one node follow each other, so `launches` stands still while one runs.
__device__ inline void stamp_begin(Stamps* s) {
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && is_first_thread())
    s->times[2 * (s->launches % STAMPED_LAUNCHES)] = nanoseconds();
}

__device__ inline void stamp_end(Stamps* s) {
  __syncthreads();
  if (!is_first_thread()) return;
  __threadfence();
  const unsigned int blocks = gridDim.x * gridDim.y * gridDim.z;
  if (atomicAdd(&s->blocks_done, 1u) + 1u < blocks) return;
  s->blocks_done = 0;
  s->times[2 * (s->launches % STAMPED_LAUNCHES) + 1] = nanoseconds();
  s->launches += 1;
}

}  // namespace hlo
