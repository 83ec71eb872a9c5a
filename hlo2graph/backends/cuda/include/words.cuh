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

// The bytes of two words that `which` names, four bits each.
__device__ inline u32 bytes_of(u32 low, u32 high, u32 which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const u64 both = (u64)high << 32 | low;
  u32 found = 0;
  for (int k = 0; k < 4; ++k) found |= (u32)(both >> 8 * (which >> 4 * k & 7) & 255) << 8 * k;
  return found;
#endif
}

// Four words of four elements turned: word k of what is written, `step` words apart, has element k of
// each.
__device__ inline void turn_square(u32 a, u32 b, u32 c, u32 d, u32* to, int step) {
  const u32 ab = bytes_of(a, b, 0x5140), cd = bytes_of(c, d, 0x5140);
  const u32 ab_high = bytes_of(a, b, 0x7362), cd_high = bytes_of(c, d, 0x7362);
  to[0] = bytes_of(ab, cd, 0x5410);
  to[step] = bytes_of(ab, cd, 0x7632);
  to[2 * step] = bytes_of(ab_high, cd_high, 0x5410);
  to[3 * step] = bytes_of(ab_high, cd_high, 0x7632);
}
__device__ inline void turn_square(u64 a, u64 b, u64 c, u64 d, u64* to, int step) {
  for (int k = 0; k < 4; ++k) {
    const int bits = 32 * (k / 2), which = k % 2 ? 0x7632 : 0x5410;
    const u64 low = bytes_of((u32)(a >> bits), (u32)(b >> bits), which);
    to[k * step] = (u64)bytes_of((u32)(c >> bits), (u32)(d >> bits), which) << 32 | low;
  }
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
