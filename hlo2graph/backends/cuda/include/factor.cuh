// Small triangular matrices in shared memory: Cholesky's factor, and substitution.
#pragma once

#include "convert.cuh"

namespace hlo {

// Replace the lower triangle of a Hermitian matrix by its factor L, of L L^H. Returns, to all threads
// of the block, the number of the first leading minor that is not positive definite, or 0.
template <int Size, int Threads, class T>
__device__ inline int factor_block(T (*a)[Size + 1]) {
  constexpr int across = Size < 16 ? Size : 16, down = Threads / across;
  for (int k = 0; k < Size; ++k) {
    __syncthreads();
    const auto pivot = real(a[k][k]);
    if (!(pivot > 0) || !is_finite(pivot)) return k + 1;
    // Column k is scaled once all have used it, at the end.
    for (int i = k + 1 + threadIdx.x / across; i < Size; i += down) {
      const T factor = scaled(a[i][k], 1 / pivot);
      for (int j = k + 1 + threadIdx.x % across; j <= i; j += across)
        a[i][j] = subtract(a[i][j], multiply(factor, conj(a[j][k])));
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < Size * Size; at += Threads) {
    const int i = at / Size, j = at % Size;
    if (j < i) a[i][j] = scaled(a[i][j], 1 / sqrt(real(a[j][j])));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Size; i += Threads) a[i][i] = convert<T>(sqrt(real(a[i][i])));
  __syncthreads();
  return 0;
}

// Solve a x = x for the lower triangle of a: each thread has a column of x. A few rows at a time are
// in registers while the rows behind them are told.
template <int Size, int Columns, bool Unit, class T>
__device__ inline void substitute(const T (*a)[Size + 1], T (*x)[Columns]) {
  constexpr int rows = 8;
  const int column = threadIdx.x;
  for (int first = 0; first < Size; first += rows) {
    T held[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      if (first + k >= Size) break;
      T rest = x[first + k][column];
#pragma unroll
      for (int j = 0; j < k; ++j) rest = subtract(rest, multiply(a[first + k][first + j], held[j]));
      held[k] = Unit ? rest : divide(rest, a[first + k][first + k]);
      x[first + k][column] = held[k];
    }
    for (int i = first + rows; i < Size; ++i) {
      T rest = x[i][column];
#pragma unroll
      for (int j = 0; j < rows; ++j) rest = subtract(rest, multiply(a[i][first + j], held[j]));
      x[i][column] = rest;
    }
  }
}

}  // namespace hlo
