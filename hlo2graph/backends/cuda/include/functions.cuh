// HLO's functions of real numbers, and those of integers that bear the same names.
#pragma once

#include "elementwise.cuh"

namespace hlo {

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

// For what is rounded to 16 bits or less: within 5 + |x| units of a float's last bit. The root that
// it is made of is no denormal, so that three instructions do.
__device__ inline f32 near_exponential(f32 x) {
#ifdef __CUDA_ARCH__
  f32 root;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x * 0.72134752f));
  return root * root;
#else
  return ::expf(x);
#endif
}
template <HLO_REAL(T)> __device__ inline bool is_finite(T x) { return abs(x) < infinity_like(x); }
template <HLO_REAL(T)> __device__ inline T rsqrt(T x) { return (T)1 / sqrt(x); }
template <HLO_REAL(T)> __device__ inline T logistic(T x) {
  return (T)1 / ((T)1 + exponential(-x));
}
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

template <HLO_INTEGER(T)>
__device__ inline T remainder(T a, T b) {
  if (b == 0) return a;
  if (IsSigned<T>::value && b == (T)-1) return (T)0;
  return (T)(a % b);
}
__device__ inline f32 remainder(f32 a, f32 b) { return ::fmodf(a, b); }
__device__ inline f64 remainder(f64 a, f64 b) { return ::fmod(a, b); }

template <HLO_INTEGER(T)> __device__ inline T sign(T a) {
  return (T)((a > (T)0) - (a < (T)0));
}
template <HLO_REAL(T)> __device__ inline T sign(T a) {
  return is_nan(a) || a == 0 ? a : a > 0 ? (T)1 : (T)-1;
}

}  // namespace hlo
