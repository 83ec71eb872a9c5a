// Random bits: Philox 4x32-10 and ThreeFry 2x32-20 (Salmon et al., SC 2011), and `rng`.
#pragma once

#include "convert.cuh"
#include "functions.cuh"

namespace hlo {

struct Words {
  u32 a, b, c, d;
};

// Block number `number` of the stream that starts at the counter (low, high).
__device__ inline Words philox(u64 key, u64 low, u64 high, u64 number) {
  u64 count = low + number;
  if (count < low) ++high;
  Words w = {(u32)count, (u32)(count >> 32), (u32)high, (u32)(high >> 32)};
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    u64 first = (u64)w.a * 0xD2511F53u, second = (u64)w.c * 0xCD9E8D57u;
    w = {(u32)(second >> 32) ^ w.b ^ k0, (u32)second, (u32)(first >> 32) ^ w.d ^ k1, (u32)first};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return w;
}
__device__ inline u32 philox_word(u64 key, u64 low, u64 high, u64 number) {
  Words w = philox(key, low, high, number / 4);
  const u32 words[] = {w.a, w.b, w.c, w.d};
  return words[number % 4];
}
__device__ inline u64 philox_wide(u64 key, u64 low, u64 high, u64 number) {
  Words w = philox(key, low, high, number / 2);
  return number % 2 ? w.c | (u64)w.d << 32 : w.a | (u64)w.b << 32;
}

__device__ inline u64 threefry_wide(u64 key, u64 counter) {
  const u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  const u32 keys[] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAu};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  u32 x = (u32)counter + k0, y = (u32)(counter >> 32) + k1;
  for (int group = 0; group < 5; ++group) {
    for (int step = 0; step < 4; ++step) {
      const int by = turns[group % 2][step];
      x += y;
      y = x ^ (y << by | y >> (32 - by));
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + (u32)(group + 1);
  }
  return x | (u64)y << 32;
}
__device__ inline u32 threefry(u64 key, u64 counter, int lane) {
  return (u32)(threefry_wide(key, counter) >> (lane ? 32 : 0));
}

// The element whose bits are the lowest ones of a word.
template <class T> struct FromBits {
  __device__ static typename Compute<T>::type of(u64 word) {
    T stored;
    memcpy(&stored, &word, sizeof(T));
    return load(stored);
  }
};
template <class T> struct NumberFromBits {
  __device__ static f32 of(u64 word) { return convert<T>((u32)(word & 15u)); }
};
template <> struct FromBits<f4e2m1fn> : NumberFromBits<f4e2m1fn> {};  // as XLA
template <class T> __device__ inline typename Compute<T>::type from_bits(u64 word) {
  return FromBits<T>::of(word);
}

// ---- rng: the distribution counts, not the bits ------------------------------------------------

template <class C> __device__ inline u64 bits_of(C x) {
  u64 bits = 0;
  memcpy(&bits, &x, sizeof(C));
  return bits;
}
// Two words for element `number`, from the operands and a seed.
template <class C> __device__ inline u64 drawn(C a, C b, u32 seed, u64 number) {
  Words w = philox(bits_of(a) ^ (u64)seed << 16, number, bits_of(b) ^ seed, 0);
  return w.a | (u64)w.b << 32;
}
__device__ inline f64 fraction(u64 bits) { return (f64)(bits >> 11) * 0x1p-53; }

template <class T> struct Uniform {
  typedef typename Compute<T>::type C;
  __device__ static C real(C low, C high, u64 bits) {
    C x = convert<T>((f64)low + ((f64)high - (f64)low) * fraction(bits));
    return x >= high && low < high ? low : x;  // rounding must not reach the upper end
  }
  __device__ static f32 of(f32 low, f32 high, u64 bits) { return real(low, high, bits); }
  __device__ static f64 of(f64 low, f64 high, u64 bits) { return real(low, high, bits); }
  template <class I> __device__ static I of(I low, I high, u64 bits) {
    return (I)(low < high ? (u64)low + bits % ((u64)high - (u64)low) : (u64)low);
  }
};
template <class T>
__device__ inline typename Compute<T>::type rng_uniform(
    typename Compute<T>::type low, typename Compute<T>::type high, u32 seed, u64 number) {
  return Uniform<T>::of(low, high, drawn(low, high, seed, number));
}
template <class T>
__device__ inline typename Compute<T>::type rng_normal(
    typename Compute<T>::type mean, typename Compute<T>::type deviation, u32 seed, u64 number) {
  f64 radius = sqrt(-2 * log(1 - fraction(drawn(mean, deviation, seed, number))));
  f64 turn = cosine(6.283185307179586 * fraction(drawn(mean, deviation, ~seed, number)));
  return convert<T>((f64)mean + (f64)deviation * radius * turn);
}

}  // namespace hlo
