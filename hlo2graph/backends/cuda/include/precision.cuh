// reduce-precision: floats taken apart into their bits.
#pragma once

#include "elementwise.cuh"

namespace hlo {

template <class U, int Exponent, int Mantissa> struct IeeeLayout {
  typedef U Word;
  static const int exponent = Exponent, mantissa = Mantissa;
};
template <class T> struct Layout { static const bool ieee = false; };
template <> struct Layout<f64> : IeeeLayout<u64, 11, 52> { static const bool ieee = true; };
template <> struct Layout<f32> : IeeeLayout<u32, 8, 23> { static const bool ieee = true; };
template <> struct Layout<f16> : IeeeLayout<u16, 5, 10> { static const bool ieee = true; };
template <> struct Layout<bf16> : IeeeLayout<u16, 8, 7> { static const bool ieee = true; };

// Keep E exponent and M mantissa bits, ties to even; too large becomes infinite, below the normal
// range becomes 0.
template <class T, int E, int M> __device__ inline typename Layout<T>::Word kept_bits(
    typename Layout<T>::Word bits) {
  typedef typename Layout<T>::Word U;
  const int mantissa = Layout<T>::mantissa, exponent = Layout<T>::exponent;
  const U sign = bits & (U)((U)1 << (exponent + mantissa));
  if (M < mantissa) {
    const int drop = M < mantissa ? mantissa - M : 1;
    U odd = (U)(bits >> drop) & (U)1;
    bits = (U)(bits + odd + (U)(((U)1 << (drop - 1)) - 1)) & (U) ~(U)(((U)1 << drop) - 1);
  }
  if (E < exponent) {
    const U bias = ((U)1 << (exponent - 1)) - 1, reach = ((U)1 << ((E < exponent ? E : 1) - 1)) - 1;
    const U infinity = (U)((((U)1 << exponent) - 1) << mantissa);
    U held = bits & infinity;
    if (held > (U)((bias + reach) << mantissa)) return sign | infinity;
    if (held <= (U)((bias - reach) << mantissa)) return sign;
  }
  return bits;
}

template <class T, int E, int M, bool Ieee = Layout<T>::ieee> struct ReducePrecision {
  typedef typename Compute<T>::type C;
  __device__ static C of(C x) {
    if (is_nan(x)) return x;
    typedef typename Layout<T>::Word U;
    return load(bits_as<T>(kept_bits<T, E, M>(bits_as<U>(Store<T>::of(x)))));
  }
};
template <class T> struct Through { typedef f16 type; };
template <> struct Through<f8e8m0fnu> { typedef f32 type; };
template <class T, int E, int M> struct ReducePrecision<T, E, M, false> {
  __device__ static f32 of(f32 x) {
    return rounded<T>(ReducePrecision<typename Through<T>::type, E, M>::of(x));
  }
};

}  // namespace hlo
