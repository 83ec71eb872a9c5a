// What the threads of a warp do together.
#pragma once

#include "types.cuh"

namespace hlo {

// Every kernel begins with this, but for reading what nothing in its graph writes. Where
// programmatic edges join it to the kernels before it, it is on the device while they still run: it
// waits until they are done and what they wrote can be seen, then lets those behind it come.
// Elsewhere it does nothing.
__device__ inline void follow() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Where the element `By` further on lies. The compiler cannot tell that it has to do with `p`: it would
// add the distance to each index, and then not see which of them are neighbours.
template <long long By, class T> __device__ inline const T* moved(const T* p) {
#ifdef __CUDA_ARCH__
  size_t at = __cvta_generic_to_global(p);
  asm("add.u64 %0, %0, %1;" : "+l"(at) : "n"(By * (long long)sizeof(T)));
  return (const T*)__cvta_global_to_generic(at);
#else
  return p + By;
#endif
}

// The shared memory that a launch asks for, beside what a kernel declares.
__device__ inline char* dynamic_shared() {
#ifdef __CUDA_ARCH__
  extern __shared__ __align__(16) char bytes[];
  return bytes;
#else
  return emulated::dynamic_shared.data();
#endif
}

// Bytes side by side from memory to shared memory, 4, 8 or some times 16: on the way until the thread
// waits in `copies_land`.
template <int Bytes> __device__ inline void copy_ahead(void* to, const void* from) {
#ifdef __CUDA_ARCH__
  const u32 place = (u32)__cvta_generic_to_shared(to);
  if (Bytes % 16 == 0)
    for (int k = 0; k < Bytes; k += 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + k),
                   "l"((const char*)from + k)
                   : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(Bytes)
                 : "memory");
#else
  emulated::copy_ahead(to, from, Bytes);
#endif
}
__device__ inline void copies_land() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated::copies_land();
#endif
}

// So many words of 4 bytes that lie on a whole access: 1, 2 or 4. The compiler would read some of
// them alone, where only some are asked for at last, each by an access that takes as long as that of all.
template <int Words> __device__ inline void read_whole(u32* to, const void* from) {
#ifdef __CUDA_ARCH__
  const size_t at = __cvta_generic_to_global(from);
  if constexpr (Words == 4)
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(at));
  else if constexpr (Words == 2)
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(at));
  else
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(to[0]) : "l"(at));
#else
  memcpy(to, __builtin_assume_aligned(from, 4 * Words), 4 * Words);
#endif
}

// The N elements of p from `first` + `shift` on, where `first` is a multiple of N and `shift` is less:
// read by two accesses, or one if there is no shift, and put in place in registers. p begins on
// whole accesses.
template <int N, class T> struct Several {
  T x[N];
};
template <int N, class T> __device__ inline Several<N, T> askew(const T* p, int first, int shift) {
  const int words = N * sizeof(T) / 4;
  u32 both[2 * words];
  read_whole<words>(both, p + first);
  read_whole<words>(both + words, p + (shift > 0 ? first + N : first));
  const int far = shift * (int)sizeof(T);
#pragma unroll
  for (int step = words / 2; step; step /= 2)
#pragma unroll
    for (int k = 0; k + step < 2 * words; ++k)
      if (far / 4 & step) both[k] = both[k + step];
  if (sizeof(T) < 4)
#pragma unroll
    for (int k = 0; k < words; ++k) both[k] = __funnelshift_r(both[k], both[k + 1], far % 4 * 8);
  Several<N, T> found;
  memcpy(&found, both, sizeof(found));
  return found;
}

// What `move` makes of each word of x: the shuffles below take values of any size.
template <class T, class Move> __device__ inline T by_words(T x, Move move) {
  const int words = (sizeof(T) + 3) / 4;
  u32 bits[words] = {};
  memcpy(bits, &x, sizeof(T));
  for (int k = 0; k < words; ++k) bits[k] = move(bits[k]);
  memcpy(&x, bits, sizeof(T));
  return x;
}

// The value that the thread `delta` lanes further on holds, `delta` lanes before, in the lane whose
// number differs by `mask`, or in `lane` of the warp; all 32 lanes take part.
template <class T> __device__ inline T shuffle_down(T x, int delta) {
  return by_words(x, [=](u32 word) { return __shfl_down_sync(0xffffffffu, word, delta); });
}
template <class T> __device__ inline T shuffle_up(T x, int delta) {
  return by_words(x, [=](u32 word) { return __shfl_up_sync(0xffffffffu, word, delta); });
}
template <class T> __device__ inline T shuffle_across(T x, int mask) {
  return by_words(x, [=](u32 word) { return __shfl_xor_sync(0xffffffffu, word, mask); });
}
template <class T> __device__ inline T shuffle_from(T x, int lane) {
  return by_words(x, [=](u32 word) { return __shfl_sync(0xffffffffu, word, lane); });
}

// The largest of what the lanes of a warp have, for each of them; the lowest.
__device__ inline u32 warp_largest(u32 x) { return __reduce_max_sync(0xffffffffu, x); }
__device__ inline u64 warp_largest(u64 x) {
  const u32 high = warp_largest((u32)(x >> 32));
  const u32 low = warp_largest((u32)(x >> 32) == high ? (u32)x : 0u);
  return (u64)high << 32 | low;
}
__device__ inline int warp_lowest(int x) { return (int)~warp_largest(~(u32)x); }  // from 0 on

// A thread's elements are those of its warp, Each * 32 that follow each other, that are its lane's of
// 32. How many before each of them are chosen, which bits of `chosen` tell; `count` becomes that of all.
template <int Threads, int Each>
__device__ inline void rank_chosen(u32 chosen, int (&rank)[Each], int& count) {
  __shared__ int warps[Threads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int here = 0;
#pragma unroll
  for (int k = 0; k < Each; ++k) {
    const u32 those = __ballot_sync(0xffffffffu, chosen >> k & 1);
    rank[k] = here + __popc(those & ((1u << lane) - 1));
    here += __popc(those);
  }
  __syncthreads();
  if (lane == 0) warps[warp] = here;
  __syncthreads();
  const int held = lane < Threads / 32 ? warps[lane] : 0;
  const int before = __reduce_add_sync(0xffffffffu, lane < warp ? held : 0);
  count = __reduce_add_sync(0xffffffffu, held);
#pragma unroll
  for (int k = 0; k < Each; ++k) rank[k] += before;
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
