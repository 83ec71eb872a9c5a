// Elements that lie anywhere in words of several.
#pragma once

#include "types.cuh"

namespace hlo {

// What a thread reads or writes at once, at most.
struct Access {
  alignas(16) u64 low;
  u64 high;
};

template <int Bytes> struct BitsOf;
template <> struct BitsOf<1> { typedef u8 type; };
template <> struct BitsOf<2> { typedef u16 type; };
template <> struct BitsOf<4> { typedef u32 type; };

// Of a power of two: shifts by it take no care of negative numbers, as divisions do.
template <int Count> struct Log2 { static const int value = 1 + Log2<Count / 2>::value; };
template <> struct Log2<1> { static const int value = 0; };

// The word that begins `bits` bits into the lower of two.
__device__ inline u32 word_between(u32 low, u32 high, unsigned bits) {
#ifdef __CUDA_ARCH__
  return __funnelshift_r(low, high, bits);
#else
  return (u32)(((u64)high << 32 | low) >> bits);
#endif
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
  const unsigned bits = (unsigned)first % Count * (unsigned)(8 * sizeof(Word) / Count);
  return word_between(words[first >> Log2<Count>::value], words[last >> Log2<Count>::value], bits);
}

// An element of a word.
template <class T, class Word> __device__ inline T element_of(Word word, int number) {
  typedef typename BitsOf<sizeof(T)>::type Narrow;
  return bits_as<T>((Narrow)(word >> (unsigned)(8 * sizeof(T)) * number));
}

// Count elements of an array that begin anywhere in a word of it: all words that hold one are read.
// They are put together where they are asked for, so that no read waits for the one before.
template <class T, int Count> struct Run {
  static const int each = 4 / sizeof(T);
  u32 words[Count / each + 1];
  unsigned bits;
  __device__ T at(int number) const {
    const int k = number / each;
    return element_of<T>(word_between(words[k], words[k + 1], bits), number % each);
  }
};
template <int Count, class T, class Index>
__device__ inline Run<T, Count> run_at(const T* array, Index first) {
  const int each = 4 / sizeof(T), last = Count / each, shift = Log2<each>::value;
  const u32* words = (const u32*)array + (first >> shift);
  Run<T, Count> found;
#pragma unroll
  for (int k = 0; k < last; ++k) found.words[k] = words[k];
  found.words[last] = ((const u32*)array)[(first + (Count - 1)) >> shift];
  found.bits = (unsigned)(first & (each - 1)) * (unsigned)(8 * sizeof(T));
  return found;
}

// What `read` gives, or zeros where there is nothing to read.
template <class Read> __device__ inline auto read_if(bool is_there, const Read& read) -> decltype(read()) {
  return is_there ? read() : decltype(read())();
}

}  // namespace hlo
