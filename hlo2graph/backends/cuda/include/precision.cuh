// reduce-precision and stochastic-convert: floats taken apart into their bits.
#pragma once

#include "convert.cuh"

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
template <class T> struct Through { typedef f32 type; };
#define HLO_THROUGH(T, ...) template <> struct Through<T> { typedef f16 type; };
HLO_NARROW_FLOATS(HLO_THROUGH)
#undef HLO_THROUGH
template <class T, int E, int M> struct ReducePrecision<T, E, M, false> {
  __device__ static f32 of(f32 x) {
    return rounded<T>(ReducePrecision<typename Through<T>::type, E, M>::of(x));
  }
};

// ---- stochastic-convert -----------------------------------------------------------------------

template <class T> struct MantissaBits { static const int value = Layout<T>::mantissa; };
#define HLO_MANTISSA(T, E, M, ...) template <> struct MantissaBits<T> { static const int value = M; };
HLO_NARROW_FLOATS(HLO_MANTISSA)
#undef HLO_MANTISSA
template <> struct MantissaBits<f8e8m0fnu> { static const int value = 0; };

template <class T> struct IsStoredFloat { static const bool value = false; };
template <> struct IsStoredFloat<f64> { static const bool value = true; };
template <> struct IsStoredFloat<f32> { static const bool value = true; };
template <> struct IsStoredFloat<f16> { static const bool value = true; };
template <> struct IsStoredFloat<bf16> { static const bool value = true; };
template <> struct IsStoredFloat<f8e8m0fnu> { static const bool value = true; };
#define HLO_STORED(T, ...) template <> struct IsStoredFloat<T> { static const bool value = true; };
HLO_NARROW_FLOATS(HLO_STORED)
#undef HLO_STORED

template <class To, class From, bool ToFloat> struct Stochastic;

// To an integer: away from zero with the probability of the fraction.
template <class To, class From> struct Stochastic<To, From, false> {
  template <class U>
  __device__ static typename Compute<To>::type of(typename Compute<From>::type x, U random) {
    f64 wide = (f64)x, size = wide < 0 ? -wide : wide, whole = floor(size);
    const f64 threshold = (f64)random / (sizeof(U) == 8 ? 0x1p64 : (f64)(1ull << (8 * sizeof(U) % 64)));
    f64 picked = whole + (size - whole > threshold ? 1.0 : 0.0);
    return convert<To>(wide < 0 ? -picked : picked);
  }
};

// To a float: random bits are added below the last kept one, then cut off.
template <class To, class From> struct Stochastic<To, From, true> {
  template <class U>
  __device__ static typename Compute<To>::type of(typename Compute<From>::type x, U random) {
    const int drop = MantissaBits<From>::value - MantissaBits<To>::value;
    if (drop <= 0 || !is_finite(x)) return convert<To>(x);
    const U mask = (U)(((U)1 << (drop > 0 ? drop : 1)) - 1);
    U bits = bits_as<U>(Store<From>::of(x));
    bits = (U)(bits + (random & mask)) & (U)~mask;
    return convert<To>(load(bits_as<From>(bits)));
  }
};

template <class To, class From, class U>
__device__ inline typename Compute<To>::type stochastic_convert(
    typename Compute<From>::type x, U random) {
  return Stochastic<To, From, IsStoredFloat<To>::value>::of(x, random);
}

}  // namespace hlo
