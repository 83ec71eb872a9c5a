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
  static constexpr int AtOnce = 16 / sizeof(T);
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
__device__ inline f64 share_of(f64 pivot) {
#ifdef __CUDA_ARCH__
  f64 found;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(found) : "d"(pivot));
  found = ::fma(::fma(-pivot, found, 1.0), found, found);
  found = ::fma(::fma(-pivot, found, 1.0), found, found);
  return pivot < 1e300 ? found : 1 / pivot;  // which is too small for the instruction
#else
  return 1 / pivot;
#endif
}

template <class T> struct alignas(16) Told {
  T x[4];
};

// Factor a block of the diagonal, a row a lane of one warp, and divide as many rows from `below` on by
// the factor's adjoint, in the same steps. Returns the number of the first column without a factor,
// or 0. `told` is the warp's own, for what its lanes tell each other.
//
// Columns are taken by fours. Each lane factors their corner, and takes its rows' part of them out of
// the rest of its rows: of the others' it needs these four numbers, which are read together. The next
// four columns come first, and the others while these are factored.
template <bool Below, int Size, class T>
__device__ inline int factor_corner(
    Square<T, Size>& a, int first, int below, Told<T> (*told)[Square<T, Size>::Block]) {
  typedef decltype(real(T{})) Real;
  typedef Square<T, Size> Matrix;
  constexpr int block = Matrix::Block, few = 4;
  const int lane = threadIdx.x % block;
  int bad = 0;
  Real own = 1;
  T x[block], y[block], share_x[2][few], share_y[2][few];
  a.read(first + lane, first, x);
  if (Below) a.read(below + lane, first, y);
  const auto take = [&](int g, int from, int to) {
#pragma unroll
    for (int j = 0; j < block; ++j)
      if (j >= from && j < to) {
        const Told<T> others = told[g / few % 2][j];
#pragma unroll
        for (int k = 0; k < few; ++k) {
          x[j] = minus_product(x[j], share_x[g / few % 2][k], others.x[k]);
          if (Below) y[j] = minus_product(y[j], share_y[g / few % 2][k], others.x[k]);
        }
      }
  };
#pragma unroll
  for (int g = 0; g < block; g += few) {
    const int turn = g / few % 2;
    T corner[few][few];
#pragma unroll
    for (int r = 0; r < few; ++r)
#pragma unroll
      for (int c = 0; c <= r; ++c) corner[r][c] = shuffle_from(x[g + c], g + r);
#pragma unroll
    for (int k = 0; k < few; ++k) {
      const Real pivot = real(corner[k][k]), share = share_of(pivot);
      const bool fails = !(pivot > 0) | !is_finite(pivot);
      bad = fails & (bad == 0) ? first + g + k + 1 : bad;
      own = lane == g + k ? pivot : own;
      share_x[turn][k] = scaled(x[g + k], share);
      if (Below) share_y[turn][k] = scaled(y[g + k], share);
#pragma unroll
      for (int c = k + 1; c < few; ++c) {
        const T other = conj(corner[c][k]);
        x[g + c] = minus_product(x[g + c], share_x[turn][k], other);
        if (Below) y[g + c] = minus_product(y[g + c], share_y[turn][k], other);
#pragma unroll
        for (int r = c; r < few; ++r)
          corner[r][c] = minus_product(corner[r][c], scaled(corner[r][k], share), other);
      }
    }
    if (g > 0) take(g - few, g + few, block);
    if (g + few == block) break;
#pragma unroll
    for (int k = 0; k < few; ++k) told[turn][lane].x[k] = conj(x[g + k]);
    __syncwarp();
    take(g, g + few, g + 2 * few);
  }
  const Real root = sqrt(own), mine = 1 / root;
#pragma unroll
  for (int c = 0; c < block; ++c) {
    const Real share = shuffle_from(mine, c);
    x[c] = lane == c ? convert<T>(root) : scaled(x[c], share);
    if (Below) y[c] = scaled(y[c], share);
  }
  if (threadIdx.x % 32 >= block) return bad;
  if (Below) a.write(below + lane, first, y);
  else a.write(first + lane, first, x);
  return bad;
}

// Take what a block of columns makes of 4 * Each columns of a block of rows, by a warp: each lane has
// every eighth row and every fourth column.
template <int Each, int Size, class T>
__device__ inline void take_tile(Square<T, Size>& a, int first, int top, int left) {
  typedef Square<T, Size> Matrix;
  constexpr int block = Matrix::Block, few = Matrix::AtOnce, high = block / 8;
  const int row = top + threadIdx.x % 32 / 4, column = left + threadIdx.x % 4;
  T rest[high][Each];
#pragma unroll
  for (int i = 0; i < high; ++i)
#pragma unroll
    for (int j = 0; j < Each; ++j) rest[i][j] = a.at[row + 8 * i][column + 4 * j];
#pragma unroll 2
  for (int k = 0; k < block; k += few) {
    T mine[high][few], others[Each][few];
#pragma unroll
    for (int i = 0; i < high; ++i) a.read(row + 8 * i, first + k, mine[i]);
#pragma unroll
    for (int j = 0; j < Each; ++j) a.read(column + 4 * j, first + k, others[j]);
#pragma unroll
    for (int i = 0; i < high; ++i)
#pragma unroll
      for (int j = 0; j < Each; ++j)
#pragma unroll
        for (int n = 0; n < few; ++n)
          rest[i][j] = minus_product(rest[i][j], mine[i][n], conj(others[j][n]));
  }
#pragma unroll
  for (int i = 0; i < high; ++i)
#pragma unroll
    for (int j = 0; j < Each; ++j) a.at[row + 8 * i][column + 4 * j] = rest[i][j];
}

// The same, by warp `number` of `count`, for all blocks of the triangle from block `from` on, or, with
// Column, for those of its first column.
template <bool Column, int Size, class T>
__device__ inline void take_blocks(Square<T, Size>& a, int first, int from, int number, int count) {
  constexpr int block = Square<T, Size>::Block, each = 4, parts = block / (4 * each);
  int row = from, column = from, skip = number / parts, part = number % parts;
  for (;;) {
    for (; skip > 0 && row < a.Blocks; --skip)
      column = !Column && column < row ? column + 1 : (++row, from);
    if (row >= a.Blocks) return;
    take_tile<each>(a, first, row * block, column * block + part * 4 * each);
    part += count;
    skip = part / parts;
    part %= parts;
  }
}

// Replace the lower triangle of a Hermitian matrix by its factor L, of L L^H. Returns, to all threads
// of the block, the number of the first leading minor that is not positive definite, or 0.
//
// Some warps factor a block of the diagonal, each with a block of rows below, while the others take
// what the last one made out of all but the next column of blocks. So what follows each other is
// these factors, and what each of them makes of that column.
template <int Size, int Threads, class T>
__device__ inline int factor_block(Square<T, Size>& a) {
  typedef Square<T, Size> Matrix;
  constexpr int block = Matrix::Block, warps = Threads / 32;
  __shared__ Told<T> told[Matrix::Blocks][2][block];
  __shared__ int wrong;
  const int warp = shuffle_from((int)threadIdx.x / 32, 0);  // the same for all, as the compiler sees
  a.template pad<Threads>();
  for (int at = 0; at < a.Blocks; ++at) {
    const int first = at * block, working = a.Blocks - at;
    __syncthreads();
    if (warp == 0) {
      const int bad = factor_corner<false>(a, first, 0, told[0]);
      if (threadIdx.x == 0) wrong = bad;
    } else if (warp < working) {
      factor_corner<true>(a, first, first + warp * block, told[warp]);
    } else if (at > 0) {
      take_blocks<false>(a, first - block, at + 1, warp - working, warps - working);
    }
    __syncthreads();
    if (wrong) return wrong;
    if (at + 1 < a.Blocks) take_blocks<true>(a, first, at + 1, warp, warps);
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
