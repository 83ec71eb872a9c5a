// Floats of 16 bits.
#pragma once

#include "types.cuh"

namespace hlo {

// They are no structs: the compiler makes one access of neighbouring scalars, but not of structs.
enum class f16 : u16 {};
enum class bf16 : u16 {};

template <> struct Compute<f16> { typedef f32 type; };
template <> struct Compute<bf16> { typedef f32 type; };

// ---- rounding ---------------------------------------------------------------------------------

__device__ inline u16 encode_bf16(f32 x) {
  u32 b = bits_as<u32>(x);
#ifdef __CUDA_ARCH__
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
  return (u16)(x != x ? (b >> 16) | 0x40u : pair);
#else
  if (x != x) return (u16)((b >> 16) | 0x40u);
  return (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
}

// Round the magnitude of a float to `Mantissa` bits with exponent bias `Bias`, ties to even;
// the result is exponent and mantissa side by side, which may run over the largest finite one.
template <int Mantissa, int Bias>
__device__ inline u32 round_magnitude(u32 magnitude) {
  int exponent = (int)(magnitude >> 23) - 127 + Bias;
  u32 mantissa = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0u);
  int drop = 23 - Mantissa + (exponent < 1 ? 1 - exponent : 0);
  if (drop > 25) return 0;
  u32 kept = mantissa >> drop;
  u32 rest = mantissa & ((1u << drop) - 1u), half = 1u << (drop - 1);
  kept += rest > half || (rest == half && (kept & 1u));
  return exponent < 1 ? kept : kept + ((u32)(exponent - 1) << Mantissa);
}

// A NaN keeps its sign and payload, so that what only moves elements changes no bits.
__device__ inline u16 nan_f16(f32 x) {
  u32 b = bits_as<u32>(x), payload = (b >> 13) & 0x3ffu;
  return (u16)((b >> 16 & 0x8000u) | 0x7c00u | (payload ? payload : 1u));
}

__device__ inline u16 encode_f16(f32 x) {
#ifdef __CUDA_ARCH__
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return x != x ? nan_f16(x) : h;
#else
  if (x != x) return nan_f16(x);
  u32 b = bits_as<u32>(x), magnitude = b & 0x7fffffffu, sign = (b >> 16) & 0x8000u;
  u32 rounded = magnitude == 0x7f800000u ? 0x7c00u : round_magnitude<10, 15>(magnitude);
  return (u16)(sign | (rounded > 0x7c00u ? 0x7c00u : rounded));
#endif
}

// Arithmetic, not the conversion's own instruction: assembly between loads keeps them apart.
__device__ inline f32 decode_f16(u16 h) {
  const u32 sign = (u32)(h & 0x8000u) << 16, magnitude = (u32)(h & 0x7fffu) << 13;
  const u32 finite = bits_as<u32>(bits_as<f32>(magnitude) * 0x1p112f);
  return bits_as<f32>(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

// ---- load and store ---------------------------------------------------------------------------

__device__ inline f32 load(bf16 x) { return bits_as<f32>((u32)x << 16); }
__device__ inline f32 load(f16 x) { return decode_f16((u16)x); }

#ifdef __CUDA_ARCH__
__device__ inline f32 widened(bf16 x) {
  u32 bits;
  asm("mov.b32 %0, {%1, %2};" : "=r"(bits) : "h"((u16)0), "h"((u16)x));
  return bits_as<f32>(bits);
}
__device__ inline f32 widened(f16 x) {
  f32 wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((u16)x));
  return wide;
}
#endif

template <> struct Store<bf16> { __device__ static bf16 of(f32 x) { return bf16{encode_bf16(x)}; } };
template <> struct Store<f16> { __device__ static f16 of(f32 x) { return f16{encode_f16(x)}; } };

// A float as T has it, but for the sign and the payload of NaNs.
template <class T> __device__ inline f32 narrowed(f32 x) { return load(Store<T>::of(x)); }
#ifdef __CUDA_ARCH__
template <> __device__ inline f32 narrowed<bf16>(f32 x) {
  u32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  return bits_as<f32>(bits);
}
template <> __device__ inline f32 narrowed<f16>(f32 x) {
  u16 half;
  f32 wide;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
  return wide;
}
#endif

// ---- two by two -------------------------------------------------------------------------------

// Two neighbouring elements as compute values, but for the sign and the payload of NaNs.
struct Two {
  f32 low, high;
};
template <class T> __device__ inline Two two(T low, T high) {
  return {widened(low), widened(high)};
}
__device__ inline bool any_nan(f32 a, f32 b) { return a != a || b != b; }
template <class... More> __device__ inline bool any_nan(f32 a, f32 b, More... more) {
  return any_nan(a, b) | any_nan(more...);
}

// Two elements of 16 bits or of 8 side by side, from compute values. `pair` may do otherwise with
// values that `pairs_exactly` denies: their NaN keeps no payload. `half` is one of the elements.
template <class T> __device__ inline u32 pair_exact(f32 low, f32 high) {
  return (u32)Store<T>::of(low) | (u32)Store<T>::of(high) << 8 * sizeof(T);
}
template <class T> __device__ inline u32 pair(f32 low, f32 high) { return pair_exact<T>(low, high); }
template <class T> __device__ inline bool pairs_exactly(f32 a, f32 b) { return !any_nan(a, b); }
template <class T, class... More>
__device__ inline bool pairs_exactly(f32 a, f32 b, More... more) {
  return pairs_exactly<T>(a, b) & pairs_exactly<T>(more...);
}
template <class T> __device__ inline T half(u32 pair, int number) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2) {
    u16 low, high;
    asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(pair));
    return (T)(number ? high : low);
  }
#endif
  return (T)(pair >> 8 * sizeof(T) * number);
}
#ifdef __CUDA_ARCH__  // one instruction each
template <> __device__ inline u32 pair<bf16>(f32 low, f32 high) {
  u32 found;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
  return found;
}
template <> __device__ inline u32 pair<f16>(f32 low, f32 high) {
  u32 found;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
  return found;
}
#endif

}  // namespace hlo
