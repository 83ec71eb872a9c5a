// What the blocks of a cluster do together.
#pragma once

#include "types.cuh"

namespace hlo {

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

#endif

}  // namespace hlo
