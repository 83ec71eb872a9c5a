// Searches in what is sorted: how many elements a test holds for, where it holds for the first ones.
#pragma once

#include "cooperate.cuh"

namespace hlo {

// A search by all lanes of a warp, each of which looks at one place at a time: between `low` and `high`
// is where the test ends.
template <class I> struct WarpSearch {
  I low, high;

  __device__ bool is_open() const { return low < high; }
  __device__ I stride() const { return (high - low + 32) / 33; }
  __device__ I place() const { return low + (threadIdx.x % 32 + 1) * stride() - 1; }
  template <class Holds> __device__ bool look(const Holds& holds) const {
    return is_open() && place() < high && holds(place());
  }
  __device__ void narrow(bool held) {
    if (!is_open()) return;
    const I step = stride();
    const int passed = __popc(__ballot_sync(0xffffffffu, held));
    const I next = low + (passed + 1) * step - 1;
    low += passed * step;
    if (passed < 32 && next < high) high = next;
  }
};

// How many of the first `count` elements of two merged runs are of the first run; other_first(a, b)
// tells whether element b of the second run goes before element a of the first. By a warp.
template <class I, class Before>
__device__ inline I merge_split(I count, I firsts, I seconds, const Before& other_first) {
  WarpSearch<I> at{count > seconds ? count - seconds : 0, count < firsts ? count : firsts};
  while (at.is_open())
    at.narrow(at.look([&](I place) { return !other_first(place, count - 1 - place); }));
  return at.low;
}

// For how many of the first elements of `length` two tests hold, in `low` and `high`: by a warp, and by
// each thread for itself. What the two look at is fetched together.
template <class I, class Low, class High>
__device__ inline void range_by_warp(
    I length, const Low& is_low, const High& is_high, I& low, I& high) {
  WarpSearch<I> one{0, length}, other{0, length};
  while (one.is_open() || other.is_open()) {
    const bool first = one.look(is_low), second = other.look(is_high);
    one.narrow(first);
    other.narrow(second);
  }
  low = one.low;
  high = other.low;
}
template <class I, class Low, class High>
__device__ inline void range_of(I length, const Low& is_low, const High& is_high, I& low, I& high) {
  I one = 0, one_end = length, other = 0, other_end = length;
  while (one < one_end || other < other_end) {
    const I middle = one + (one_end - one) / 2, next = other + (other_end - other) / 2;
    const bool first = one < one_end && is_low(middle), second = other < other_end && is_high(next);
    if (first) one = middle + 1;
    else one_end = middle;
    if (second) other = next + 1;
    else other_end = next;
  }
  low = one;
  high = other;
}

// Which elements to look at of those from `low` to `high`: `count` of them, at(k) is one.
template <class I> struct Looks {
  I low, count;
  __device__ Looks(I low, I high) : low(low), count(high - low) {}
  __device__ I at(I k) const { return low + k; }
};

// The same, but of each whole chunk of Chunk elements only the first.
template <class I, I Chunk> struct ChunkLooks {
  I low, before, chunks, count;
  __device__ ChunkLooks(I low, I high) : low(low) {
    const I first = (low + Chunk - 1) / Chunk * Chunk;
    chunks = high > first ? (high - first) / Chunk : 0;
    before = chunks ? first - low : high - low;
    count = before + chunks + (chunks ? high - first - chunks * Chunk : 0);
  }
  __device__ I at(I k) const {
    const I behind = k - before;
    return low + k + (behind < 0 ? 0 : (behind < chunks ? behind : chunks) * (Chunk - 1));
  }
};

// Of runs of Length elements, `step` apart, how many elements a test holds for in all: in each of them
// it holds for the first ones; of the run `own` it is `mine`. holds(run, at) looks at an element of the
// run that begins at `run`; Together runs at once. Where not all of the runs are Whole, some `end`
// early, or are not there.
template <int Length, bool Whole, int Together, class I, class Holds>
__device__ inline I count_leading(I first, I step, I end, I own, I mine, const Holds& holds) {
  const auto look = [&](I run, I place) -> bool {
    return Whole ? holds(run, place) : holds(run, place < end ? place : end - 1) & (place < end);
  };
  I total = 0;
  for (I run = first; run < end; run += Together * step) {
    I found[Together] = {};
    for (I size = Length / 2; size > 0; size /= 2) {
      bool held[Together];
#pragma unroll
      for (int r = 0; r < Together; ++r)
        held[r] = look(run + r * step, run + r * step + found[r] + size - 1);
#pragma unroll
      for (int r = 0; r < Together; ++r) found[r] += held[r] ? size : 0;
    }
#pragma unroll
    for (int r = 0; r < Together; ++r) {
      const I start = run + r * step;
      const I all = found[r] + look(start, start + found[r]);
      total += start == own ? mine : Whole || start < end ? all : 0;
    }
  }
  return total;
}

// The same for keys, of which elements with lesser ones go first, and equal ones of earlier runs: where
// the warp's own ones rise from lane to lane, it looks together for where the first and the last of
// them belong. What lies between is fetched at once, if it is not more than Near.
template <int Length, int Warps, int Together, class I, class Key>
__device__ inline I count_lesser(
    I first, I step, I end, I own, I mine, u32 known, const Key& key) {
  constexpr int Near = 128;
  __shared__ u32 near[Warps][Together][Near];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 least = shuffle_from(known, 0), most = shuffle_from(known, 31);
  const auto lesser = [&](I run, u32 other, u32 x) {
    return (other < x) | ((other == x) & (run < own));
  };
  I total = 0;
  for (I run = first; run < end; run += Together * step) {
    I low[Together] = {}, high[Together] = {}, limit[Together];
#pragma unroll
    for (int r = 0; r < Together; ++r) {
      const I length = end - (run + r * step);
      limit[r] = length < 0 ? 0 : length < Length ? length : Length;
    }
    const auto look = [&](int r, I place, u32 x) {
      const I start = run + r * step;
      const u32 other = key(place < limit[r] ? start + place : end - 1);
      return lesser(start, other, x) & (place < limit[r]);
    };
    int stride = Length;
    while (stride > 32) {
      stride /= 32;
      bool one[Together], two[Together];
#pragma unroll
      for (int r = 0; r < Together; ++r) {
        one[r] = look(r, low[r] + (lane + 1) * stride - 1, least);
        two[r] = look(r, high[r] + (lane + 1) * stride - 1, most);
      }
#pragma unroll
      for (int r = 0; r < Together; ++r) {
        low[r] += stride * __popc(__ballot_sync(0xffffffffu, one[r]));
        high[r] += stride * __popc(__ballot_sync(0xffffffffu, two[r]));
      }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < Together; ++r) {
      high[r] = high[r] + stride < limit[r] ? high[r] + stride : limit[r];
#pragma unroll
      for (int k = 0; k < Near; k += 32) {
        const I place = low[r] + k + lane;
        near[warp][r][k + lane] = key(place < limit[r] ? run + r * step + place : end - 1);
      }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < Together; ++r) {
      const I start = run + r * step, count = high[r] - low[r];
      I from = 0, to = count;
      if (count <= Near) {
#pragma unroll
        for (int size = Near; size > 0; size /= 2) {
          const I place = from + size - 1;
          if (place < count && lesser(start, near[warp][r][place], known)) from += size;
        }
      } else {
        while (from < to) {
          const I middle = (from + to) / 2;
          if (lesser(start, key(start + low[r] + middle), known)) from = middle + 1;
          else to = middle;
        }
      }
      total += start == own ? mine : start < end ? low[r] + from : 0;
    }
  }
  return total;
}

}  // namespace hlo
