// Factors of a few columns of a matrix, by a block that keeps them in registers: some rows a thread.
#pragma once

#include "linear_algebra.cuh"

namespace hlo {

// Sixteen bytes of a row.
template <class T> struct alignas(16) Few {
  static constexpr int Count = 16 / sizeof(T);
  T x[Count];
};

// Take multiples of a row out of those that `which` tells, behind the column that is done: elements
// move down by one. Parts of columns behind the `left` that there are stay as they are.
template <int Part, class T, int Each, int Whole>
__device__ inline void take_out(T (&x)[Each][Whole], const T (&factor)[Each],
    const bool (&which)[Each], const Few<T>* row, int left) {
  constexpr int few = Few<T>::Count;
#pragma unroll
  for (int first = 0; first < Whole; first += Part)
    if (first < left)
#pragma unroll
      for (int k = first; k < Whole && k < first + Part; k += few) {
        const Few<T> some = row[k / few];
#pragma unroll
        for (int e = 0; e < Each; ++e)
          if (which[e])
#pragma unroll
            for (int i = 0; i < few; ++i)
              if (k + i > 0) x[e][k + i - 1] = minus_product(x[e][k + i], factor[e], some.x[i]);
      }
}

// ---- pivots ---------------------------------------------------------------------------------------

// Whole numbers in the order of sizes; a NaN comes first.
__device__ inline u32 rank_of(f32 size) {
  u32 bits;
  memcpy(&bits, &size, sizeof(bits));
  return size == size ? bits + 1 : 0;
}
__device__ inline u64 rank_of(f64 size) {
  u64 bits;
  memcpy(&bits, &size, sizeof(bits));
  return size == size ? bits + 1 : 0;
}
__device__ inline u32 rank_of_size(f32 x) { return rank_of(::fabsf(x)); }
__device__ inline u64 rank_of_size(f64 x) { return rank_of(::fabs(x)); }
__device__ inline u32 rank_of_size(Complex<f32> x) { return rank_of(::fabsf(x.re) + ::fabsf(x.im)); }
__device__ inline u64 rank_of_size(Complex<f64> x) { return rank_of(::fabs(x.re) + ::fabs(x.im)); }

// Factor a matrix as LAPACK's getrf does: load(i, j) gives its elements, `a` becomes L and U. Pivots
// count from Base; Order makes order[i] the row that came to be row i. Returns which column, from 1,
// is the first to have no pivot, or 0.
//
// No row moves before the end: its thread notes where it would be. So one barrier a column does, at
// which each warp offers a row, and all take the same one. Elements move down by one in a thread's
// registers with each column that is done, so that the loop need not be written out.
template <int Threads, int Rows, int Columns, int Base, bool Order, class T, class Load>
__device__ inline int factor_panel(
    const Load& load, const Matrix<T>& a, Vector<s32> pivots, Vector<s32> order) {
  typedef decltype(rank_of_size(T{})) Rank;
  constexpr int each = (Rows + Threads - 1) / Threads, warps = Threads / 32;
  constexpr int few = Few<T>::Count, whole = (Columns + few - 1) / few * few, part = 4 * few;
  constexpr int steps = Rows < Columns ? Rows : Columns, far = 0x7fffffff;
  __shared__ Few<T> rows[2][warps][whole / few];
  __shared__ Rank ranks[2][warps];
  __shared__ int firsts[2][warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T x[each][whole];
  int place[each], singular = 0;
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int row = threadIdx.x + e * Threads, inside = row < Rows ? row : Rows - 1;
    place[e] = row < Rows ? row : -1;
#pragma unroll
    for (int k = 0; k < whole; ++k) x[e][k] = k < Columns ? load(inside, k) : T{};
  }
  __syncthreads();
  for (int j = 0; j < steps; ++j) {
    const int turn = j % 2;
    Rank best = 0;
    int first = far;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const Rank rank = place[e] >= j ? rank_of_size(x[e][0]) : 0;
      const int at = place[e] >= j ? place[e] : far;
      if (rank > best || (rank == best && at < first)) best = rank, first = at;
    }
    Rank top = warp_largest(best);
    int pivot = warp_lowest(best == top ? first : far), from = 0;
#pragma unroll
    for (int e = 0; e < each; ++e)
      if (place[e] == pivot) {
        const bool none = rank_of_size(x[e][0]) == 1;  // and nothing is taken out of other rows
#pragma unroll
        for (int k = 0; k < whole; k += few) {
          Few<T> some;
#pragma unroll
          for (int i = 0; i < few; ++i) some.x[i] = none ? T{} : x[e][k + i];
          rows[turn][warp][k / few] = some;
        }
      }
    if (warps > 1) {
      if (lane == 0) ranks[turn][warp] = top, firsts[turn][warp] = pivot;
      __syncthreads();
      const int other = lane < warps ? lane : 0;
      const int offered = firsts[turn][other];
      top = warp_largest(ranks[turn][other]);
      pivot = warp_lowest(ranks[turn][other] == top ? offered : far);
      from = 31 - __clz(__ballot_sync(0xffffffffu, lane < warps && offered == pivot));
    } else {
      __syncwarp();
    }
    const Few<T>* const chosen = rows[turn][from];
    const bool none = top == 1;
    const T divisor = chosen[0].x[0];
    if (none && !singular) singular = j + 1;
    if (threadIdx.x == 0) pivots[j] = pivot + Base;
    T factor[each];
    bool rest[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      rest[e] = place[e] >= j && place[e] != pivot;
      place[e] = place[e] == pivot ? j : place[e] == j ? pivot : place[e];
      factor[e] = none ? T{} : divide(x[e][0], divisor);
      if (rest[e]) a(threadIdx.x + e * Threads, j) = factor[e];
    }
    take_out<part>(x, factor, rest, chosen, Columns - j);
  }
  // What is left of a pivot is in its thread's registers, what was right of it by its own place.
  constexpr int most = 128 / (each * (int)sizeof(T)), at_once = most > 8 ? 8 : most > 1 ? most : 1;
#pragma unroll 1
  for (int first = 0; first < Columns; first += at_once) {
    T held[each][at_once];
#pragma unroll
    for (int e = 0; e < each; ++e)
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (first + i < Columns && first + i < place[e])
          held[e][i] = a(threadIdx.x + e * Threads, first + i);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < each; ++e)
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (first + i < Columns && first + i < place[e]) a(place[e], first + i) = held[e][i];
  }
#pragma unroll
  for (int e = 0; e < each; ++e) {
    if (Order && place[e] >= 0) order[place[e]] = threadIdx.x + e * Threads;
    if (place[e] >= 0 && place[e] < steps)
#pragma unroll
      for (int k = 0; k < whole; ++k)
        if (place[e] + k < Columns) a(place[e], place[e] + k) = x[e][k];
  }
  return singular;
}

// ---- reflections ----------------------------------------------------------------------------------

// The sums over a warp of `Count` values that each lane has, a power of two: value lane * Count / 32.
template <int Count, int Mask = 16, class T> __device__ inline T warp_sums(const T (&x)[Count]) {
  if constexpr (Mask == 0) {
    return x[0];
  } else if constexpr (Count == 1) {
    const T both[1] = {add(x[0], shuffle_across(x[0], Mask))};
    return warp_sums<1, Mask / 2>(both);
  } else {
    constexpr int half = Count / 2;
    const bool upper = threadIdx.x & Mask;
    T kept[half];
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const T given = upper ? x[k] : x[k + half];
      kept[k] = add(upper ? x[k + half] : x[k], shuffle_across(given, Mask));
    }
    return warp_sums<half, Mask / 2>(kept);
  }
}

// The power of two that brings a number whose first word is `high` near to 1, and the other way.
__device__ inline f32 power_for(u32 high, f32, bool back) {
  const u32 exponent = high >> 23 & 0xff, held = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
  const u32 bits = (back ? held : 254 - held) << 23;
  f32 x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
__device__ inline f64 power_for(u32 high, f64, bool back) {
  const u64 exponent = high >> 20 & 0x7ff, held = exponent < 1 ? 1 : exponent > 2045 ? 2045 : exponent;
  const u64 bits = (back ? held : 2046 - held) << 52;
  f64 x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
__device__ inline u32 high_word(f32 x) {
  u32 bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits & 0x7fffffff;
}
__device__ inline u32 high_word(f64 x) {
  u64 bits;
  memcpy(&bits, &x, sizeof(bits));
  return (u32)(bits >> 32) & 0x7fffffff;
}
template <class T> __device__ inline u32 high_word(Complex<T> x) {
  const u32 re = high_word(x.re), im = high_word(x.im);
  return re > im ? re : im;
}

// Factor a matrix as LAPACK's geqrf does: load(i, j) gives its elements, `a` becomes R and, below, the
// vectors of the reflections, whose factors are `tau`.
//
// What a column is to be multiplied by and the rest of its length come of one sum over all rows, of
// its products with all columns, itself among them; so one barrier a column does. So that no square
// of a float runs over or under, each column is first brought near to 1 by a power of two: that
// changes nothing but R. Elements move down in registers as in factor_panel.
template <int Threads, int Rows, int Columns, class T, class Load>
__device__ inline void reflect_panel(const Load& load, const Matrix<T>& a, Vector<T> tau) {
  typedef decltype(real(T{})) R;
  constexpr int each = (Rows + Threads - 1) / Threads, warps = Threads / 32;
  constexpr int few = Few<T>::Count, part = (Columns > 2 * few ? 4 : Columns > few ? 2 : 1) * few;
  constexpr int whole = (Columns + part - 1) / part * part;
  constexpr int steps = Rows < Columns ? Rows : Columns, turns = (whole + 31) / 32;
  __shared__ Few<T> sums[2][warps][whole / few], top[2][whole / few], taken[warps][whole / few];
  __shared__ u32 highs[warps][whole], high[whole];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T x[each][whole];
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int row = threadIdx.x + e * Threads, inside = row < Rows ? row : Rows - 1;
#pragma unroll
    for (int k = 0; k < whole; ++k) x[e][k] = k < Columns && row < Rows ? load(inside, k) : T{};
  }
#pragma unroll
  for (int k = 0; k < whole; ++k) {
    u32 most = 0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const u32 mine = high_word(x[e][k]);
      most = mine > most ? mine : most;
    }
    most = warp_largest(most);
    if (lane == 0) highs[warp][k] = most;
  }
  __syncthreads();
  for (int k = threadIdx.x; k < whole; k += Threads) {
    u32 most = 0;
    for (int w = 0; w < warps; ++w) most = highs[w][k] > most ? highs[w][k] : most;
    high[k] = most;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < whole; ++k) {
    const R power = power_for(high[k], R{}, false);
#pragma unroll
    for (int e = 0; e < each; ++e) x[e][k] = scaled(x[e][k], power);
  }
  for (int j = 0; j < steps; ++j) {
    const int turn = j % 2;
#pragma unroll
    for (int e = 0; e < each; ++e)
      if ((int)threadIdx.x + e * Threads == j)
#pragma unroll
        for (int k = 0; k < whole; k += few) {
          Few<T> some;
#pragma unroll
          for (int i = 0; i < few; ++i) some.x[i] = x[e][k + i];
          top[turn][k / few] = some;
        }
#pragma unroll
    for (int first = 0; first < whole; first += part)
      if (first < Columns - j) {
        T parts[part] = {};
#pragma unroll
        for (int e = 0; e < each; ++e)
          if ((int)threadIdx.x + e * Threads > j)
#pragma unroll
            for (int k = 0; k < part; ++k)
              parts[k] = plus_product(parts[k], conj(x[e][0]), x[e][first + k]);
        const T sum = warp_sums(parts);
        if (lane % (32 / part) == 0) ((T*)sums[turn][warp])[first + lane / (32 / part)] = sum;
      }
    __syncthreads();
    T total[turns];
#pragma unroll
    for (int n = 0; n < turns; ++n) {
      const int k = lane + n * 32 < whole ? lane + n * 32 : 0;
      total[n] = T{};
#pragma unroll
      for (int w = 0; w < warps; ++w) total[n] = add(total[n], ((const T*)sums[turn][w])[k]);
    }
    const T alpha = top[turn][0].x[0];
    const R rest = shuffle_from(real(total[0]), 0);
    const bool none = rest == 0 && imag(alpha) == 0;
    const R square = plus_product(rest, imag(alpha), imag(alpha));
    const R length = sqrt(plus_product(square, real(alpha), real(alpha)));
    const R beta = none ? real(alpha) : -(R)::copysign(length, real(alpha));
    const T scale = none ? T{} : divide(convert<T>((R)1), subtract(alpha, convert<T>(beta)));
    const T factor = none ? T{} : scaled(subtract(convert<T>(beta), alpha), 1 / beta);
    if (threadIdx.x == 0) tau[j] = factor;
#pragma unroll
    for (int n = 0; n < turns; ++n) {
      const int k = lane + n * 32;
      if (k < whole) {
        const T product = plus_product(((const T*)top[turn])[k], conj(scale), total[n]);
        ((T*)taken[warp])[k] = multiply(conj(factor), product);
      }
    }
    __syncwarp();
    T mine[each];
    bool below[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int row = threadIdx.x + e * Threads;
      below[e] = row > j && row < Rows;
      mine[e] = multiply(x[e][0], scale);
      if (below[e]) a(row, j) = mine[e];
    }
    take_out<part>(x, mine, below, taken[warp], Columns - j);
#pragma unroll
    for (int e = 0; e < each; ++e)
      if ((int)threadIdx.x + e * Threads == j) {
#pragma unroll
        for (int k = 0; k < whole; k += few) {
          const Few<T> some = taken[warp][k / few];
#pragma unroll
          for (int i = 0; i < few; ++i) x[e][k + i] = subtract(x[e][k + i], some.x[i]);
        }
        x[e][0] = convert<T>(beta);
      }
  }
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int row = threadIdx.x + e * Threads;
    if (row < steps)
#pragma unroll
      for (int k = 0; k < whole; ++k)
        if (row + k < Columns) a(row, row + k) = scaled(x[e][k], power_for(high[row + k], R{}, true));
  }
}

}  // namespace hlo
