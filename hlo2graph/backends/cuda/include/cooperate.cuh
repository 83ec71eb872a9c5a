// What the threads of a warp do together.
#pragma once

#include "types.cuh"

namespace hlo {

// The value that the thread `delta` lanes further on holds; all 32 lanes take part.
template <class T> __device__ inline T shuffle_down(T x, int delta) {
  const int words = (sizeof(T) + 3) / 4;
  u32 bits[words] = {};
  memcpy(bits, &x, sizeof(T));
  for (int k = 0; k < words; ++k) bits[k] = __shfl_down_sync(0xffffffffu, bits[k], delta);
  memcpy(&x, bits, sizeof(T));
  return x;
}

// The value that the thread in `lane` of the warp holds; all 32 lanes take part.
template <class T> __device__ inline T shuffle_from(T x, int lane) {
  const int words = (sizeof(T) + 3) / 4;
  u32 bits[words] = {};
  memcpy(bits, &x, sizeof(T));
  for (int k = 0; k < words; ++k) bits[k] = __shfl_sync(0xffffffffu, bits[k], lane);
  memcpy(&x, bits, sizeof(T));
  return x;
}

// The sum over all threads of a block, in a fixed order; each of them gets it.
template <int Threads, class T> __device__ inline T block_sum(T x) {
  __shared__ T parts[Threads];
  __syncthreads();
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int half = Threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

}  // namespace hlo
