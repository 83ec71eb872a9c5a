// Changes of elements in memory that other threads change too, in any order.
#pragma once

#include "elementwise.cuh"

namespace hlo {

template <int Bytes> struct AtomicWord { typedef unsigned long long type; };
template <> struct AtomicWord<4> { typedef unsigned int type; };
template <int Bytes, bool Signed> struct AtomicNumber : AtomicWord<Bytes> {};
template <> struct AtomicNumber<4, true> { typedef int type; };
template <> struct AtomicNumber<8, true> { typedef long long type; };

// Change an element of a word in memory, by what may be done in any order, as others do it too.
template <class T, class Fold> __device__ inline void fold_atomically(T* at, const Fold& fold) {
  typedef typename AtomicWord<sizeof(T)>::type Word;
  Word seen = bits_as<Word>(*at);
  for (;;) {
    const Word next = bits_as<Word>(fold(bits_as<T>(seen)));
    const Word before = next == seen ? seen : atomicCAS((Word*)at, seen, next);
    if (before == seen) return;
    seen = before;
  }
}
template <class T> __device__ inline void add_atomically(T* at, T x) {
  typedef typename AtomicWord<sizeof(T)>::type Word;
  atomicAdd((Word*)at, bits_as<Word>(x));
}

// The same where the larger, or the smaller, is kept: memory does that for whole numbers, where threads
// that meet would wait for each other. Floats of one sign are in the order of their bits, of the
// other in the reverse one; a NaN, which stays, is made to lie behind all that may come.
template <HLO_INTEGER(T)> __device__ inline void raise_atomically(T* at, T x) {
  atomicMax((typename AtomicNumber<sizeof(T), IsSigned<T>::value>::type*)at, x);
}
template <HLO_INTEGER(T)> __device__ inline void lower_atomically(T* at, T x) {
  atomicMin((typename AtomicNumber<sizeof(T), IsSigned<T>::value>::type*)at, x);
}
template <HLO_REAL(T)> __device__ inline void raise_atomically(T* at, T x) {
  typedef typename AtomicNumber<sizeof(T), true>::type Signed;
  typedef typename AtomicNumber<sizeof(T), false>::type Word;
  const T held = *at;
  if (is_nan(held) || held > x) return;
  const Signed bits = bits_as<Signed>(is_nan(x) ? nan_like(x) : x);
  if (bits >= 0) atomicMax((Signed*)at, bits);
  else atomicMin((Word*)at, (Word)bits);
}
template <HLO_REAL(T)> __device__ inline void lower_atomically(T* at, T x) {
  typedef typename AtomicNumber<sizeof(T), true>::type Signed;
  typedef typename AtomicNumber<sizeof(T), false>::type Word;
  const T held = *at;
  if (is_nan(held) || held < x) return;
  const Signed bits = bits_as<Signed>(is_nan(x) ? -nan_like(x) : x);
  if (bits >= 0) atomicMin((Signed*)at, bits);
  else atomicMax((Word*)at, (Word)bits);
}

}  // namespace hlo
