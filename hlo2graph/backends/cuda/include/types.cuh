// Element types of HLO as generated kernels see them.
//
// Each dtype has a storage type (what lies in memory) and a compute type (what a local holds):
// narrow floats are computed in float, narrow integers in signed or unsigned char kept wrapped.
// load() and Store<T>::of() convert between the two; convert<T>() is HLO's convert. What narrow types
// need more is in half.cuh and narrow.cuh: few kernels have any.
#pragma once

namespace hlo {

typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef bool pred;
typedef float f32;
typedef double f64;

template <class T> struct Complex;  // complex.cuh
enum class f16 : u16;               // half.cuh
enum class bf16 : u16;
enum class f4e2m1fn : u8;  // narrow.cuh
enum class f8e8m0fnu : u8;

// ---- bit casts -------------------------------------------------------------------------------

template <class To, class From>
__device__ inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as needs equal widths");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// ---- compute types ----------------------------------------------------------------------------

template <class T> struct Compute { typedef T type; };

// ---- load and store ---------------------------------------------------------------------------

template <class T> __device__ inline T load(T x) { return x; }

// The same as load, for what is used behind all loads: one instruction where there is one.
template <class T> __device__ inline auto widened(T x) { return load(x); }

// Store<T>::of(x) is the element in memory for a compute value x.
template <class T> struct Store { __device__ static T of(T x) { return x; } };

// The compute value that `x` becomes when it passes through memory as a T.
template <class T>
__device__ inline typename Compute<T>::type rounded(typename Compute<T>::type x) {
  return load(Store<T>::of(x));
}

}  // namespace hlo
