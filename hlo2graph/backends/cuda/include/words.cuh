// Elements that lie anywhere in words of several.
#pragma once

#include "types.cuh"

namespace hlo {

template <int Bytes> struct BitsOf;
template <> struct BitsOf<1> { typedef u8 type; };
template <> struct BitsOf<2> { typedef u16 type; };
template <> struct BitsOf<4> { typedef u32 type; };

// The word that begins `bits` bits into the lower of two.
__device__ inline u32 word_between(u32 low, u32 high, unsigned bits) {
  return (u32)(((u64)high << 32 | low) >> bits);
}
__device__ inline u64 word_between(u64 low, u64 high, unsigned bits) {
  return low >> bits | high << 1 << (63 - bits);
}

// Count elements from number `first` on, a word of as many; the word behind them is read too.
template <int Count, class Word> __device__ inline Word word_at(const Word* words, unsigned first) {
  const Word* found = words + first / Count;
  return word_between(found[0], found[1], first % Count * (unsigned)(8 * sizeof(Word) / Count));
}

// The same, of words of which those behind the elements may not be there.
template <int Count, class Word, class Index>
__device__ inline Word word_within(const Word* words, Index first) {
  const Index last = first + (Count - 1);
  const unsigned bits = (unsigned)(first % Count) * (unsigned)(8 * sizeof(Word) / Count);
  return word_between(words[first / Count], words[last / Count], bits);
}

// An element of a word.
template <class T, class Word> __device__ inline T element_of(Word word, int number) {
  typedef typename BitsOf<sizeof(T)>::type Narrow;
  return bits_as<T>((Narrow)(word >> (unsigned)(8 * sizeof(T)) * number));
}

}  // namespace hlo
