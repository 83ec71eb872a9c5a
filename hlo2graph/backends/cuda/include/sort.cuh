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

// ---- merging two sorted runs --------------------------------------------------------------------

template <class I> __device__ inline I within(I x, I low, I high) {
  return x < low ? low : x > high ? high : x;
}

// How many of the first `count` elements of two merged runs are of the first run; other_first(a, b)
// tells whether element b of the second run goes before element a of the first. All lanes of a warp
// look, each at one place at a time.
template <class I, class Before>
__device__ inline I merge_split(I count, I firsts, I seconds, const Before& other_first) {
  I low = count > seconds ? count - seconds : 0, high = count < firsts ? count : firsts;
  while (low < high) {
    const I stride = (high - low + 32) / 33, place = low + (threadIdx.x % 32 + 1) * stride - 1;
    const bool is_before = place < high && !other_first(place, count - 1 - place);
    const int passed = __popc(__ballot_sync(0xffffffffu, is_before));
    const I next = low + (passed + 1) * stride - 1;
    low += passed * stride;
    if (passed < 32 && next < high) high = next;
  }
  return low;
}

// Order the elements of a window of two sorted runs, the first of `firsts`: each thread finds and
// merges the next Each of them.
template <int Each, class Before>
__device__ inline void merge_parts(u16* order, int firsts, int count, const Before& before) {
  const int begin = threadIdx.x * Each;
  if (begin >= count) return;
  const int seconds = count - firsts;
  int low = begin > seconds ? begin - seconds : 0, high = begin < firsts ? begin : firsts;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (before(firsts + begin - 1 - middle, middle)) high = middle;
    else low = middle + 1;
  }
  int one = low, other = firsts + begin - low;
  for (int k = begin; k < begin + Each && k < count; ++k) {
    const bool is_one = other >= count || (one < firsts && !before(other, one));
    order[k] = (u16)(is_one ? one++ : other++);
  }
}

}  // namespace hlo
