// The order of elements, and places in it.
#pragma once

#include "elementwise.cuh"

namespace hlo {

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

}  // namespace hlo
