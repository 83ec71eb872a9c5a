// Numbers of a byte or less.
#pragma once

#include "half.cuh"

namespace hlo {

// X(type, bits, signed): one byte an element, kept wrapped to its width.
#define HLO_NARROW_INTS(X) \
  X(s1, 1, true) X(s2, 2, true) X(s4, 4, true) X(u1, 1, false) X(u2, 2, false) X(u4, 4, false)

enum Special {
  IEEE,       // infinities and NaNs in the top exponent
  FINITE_NAN, // no infinity; all ones is NaN (f8e4m3fn)
  UNSIGNED0,  // no infinity, no -0; the pattern of -0 is NaN (fnuz)
  FINITE      // neither infinity nor NaN (f4e2m1fn, f6)
};

// X(type, exponent bits, mantissa bits, bias, special values): one byte an element.
#define HLO_NARROW_FLOATS(X)           \
  X(f4e2m1fn, 2, 1, 1, FINITE)         \
  X(f6e2m3fn, 2, 3, 1, FINITE)         \
  X(f6e3m2fn, 3, 2, 3, FINITE)         \
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

template <class T> struct Range;  // convert.cuh
#define HLO_RANGE(T, Bits, Signed)       \
  template <> struct Range<T> {          \
    static const bool is_signed = Signed; \
    static const int bits = Bits;        \
  };
HLO_NARROW_INTS(HLO_RANGE)
#undef HLO_RANGE

// ---- rounding ---------------------------------------------------------------------------------

// The magnitude of a float, rounded to exponent and mantissa side by side, ties to even, which may
// run over the largest finite one. Below the least normal one a sum rounds, whose last bit counts
// what lies between two numbers there.
template <int M, int B> __device__ inline u32 narrow_magnitude(u32 magnitude) {
  const int drop = 23 - M;
  const u32 least = (u32)(128 - B) << 23, unit = (u32)(151 - B - M) << 23;
  const u32 even = magnitude >> drop & 1u;
  const u32 normal = ((magnitude + (1u << (drop - 1)) - 1u + even) >> drop) - ((u32)(127 - B) << M);
  const u32 small = bits_as<u32>(bits_as<f32>(magnitude) + bits_as<f32>(unit)) - unit;
  return magnitude < least ? small : normal;
}

// Without branches, which would part what neighbouring elements have in common.
template <int E, int M, int B, Special S>
__device__ inline u8 encode_narrow(f32 x) {
  const u32 all = (1u << (E + M)) - 1u, sign_bit = 1u << (E + M);
  const u32 infinity = ((1u << E) - 1u) << M;
  const u32 largest = S == IEEE ? infinity - 1u : S == FINITE_NAN ? all - 1u : all;
  const u32 b = bits_as<u32>(x), sign = b >> (31 - E - M) & sign_bit, magnitude = b & 0x7fffffffu;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The types that have an instruction, which keeps to finite numbers.
  u16 pair;
  if constexpr (S == FINITE_NAN && M == 3 && B == 7) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return (u8)(magnitude > 0x43e80000u ? sign | all : pair);  // 464 and below becomes 448
  }
  if constexpr (S == IEEE && M == 2 && B == 15) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    const u32 special = sign | infinity | (magnitude > 0x7f800000u ? 1u << (M - 1) : 0u);
    return (u8)(magnitude >= 0x47700000u ? special : pair);  // 61440 and above
  }
#endif
  const u32 rounded = narrow_magnitude<M, B>(magnitude);
  const u32 beyond = S == IEEE ? sign | infinity : S == FINITE_NAN ? sign | all : sign_bit;
  const u32 nan = S == IEEE ? sign | infinity | 1u << (M - 1) : S == FINITE_NAN ? sign | all : sign_bit;
  u32 found = sign | rounded;
  if (S == UNSIGNED0) found = rounded == 0 ? 0 : found;
  found = rounded > largest ? (S == FINITE ? sign | largest : beyond) : found;
  return (u8)(magnitude > 0x7f800000u ? nan : found);
}

template <int E, int M, int B, Special S>
__device__ inline f32 decode_narrow(u8 bits) {
  const u32 all = (1u << (E + M)) - 1u, sign_bit = 1u << (E + M), infinity = ((1u << E) - 1u) << M;
  const u32 magnitude = bits & all, sign = (bits & sign_bit) << (31 - E - M);
  const f32 scale = bits_as<f32>((u32)(254 - B) << 23);
  u32 found = sign | bits_as<u32>(bits_as<f32>(magnitude << (23 - M)) * scale);
  if (S == UNSIGNED0) found = bits == sign_bit ? 0x7fc00000u : found;
  if (S == FINITE_NAN) found = magnitude == all ? sign | 0x7fc00000u : found;
  if (S == IEEE) {
    const u32 special = sign | 0x7f800000u | (magnitude > infinity ? 0x400000u : 0u);
    found = magnitude >= infinity ? special : found;
  }
  return bits_as<f32>(found);
}

// ---- load and store ---------------------------------------------------------------------------

__device__ inline f32 load(f8e8m0fnu x) {
  if ((u8)x == 255) return bits_as<f32>(0x7fc00000u);
  return (u8)x == 0 ? bits_as<f32>(0x00400000u) : bits_as<f32>((u32)x << 23);
}
#define HLO_LOAD(T, E, M, B, S) \
  __device__ inline f32 load(T x) { return decode_narrow<E, M, B, S>((u8)x); }
HLO_NARROW_FLOATS(HLO_LOAD)
#undef HLO_LOAD

// The lowest `Bits` of a byte, with their sign or without.
template <int Bits> __device__ inline s8 lowest(s8 x) {
  return (s8)((s8)(u8)((u8)x << (8 - Bits)) >> (8 - Bits));
}
template <int Bits> __device__ inline u8 lowest(u8 x) { return (u8)(x & ((1u << Bits) - 1u)); }

#define HLO_LOAD(T, Bits, Signed) \
  __device__ inline Compute<T>::type load(T x) { return lowest<Bits>((Compute<T>::type)x); }
HLO_NARROW_INTS(HLO_LOAD)
#undef HLO_LOAD

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

// ---- two by two, where there are instructions that do it ---------------------------------------

// Two of a type all whose values f16 has, as such, in one word.
template <class T> __device__ inline u32 halves(T low, T high) {
  return pair<f16>(load(low), load(high));
}
// Two neighbours of the four elements in a word, and a word of four: see `two` and `pair`.
template <class T> __device__ inline Two two_of(u32 word, int number) {
  return two((T)(u8)(word >> 16 * number), (T)(u8)(word >> (16 * number + 8)));
}
template <class T> __device__ inline u32 four(f32 a, f32 b, f32 c, f32 d) {
  return pair<T>(a, b) | pair<T>(c, d) << 16;
}
template <class T> __device__ inline u32 four_exact(f32 a, f32 b, f32 c, f32 d) {
  return pair_exact<T>(a, b) | pair_exact<T>(c, d) << 16;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
__device__ inline u16 half_of(u32 word, int number) {
  u16 low, high;
  asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(word));
  return number ? high : low;
}
__device__ inline u32 word_of(u16 low, u16 high) {
  u32 word;
  asm("mov.b32 %0, {%1, %2};" : "=r"(word) : "h"(low), "h"(high));
  return word;
}
#define HLO_TWO_BY_TWO(T, name, finite)                                                        \
  __device__ inline u32 halves_of(T, u16 two) {                                                \
    u32 halves;                                                                                \
    asm("cvt.rn.f16x2." name "x2 %0, %1;" : "=r"(halves) : "h"(two));                          \
    return halves;                                                                             \
  }                                                                                            \
  __device__ inline u16 two_rounded(T, f32 low, f32 high) {                                    \
    u16 two;                                                                                   \
    asm("cvt.rn.satfinite." name "x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));       \
    return two;                                                                                \
  }                                                                                            \
  template <> __device__ inline Two two(T low, T high) {                                       \
    const u32 halves = halves_of(T{}, (u16)((u16)low | (u16)high << 8));                       \
    return {widened((f16)half_of(halves, 0)), widened((f16)half_of(halves, 1))};               \
  }                                                                                            \
  template <> __device__ inline u32 halves(T low, T high) {                                    \
    return halves_of(T{}, (u16)((u16)low | (u16)high << 8));                                   \
  }                                                                                            \
  template <> __device__ inline Two two_of<T>(u32 word, int number) {                          \
    const u32 halves = halves_of(T{}, half_of(word, number));                                  \
    return {widened((f16)half_of(halves, 0)), widened((f16)half_of(halves, 1))};               \
  }                                                                                            \
  template <> __device__ inline u32 pair<T>(f32 low, f32 high) {                               \
    return two_rounded(T{}, low, high);                                                        \
  }                                                                                            \
  template <> __device__ inline u32 four<T>(f32 a, f32 b, f32 c, f32 d) {                      \
    return word_of(two_rounded(T{}, a, b), two_rounded(T{}, c, d));                            \
  }                                                                                            \
  template <> __device__ inline bool pairs_exactly<T>(f32 a, f32 b) {                          \
    return finite(a) && finite(b);                                                             \
  }
// The largest sizes that are rounded to finite numbers.
#define HLO_FINITE(x) (::fabsf(x) <= 464.0f)
HLO_TWO_BY_TWO(f8e4m3fn, "e4m3", HLO_FINITE)
#undef HLO_FINITE
#define HLO_FINITE(x) (::fabsf(x) < 61440.0f)
HLO_TWO_BY_TWO(f8e5m2, "e5m2", HLO_FINITE)
#undef HLO_FINITE
#undef HLO_TWO_BY_TWO
#endif

}  // namespace hlo
