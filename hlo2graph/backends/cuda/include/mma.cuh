// Products of small matrices that the threads of a warp hold together, on tensor cores.
//
// Thread t of a warp is member t % 4 of group t / 4. A product is 16 rows by 8 columns: its group g
// has rows g and g + 8 of the left matrix and column g of the right one; the members share out the
// steps of the sum, in any order that is the same on both sides.
#pragma once

#include "half.cuh"
#include "types.cuh"

namespace hlo {

// Registers that one access moves between them and shared memory.
struct alignas(16) Four {
  u32 x[4];
};

// Two narrow floats, as they lie in memory, as one register.
template <class T> __device__ inline u32 joined_bits(T low, T high) {
  return (u32)(u16)low | (u32)(u16)high << 16;
}

// Four bytes, of which words are given.
__device__ inline u32 joined_bytes(u32 a, u32 b, u32 c, u32 d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
}

// Two floats that are rounded on the way, as one register.
template <class T> __device__ inline u32 pair_bits(f32 low, f32 high) { return pair<T>(low, high); }

#ifdef __CUDACC__

// Four words from memory to shared memory, or as many zeros: on the way until `copies_arrive`.
__device__ inline void copy_four(u32* to, const void* from, bool inside) {
  const u32 place = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}

// All that was copied since the last call is one group.
__device__ inline void copies_sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the latest `Groups` of this thread's groups are on the way.
template <int Groups> __device__ inline void copies_arrive() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

// Four pieces of eight by eight pairs of bytes, where threads 0 to 7, 8 to 15 and so on each show
// where a line of 16 bytes lies. Of each, a thread gets the word of its member in the line of its
// group; or, turned, the pairs of its group in the two lines of its member.
template <bool Turned> __device__ inline void load_pieces(u32* to, const u32* from) {
  const u32 place = (u32)__cvta_generic_to_shared(from);
  if (Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
}

// A barrier for one team of a block's 15 at most; that of number 0 is the whole block's.
template <int Threads> __device__ inline void team_meets(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(Threads) : "memory");
}

// A float rounded to TF32, in its upper bits: tensor cores look at no others. Where there is no
// instruction for it, half away from zero: the one that PTX has takes more moves than these.
__device__ inline u32 tf32_bits(f32 x) {
#if __CUDA_ARCH__ >= 900
  u32 bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
  u32 bits = __float_as_uint(x);
  if (fabsf(x) < __int_as_float(0x7f800000)) bits += 0x1000u;
#endif
  return bits;
}

#define HLO_MMA(T, SUM, HELD, WORD)                                                           \
  __device__ inline void add_product(T*, SUM (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, \
                                     u32 b1) {                                                \
    asm("mma.sync.aligned." WORD " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"     \
        : HELD(c[0]), HELD(c[1]), HELD(c[2]), HELD(c[3])                                      \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                              \
  }
HLO_MMA(f32, f32, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
HLO_MMA(bf16, f32, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
HLO_MMA(f16, f32, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
HLO_MMA(s8, s32, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
HLO_MMA(s8, u32, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
HLO_MMA(u8, s32, "+r", "m16n8k32.row.col.s32.u8.u8.s32")
HLO_MMA(u8, u32, "+r", "m16n8k32.row.col.s32.u8.u8.s32")
#undef HLO_MMA

#else  // no GPU's compiler: who compiles for something else brings emulated_mma

__device__ inline void copy_four(u32* to, const void* from, bool inside) {
  if (inside) memcpy(to, from, 16);
  else memset(to, 0, 16);
}
__device__ inline void copies_sent() {}
template <int Groups> __device__ inline void copies_arrive() {}
template <int Threads> __device__ inline void team_meets(int) { __syncthreads(); }

template <bool Turned> __device__ inline void load_pieces(u32* to, const u32* from) {
  emulated_pieces(to, from, Turned);
}

__device__ inline u32 tf32_bits(f32 x) {
  const u32 bits = bits_as<u32>(x);
  const u32 rounded = bits + 0xfffu + (bits >> 13 & 1);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : rounded & ~0x1fffu;
}

template <class T, class Sum>
__device__ inline void add_product(T*, Sum (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const int per_register = 4 / sizeof(T);
  emulated_mma<per_register>(c, {a0, a1, a2, a3, b0, b1}, [](u32 bits, int place) -> Sum {
    if constexpr (sizeof(T) == 4) return bits_as<f32>(bits);
    else if constexpr (sizeof(T) == 1) return (Sum)(T)(bits >> 8 * place);
    else return load(bits_as<T>((u16)(bits >> 16 * place)));
  });
}

#endif

// c += a * b: T is f32 (8 steps a product), a narrow float (16) or a byte (32), whose sums are words.
template <class T, class Sum>
__device__ inline void mma(Sum (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  add_product((T*)nullptr, c, a0, a1, a2, a3, b0, b1);
}

}  // namespace hlo
