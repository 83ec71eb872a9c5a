// CUDA C++ kernels on a CPU: enough of the language for g++ to compile what we emit.
//
// Blocks run one after another. A block's threads are fibers: each runs until it meets a barrier or
// a shuffle, then the next one does, so that both work as on a device; what waits at a barrier of the
// block goes on once all its threads do, or have ended. Shared memory is static,
// and spoilt before each block. The blocks of a cluster run at once, each with shared memory of its
// own; one of them begins when those before it can but wait for it, and what is read of others that
// have not begun, or have ended, is spoilt. A place where they meet counts arrivals and bytes as an
// mbarrier does; where a thread waits for what never comes, shared memory is spoilt, and it goes on.
// Asynchronous copies arrive when their thread waits for them. Atomics are plain, since nothing runs
// at once.
// `run_backwards` turns the order of blocks and threads round: what a barrier is missing for then comes
// out otherwise.
#pragma once

#undef _FORTIFY_SOURCE  // whose longjmp takes one to another stack for a mistake

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static __attribute__((section("shared_memory")))
#define __restrict__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct Dim3 {
  unsigned x, y, z;
};

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
inline float __frcp_rn(float x) { return 1.0f / x; }

extern "C" char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));

namespace emulated {

enum Barrier : char { nothing, block_barrier, cluster_barrier, meeting };

struct Fiber {
  jmp_buf place;  // where it goes on
  bool begun = false;
};

struct Block {  // or the blocks of a cluster: the first's number, and all of their threads
  Dim3 grid, dim, index;
  std::vector<Fiber> fibers;  // one a thread; they live on, for the threads of later blocks
  std::vector<bool> done;
  std::vector<Barrier> waits;  // at which barrier
  std::vector<unsigned> arrivals;  // at barriers of the cluster
  unsigned begun = 0;  // blocks of the cluster
  bool came = false;  // anything to a meeting, since threads went on
  std::vector<uint64_t> exchange;  // one word a thread: what a shuffle hands over
  jmp_buf scheduler;
  unsigned current = 0;
  void (*body)(void**) = nullptr;
  void** arguments = nullptr;
};

inline Block block;
inline bool backwards = false;  // blocks, and threads between barriers, from the last to the first
inline unsigned turned(unsigned number, unsigned count) {
  return backwards ? count - 1 - number : number;
}
inline unsigned shared_bytes;  // of a block
inline struct {
  std::vector<char> all;  // of a cluster's blocks
  char* data() { return all.data() + block.current / block.dim.x * shared_bytes; }
} dynamic_shared;
inline struct {
  std::vector<std::vector<char>> aside;  // of a cluster's blocks, but for that whose threads run
  unsigned running = 0;
  size_t size() { return __stop_shared_memory - __start_shared_memory; }
  void turn_to(unsigned rank) {
    if (rank == running) return;
    memcpy(aside[running].data(), __start_shared_memory, size());
    memcpy(__start_shared_memory, aside[rank].data(), size());
    running = rank;
  }
} declared_shared;
inline std::vector<char> spoilt;  // in the place of what cannot be reached

// Hand over to the scheduler; the thread goes on once all others have come as far or ended.
inline void yield() {
  if (!_setjmp(block.fibers[block.current].place)) _longjmp(block.scheduler, 1);
}

inline void live() {
  for (;;) {
    block.body(block.arguments);
    block.done[block.current] = true;
    yield();
  }
}

// Let the current thread go on until it yields. Jumps, unlike a context's switches, ask nothing of
// the system; a context is for a fiber's first step, which brings it to a stack of its own.
inline void go_on() {
  if (_setjmp(block.scheduler)) return;
  Fiber& fiber = block.fibers[block.current];
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  const size_t stack_bytes = 64 * 1024;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = malloc(stack_bytes);
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, live, 0);
  setcontext(&context);
}

inline void wait(Barrier barrier) {
  block.waits[block.current] = barrier;
  yield();
}
inline void arrive_at_cluster() { ++block.arrivals[block.current]; }
inline void wait_for_cluster() { wait(cluster_barrier); }

// An mbarrier of one arrival, of one phase: in the place of its word.
struct Meeting {
  int16_t arrivals, is_over;
  int32_t bytes;  // expected; less than none where more have come
};
inline void open_meeting(void* place) { *(Meeting*)place = {1, 0, 0}; }
inline void come_to_meeting(void* place, int arrivals, int bytes) {
  Meeting& at = *(Meeting*)place;
  at.arrivals -= arrivals;
  at.bytes += bytes;
  if (at.arrivals == 0 && at.bytes == 0) at.is_over = 1;
  block.came = true;
}
inline void wait_for_meeting(const void* place) {
  while (!((const Meeting*)place)->is_over) wait(meeting);
}

// A copy to shared memory, of which each thread's own arrive when it waits for them.
struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
};
inline std::vector<std::vector<Copy>> copies;  // a thread's
inline void copy_ahead(void* to, const void* from, unsigned bytes) {
  if (copies.size() < block.done.size()) copies.resize(block.done.size());
  copies[block.current].push_back({to, from, bytes});
}
inline void copies_land() {
  if (block.current >= copies.size()) return;
  for (const Copy& copy : copies[block.current]) memcpy(copy.to, copy.from, copy.bytes);
  copies[block.current].clear();
}

inline bool can_reach(unsigned rank) {
  const unsigned each = block.dim.x, blocks = block.done.size() / each;
  if (turned(rank, blocks) >= block.begun) return false;
  for (unsigned t = rank * each; t < (rank + 1) * each; ++t)
    if (!block.done[t]) return true;
  return false;
}
inline char* of_block(char* own, unsigned rank) {
  if (rank == declared_shared.running) return own;
  const bool is_declared = own >= __start_shared_memory && own < __stop_shared_memory;
  const size_t at = own - (is_declared ? __start_shared_memory : dynamic_shared.data());
  if (!can_reach(rank)) {
    spoilt.assign(declared_shared.size() + shared_bytes, (char)0xA5);
    return spoilt.data() + at;
  }
  if (is_declared) return declared_shared.aside[rank].data() + at;
  return dynamic_shared.all.data() + rank * shared_bytes + at;
}

// Let threads from `first` on go that wait at a barrier, if all `count` of them do or have ended.
inline void release(unsigned first, unsigned count) {
  for (unsigned t = first; t < first + count; ++t)
    if (!block.done[t] && block.waits[t] != block_barrier) return;
  for (unsigned t = first; t < first + count; ++t) block.waits[t] = nothing;
}

// The same of a cluster's barrier, at which threads may have arrived before they wait. Tell whether
// any can go.
inline bool release_cluster() {
  unsigned least = ~0u;
  bool goes = false;
  for (unsigned t = 0; t < block.done.size(); ++t)
    if (!block.done[t]) least = std::min(least, block.arrivals[t]);
  for (unsigned t = 0; t < block.done.size(); ++t)
    if (block.waits[t] == cluster_barrier && block.arrivals[t] <= least) {
      block.waits[t] = nothing;
      goes = true;
    }
  return goes;
}

// What one block leaves in a kernel's shared arrays may not reach the next.
inline void spoil_shared() {
  memset(__start_shared_memory, 0xA5, __stop_shared_memory - __start_shared_memory);
  memset(dynamic_shared.all.data(), 0xA5, dynamic_shared.all.size());
  for (auto& aside : declared_shared.aside) aside.assign(declared_shared.size(), (char)0xA5);
}

inline void run_block(unsigned count, bool cooperative) {
  if (!cooperative) {
    for (unsigned t = 0; t < count; ++t) {
      block.current = turned(t, count);
      block.body(block.arguments);
    }
    return;
  }
  if (block.fibers.size() < count) block.fibers.resize(count);
  block.done.assign(count, false);
  block.waits.assign(count, nothing);
  block.arrivals.assign(count, 0);
  block.begun = 1;
  block.exchange.assign(count + 32, 0);
  copies.clear();
  for (bool alive = true; alive;) {
    bool moves = alive = block.came = false;
    for (unsigned t = 0; t < block.begun * block.dim.x; ++t) {
      block.current = turned(t, count);
      if (block.done[block.current]) continue;
      declared_shared.turn_to(block.current / block.dim.x);
      if (block.waits[block.current] == nothing) go_on();
      alive = alive || !block.done[block.current];
      moves = moves || (!block.done[block.current] && block.waits[block.current] < cluster_barrier);
    }
    if (!moves && block.begun * block.dim.x < count) {
      ++block.begun;
      alive = true;
      continue;
    }
    for (unsigned t = 0; t < count; t += block.dim.x) release(t, block.dim.x);
    const bool goes = release_cluster();
    if (alive && !goes && !moves && !block.came) spoil_shared();
    std::replace(block.waits.begin(), block.waits.end(), meeting, nothing);
  }
}

inline void launch(void (*body)(void**), void** arguments, unsigned blocks, unsigned threads,
                   unsigned shared, unsigned cluster, bool cooperative) {
  block.body = body;
  block.arguments = arguments;
  block.grid = {blocks, 1, 1};
  block.dim = {threads, 1, 1};
  shared_bytes = shared;
  dynamic_shared.all.resize(shared * cluster);
  declared_shared.aside.resize(cluster > 1 ? cluster : 0);
  declared_shared.running = 0;
  for (unsigned c = 0; c < blocks / cluster; ++c) {
    block.index = {turned(c, blocks / cluster) * cluster, 0, 0};
    if (cooperative) spoil_shared();
    run_block(threads * cluster, cooperative);
  }
}

}  // namespace emulated

extern "C" void run_backwards(int on) { emulated::backwards = on; }

#define gridDim (emulated::block.grid)
#define blockDim (emulated::block.dim)
#define blockIdx (Dim3{emulated::block.index.x + emulated::block.current / blockDim.x, 0, 0})
#define threadIdx (Dim3{emulated::block.current % blockDim.x, 0, 0})

inline void __syncthreads() { emulated::wait(emulated::block_barrier); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulated::yield(); }
inline void __threadfence() {}

template <class T>
inline T emulated_shuffle(T value, unsigned from, bool inside) {
  static_assert(sizeof(T) <= 8, "a shuffle moves a word");
  unsigned me = emulated::block.current;
  memcpy(&emulated::block.exchange[me], &value, sizeof(T));
  emulated::yield();
  T found = value;
  if (inside) memcpy(&found, &emulated::block.exchange[from], sizeof(T));
  emulated::yield();
  return found;
}
inline unsigned __ballot_sync(unsigned, bool chosen) {
  const unsigned me = emulated::block.current, first = me / 32 * 32;
  emulated::block.exchange[me] = chosen;
  emulated::yield();
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    found |= (unsigned)emulated::block.exchange[first + lane] << lane;
  emulated::yield();
  return found;
}
inline int __reduce_add_sync(unsigned, int x) {
  const unsigned me = emulated::block.current, first = me / 32 * 32;
  emulated::block.exchange[me] = (unsigned)x;
  emulated::yield();
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    found += (unsigned)emulated::block.exchange[first + lane];
  emulated::yield();
  return (int)found;
}
inline unsigned __reduce_max_sync(unsigned, unsigned x) {
  const unsigned me = emulated::block.current, first = me / 32 * 32;
  emulated::block.exchange[me] = x;
  emulated::yield();
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    found = std::max(found, (unsigned)emulated::block.exchange[first + lane]);
  emulated::yield();
  return found;
}
template <class T>
inline T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  unsigned me = emulated::block.current;
  return emulated_shuffle(value, me + delta, me % width + delta < (unsigned)width);
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  unsigned me = emulated::block.current;
  return emulated_shuffle(value, me - delta, me % width >= delta);
}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  unsigned me = emulated::block.current;
  return emulated_shuffle(value, me ^ mask, (me % width ^ mask) < (unsigned)width);
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  unsigned me = emulated::block.current;
  return emulated_shuffle(value, me / width * width + lane % width, true);
}

// Tensor cores: each thread shows its registers, then sums up what it holds of the product. Decode
// gives the float at a place of a register.
struct MmaRegisters {
  uint32_t a[4], b[2];
};
inline MmaRegisters shown_registers[8 * 1024];
template <int PerRegister, class Sum, class Decode>
inline void emulated_mma(Sum (&c)[4], MmaRegisters mine, Decode decode) {
  const unsigned me = emulated::block.current, warp = me / 32 * 32;
  const unsigned group = me % 32 / 4, member = me % 4;
  shown_registers[me] = mine;
  emulated::yield();
  for (unsigned n = 0; n < 4; ++n) {
    const unsigned row = group + n / 2 * 8, column = 2 * member + n % 2;
    for (unsigned k = 0; k < 8 * PerRegister; ++k) {
      const unsigned from = k % (4 * PerRegister) / PerRegister, half = k / (4 * PerRegister);
      const uint32_t a = shown_registers[warp + row % 8 * 4 + from].a[2 * half + row / 8];
      const uint32_t b = shown_registers[warp + column * 4 + from].b[half];
      c[n] += decode(a, k % PerRegister) * decode(b, k % PerRegister);
    }
  }
  emulated::yield();
}

// What tensor cores take of shared memory: each thread shows where a line of a piece lies.
inline const uint32_t* shown_lines[8 * 1024];
inline void emulated_pieces(uint32_t* to, const uint32_t* from, bool turned) {
  const unsigned me = emulated::block.current, warp = me / 32 * 32;
  const unsigned group = me % 32 / 4, member = me % 4;
  shown_lines[me] = from;
  emulated::yield();
  for (unsigned n = 0; n < 4; ++n) {
    const uint32_t* const* lines = &shown_lines[warp + 8 * n];
    if (turned) {
      const unsigned low = ((const uint16_t*)lines[2 * member])[group];
      const unsigned high = ((const uint16_t*)lines[2 * member + 1])[group];
      to[n] = low | high << 16;
    } else {
      to[n] = lines[group][member];
    }
  }
  emulated::yield();
}

template <class T> inline T atomicAdd(T* at, T x) { T old = *at; *at = old + x; return old; }
template <class T> inline T atomicMax(T* at, T x) { T old = *at; *at = std::max(old, x); return old; }
template <class T> inline T atomicMin(T* at, T x) { T old = *at; *at = std::min(old, x); return old; }
template <class T> inline T atomicExch(T* at, T x) { T old = *at; *at = x; return old; }
template <class T> inline T atomicCAS(T* at, T seen, T x) {
  T old = *at;
  if (memcmp(&old, &seen, sizeof(T)) == 0) *at = x;
  return old;
}

inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline void sincospi(double x, double* s, double* c) {
  const double turn = 3.14159265358979323846 * x;
  *s = sin(turn);
  *c = cos(turn);
}
inline void sincospif(float x, float* s, float* c) {
  double wide_s, wide_c;
  sincospi(x, &wide_s, &wide_c);
  *s = (float)wide_s;
  *c = (float)wide_c;
}
