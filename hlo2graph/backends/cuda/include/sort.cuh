// Sorting a window in shared memory: bitonic networks over an array of the elements' order.
#pragma once

#include "types.cuh"

namespace hlo {

// Whether element p goes before element q: as `before` says, then as they lie; those from `count`
// on are not there and go last.
template <class Before>
__device__ inline bool precedes(int p, int q, int count, const Before& before) {
  if (p >= count || q >= count) return p < q;
  return before(p, q) || (p < q && !before(q, p));
}

template <class Before>
__device__ inline void exchange(u16* order, int low, int high, int count, const Before& before) {
  const u16 p = order[low], q = order[high];
  if (precedes(q, p, count, before)) {
    order[low] = q;
    order[high] = p;
  }
}

// Merge sorted runs of half of `size` elements throughout the window.
template <int Window, int Threads, class Before>
__device__ inline void merge_runs(u16* order, int size, int count, const Before& before) {
  for (int pair = threadIdx.x; pair < Window / 2; pair += Threads) {
    const int start = pair / (size / 2) * size, within = pair % (size / 2);
    exchange(order, start + within, start + size - 1 - within, count, before);
  }
  __syncthreads();
  for (int stride = size / 4; stride > 0; stride /= 2) {
    for (int pair = threadIdx.x; pair < Window / 2; pair += Threads) {
      const int low = pair / stride * 2 * stride + pair % stride;
      exchange(order, low, low + stride, count, before);
    }
    __syncthreads();
  }
}

template <int Window, int Threads>
__device__ inline void number_slots(u16* order) {
  for (int slot = threadIdx.x; slot < Window; slot += Threads) order[slot] = (u16)slot;
  __syncthreads();
}

// Order the first `count` elements of a window; all threads of the block take part.
template <int Window, int Threads, class Before>
__device__ inline void sort_window(u16* order, int count, const Before& before) {
  number_slots<Window, Threads>(order);
  for (int size = 2; size <= Window; size *= 2)
    merge_runs<Window, Threads>(order, size, count, before);
}

// The same where both halves are sorted.
template <int Window, int Threads, class Before>
__device__ inline void merge_window(u16* order, int count, const Before& before) {
  number_slots<Window, Threads>(order);
  merge_runs<Window, Threads>(order, Window, count, before);
}

}  // namespace hlo
