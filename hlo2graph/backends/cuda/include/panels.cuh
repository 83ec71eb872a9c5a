// Factors of a few columns of a matrix, by a block that keeps them in registers: some rows a thread.
#pragma once

#include "linear_algebra.cuh"

namespace hlo {

// Sixteen bytes of a row.
template <class T> struct alignas(16) Few {
  static constexpr int Count = 16 / sizeof(T);
  T x[Count];
};

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
#pragma unroll
    for (int first = 0; first < whole; first += part)
      if (first < Columns - j)
#pragma unroll
        for (int k = first; k < whole && k < first + part; k += few) {
          const Few<T> some = chosen[k / few];
#pragma unroll
          for (int e = 0; e < each; ++e)
            if (rest[e])
#pragma unroll
              for (int i = 0; i < few; ++i)
                if (k + i > 0) x[e][k + i - 1] = minus_product(x[e][k + i], factor[e], some.x[i]);
        }
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

}  // namespace hlo
