// Small triangular matrices in shared memory: Cholesky's factor, and substitution.
#pragma once

#include "complex.cuh"
#include "convert.cuh"
#include "cooperate.cuh"

namespace hlo {

// ---- Cholesky's factor --------------------------------------------------------------------------

// A matrix in whole panels of columns; what lies behind Size is as in a unit matrix. The gap at the
// end of a row keeps 16 bytes of each of 8 rows that follow each other in different banks.
template <class T, int Size> struct Square {
  static constexpr int Width = sizeof(T) > 8 ? 8 : 16, Whole = (Size + 15) / 16 * 16;
  static constexpr int AtOnce = 16 / sizeof(T);
  struct alignas(16) Few {
    T x[AtOnce];
  };
  T at[Whole][Whole + AtOnce];

  // What a row has in a panel.
  __device__ void read(int row, int first, T (&x)[Width]) const {
#pragma unroll
    for (int k = 0; k < Width; k += AtOnce) {
      const Few few = *(const Few*)&at[row][first + k];
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) x[k + j] = few.x[j];
    }
  }
  template <int Threads> __device__ void pad() {
    for (int k = threadIdx.x; k < Whole * (Whole - Size); k += Threads) {
      const int row = k / (Whole - Size), column = Size + k % (Whole - Size);
      at[row][column] = at[column][row] = convert<T>(row == column ? 1.0f : 0.0f);
    }
  }
};

// One over a pivot, with no branch where there is an instruction for it: its last bit is lost in what
// it multiplies.
__device__ inline f32 share_of(f32 pivot) {
#ifdef __CUDA_ARCH__
  f32 found;
  asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(pivot));
  return found;
#else
  return 1 / pivot;
#endif
}
__device__ inline f64 share_of(f64 pivot) { return 1 / pivot; }

// Factor the corner of a panel, a row a lane, and with it a row below for each lane: as they come, but
// for what each column is to be scaled by. Returns that of the lane's column; `bad` becomes the number
// of the first column without a factor, or 0.
template <class T, int Width>
__device__ inline auto factor_rows(T (&corner)[Width], T (&mine)[Width], int first, int& bad) {
  const int lane = threadIdx.x % 32;
  decltype(real(T{})) own = 1, pivot = shuffle_from(real(corner[0]), 0);
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    const bool fails = !(pivot > 0) | !is_finite(pivot);
    bad = fails & (bad == 0) ? first + k + 1 : bad;
    own = lane == k ? pivot : own;
    const auto share = share_of(pivot);
    const T here = scaled(corner[k], share), there = scaled(mine[k], share);
    if (k + 1 < Width) pivot = shuffle_from(real(corner[k + 1]), k + 1);
#pragma unroll
    for (int j = k + 1; j < Width; ++j) {
      const T other = conj(shuffle_from(corner[k], j));
      // Each lane makes the next pivot of what it was: no shuffle is between one and the next.
      if (j == k + 1) pivot -= real(multiply(scaled(conj(other), share), other));
      corner[j] = subtract(corner[j], multiply(here, other));
      mine[j] = subtract(mine[j], multiply(there, other));
    }
  }
  return sqrt(own);
}

// Factor a panel. Each warp that has rows below the corner does all of the corner too, so that no step
// waits for another warp; the first one stores it, once all have read it. Returns what factor_rows
// says of it, to all threads of the block.
template <int Size, class T>
__device__ inline int factor_panel(Square<T, Size>& a, int first, int& wrong) {
  constexpr int width = Square<T, Size>::Width;
  const int lane = threadIdx.x % 32, row = first + width + threadIdx.x;
  const int warp = shuffle_from((int)threadIdx.x / 32, 0);  // the same for all, as the compiler sees
  T corner[width], mine[width] = {};
  decltype(real(T{})) root = 1;
  if (warp == 0 || first + width + 32 * warp < a.Whole) {
    const bool has_row = row < a.Whole;
    int bad = 0;
    a.read(first + lane % width, first, corner);
    if (has_row) a.read(row, first, mine);
    root = factor_rows(corner, mine, first, bad);
    const auto share = 1 / root;
#pragma unroll
    for (int c = 0; c < width; ++c) {
      const auto by = shuffle_from(share, c);
      corner[c] = scaled(corner[c], by);
      if (has_row) a.at[row][first + c] = scaled(mine[c], by);
    }
    if (threadIdx.x == 0) wrong = bad;
  }
  __syncthreads();
  if (threadIdx.x < width) {
#pragma unroll
    for (int c = 0; c < width; ++c)
      if (c < lane) a.at[first + lane][first + c] = corner[c];
    a.at[first + lane][first + lane] = convert<T>(root);
  }
  return wrong;
}

// Take what a panel makes of the lower triangle behind it. A thread has every 16th column of every
// down-th row, four rows at a time.
template <int Size, int Threads, class T>
__device__ inline void take_panel(Square<T, Size>& a, int first) {
  constexpr int width = Square<T, Size>::Width, across = 16, down = Threads / across, rows = 4;
  const int behind = first + width;
  for (int top = behind + threadIdx.x / across; top < a.Whole; top += rows * down) {
    T left[rows][width] = {};
#pragma unroll
    for (int r = 0; r < rows; ++r)
      if (top + r * down < a.Whole) a.read(top + r * down, first, left[r]);
    for (int j = behind + threadIdx.x % across; j < a.Whole; j += across) {
      if (j > top + (rows - 1) * down) break;
      T right[width], sum[rows] = {};
      a.read(j, first, right);
#pragma unroll
      for (int k = 0; k < width; ++k)
#pragma unroll
        for (int r = 0; r < rows; ++r)
          sum[r] = add(sum[r], multiply(left[r][k], conj(right[k])));
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const int i = top + r * down;
        if (i < a.Whole && j <= i) a.at[i][j] = subtract(a.at[i][j], sum[r]);
      }
    }
  }
}

// Replace the lower triangle of a Hermitian matrix by its factor L, of L L^H. Returns, to all threads
// of the block, the number of the first leading minor that is not positive definite, or 0.
template <int Size, int Threads, class T>
__device__ inline int factor_block(Square<T, Size>& a) {
  constexpr int width = Square<T, Size>::Width;
  __shared__ int wrong;
  a.template pad<Threads>();
  for (int first = 0; first < Size; first += width) {
    __syncthreads();
    if (const int bad = factor_panel(a, first, wrong)) return bad;
    take_panel<Size, Threads>(a, first);
  }
  __syncthreads();
  return 0;
}

// ---- substitution -------------------------------------------------------------------------------

// A lower triangle by columns.
template <class T, int Size> struct Columns {
  T at[Size][Size + 1];

  // Make the diagonal what to multiply with.
  template <int Threads> __device__ void invert_diagonal() {
    for (int k = threadIdx.x; k < Size; k += Threads) at[k][k] = divide(convert<T>(1.0f), at[k][k]);
    __syncthreads();
  }
};

// Solve a x = x for a few right-hand sides a warp. Lane k has the rows k, k + 32, ... of each. All
// lanes solve for each row: the next one is fetched before it is known what the last one takes off it,
// so that no shuffle is between one and the next.
template <int Size, int Each, bool Unit, class T>
__device__ inline void substitute(const Columns<T, Size>& a, T (*x)[(Size + 31) / 32]) {
  constexpr int parts = (Size + 31) / 32;
  const int lane = threadIdx.x % 32;
  const auto solved = [&](T rest, int row) { return Unit ? rest : multiply(rest, a.at[row][row]); };
#pragma unroll
  for (int part = 0; part < parts; ++part) {
    const int first = 32 * part, steps = Size - first < 32 ? Size - first : 32;
    T known[Each];
#pragma unroll
    for (int e = 0; e < Each; ++e) known[e] = solved(shuffle_from(x[e][part], 0), first);
#pragma unroll 8
    for (int k = 0; k < steps; ++k) {
      const int after = k + 1 < steps ? k + 1 : k;
      const T* const column = a.at[first + k];
      T factor[parts];
#pragma unroll
      for (int r = part; r < parts; ++r)
        factor[r] = Size % 32 == 0 || lane + 32 * r < Size ? column[lane + 32 * r] : T{};
#pragma unroll
      for (int e = 0; e < Each; ++e) {
        const T now = known[e], next = shuffle_from(x[e][part], after);
        known[e] = solved(subtract(next, multiply(column[first + after], now)), first + after);
        const T rest = subtract(x[e][part], multiply(factor[part], now));
        x[e][part] = lane > k ? rest : lane == k ? now : x[e][part];
#pragma unroll
        for (int r = part + 1; r < parts; ++r)
          x[e][r] = subtract(x[e][r], multiply(factor[r], now));
      }
    }
  }
}

}  // namespace hlo
