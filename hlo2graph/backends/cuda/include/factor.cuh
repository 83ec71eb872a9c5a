// Small triangular matrices in shared memory: Cholesky's factor, and substitution.
#pragma once

#include "complex.cuh"
#include "convert.cuh"
#include "cooperate.cuh"

namespace hlo {

// ---- Cholesky's factor --------------------------------------------------------------------------

// A matrix in whole blocks; what lies behind Size is as in a unit matrix. The gap at the end of a row
// keeps 16 bytes of each of 8 rows that follow each other in different banks.
template <class T, int Size> struct Square {
  static constexpr int Block = sizeof(T) > 8 || Size <= 16 ? 16 : 32;
  static constexpr int Whole = (Size + Block - 1) / Block * Block, Blocks = Whole / Block;
  static constexpr int AtOnce = 16 / sizeof(T), Strip = 8;
  struct alignas(16) Few {
    T x[AtOnce];
  };
  T at[Whole][Whole + AtOnce];

  // Some of a row.
  template <int Count> __device__ void read(int row, int first, T (&x)[Count]) const {
#pragma unroll
    for (int k = 0; k < Count; k += AtOnce) {
      const Few few = *(const Few*)&at[row][first + k];
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) x[k + j] = few.x[j];
    }
  }
  template <int Count> __device__ void write(int row, int first, const T (&x)[Count]) {
#pragma unroll
    for (int k = 0; k < Count; k += AtOnce) {
      Few few;
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) few.x[j] = x[k + j];
      *(Few*)&at[row][first + k] = few;
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

// Factor a block of the diagonal, a row a lane of one warp; `shares` become one over the factor's
// diagonal. Returns the number of the first column without a factor, or 0.
template <int Size, class T, class Real>
__device__ inline int factor_corner(Square<T, Size>& a, int first, Real* shares) {
  constexpr int block = Square<T, Size>::Block;
  const int lane = threadIdx.x % block;
  int bad = 0;
  T x[block];
  a.read(first + lane, first, x);
  Real own = 1, pivot = shuffle_from(real(x[0]), 0);
#pragma unroll
  for (int k = 0; k < block; ++k) {
    const bool fails = !(pivot > 0) | !is_finite(pivot);
    bad = fails & (bad == 0) ? first + k + 1 : bad;
    own = lane == k ? pivot : own;
    const Real share = share_of(pivot);
    const T here = scaled(x[k], share);
#pragma unroll
    for (int j = k + 1; j < block; ++j) {
      const T other = shuffle_from(x[k], j);
      // Each lane makes the next pivot of what it was: no shuffle is between one and the next.
      if (j == k + 1)
        pivot = minus_product(shuffle_from(real(x[j]), j), real(multiply(other, conj(other))), share);
      x[j] = minus_product(x[j], here, conj(other));
    }
  }
  const Real root = sqrt(own), mine = 1 / root;
#pragma unroll
  for (int c = 0; c < block; ++c) {
    const T below = scaled(x[c], shuffle_from(mine, c));
    x[c] = lane == c ? convert<T>(root) : below;
  }
  if (threadIdx.x >= block) return bad;
  a.write(first + lane, first, x);
  shares[lane] = mine;
  return bad;
}

// Divide the rows below a block of the diagonal by its factor's adjoint, a row a thread.
template <int Size, class T, class Real>
__device__ inline void divide_rows(Square<T, Size>& a, int first, const Real* shares) {
  constexpr int block = Square<T, Size>::Block;
  const int row = first + block + threadIdx.x;
  if (row >= a.Whole) return;
  T x[block];
  a.read(row, first, x);
#pragma unroll
  for (int j = 0; j < block; ++j) {
    T factor[block];
    a.read(first + j, first, factor);
#pragma unroll
    for (int k = 0; k < j; ++k) x[j] = minus_product(x[j], x[k], conj(factor[k]));
    x[j] = scaled(x[j], shares[j]);
  }
  a.write(row, first, x);
}

// Take what a block of columns makes of a few columns of a block of rows, by a warp, a row a lane.
template <int Size, class T>
__device__ inline void take_strip(Square<T, Size>& a, int first, int top, int left) {
  constexpr int block = Square<T, Size>::Block, strip = Square<T, Size>::Strip;
  const int row = top + threadIdx.x % block;
  T mine[block], rest[strip];
  a.read(row, first, mine);
  a.read(row, left, rest);
#pragma unroll
  for (int c = 0; c < strip; ++c) {
    T other[block];
    a.read(left + c, first, other);
#pragma unroll
    for (int k = 0; k < block; ++k) rest[c] = minus_product(rest[c], mine[k], conj(other[k]));
  }
  if (threadIdx.x % 32 < block) a.write(row, left, rest);
}

// The same for all blocks of the triangle from block `next` on but that of the diagonal, by all warps
// but the first.
template <int Size, int Threads, class T>
__device__ inline void take_rest(Square<T, Size>& a, int next, int warp) {
  constexpr int block = Square<T, Size>::Block, strip = Square<T, Size>::Strip;
  int row = next, column = next;
  int skip = (warp - 1) / (block / strip) + 1, part = (warp - 1) % (block / strip);
  for (;;) {
    for (; skip > 0 && row < a.Blocks; --skip) column = column < row ? column + 1 : (++row, next);
    if (row >= a.Blocks) return;
    take_strip(a, (next - 1) * block, row * block, column * block + part * strip);
    part += Threads / 32 - 1;
    skip = part / (block / strip);
    part %= block / strip;
  }
}

// Replace the lower triangle of a Hermitian matrix by its factor L, of L L^H. Returns, to all threads
// of the block, the number of the first leading minor that is not positive definite, or 0.
//
// A warp factors a block of the diagonal while the others take what the last one made of the rest; so
// what follows each other is these factors, the rows below them, and the next block of the diagonal.
template <int Size, int Threads, class T>
__device__ inline int factor_block(Square<T, Size>& a) {
  typedef Square<T, Size> Matrix;
  constexpr int block = Matrix::Block, strips = block / Matrix::Strip;
  __shared__ decltype(real(T{})) shares[block];
  __shared__ int wrong;
  const int warp = shuffle_from((int)threadIdx.x / 32, 0);  // the same for all, as the compiler sees
  a.template pad<Threads>();
  for (int at = 0; at < a.Blocks; ++at) {
    const int first = at * block;
    __syncthreads();
    if (warp == 0) {
      const int bad = factor_corner(a, first, shares);
      if (threadIdx.x == 0) wrong = bad;
    } else if (at > 0) {
      take_rest<Size, Threads>(a, at, warp);
    }
    __syncthreads();
    if (wrong) return wrong;
    if (at + 1 == a.Blocks) break;
    divide_rows(a, first, shares);
    __syncthreads();
    const int next = first + block;
    if (warp < strips) take_strip(a, first, next, next + warp * Matrix::Strip);
  }
  return 0;
}

// ---- substitution -------------------------------------------------------------------------------

// A lower triangle and Across right-hand sides, in whole blocks of rows: what lies behind Size is as in
// a unit matrix, and zeros.
template <class T, int Size, int Across> struct System {
  static constexpr int Block = sizeof(T) > 8 ? 16 : 32, Blocks = (Size + Block - 1) / Block;
  static constexpr int Whole = Blocks * Block;
  static constexpr int AtOnce = 16 / sizeof(T), Together = 32 / Across;
  struct alignas(16) Few {
    T x[AtOnce];
  };
  T at[Whole][Whole + AtOnce], x[Whole][Across + 1], shares[Whole];

  template <int Threads> __device__ void pad() {
    for (int k = threadIdx.x; k < (Whole - Size) * Whole; k += Threads) {
      const int row = Size + k / Whole, column = k % Whole;
      at[row][column] = convert<T>(row == column ? 1.0f : 0.0f);
    }
    for (int k = threadIdx.x; k < (Whole - Size) * Across; k += Threads)
      x[Size + k / Across][k % Across] = T{};
  }

  __device__ void read(int row, int first, T (&some)[Block]) const {
#pragma unroll
    for (int k = 0; k < Block; k += AtOnce) {
      const Few few = *(const Few*)&at[row][first + k];
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) some[k + j] = few.x[j];
    }
  }

  // Put the inverse of a block of the diagonal in its place, by a warp, a column a lane.
  __device__ void invert(int first) {
    const int lane = threadIdx.x % Block;
    T column[Block];
#pragma unroll
    for (int j = 0; j < Block; ++j) {
      T row[Block], rest = convert<T>(j == lane ? 1.0f : 0.0f);
      read(first + j, first, row);
#pragma unroll
      for (int k = 0; k < j; ++k) rest = minus_product(rest, row[k], column[k]);
      column[j] = j < lane ? T{} : multiply(rest, shares[first + j]);
    }
    __syncwarp();
    if (threadIdx.x % 32 >= Block) return;
#pragma unroll
    for (int j = 0; j < Block; ++j) at[first + j][first + lane] = column[j];
  }

  // What a row of a block of columns makes of a right-hand side.
  __device__ T product(int row, int first, const T (&known)[Block]) const {
    T factor[Block], sum[2] = {};
    read(row, first, factor);
#pragma unroll
    for (int k = 0; k < Block; ++k) sum[k % 2] = plus_product(sum[k % 2], factor[k], known[k]);
    return add(sum[0], sum[1]);
  }

  __device__ void take(int first, int side, T (&known)[Block]) const {
#pragma unroll
    for (int k = 0; k < Block; ++k) known[k] = x[first + k][side];
  }

  // Solve for x in its place: each block of rows is multiplied by the inverse of its part of the
  // diagonal, then taken out of all rows below.
  template <int Threads, bool Unit> __device__ void solve() {
    constexpr int warps = Threads / 32, step = warps * Together, turns = (Block + step - 1) / step;
    const int lane = threadIdx.x % 32, side = lane % Across;
    const int mine = threadIdx.x / 32 * Together + lane / Across;
    for (int k = threadIdx.x; k < Whole; k += Threads)
      shares[k] = Unit ? convert<T>(1.0f) : divide(convert<T>(1.0f), at[k][k]);
    __syncthreads();
    for (int block = threadIdx.x / 32; block < Blocks; block += warps) invert(block * Block);
    for (int first = 0; first < Whole; first += Block) {
      T known[Block], found[turns];
      __syncthreads();
      take(first, side, known);
      __syncthreads();
#pragma unroll
      for (int n = 0; n < turns; ++n)
        if (mine + n * step < Block) found[n] = product(first + mine + n * step, first, known);
#pragma unroll
      for (int n = 0; n < turns; ++n)
        if (mine + n * step < Block) x[first + mine + n * step][side] = found[n];
      __syncthreads();
      if (first + Block == Whole) return;
      take(first, side, known);
#pragma unroll 2
      for (int row = first + Block + mine; row < Whole; row += step)
        x[row][side] = subtract(x[row][side], product(row, first, known));
    }
  }
};

}  // namespace hlo
