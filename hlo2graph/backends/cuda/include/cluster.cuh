// What the blocks of a cluster do together.
#pragma once

#include "types.cuh"

namespace hlo {

// A value that one block hands over to another, in whole words.
template <class T> struct Handed {
  u32 words[(sizeof(T) + 3) / 4];
};
template <class T> __device__ inline T handed(const Handed<T>& from) {
  T found;
  memcpy(&found, from.words, sizeof(T));
  return found;
}

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900

// What all threads of all blocks come by before any goes past `cluster_waits`.
__device__ inline void cluster_begins() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
__device__ inline void cluster_waits() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// A barrier of all threads of all blocks: what they wrote to shared memory before can be seen behind
// it.
__device__ inline void cluster_meets() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Where block number `rank` of the cluster has what this one has at `own` in its shared memory.
template <class T> __device__ inline T* of_block(T* own, int rank) {
  u64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((u64)own), "r"(rank));
  return (T*)there;
}

// Where blocks hand values over: each has a place that tells when it has got all of its own. All
// open `count` of them before any goes past `cluster_waits`; each is used once.
__device__ inline u32 shared_place(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline void meetings_open(u64* meetings, int count) {
  if (threadIdx.x == 0) {
    for (int k = 0; k < count; ++k)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_place(&meetings[k]))
                   : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// This block gets so many bytes, and no more; some may have come already.
__device__ inline void meeting_expects(u64* meeting, u32 bytes) {
  if (threadIdx.x == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_place(meeting)),
                 "r"(bytes)
                 : "memory");
}

// Block number `rank` gets `value` where this one has `own`.
template <class T>
__device__ inline void hand_over(Handed<T>* own, T value, int rank, u64* meeting) {
  u32 to, at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_place(own)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_place(meeting)), "r"(rank));
  const int count = sizeof(Handed<T>) / 4;
  u32 words[count] = {};
  memcpy(words, &value, sizeof(T));
  for (int k = 0; k < count; ++k)
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
            to + 4 * k),
        "r"(words[k]), "r"(at)
        : "memory");
}

// Waits until this block has got all that it expects, and all of it can be seen.
__device__ inline void meeting_ends(u64* meeting) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}" ::"r"(
          shared_place(meeting))
      : "memory");
}

#endif
#else

__device__ inline void cluster_begins() { emulated::arrive_at_cluster(); }
__device__ inline void cluster_waits() { emulated::wait_for_cluster(); }
__device__ inline void cluster_meets() {
  cluster_begins();
  cluster_waits();
}

template <class T> __device__ inline T* of_block(T* own, int rank) {
  return (T*)emulated::of_block((char*)own, rank);
}

__device__ inline void meetings_open(u64* meetings, int count) {
  if (threadIdx.x == 0)
    for (int k = 0; k < count; ++k) emulated::open_meeting(&meetings[k]);
  cluster_begins();
}
__device__ inline void meeting_expects(u64* meeting, u32 bytes) {
  if (threadIdx.x == 0) emulated::come_to_meeting(meeting, 1, bytes);
}
template <class T>
__device__ inline void hand_over(Handed<T>* own, T value, int rank, u64* meeting) {
  memcpy(of_block(own, rank), &value, sizeof(T));
  emulated::come_to_meeting(of_block(meeting, rank), 0, -(int)sizeof(Handed<T>));
}
__device__ inline void meeting_ends(u64* meeting) { emulated::wait_for_meeting(meeting); }

#endif

}  // namespace hlo
