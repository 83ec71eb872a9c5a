// Sorting a window in shared memory: networks and merges over an array of the elements' order, or of
// words that have a key and a place.
#pragma once

#include "search.cuh"

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

// Write elements `begin` to `begin` + Each of two merged runs, of `firsts` and `count` - `firsts`, to
// out; at(p) gives element p of the runs, which lie one behind the other.
template <int Each, class At, class Before>
__device__ inline void merge_some(
    u16* out, const At& at, int begin, int firsts, int count, const Before& before) {
  const int seconds = count - firsts;
  int low = begin > seconds ? begin - seconds : 0, high = begin < firsts ? begin : firsts;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (before(at(firsts + begin - 1 - middle), at(middle))) high = middle;
    else low = middle + 1;
  }
  int one = low, other = firsts + begin - low;
#pragma unroll
  for (int k = begin; k < begin + Each; ++k) {
    if (k >= count) break;
    const bool is_one = other >= count || (one < firsts && !before(at(other), at(one)));
    out[k] = (u16)at(is_one ? one++ : other++);
  }
}

// Order the elements of a window of two sorted runs, the first of `firsts`: each thread finds and
// merges the next Each of them.
template <int Each, class Before>
__device__ inline void merge_parts(u16* order, int firsts, int count, const Before& before) {
  const int begin = threadIdx.x * Each;
  if (begin < count) merge_some<Each>(order, [](int p) { return p; }, begin, firsts, count, before);
}

// Order the first `count` elements of a window as sort_window does, in fewer steps, where `before` is
// an order: each thread sorts a few elements, and runs are merged until one is left. `spare` is as
// large as the order.
template <int Window, int Threads, class Before>
__device__ inline void merge_sort_window(
    u16* order, u16* spare, int count, const Before& before) {
  constexpr int each = Window > Threads ? Window / Threads : 1;
  const int mine = threadIdx.x * each;
  u16 few[each];
#pragma unroll
  for (int k = 0; k < each; ++k) {
    few[k] = (u16)(mine + k);
#pragma unroll
    for (int j = k; j > 0; --j) {
      const u16 one = few[j - 1], other = few[j];
      const bool turns = mine + k < count && before(other, one);
      few[j - 1] = turns ? other : one;
      few[j] = turns ? one : other;
    }
  }
#pragma unroll
  for (int k = 0; k < each; ++k)
    if (mine + k < Window) order[mine + k] = few[k];
  __syncthreads();
  u16 *from = order, *to = spare;
  for (int width = each; width < Window && width < count; width *= 2) {
    const int start = mine / (2 * width) * (2 * width), left = count - start;
    const int firsts = left < width ? left : width, both = left < 2 * width ? left : 2 * width;
    if (mine < count)
      merge_some<each>(
          to + start, [=](int p) { return (int)from[start + p]; }, mine - start, firsts, both,
          before);
    __syncthreads();
    u16* const held = from;
    from = to;
    to = held;
  }
  if (from == order) return;
  for (int slot = threadIdx.x; slot < count; slot += Threads) order[slot] = spare[slot];
  __syncthreads();
}

// ---- sorting by one key -------------------------------------------------------------------------

// Sort what the lanes of a warp have in their registers, Each a lane, by a network.
template <int Each> __device__ inline void sort_warp(u64 (&x)[Each]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int size = 2; size <= 32 * Each; size *= 2) {
#pragma unroll
    for (int stride = size / 2; stride > 0; stride /= 2) {
      // Runs of half of `size` are merged: the second one is met from its end.
      const int mask = stride == size / 2 ? size - 1 : stride, within = mask % Each;
      u64 other[Each];
#pragma unroll
      for (int e = 0; e < Each; ++e)
        other[e] = mask < Each ? x[e ^ within] : shuffle_across(x[e ^ within], mask / Each);
#pragma unroll
      for (int e = 0; e < Each; ++e) {
        const bool is_first = stride < Each ? !(e & stride) : !(lane & stride / Each);
        x[e] = is_first == x[e] < other[e] ? x[e] : other[e];
      }
    }
  }
}

// Let each thread take its Each words of two merged runs of `width`, which stand side by side.
template <int Each> __device__ inline void merge_words(const u64* words, int width, u64 (&x)[Each]) {
  const int first = threadIdx.x * Each, begin = first % (2 * width);
  const u64 *const one = words + (first - begin), *const other = one + width;
  int low = begin > width ? begin - width : 0, high = begin < width ? begin : width;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (other[begin - 1 - middle] < one[middle]) high = middle;
    else low = middle + 1;
  }
  int at = low, to = begin - low;
  u64 a = at < width ? one[at] : ~0ull, b = to < width ? other[to] : ~0ull;
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const bool is_one = a < b;
    x[e] = is_one ? a : b;
    const int next = is_one ? ++at : ++to;
    const u64 word = next < width ? (is_one ? one : other)[next] : ~0ull;
    if (is_one) a = word;
    else b = word;
  }
}

// Sort a window of words, of which each thread has Each that follow each other: each warp sorts its
// part, then runs are merged, until those of `count` words are one, in `words`.
template <int Window, int Each>
__device__ inline void sort_words(u64* words, int count, u64 (&mine)[Each]) {
  const int first = threadIdx.x * Each;
  sort_warp(mine);
  for (int width = 32 * Each;; width *= 2) {
#pragma unroll
    for (int e = 0; e < Each; ++e)
      if (first + e < Window) words[first + e] = mine[e];
    __syncthreads();
    if (width >= Window || width >= count) return;
    if (first < Window) merge_words(words, width, mine);
    __syncthreads();
  }
}

// Order the first `count` slots of a window by a key, equals as they stand: `words` come to have the
// slots in their lower halves.
template <int Window, int Threads, class Key>
__device__ inline void sort_by_key(u64* words, int count, const Key& key) {
  constexpr int each = Window > Threads ? Window / Threads : 1;
  u64 mine[each];
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int slot = threadIdx.x * each + e;
    mine[e] = (u64)(slot < count ? key(slot) : ~0u) << 32 | (u32)slot;
  }
  sort_words<Window>(words, count, mine);
}

// ---- sorting by counting ------------------------------------------------------------------------

struct alignas(16) FourKeys {
  u32 x[4];
};

// Take one from a count if x < y: with the borrow of a difference, no choice is made.
__device__ inline void take_if_less(u32 x, u32 y, int& count) {
#ifdef __CUDA_ARCH__
  asm("{ .reg .u32 none; sub.cc.u32 none, %1, %2; subc.u32 %0, %0, 0; }"
      : "+r"(count)
      : "r"(x), "r"(y));
#else
  count -= x < y;
#endif
}

// How many of a row's keys, `Stride` apart, go before that at `own`, equal ones as they stand.
template <int Length, int Stride> __device__ inline int count_in_row(const u32* keys, int own) {
  const u32 known = keys[own * Stride];
  int before = 0;
#pragma unroll 16
  for (int k = 0; k < Length; ++k) {
    const u32 other = keys[k * Stride];
    before += (other < known) | ((other == known) & (k < own));
  }
  return before;
}

// How many of the keys of `count` slots, Slots at most, go before each of the 32 of a piece, equal ones
// as they stand: all threads with a lane get that of its key, after the warps have looked at 32 keys
// each in turn.
template <int Slots, int Warps, class Key>
__device__ inline int count_before(int piece, int count, const Key& key) {
  __shared__ FourKeys keys[Slots / 4];
  __shared__ int parts[Warps][32];
  u32* const all = (u32*)keys;
#pragma unroll 8
  for (int from = 0; from < Slots; from += 32 * Warps) {
    const int slot = from + threadIdx.x;
    const u32 found = key(slot < count ? slot : count - 1);
    if (Slots % (32 * Warps) == 0 || slot < Slots) all[slot] = slot < count ? found : ~0u;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 own = all[piece * 32 + lane];
  int before = 0;
  for (int part = warp; part < Slots / 32; part += Warps) {
    const FourKeys* const some = keys + part * 8;
    int less[4] = {};
    if (part < piece) {
#pragma unroll
      for (int k = 0; k < 32; ++k) take_if_less(own, some[k / 4].x[k % 4], less[k % 4]);
      before += 32 + less[0] + less[1] + (less[2] + less[3]);
    } else {
#pragma unroll
      for (int k = 0; k < 32; ++k) take_if_less(some[k / 4].x[k % 4], own, less[k % 4]);
      before -= less[0] + less[1] + (less[2] + less[3]);
    }
    if (part == piece) {
#pragma unroll
      for (int k = 0; k < 32; ++k) before += (some[k / 4].x[k % 4] == own) & (k < lane);
    }
  }
  parts[warp][lane] = before;
  __syncthreads();
  before = 0;
#pragma unroll
  for (int w = 0; w < Warps; ++w) before += parts[w][lane];
  return before;
}

}  // namespace hlo
