// Fourier transforms of lines in shared memory: several lines a block, several threads a line.
//
// A transform of N elements goes through one pass for each of its radices (Stockham's order, so that
// nothing is reversed). A pass reads all of the lines into registers before it writes any of them, so
// one copy in shared memory does. The first pass reads, and the last one writes, by functions of the
// kernel's.
#pragma once

#include "complex.cuh"

namespace hlo {

// Where element i of a line lies: gaps keep what threads write far apart out of one bank.
__host__ __device__ constexpr int spread(int i) { return i + i / 16; }

// Powers of e to the i 2 pi / N. Long tables are two: of steps of Step, and of what is between.
template <class C, int N, int Sign>
struct Turns {
  static constexpr int Whole = N, Step = N <= 256 ? N : 64;
  static constexpr int Steps = (N + Step - 1) / Step;
  C low[Step], high[Steps];

  template <int Threads> __device__ void fill() {
    for (int k = threadIdx.x; k < Step; k += Threads) low[k] = turned<C>(k, N, Sign);
    if (Steps > 1)
      for (int k = threadIdx.x; k < Steps; k += Threads) high[k] = turned<C>(k * Step, N, Sign);
    __syncthreads();
  }
  __device__ C operator()(int k) const {
    return Steps == 1 ? low[k] : rotated(high[k / Step], low[k % Step]);
  }
};

// ---- transforms of a few numbers in registers ---------------------------------------------------

template <int Sign, class T> __device__ inline Complex<T> turned_left(Complex<T> x) {
  return Sign < 0 ? Complex<T>{x.im, -x.re} : Complex<T>{-x.im, x.re};
}

template <int Sign, class C> __device__ inline void transform2(C& a, C& b) {
  const C sum = add(a, b);
  b = subtract(a, b);
  a = sum;
}

template <int Sign, class C> __device__ inline void transform4(C& a, C& b, C& c, C& d) {
  const C p = add(a, c), q = subtract(a, c), r = add(b, d);
  const C s = turned_left<Sign>(subtract(b, d));
  a = add(p, r), b = add(q, s), c = subtract(p, r), d = subtract(q, s);
}

template <int Radix, int Sign> struct Transform;

template <int Sign> struct Transform<2, Sign> {
  template <class C, class Turn> __device__ static void of(C* x, const Turn&) {
    transform2<Sign>(x[0], x[1]);
  }
};

template <int Sign> struct Transform<4, Sign> {
  template <class C, class Turn> __device__ static void of(C* x, const Turn&) {
    transform4<Sign>(x[0], x[1], x[2], x[3]);
  }
};

template <int Sign, class T> __device__ inline Complex<T> turned_by(Complex<T> x, T re, T im) {
  return rotated(x, Complex<T>{re, Sign * im});
}

template <int Sign> struct Transform<8, Sign> {
  template <class T, class Turn> __device__ static void of(Complex<T>* x, const Turn&) {
    const T half = (T)0.70710678118654752440;
    transform4<Sign>(x[0], x[2], x[4], x[6]);
    transform4<Sign>(x[1], x[3], x[5], x[7]);
    x[3] = turned_by<Sign>(x[3], half, half);
    x[5] = turned_left<Sign>(x[5]);
    x[7] = turned_by<Sign>(x[7], -half, half);
    for (int k = 0; k < 8; k += 2) transform2<Sign>(x[k], x[k + 1]);
    const Complex<T> y[8] = {x[0], x[2], x[4], x[6], x[1], x[3], x[5], x[7]};
    for (int k = 0; k < 8; ++k) x[k] = y[k];
  }
};

template <int Sign> struct Transform<16, Sign> {
  template <class T, class Turn> __device__ static void of(Complex<T>* x, const Turn&) {
    const T c = (T)0.92387953251128675613, s = (T)0.38268343236508977173;
    const T half = (T)0.70710678118654752440;
    for (int k = 0; k < 4; ++k) transform4<Sign>(x[k], x[k + 4], x[k + 8], x[k + 12]);
    x[5] = turned_by<Sign>(x[5], c, s);
    x[6] = turned_by<Sign>(x[6], half, half);
    x[7] = turned_by<Sign>(x[7], s, c);
    x[9] = turned_by<Sign>(x[9], half, half);
    x[10] = turned_left<Sign>(x[10]);
    x[11] = turned_by<Sign>(x[11], -half, half);
    x[13] = turned_by<Sign>(x[13], s, c);
    x[14] = turned_by<Sign>(x[14], -half, half);
    x[15] = turned_by<Sign>(x[15], -c, -s);
    for (int k = 0; k < 16; k += 4) transform4<Sign>(x[k], x[k + 1], x[k + 2], x[k + 3]);
    for (int k = 0; k < 4; ++k)
      for (int j = 0; j < k; ++j) {
        const Complex<T> held = x[4 * k + j];
        x[4 * k + j] = x[4 * j + k];
        x[4 * j + k] = held;
      }
  }
};

template <int Sign> struct Transform<3, Sign> {
  template <class T, class Turn> __device__ static void of(Complex<T>* x, const Turn&) {
    const T s = (T)0.86602540378443864676;
    const Complex<T> sum = add(x[1], x[2]), side = scaled(subtract(x[1], x[2]), s);
    const Complex<T> middle = plus_scaled(x[0], sum, (T)-0.5), turn = turned_left<Sign>(side);
    x[0] = add(x[0], sum), x[1] = add(middle, turn), x[2] = subtract(middle, turn);
  }
};

template <int Sign> struct Transform<5, Sign> {
  template <class T, class Turn> __device__ static void of(Complex<T>* x, const Turn&) {
    const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;
    const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;
    const Complex<T> p = add(x[1], x[4]), q = add(x[2], x[3]);
    const Complex<T> u = subtract(x[1], x[4]), v = subtract(x[2], x[3]);
    const Complex<T> a = plus_scaled(plus_scaled(x[0], p, c1), q, c2);
    const Complex<T> b = plus_scaled(plus_scaled(x[0], p, c2), q, c1);
    const Complex<T> s = turned_left<Sign>(plus_scaled(scaled(u, s1), v, s2));
    const Complex<T> t = turned_left<Sign>(plus_scaled(scaled(u, s2), v, -s1));
    x[0] = add(x[0], add(p, q));
    x[1] = add(a, s), x[2] = add(b, t), x[3] = subtract(b, t), x[4] = subtract(a, s);
  }
};

// Other radices are primes: pairs k and Radix - k share what is even and what is odd in them.
template <int Radix, int Sign> struct Transform {
  template <class C, class Turn> __device__ static void of(C* x, const Turn& turn) {
    C even[Radix / 2], odd[Radix / 2], total = x[0];
    for (int k = 0; k < Radix / 2; ++k) {
      even[k] = add(x[k + 1], x[Radix - 1 - k]);
      odd[k] = subtract(x[k + 1], x[Radix - 1 - k]);
      total = add(total, even[k]);
    }
    const C first = x[0];
    for (int j = 1; j <= Radix / 2; ++j) {
      C a = first, b = C{};
      for (int k = 0; k < Radix / 2; ++k) {
        const C w = turn(j * (k + 1) % Radix);
        a = plus_scaled(a, even[k], w.re);
        b = plus_scaled(b, odd[k], w.im);
      }
      x[j] = C{a.re - b.im, a.im + b.re};
      x[Radix - j] = C{a.re + b.im, a.im - b.re};
    }
    x[0] = total;
  }
};

// ---- lines ----------------------------------------------------------------------------------------

// One pass over a line, by `Lanes` threads; Done is the product of the radices before. All threads
// of the block come here, each with its line.
template <int Sign, int N, int Lanes, int Done, int Radix, class Turn, class Load, class Store>
__device__ inline void fft_pass(int lane, const Turn& turn, const Load& load, const Store& store) {
  constexpr int count = N / Radix, each = (count + Lanes - 1) / Lanes;
  decltype(load(0)) held[each][Radix];
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int j = lane + e * Lanes;
    if (count % Lanes == 0 || j < count)
#pragma unroll
      for (int r = 0; r < Radix; ++r) held[e][r] = load(j + r * count);
  }
  if (Done > 1) __syncthreads();
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int j = lane + e * Lanes, k = j % Done;
    if (count % Lanes == 0 || j < count) {
      if (Done > 1)
#pragma unroll
        for (int r = 1; r < Radix; ++r)
          held[e][r] = rotated(held[e][r], turn(k * r * (N / (Done * Radix))));
      Transform<Radix, Sign>::of(held[e], [&](int m) { return turn(m * (N / Radix)); });
#pragma unroll
      for (int r = 0; r < Radix; ++r) store(j / Done * Done * Radix + k + r * Done, held[e][r]);
    }
  }
}

template <int Sign, int N, int Lanes, int Done, int Radix, int... Others, class C, class Turn,
          class Load, class Store>
__device__ inline void fft_passes(
    C* line, int lane, const Turn& turn, const Load& load, const Store& store) {
  if constexpr (sizeof...(Others) == 0) {
    fft_pass<Sign, N, Lanes, Done, Radix>(lane, turn, load, store);
  } else {
    fft_pass<Sign, N, Lanes, Done, Radix>(
        lane, turn, load, [&](int i, C x) { line[spread(i)] = x; });
    __syncthreads();
    fft_passes<Sign, N, Lanes, Done * Radix, Others...>(
        line, lane, turn, [&](int i) { return line[spread(i)]; }, store);
  }
}

// Transform a block's lines: this thread is number `lane` of the `Lanes` of its line, whose place in
// shared memory is `line`. load(i) gives its element i, store(i, x) takes that of the result. The
// table of turns, of N or more, is in shared memory too.
template <int Sign, int N, int Lanes, int Threads, int... Radices, class Table, class C, class Load,
          class Store>
__device__ inline void fft_line(
    Table& turns, C* line, int lane, const Load& load, const Store& store) {
  turns.template fill<Threads>();
  const auto turn = [&](int k) { return turns(k * (Table::Whole / N)); };
  fft_passes<Sign, N, Lanes, 1, Radices...>(line, lane, turn, load, store);
}

// Of N + 1 elements at k and N - k of the transform of 2 N real numbers, what the transform of N
// pairs of them, each as one complex number, has at k; and the other way round. w is the turn of k
// in 2 N, the conjugate one for the way back.
template <class T>
__device__ inline Complex<T> pairs_of(Complex<T> a, Complex<T> b, Complex<T> w) {
  const Complex<T> even = scaled(add(a, conj(b)), (T)0.5);
  const Complex<T> odd = rotated(scaled(subtract(a, conj(b)), (T)0.5), w);
  return {even.re - odd.im, even.im + odd.re};
}
template <class T>
__device__ inline Complex<T> reals_of(Complex<T> a, Complex<T> b, Complex<T> w) {
  const Complex<T> even = scaled(add(a, conj(b)), (T)0.5);
  const Complex<T> odd = rotated(scaled(subtract(a, conj(b)), (T)0.5), w);
  return {even.re + odd.im, even.im - odd.re};
}

}  // namespace hlo
