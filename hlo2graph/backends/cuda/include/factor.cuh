// Small triangular matrices in shared memory: Cholesky's factor, and substitution.
#pragma once

#include "convert.cuh"

namespace hlo {

// Replace the lower triangle of a Hermitian matrix by its factor L, of L L^H. Returns, to all threads
// of the block, the number of the first leading minor that is not positive definite, or 0.
//
// Each thread has every 16th column of every down-th row in registers. Column k, as it is when its
// turn comes, is in `column`, in shared memory too, while all take their share of it away.
template <int Size, int Threads, class T>
__device__ inline int factor_block(T (*a)[Size + 1], T (*column)[Size]) {
  constexpr int across = 16, down = Threads / across;
  constexpr int rows = (Size + down - 1) / down, columns = (Size + across - 1) / across;
  const int row = threadIdx.x / across, left = threadIdx.x % across;
  T mine[rows][columns];
  __syncthreads();
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int i = row + r * down, j = left + c * across;
      mine[r][c] = i < Size && j <= i ? a[i][j] : T{};
      if (j == 0 && i < Size) column[0][i] = mine[r][c];
    }
  for (int k = 0; k < Size; ++k) {
    __syncthreads();
    const T* const now = column[k % 2];
    const auto pivot = real(now[k]);
    if (!(pivot > 0) || !is_finite(pivot)) return k + 1;
    const auto share = 1 / pivot;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int j = left + c * across;
      const T other = j > k && j < Size ? scaled(conj(now[j]), share) : T{};
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const int i = row + r * down;
        if (i < Size && j > k) mine[r][c] = subtract(mine[r][c], multiply(now[i], other));
        if (i < Size && j == k + 1) column[j % 2][i] = mine[r][c];
      }
    }
    if (threadIdx.x == 0) a[k][k] = convert<T>(sqrt(pivot));
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int i = row + r * down, j = left + c * across;
      if (i < Size && j < i) a[i][j] = scaled(mine[r][c], 1 / real(a[j][j]));
    }
  __syncthreads();
  return 0;
}

// Solve a x = x for the lower triangle of a, for Columns right-hand sides with as many threads each as
// there are teams. The first one solves a few rows at a time, which all then take out of those behind.
template <int Size, int Columns, int Teams, bool Unit, class T>
__device__ inline void substitute(const T (*a)[Size + 1], T (*x)[Columns]) {
  constexpr int rows = 8;
  const int column = threadIdx.x % Columns, team = threadIdx.x / Columns;
  for (int first = 0; first < Size; first += rows) {
    T held[rows];
    if (team == 0) {
#pragma unroll
      for (int k = 0; k < rows; ++k) held[k] = first + k < Size ? x[first + k][column] : T{};
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        if (first + k >= Size) break;
#pragma unroll
        for (int j = 0; j < k; ++j)
          held[k] = subtract(held[k], multiply(a[first + k][first + j], held[j]));
        if (!Unit) held[k] = divide(held[k], a[first + k][first + k]);
        x[first + k][column] = held[k];
      }
    }
    __syncthreads();
    if (first + rows >= Size) break;
#pragma unroll
    for (int k = 0; k < rows; ++k) held[k] = x[first + k][column];
#pragma unroll 4
    for (int i = first + rows + team; i < Size; i += Teams) {
      T rest = x[i][column];
#pragma unroll
      for (int j = 0; j < rows; ++j) rest = subtract(rest, multiply(a[i][first + j], held[j]));
      x[i][column] = rest;
    }
    __syncthreads();
  }
}

}  // namespace hlo
