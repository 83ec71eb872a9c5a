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

// A sum and one product more, or less, of a float rounded once: for sums of products. The compiler
// contracts nothing else, so that an instruction has the same bits in whatever kernel it is.
template <class T> __device__ inline T plus_product(T sum, T a, T b) {
  return add(sum, multiply(a, b));
}
template <class T> __device__ inline T minus_product(T sum, T a, T b) {
  return subtract(sum, multiply(a, b));
}
__device__ inline f32 plus_product(f32 sum, f32 a, f32 b) { return ::fmaf(a, b, sum); }
__device__ inline f64 plus_product(f64 sum, f64 a, f64 b) { return ::fma(a, b, sum); }
__device__ inline f32 minus_product(f32 sum, f32 a, f32 b) { return ::fmaf(-a, b, sum); }
__device__ inline f64 minus_product(f64 sum, f64 a, f64 b) { return ::fma(-a, b, sum); }

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
// A quotient for what is rounded to 16 bits or less: within a unit and a half of a float's last bit.
__device__ inline f32 near_quotient(f32 a, f32 b) { return a * __frcp_rn(b); }
__device__ inline bool has_reciprocal(f32 b) {
  return ::fabsf(b) > 0x1p-100f && ::fabsf(b) < 0x1p100f;
}
__device__ inline f64 divide(f64 a, f64 b) { return a / b; }

template <HLO_INTEGER(T)> __device__ inline T and_(T a, T b) { return (T)(a & b); }
template <HLO_INTEGER(T)> __device__ inline T or_(T a, T b) { return (T)(a | b); }
template <HLO_INTEGER(T)> __device__ inline T xor_(T a, T b) { return (T)(a ^ b); }
template <HLO_INTEGER(T)> __device__ inline T not_(T a) { return (T)~a; }
__device__ inline bool not_(bool a) { return !a; }

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

template <HLO_INTEGER(T)> __device__ inline T abs(T a) {
  return IsSigned<T>::value && a < (T)0 ? subtract((T)0, a) : a;
}
__device__ inline f32 abs(f32 a) { return ::fabsf(a); }
__device__ inline f64 abs(f64 a) { return ::fabs(a); }

template <HLO_INTEGER(T)> __device__ inline T negate(T a) { return subtract((T)0, a); }
__device__ inline f32 negate(f32 a) { return -a; }
__device__ inline f64 negate(f64 a) { return -a; }

}  // namespace hlo
