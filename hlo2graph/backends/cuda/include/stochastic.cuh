// stochastic-convert: random bits decide which way to round.
#pragma once

#include "convert.cuh"
#include "functions.cuh"
#include "narrow.cuh"
#include "precision.cuh"

namespace hlo {

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
    const f64 span = sizeof(U) == 8 ? 0x1p64 : (f64)(1ull << (8 * sizeof(U) % 64));
    f64 picked = whole + (random < (U)((size - whole) * span) ? 1.0 : 0.0);
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
