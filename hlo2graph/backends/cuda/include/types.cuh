// Element types of HLO as generated kernels see them.
//
// Each dtype has a storage type (what lies in memory) and a compute type (what a local holds):
// narrow floats are computed in float, narrow integers in signed or unsigned char kept wrapped.
// load() and store<T>() convert between the two; convert<T>() is HLO's convert.
#pragma once

namespace hlo {

typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef bool pred;
typedef float f32;
typedef double f64;

template <class T> struct Complex;  // complex.cuh

// ---- bit casts -------------------------------------------------------------------------------

template <class To, class From>
__device__ inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as needs equal widths");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// ---- narrow types ------------------------------------------------------------------------------
//
// They are no structs: the compiler makes one access of neighbouring scalars, but not of structs.

// X(type, bits, signed): one byte an element, kept wrapped to its width.
#define HLO_NARROW_INTS(X) \
  X(s1, 1, true) X(s2, 2, true) X(s4, 4, true) X(u1, 1, false) X(u2, 2, false) X(u4, 4, false)

enum Special {
  IEEE,       // infinities and NaNs in the top exponent
  FINITE_NAN, // no infinity; all ones is NaN (f8e4m3fn)
  UNSIGNED0,  // no infinity, no -0; the pattern of -0 is NaN (fnuz)
  FINITE      // neither infinity nor NaN (f4e2m1fn)
};

// X(type, exponent bits, mantissa bits, bias, special values): one byte an element.
#define HLO_NARROW_FLOATS(X)           \
  X(f4e2m1fn, 2, 1, 1, FINITE)         \
  X(f8e3m4, 3, 4, 3, IEEE)             \
  X(f8e4m3, 4, 3, 7, IEEE)             \
  X(f8e4m3b11fnuz, 4, 3, 11, UNSIGNED0) \
  X(f8e4m3fn, 4, 3, 7, FINITE_NAN)     \
  X(f8e4m3fnuz, 4, 3, 8, UNSIGNED0)    \
  X(f8e5m2, 5, 2, 15, IEEE)            \
  X(f8e5m2fnuz, 5, 2, 16, UNSIGNED0)

#define HLO_TYPE(T, ...) enum class T : u8 {};
HLO_NARROW_INTS(HLO_TYPE)
HLO_NARROW_FLOATS(HLO_TYPE)
#undef HLO_TYPE
enum class f8e8m0fnu : u8 {};
enum class f16 : u16 {};
enum class bf16 : u16 {};

// ---- compute types ----------------------------------------------------------------------------

template <class T> struct Compute { typedef T type; };
template <> struct Compute<f16> { typedef f32 type; };
template <> struct Compute<bf16> { typedef f32 type; };
template <> struct Compute<f8e8m0fnu> { typedef f32 type; };
template <bool Signed> struct Byte { typedef u8 type; };
template <> struct Byte<true> { typedef s8 type; };
#define HLO_COMPUTE(T, ...) template <> struct Compute<T> { typedef f32 type; };
HLO_NARROW_FLOATS(HLO_COMPUTE)
#undef HLO_COMPUTE
#define HLO_COMPUTE(T, Bits, Signed) \
  template <> struct Compute<T> { typedef Byte<Signed>::type type; };
HLO_NARROW_INTS(HLO_COMPUTE)
#undef HLO_COMPUTE

// ---- rounding ---------------------------------------------------------------------------------

// The float that keeps `x` on the right side of every tie, so that rounding it again to a
// narrower type gives what rounding `x` itself would (round to odd).
__device__ inline f32 to_odd(f64 x) {
  f32 near = (f32)x;
  if ((f64)near == x || x != x) return near;
  u32 b = bits_as<u32>(near);
  bool outward = x < 0 ? (f64)near < x : (f64)near > x;
  return bits_as<f32>((outward ? b - 1u : b) | 1u);
}
__device__ inline f32 to_odd(f32 x) { return x; }

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

template <int E, int M, int B, Special S>
__device__ inline u8 encode_narrow(f32 x) {
  const u32 all = (1u << (E + M)) - 1u, sign_bit = 1u << (E + M);
  u32 b = bits_as<u32>(x), sign = b >> 31 ? sign_bit : 0u, magnitude = b & 0x7fffffffu;
  const u32 infinity = ((1u << E) - 1u) << M;
  const u32 largest = S == IEEE ? infinity - 1u : S == FINITE_NAN ? all - 1u : all;
  if (magnitude > 0x7f800000u) {  // NaN
    if (S == IEEE) return (u8)(sign | infinity | (1u << (M - 1)));
    if (S == FINITE_NAN) return (u8)(sign | all);
    return (u8)sign_bit;
  }
  u32 rounded = magnitude == 0x7f800000u ? all + 1u : round_magnitude<M, B>(magnitude);
  if (rounded > largest) {
    if (S == IEEE) return (u8)(sign | infinity);
    if (S == FINITE_NAN) return (u8)(sign | all);
    if (S == UNSIGNED0) return (u8)sign_bit;
    return (u8)(sign | largest);
  }
  if (S == UNSIGNED0 && rounded == 0) return 0;
  return (u8)(sign | rounded);
}

template <int E, int M, int B, Special S>
__device__ inline f32 decode_narrow(u8 bits) {
  const u32 all = (1u << (E + M)) - 1u, sign_bit = 1u << (E + M);
  u32 magnitude = bits & all, exponent = magnitude >> M, mantissa = magnitude & ((1u << M) - 1u);
  u32 sign = bits & sign_bit ? 0x80000000u : 0u;
  if (S == UNSIGNED0 && bits == sign_bit) return bits_as<f32>(0x7fc00000u);
  if (S == FINITE_NAN && magnitude == all) return bits_as<f32>(sign | 0x7fc00000u);
  if (S == IEEE && exponent == (1u << E) - 1u)
    return bits_as<f32>(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u));
  if (exponent == 0) {
    f32 unit = bits_as<f32>((u32)(127 + 1 - B - M) << 23);
    return bits_as<f32>(sign | bits_as<u32>((f32)mantissa * unit));
  }
  return bits_as<f32>(sign | ((exponent + 127u - B) << 23) | (mantissa << (23 - M)));
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

template <class T> __device__ inline T load(T x) { return x; }
__device__ inline f32 load(bf16 x) { return bits_as<f32>((u32)x << 16); }
__device__ inline f32 load(f16 x) { return decode_f16((u16)x); }
__device__ inline f32 load(f8e8m0fnu x) {
  if ((u8)x == 255) return bits_as<f32>(0x7fc00000u);
  return (u8)x == 0 ? bits_as<f32>(0x00400000u) : bits_as<f32>((u32)x << 23);
}
#define HLO_LOAD(T, E, M, B, S) \
  __device__ inline f32 load(T x) { return decode_narrow<E, M, B, S>((u8)x); }
HLO_NARROW_FLOATS(HLO_LOAD)
#undef HLO_LOAD

// The same as load, for what is used behind all loads: one instruction where there is one.
template <class T> __device__ inline auto widened(T x) { return load(x); }
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

// The lowest `Bits` of a byte, with their sign or without.
template <int Bits> __device__ inline s8 lowest(s8 x) {
  return (s8)((s8)(u8)((u8)x << (8 - Bits)) >> (8 - Bits));
}
template <int Bits> __device__ inline u8 lowest(u8 x) { return (u8)(x & ((1u << Bits) - 1u)); }

#define HLO_LOAD(T, Bits, Signed) \
  __device__ inline Compute<T>::type load(T x) { return lowest<Bits>((Compute<T>::type)x); }
HLO_NARROW_INTS(HLO_LOAD)
#undef HLO_LOAD

// Store<T>::of(x) is the element in memory for a compute value x.
template <class T> struct Store { __device__ static T of(T x) { return x; } };
template <> struct Store<bf16> { __device__ static bf16 of(f32 x) { return bf16{encode_bf16(x)}; } };
template <> struct Store<f16> { __device__ static f16 of(f32 x) { return f16{encode_f16(x)}; } };
template <> struct Store<f8e8m0fnu> {
  __device__ static f8e8m0fnu of(f32 x) {
    if (!(x > 0) || x > 3.4e38f) return f8e8m0fnu{(u8)255};
    u32 b = bits_as<u32>(x), exponent = b >> 23, mantissa = b & 0x7fffffu;
    // There is no mantissa to be even: ties go up; next to 0, all that is above does (ml_dtypes).
    if (exponent == 0) return f8e8m0fnu{(u8)(mantissa > 0x400000u ? 1 : 0)};
    return f8e8m0fnu{(u8)(exponent + (mantissa >= 0x400000u ? 1u : 0u))};
  }
};
#define HLO_STORE(T, E, M, B, S)                                             \
  template <> struct Store<T> {                                               \
    __device__ static T of(f32 x) { return T{encode_narrow<E, M, B, S>(x)}; } \
  };
HLO_NARROW_FLOATS(HLO_STORE)
#undef HLO_STORE
#define HLO_STORE(T, Bits, Signed)                                                 \
  template <> struct Store<T> {                                                     \
    __device__ static T of(Compute<T>::type x) { return T{(u8)lowest<Bits>(x)}; } \
  };
HLO_NARROW_INTS(HLO_STORE)
#undef HLO_STORE

// Two elements of 16 bits side by side, from compute values; a NaN keeps no payload. `half` is one.
template <class T> __device__ inline u32 pair(f32 low, f32 high) {
  return (u32)Store<T>::of(low) | (u32)Store<T>::of(high) << 16;
}
template <class T> __device__ inline T half(u32 pair, int number) {
#ifdef __CUDA_ARCH__
  u16 low, high;
  asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(pair));
  return T{number ? high : low};
#else
  return T{(u16)(pair >> 16 * number)};
#endif
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

// The compute value that `x` becomes when it passes through memory as a T.
template <class T>
__device__ inline typename Compute<T>::type rounded(typename Compute<T>::type x) {
  return load(Store<T>::of(x));
}

}  // namespace hlo
