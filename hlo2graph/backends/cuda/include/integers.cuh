// HLO's operations on integers alone: shifts, past the width too, and what counts bits.
#pragma once

#include "elementwise.cuh"

namespace hlo {

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

}  // namespace hlo
