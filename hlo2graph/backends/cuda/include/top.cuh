// The largest elements of a row, by a block.
#pragma once

#include "cooperate.cuh"
#include "elementwise.cuh"
#include "sort.cuh"

namespace hlo {

// The sum over all threads of a block, for each of them, with one barrier: the next call takes the
// other row of `parts`.
template <int Threads> __device__ inline int sum_of(int mine, int (*parts)[Threads / 32], int& turn) {
  const int lane = threadIdx.x % 32, here = __reduce_add_sync(0xffffffffu, mine);
  turn = 1 - turn;
  if (lane == 0) parts[turn][threadIdx.x / 32] = here;
  __syncthreads();
  return __reduce_add_sync(0xffffffffu, lane < Threads / 32 ? parts[turn][lane] : 0);
}

// Elements that are wanted, from which on they are sorted, where each of fewer counts those before it.
constexpr int MANY_TAKEN = 200;

// Call put(rank, at) for each of the K elements of a row with the largest keys; of equals, the first
// ones. key(at) gives the key of an element. A thread has Each elements in its registers, or, where
// that is 0, looks at some again. There are three ways:

// 1. The K-th largest key is found from its highest bit on: a bit is set if at least K keys are as large
// then. Once these are K, no more need be known. Where some keys are equal to the K-th, as many as
// belong to the K are told by where they stand, found in the same way.
template <int Threads, int Each, int K, class Index, class Key, class Put>
__device__ inline void take_bit_by_bit(Index length, const Key& key, const Put& put) {
  typedef decltype(key((Index)0)) Bits;
  __shared__ int parts[2][Threads / 32], taken;
  __shared__ Bits largest[K];
  __shared__ Index places[K];
  Bits held[Each > 0 ? Each : 1];
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const Index at = threadIdx.x + e * Threads;
    held[e] = at < length ? key(at) : (Bits)0;
  }
  const auto each = [&](const auto& visit) {
    if constexpr (Each > 0) {
#pragma unroll
      for (int e = 0; e < Each; ++e) visit(held[e], (Index)threadIdx.x + e * Threads);
    } else {
#pragma unroll 4
      for (Index at = threadIdx.x; at < length; at += Threads) visit(key(at), at);
    }
  };
  int turn = 0;
  const auto count = [&](const auto& belongs) {
    int mine = 0;
    each([&](Bits bits, Index at) { mine += belongs(bits, at) ? 1 : 0; });
    if (Each == 0) mine = mine <= K ? mine : K + 1;  // or the sum may be larger than an int
    return sum_of<Threads>(mine, parts, turn);
  };
  if (threadIdx.x == 0) taken = 0;

  // What fills up the last threads' registers has the key 0, which no `next` has.
  Bits least = 0;
  bool found = false;
  for (Bits bit = (Bits)1 << (8 * sizeof(Bits) - 1); bit && !found; bit >>= 1) {
    const Bits next = least | bit;
    const int total = count([=](Bits bits, Index) { return bits >= next; });
    if (total >= K) least = next;
    found = total == K;
  }
  if (found) least -= 1;
  Index end = 0;
  for (int k = 8 * sizeof(Index) - 2; k >= 0 && !found; --k) {
    const Index next = end | (Index)1 << k;
    if (next > length) continue;
    const int total =
        count([=](Bits bits, Index at) { return bits > least || (bits == least && at < next); });
    if (total <= K) end = next;
    found = total == K;
  }
  each([&](Bits bits, Index at) {
    if (bits > least || (bits == least && at < end)) {
      const int slot = atomicAdd(&taken, 1);
      largest[slot] = bits;
      places[slot] = at;
    }
  });
  __syncthreads();
  if constexpr (sizeof(Bits) == 4 && sizeof(Index) == 4 && K >= MANY_TAKEN) {
    constexpr int window = K > 512 ? 1024 : K > 256 ? 512 : 256;
    constexpr int each = window > Threads ? window / Threads : 1;
    __shared__ u64 words[window];
    u64 mine[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int slot = threadIdx.x * each + e;
      mine[e] = slot < K ? (u64)~largest[slot] << 32 | (u32)places[slot] : ~0ull;
    }
    sort_words<window>(words, K, mine);
    for (int slot = threadIdx.x; slot < K; slot += Threads) put(slot, (Index)(u32)words[slot]);
  } else {
    for (int slot = threadIdx.x; slot < K; slot += Threads) {
      const Bits mine = largest[slot];
      const Index at = places[slot];
      int rank = 0;
#pragma unroll 8
      for (int k = 0; k < K; ++k)
        rank += (largest[k] > mine) | ((largest[k] == mine) & (places[k] < at));
      put(rank, at);
    }
  }
}

// How many groups of threads a way looks at the best of, where K elements are wanted.
__device__ constexpr int groups_for(int threads, int wanted) {
  int found = threads;
  while (found / 2 >= 2 * wanted && threads / (found / 2) <= 32) found /= 2;
  return found;
}

// 2. Where keys have 32 bits: of the best of each group of threads, the K-th best is a bound, which K
// elements reach, and mostly not many more. Words have a key and, so that equal ones are told apart, a
// place, the first one the largest. Returns false where too many reach the bound.
template <int Threads, int Each, int K, class Index, class Key, class Put>
__device__ inline bool take_bounded(Index length, const Key& key, const Put& put) {
  constexpr int groups = groups_for(Threads, K), lanes = Threads / groups;
  constexpr int room = K < 64 ? 256 : 4 * K;
  __shared__ u64 best[groups], reach[room], bound;
  __shared__ int taken;
  const auto word = [&](Index at) { return (u64)key(at) << 32 | (u32) ~(u32)at; };
  u64 held[Each > 0 ? Each : 1];
  if constexpr (Each > 0) {
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const Index at = threadIdx.x + e * Threads;
      held[e] = at < length ? word(at) : 0ull;
    }
  }
  const auto each = [&](const auto& visit) {
    if constexpr (Each > 0) {
#pragma unroll
      for (int e = 0; e < Each; ++e) visit(held[e]);
    } else {
#pragma unroll 8
      for (Index at = threadIdx.x; at < length; at += Threads) visit(word(at));
    }
  };
  u64 most = 0;
  each([&](u64 x) { most = x > most ? x : most; });
#pragma unroll
  for (int mask = 1; mask < lanes; mask *= 2) {
    const u64 other = shuffle_across(most, mask);
    most = other > most ? other : most;
  }
  if (threadIdx.x % lanes == 0) best[threadIdx.x / lanes] = most;
  if (threadIdx.x == 0) bound = 0, taken = 0;
  __syncthreads();
  if (threadIdx.x < groups) {
    const u64 mine = best[threadIdx.x];
    int rank = 0;
#pragma unroll 16
    for (int g = 0; g < groups; ++g) rank += best[g] > mine;
    if (mine && rank == K - 1) bound = mine;
  }
  __syncthreads();
  const u64 least = bound;
  each([&](u64 x) {
    if (x && x >= least) {
      const int slot = atomicAdd(&taken, 1);
      if (slot < room) reach[slot] = x;
    }
  });
  __syncthreads();
  const int count = taken;
  if (count > room) return false;
  for (int slot = threadIdx.x; slot < count; slot += Threads) {
    const u64 mine = reach[slot];
    int rank = 0;
#pragma unroll 8
    for (int k = 0; k < count; ++k) rank += reach[k] > mine;
    if (rank < K) put(rank, (Index) ~(u32)mine);
  }
  return true;
}

template <int Threads, int Each, int K, class Index, class Key, class Put>
__device__ inline void take_largest(Index length, const Key& key, const Put& put) {
  constexpr bool are_few = 4 * K <= Threads || (K <= Threads && Threads * Each <= 256);
  if constexpr (sizeof(key((Index)0)) == 4 && are_few)
    if (take_bounded<Threads, Each, K>(length, key, put)) return;
  take_bit_by_bit<Threads, Each, K>(length, key, put);
}

// 3. For a small K and keys of 32 bits: the largest word is looked for K times, and taken away.
template <int Threads, int Each, int K, class Key, class Put>
__device__ inline void take_few(int length, const Key& key, const Put& put) {
  __shared__ u64 parts[2][Threads / 32];
  const int lane = threadIdx.x % 32;
  u64 held[Each], mine = 0;
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const int at = threadIdx.x + e * Threads;
    held[e] = at < length ? (u64)key(at) << 32 | ~(u32)at : 0ull;
  }
  for (int round = 0; round < K; ++round) {
    u64 best = held[0];
#pragma unroll
    for (int e = 1; e < Each; ++e) best = held[e] > best ? held[e] : best;
    best = warp_largest(best);
    if (Threads > 32) {
      if (lane == 0) parts[round % 2][threadIdx.x / 32] = best;
      __syncthreads();
      best = warp_largest(lane < Threads / 32 ? parts[round % 2][lane] : 0ull);
    }
#pragma unroll
    for (int e = 0; e < Each; ++e) held[e] = held[e] == best ? 0ull : held[e];
    mine = threadIdx.x == round ? best : mine;
  }
  if (threadIdx.x < K) put((int)threadIdx.x, (int)~(u32)mine);
}

}  // namespace hlo
