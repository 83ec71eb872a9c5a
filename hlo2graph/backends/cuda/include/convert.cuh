// HLO's convert: saturating from float to integer, NaN to 0, rounding to narrow types.
#pragma once

#include "elementwise.cuh"

namespace hlo {

// ---- what an integer type can hold ------------------------------------------------------------

template <class T> struct Range {  // standard integers
  static const bool is_signed = IsSigned<T>::value;
  static const int bits = sizeof(T) * 8;
};

template <class To>
__device__ inline typename Compute<To>::type saturate(f64 x) {
  typedef typename Compute<To>::type C;
  const int value_bits = Range<To>::bits - (Range<To>::is_signed ? 1 : 0);
  const f64 bound = value_bits < 63 ? (f64)(1ull << value_bits) : value_bits == 63 ? 0x1p63 : 0x1p64;
  if (x != x) return (C)0;
  if (x >= bound) return (C)(value_bits == 64 ? ~0ull : (1ull << value_bits) - 1ull);
  if (Range<To>::is_signed) return x <= -bound ? (C)(-(s64)((1ull << value_bits) - 1ull) - 1) : (C)(s64)x;
  return x <= 0 ? (C)0 : (C)(u64)x;
}

// ---- convert<To>(x): x is a compute value of any dtype -----------------------------------------

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

template <class To> struct ConvertInt {
  typedef typename Compute<To>::type C;
  __device__ static C of(bool x) { return wrap((u64)x); }
  template <HLO_INTEGER(From)> __device__ static C of(From x) { return wrap((u64)(s64)x); }
  __device__ static C of(f32 x) { return saturate<To>((f64)x); }
  __device__ static C of(f64 x) { return saturate<To>(x); }
  template <class T> __device__ static C of(Complex<T> x) { return of(x.re); }
  __device__ static C wrap(u64 x) { return rounded<To>((C)x); }
};

template <class To> struct ConvertFloat {  // narrow floats: through f32; doubles rounded once
  template <HLO_INTEGER(From)> __device__ static f32 of(From x) { return rounded<To>((f32)x); }
  __device__ static f32 of(f32 x) { return rounded<To>(x); }
  __device__ static f32 of(f64 x) { return rounded<To>(to_odd(x)); }
  template <class T> __device__ static f32 of(Complex<T> x) { return of(x.re); }
};

// How to make a To.
template <class To, bool Float = IsFloat<typename Compute<To>::type>::value> struct Convert;
template <class To> struct Convert<To, false> : ConvertInt<To> {};
template <class To> struct Convert<To, true> : ConvertFloat<To> {};
template <> struct Convert<f32> {
  template <HLO_INTEGER(From)> __device__ static f32 of(From x) { return (f32)x; }
  __device__ static f32 of(f32 x) { return x; }
  __device__ static f32 of(f64 x) { return (f32)x; }
  template <class T> __device__ static f32 of(Complex<T> x) { return (f32)x.re; }
};
template <> struct Convert<f64> {
  template <HLO_INTEGER(From)> __device__ static f64 of(From x) { return (f64)x; }
  __device__ static f64 of(f32 x) { return (f64)x; }
  __device__ static f64 of(f64 x) { return x; }
  template <class T> __device__ static f64 of(Complex<T> x) { return (f64)x.re; }
};
template <> struct Convert<bool> {
  template <class From> __device__ static bool of(From x) { return x != (From)0; }
  template <class T> __device__ static bool of(Complex<T> x) { return x.re != 0 || x.im != 0; }
};
template <class T> struct Convert<Complex<T>, false> {
  template <class From> __device__ static Complex<T> of(From x) {
    return {Convert<T>::of(x), (T)0};
  }
  template <class From> __device__ static Complex<T> of(Complex<From> x) {
    return {(T)x.re, (T)x.im};
  }
};

template <class To, class From>
__device__ inline typename Compute<To>::type convert(From x) {
  return Convert<To>::of(x);
}

// One of the equal parts that the bits of `x` fall into, and an element joined from its parts.
// `Bits` is the width of a part, and of an element below a byte.
template <class To, class From, int Bits>
__device__ inline typename Compute<To>::type part(typename Compute<From>::type x, int number) {
  From stored = Store<From>::of(x);
  u64 word[2] = {};
  memcpy(word, &stored, sizeof(From));
  u64 bits = word[number * Bits / 64] >> (number * Bits % 64);
  if (Bits < 8) bits &= (1u << (Bits < 8 ? Bits : 0)) - 1u;
  To found;
  memcpy(&found, &bits, sizeof(To));
  return load(found);
}
template <class To, class From, int Bits, class... Parts>
__device__ inline typename Compute<To>::type joined(Parts... parts) {
  From stored[] = {Store<From>::of(parts)...};
  u64 word[2] = {};
  for (int k = 0; k < (int)sizeof...(parts); ++k) {
    u64 bits = 0;
    memcpy(&bits, &stored[k], sizeof(From));
    if (Bits < 8) bits &= (1u << (Bits < 8 ? Bits : 0)) - 1u;
    word[k * Bits / 64] |= bits << (k * Bits % 64);
  }
  To found;
  memcpy(&found, word, sizeof(To));
  return load(found);
}

// Element `number` of an array constant, whose bits lie in words (two for the widest type).
template <class T, class Word>
__device__ inline typename Compute<T>::type constant(const Word* words, s64 number) {
  T stored;
  memcpy(&stored, (const char*)words + number * sizeof(T), sizeof(T));
  return load(stored);
}

// bitcast-convert between elements of one width, given their storage types.
template <class To, class From>
__device__ inline typename Compute<To>::type bitcast(typename Compute<From>::type x) {
  return load(bits_as<To>(Store<From>::of(x)));
}

}  // namespace hlo
