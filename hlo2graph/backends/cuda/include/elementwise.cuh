// HLO's elementwise operations, one function an opcode, named as the opcode with underscores.
//
// They take and return compute types (see types.cuh). Semantics follow the OpenXLA
// operation page, with XLA:CPU deciding where it is silent.
#pragma once

#include "types.cuh"

namespace hlo {

// ---- traits -----------------------------------------------------------------------------------

template <class T> struct Unsigned { typedef T type; };
template <> struct Unsigned<s8> { typedef u8 type; };
template <> struct Unsigned<s16> { typedef u16 type; };
template <> struct Unsigned<s32> { typedef u32 type; };
template <> struct Unsigned<s64> { typedef u64 type; };

template <class T> struct IsFloat { static const bool value = false; };
template <> struct IsFloat<f32> { static const bool value = true; };
template <> struct IsFloat<f64> { static const bool value = true; };

template <class T> struct IsSigned { static const bool value = (T)(-1) < (T)0; };

template <bool B, class T = void> struct EnableIf {};
template <class T> struct EnableIf<true, T> { typedef T type; };
#define HLO_INTEGER(T) class T, class = typename EnableIf<!IsFloat<T>::value>::type
#define HLO_REAL(T) class T, class = typename EnableIf<IsFloat<T>::value>::type, class = void

template <class T> __device__ inline bool is_nan(T x) { return x != x; }
__device__ inline f32 nan_like(f32) { return bits_as<f32>(0x7fc00000u); }
__device__ inline f64 nan_like(f64) { return bits_as<f64>(0x7ff8000000000000ull); }
__device__ inline f32 infinity_like(f32) { return bits_as<f32>(0x7f800000u); }
__device__ inline f64 infinity_like(f64) { return bits_as<f64>(0x7ff0000000000000ull); }
__device__ inline bool sign_bit(f32 x) { return bits_as<u32>(x) >> 31; }
__device__ inline bool sign_bit(f64 x) { return bits_as<u64>(x) >> 63; }

// ---- integers: wrap, total division, shifts past the width ------------------------------------

#define HLO_WRAPPING(name, op)                                  \
  template <HLO_INTEGER(T)>                                     \
  __device__ inline T name(T a, T b) {                          \
    typedef typename Unsigned<T>::type U;                       \
    return (T)(U)((u64)(U)a op(u64)(U) b);                      \
  }                                                             \
  __device__ inline f32 name(f32 a, f32 b) { return a op b; }   \
  __device__ inline f64 name(f64 a, f64 b) { return a op b; }
HLO_WRAPPING(add, +)
HLO_WRAPPING(subtract, -)
HLO_WRAPPING(multiply, *)
__device__ inline bool add(bool a, bool b) { return a || b; }
__device__ inline bool multiply(bool a, bool b) { return a && b; }

template <HLO_INTEGER(T)>
__device__ inline T divide(T a, T b) {
  if (b == 0) return (T)-1;
  if (IsSigned<T>::value && b == (T)-1) return subtract((T)0, a);
  return (T)(a / b);
}

// No part of its callers: they take it for rare operands only, and stay short without it.
__device__ __noinline__ static f32 divide_any(f32 a, f32 b) { return a / b; }

// A guess by the divisor's reciprocal, corrected once: the reciprocal is found once where many
// quotients have one divisor. Exact (Markstein) where nothing on the way is too large or small; of a
// zero too, whose guess is exact and has the sign that a correction may lose.
__device__ inline f32 quotient(f32 a, f32 b) {
  const f32 reciprocal = __frcp_rn(b), guess = a * reciprocal;
  return a == 0 ? guess : ::fmaf(::fmaf(-b, guess, a), reciprocal, guess);
}
// The least size of quotients, each behind its dividend, that are not exact zeros.
__device__ inline f32 least_size(f32 a, f32 found) { return a == 0 ? 1.0f : ::fabsf(found); }
__device__ inline bool are_usual(f32 divisor, f32 least) {
  return ::fabsf(divisor) > 0x1p-40f && ::fabsf(divisor) < 0x1p60f && least > 0x1p-60f;
}
__device__ inline f32 divide(f32 a, f32 b) {
  const f32 found = quotient(a, b);
  return are_usual(b, least_size(a, found)) ? found : divide_any(a, b);
}
__device__ inline f64 divide(f64 a, f64 b) { return a / b; }

template <HLO_INTEGER(T)>
__device__ inline T remainder(T a, T b) {
  if (b == 0) return a;
  if (IsSigned<T>::value && b == (T)-1) return (T)0;
  return (T)(a % b);
}
__device__ inline f32 remainder(f32 a, f32 b) { return ::fmodf(a, b); }
__device__ inline f64 remainder(f64 a, f64 b) { return ::fmod(a, b); }

template <HLO_INTEGER(T)>
__device__ inline T shift_left(T a, T b) {
  typedef typename Unsigned<T>::type U;
  return (U)b >= sizeof(T) * 8 ? (T)0 : (T)(U)((u64)(U)a << (U)b);
}
template <HLO_INTEGER(T)>
__device__ inline T shift_right_logical(T a, T b) {
  typedef typename Unsigned<T>::type U;
  return (U)b >= sizeof(T) * 8 ? (T)0 : (T)(U)((U)a >> (U)b);
}
template <HLO_INTEGER(T)>
__device__ inline T shift_right_arithmetic(T a, T b) {
  typedef typename Unsigned<T>::type U;
  const U most = sizeof(T) * 8 - 1;
  U by = (U)b > most ? most : (U)b;
  U shifted = (U)((U)a >> by);
  bool negative = (U)a >> most;
  return (T)(negative && by ? (U)(shifted | (U)((U)~(U)0 << (most + 1 - by))) : shifted);
}

template <HLO_INTEGER(T)> __device__ inline T and_(T a, T b) { return (T)(a & b); }
template <HLO_INTEGER(T)> __device__ inline T or_(T a, T b) { return (T)(a | b); }
template <HLO_INTEGER(T)> __device__ inline T xor_(T a, T b) { return (T)(a ^ b); }
template <HLO_INTEGER(T)> __device__ inline T not_(T a) { return (T)~a; }
__device__ inline bool not_(bool a) { return !a; }

template <HLO_INTEGER(T)>
__device__ inline T popcnt(T a) {
  typedef typename Unsigned<T>::type U;
  u64 x = (U)a;
  int n = 0;
  for (; x; x &= x - 1) ++n;
  return (T)n;
}
template <HLO_INTEGER(T)>
__device__ inline T count_leading_zeros(T a) {
  typedef typename Unsigned<T>::type U;
  U x = (U)a;
  int n = sizeof(T) * 8;
  for (; x; x = (U)(x >> 1)) --n;
  return (T)n;
}

// The upper half of a product; of 64 bits in four steps.
template <HLO_INTEGER(T)> __device__ inline T mulhi(T a, T b) {
  if constexpr (sizeof(T) < 8) {
    return (T)(((u64)a * (u64)b) >> (8 * sizeof(T)));
  } else {
    u64 lowest = ((u64)a & 0xffffffffu) * ((u64)b & 0xffffffffu) >> 32;
    T low = (T)0xffffffffu;
    T middle = (T)((a >> 32) * (b & low) + (T)lowest);
    T other = (T)((a & low) * (b >> 32) + (middle & low));
    return (T)((a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32));
  }
}

// The same for the lowest `Bits` bits of a byte.
template <int Bits, class T> __device__ inline u8 pattern(T a) {
  return (u8)((u8)a & ((1u << Bits) - 1u));
}
template <int Bits, class T> __device__ inline T mulhi_within(T a, T b) {
  return (T)((a * b) >> Bits);
}
template <int Bits, class T> __device__ inline T popcnt_within(T a) {
  return (T)popcnt(pattern<Bits>(a));
}
template <int Bits, class T> __device__ inline T count_leading_zeros_within(T a) {
  return (T)(count_leading_zeros(pattern<Bits>(a)) - (8 - Bits));
}
template <int Bits, class T> __device__ inline T shift_right_logical_within(T a, T b) {
  return (T)shift_right_logical(pattern<Bits>(a), pattern<Bits>(b));
}
template <int Bits, class T> __device__ inline T shift_right_arithmetic_within(T a, T b) {
  s8 high = (s8)(u8)(pattern<Bits>(a) << (8 - Bits));
  return (T)(shift_right_arithmetic((s8)(high >> (8 - Bits)), (s8)pattern<Bits>(b)));
}

// ---- order ------------------------------------------------------------------------------------

template <HLO_INTEGER(T)> __device__ inline T maximum(T a, T b) { return a > b ? a : b; }
template <HLO_INTEGER(T)> __device__ inline T minimum(T a, T b) { return a < b ? a : b; }
template <HLO_REAL(T)> __device__ inline T maximum(T a, T b) {
  if (is_nan(a) || is_nan(b)) return nan_like(a);
  return a > b || (a == b && !sign_bit(a)) ? a : b;
}
template <HLO_REAL(T)> __device__ inline T minimum(T a, T b) {
  if (is_nan(a) || is_nan(b)) return nan_like(a);
  return a < b || (a == b && sign_bit(a)) ? a : b;
}
#ifdef __CUDA_ARCH__  // one instruction each, with the same results
__device__ inline f32 maximum(f32 a, f32 b) {
  f32 found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
__device__ inline f32 minimum(f32 a, f32 b) {
  f32 found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
#endif
template <class... More>
__device__ inline f32 least_size(f32 a, f32 found, More... more) {
  return minimum(least_size(a, found), least_size(more...));
}
template <class T> __device__ inline T clamp(T low, T x, T high) {
  return minimum(maximum(low, x), high);
}

// A start index as dynamic-slice takes it: 0 to `last`, whatever its integer type.
template <class T, class I> __device__ inline I clamped_index(T start, I last) {
  if (start <= (T)0) return 0;
  return (u64)start >= (u64)last ? last : (I)start;
}

// compare(type=TOTALORDER): -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
__device__ inline s32 total_order(f32 x) {
  s32 b = bits_as<s32>(x);
  return b < 0 ? b ^ 0x7fffffff : b;
}
__device__ inline s64 total_order(f64 x) {
  s64 b = bits_as<s64>(x);
  return b < 0 ? b ^ 0x7fffffffffffffffll : b;
}
template <HLO_INTEGER(T)> __device__ inline T total_order(T x) { return x; }

// An unsigned number that is the larger, the later an element is in the total order.
template <class T> __device__ inline auto order_key(T x) {
  const auto place = total_order(x);
  const bool is_signed = IsSigned<decltype(total_order(x))>::value;
  if constexpr (sizeof(place) > 4) return (u64)place ^ (is_signed ? 1ull << 63 : 0ull);
  else return (u32)(s64)place ^ (is_signed ? 1u << 31 : 0u);
}

template <HLO_INTEGER(T)> __device__ inline T abs(T a) {
  return IsSigned<T>::value && a < (T)0 ? subtract((T)0, a) : a;
}
__device__ inline f32 abs(f32 a) { return ::fabsf(a); }
__device__ inline f64 abs(f64 a) { return ::fabs(a); }

template <HLO_INTEGER(T)> __device__ inline T negate(T a) { return subtract((T)0, a); }
__device__ inline f32 negate(f32 a) { return -a; }
__device__ inline f64 negate(f64 a) { return -a; }

template <HLO_INTEGER(T)> __device__ inline T sign(T a) {
  return (T)((a > (T)0) - (a < (T)0));
}
template <HLO_REAL(T)> __device__ inline T sign(T a) {
  return is_nan(a) || a == 0 ? a : a > 0 ? (T)1 : (T)-1;
}

// ---- real functions ---------------------------------------------------------------------------

#define HLO_FUNCTION(name, single, twice)                     \
  __device__ inline f32 name(f32 x) { return ::single(x); }   \
  __device__ inline f64 name(f64 x) { return ::twice(x); }
HLO_FUNCTION(acos, acosf, acos)
HLO_FUNCTION(acosh, acoshf, acosh)
HLO_FUNCTION(asin, asinf, asin)
HLO_FUNCTION(asinh, asinhf, asinh)
HLO_FUNCTION(atanh, atanhf, atanh)
HLO_FUNCTION(cbrt, cbrtf, cbrt)
HLO_FUNCTION(ceil, ceilf, ceil)
HLO_FUNCTION(cosh, coshf, cosh)
HLO_FUNCTION(cosine, cosf, cos)
HLO_FUNCTION(erf, erff, erf)
HLO_FUNCTION(exponential, expf, exp)
HLO_FUNCTION(exponential_minus_one, expm1f, expm1)
HLO_FUNCTION(floor, floorf, floor)
HLO_FUNCTION(log, logf, log)
HLO_FUNCTION(log_plus_one, log1pf, log1p)
HLO_FUNCTION(round_nearest_afz, roundf, round)
HLO_FUNCTION(round_nearest_even, rintf, rint)
HLO_FUNCTION(sine, sinf, sin)
HLO_FUNCTION(sinh, sinhf, sinh)
HLO_FUNCTION(sqrt, sqrtf, sqrt)
HLO_FUNCTION(tan, tanf, tan)
HLO_FUNCTION(tanh, tanhf, tanh)
#undef HLO_FUNCTION

template <HLO_REAL(T)> __device__ inline T rsqrt(T x) { return (T)1 / sqrt(x); }
template <HLO_REAL(T)> __device__ inline T logistic(T x) {
  return (T)1 / ((T)1 + exponential(-x));
}
template <HLO_REAL(T)> __device__ inline bool is_finite(T x) { return abs(x) < infinity_like(x); }
__device__ inline f32 atan2(f32 y, f32 x) { return ::atan2f(y, x); }
__device__ inline f64 atan2(f64 y, f64 x) { return ::atan2(y, x); }
__device__ inline f32 power(f32 x, f32 y) { return ::powf(x, y); }
__device__ inline f64 power(f64 x, f64 y) { return ::pow(x, y); }
// As in XLA, six bits of the exponent count, and its top bit is a sign in any type.
template <HLO_INTEGER(T)> __device__ inline T power(T base, T exponent) {
  const bool negative = (exponent >> (8 * sizeof(T) - 1)) & 1;
  if (negative) return (T)(base == (T)1 ? 1 : base == (T)-1 ? (exponent & 1 ? -1 : 1) : 0);
  T result = (T)1;
  for (exponent = (T)(exponent & 63); exponent; exponent = (T)(exponent >> 1)) {
    if (exponent & 1) result = multiply(result, base);
    base = multiply(base, base);
  }
  return result;
}

}  // namespace hlo
