// Sorting by a digit of 8 bits: counting the digits of a block's elements, and finding their places.
#pragma once

#include "cooperate.cuh"

namespace hlo {

constexpr int Digits = 256;

// Count the digits of elements `begin` to `end`. Each lane of all warps has counts of its own, so that
// lanes never meet, however many elements have the same digit.
template <int Threads, class I, class Digit>
__device__ inline void count_digits(I begin, I end, const Digit& digit, s32* counts) {
  __shared__ u32 parts[Digits * 32];
  for (int k = threadIdx.x; k < Digits * 32; k += Threads) parts[k] = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32;
#pragma unroll 8
  for (I at = begin + threadIdx.x; at < end; at += Threads) atomicAdd(parts + digit(at) * 32 + lane, 1u);
  __syncthreads();
  if (threadIdx.x >= Digits) return;
  u32 sum = 0;
#pragma unroll
  for (int k = 0; k < 32; ++k) sum += parts[threadIdx.x * 32 + (k + lane) % 32];
  counts[threadIdx.x] = (s32)sum;
}

// What the threads before have, for each of the first 256; all threads of the block take part.
template <int Threads> __device__ inline int sum_before(int x) {
  __shared__ int warps[Digits / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = x;
#pragma unroll
  for (int delta = 1; delta < 32; delta *= 2) {
    const int other = shuffle_up(sum, delta);
    if (lane >= delta) sum += other;
  }
  if (warp < Digits / 32 && lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = 0;
#pragma unroll
  for (int w = 0; w < Digits / 32; ++w) before += w < warp ? warps[w] : 0;
  return before + sum - x;
}

// Where the first element of each digit goes that block `own` of `count` has: behind all of lesser
// digits, and those of the blocks before. at(block, digit) gives counts.
template <int Threads, class At>
__device__ inline void first_places(int own, int count, const At& at, int* places) {
  constexpr int sharing = Threads / Digits;
  __shared__ int sums[Threads], sums_before[Threads];
  const int digit = threadIdx.x % Digits;
  int sum = 0, before = 0;
#pragma unroll 32
  for (int block = threadIdx.x / Digits; block < count; block += sharing) {
    const int found = at(block, digit);
    sum += found;
    before += block < own ? found : 0;
  }
  sums[threadIdx.x] = sum;
  sums_before[threadIdx.x] = before;
  __syncthreads();
  sum = before = 0;
#pragma unroll
  for (int k = 0; k < sharing; ++k) {
    sum += sums[digit + k * Digits];
    before += sums_before[digit + k * Digits];
  }
  const int lesser = sum_before<Threads>(threadIdx.x < Digits ? sum : 0);
  if (threadIdx.x < Digits) places[digit] = lesser + before;
}

// Which lanes of the warp have the same bit of a number: in assembly, as the compiler takes twice as long.
__device__ inline u32 same_bit(u32 x, int bit) {
#ifdef __CUDA_ARCH__
  u32 lanes;
  asm volatile(
      "{ .reg .pred p; and.b32 %0, %1, %2; setp.ne.u32 p, %0, 0; "
      "vote.sync.ballot.b32 %0, p, 0xffffffff; @!p not.b32 %0, %0; }"
      : "=r"(lanes)
      : "r"(x), "r"(1u << bit));
  return lanes;
#else
  const u32 lanes = __ballot_sync(0xffffffffu, x >> bit & 1);
  return x >> bit & 1 ? lanes : ~lanes;
#endif
}

// Which lanes of the warp have the same digit.
__device__ inline u32 same_digit(u32 digit) {
  u32 same = 0xffffffffu;
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) same &= same_bit(digit, bit);
  return same;
}

// Sort the digits of a block's elements: `slots` become their places in the block. A warp's elements are
// Each * 32 that follow each other, which its lanes take in turn. moves[d] becomes how much further on
// the elements of digit d go, the first of which goes to places[d]; this becomes that of what comes next.
template <int Threads, int Each>
__device__ inline void order_digits(
    const u32 (&digits)[Each], int (&slots)[Each], int* places, int* moves) {
  constexpr int all = Threads / 32;
  __shared__ u16 counts[all][Digits];
  __shared__ int starts[Digits];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < Digits / 32; ++k) counts[warp][k * 32 + lane] = 0;
  u32 same[Each];
#pragma unroll
  for (int e = 0; e < Each; ++e) same[e] = same_digit(digits[e]);
  __syncwarp();
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const int before = counts[warp][digits[e]], earlier = __popc(same[e] & ((1u << lane) - 1));
    __syncwarp();
    if (earlier == 0) counts[warp][digits[e]] = (u16)(before + __popc(same[e]));
    __syncwarp();
    slots[e] = before + earlier;
  }
  __syncthreads();
  int sum = 0;
  if (threadIdx.x < Digits) {
#pragma unroll
    for (int w = 0; w < all; ++w) {
      const int here = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = (u16)sum;
      sum += here;
    }
  }
  const int start = sum_before<Threads>(sum);
  if (threadIdx.x < Digits) {
    starts[threadIdx.x] = start;
    moves[threadIdx.x] = places[threadIdx.x] - start;
    places[threadIdx.x] += sum;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < Each; ++e) slots[e] += counts[warp][digits[e]] + starts[digits[e]];
}

}  // namespace hlo
