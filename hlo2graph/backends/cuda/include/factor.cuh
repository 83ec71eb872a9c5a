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

// One over a pivot, as the product of two, with no branch where there is an instruction for it: its last
// bit is lost in what it multiplies. The instruction for doubles has neither their largest nor their
// smallest, so that `scale`, a power of two, brings these nearer to 1.
template <class Real> struct Share {
  Real share, scale;
};
__device__ inline Share<f32> share_of(f32 pivot) {
#ifdef __CUDA_ARCH__
  f32 found;
  asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(pivot));
  return {found, 1};
#else
  return {1 / pivot, 1};
#endif
}
__device__ inline Share<f64> share_of(f64 pivot) {
  const f64 scale = pivot > 0x1p900 ? 0x1p-512 : pivot < 0x1p-900 ? 0x1p512 : 1.0, near = pivot * scale;
#ifdef __CUDA_ARCH__
  f64 found;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(found) : "d"(near));
  found = ::fma(::fma(-near, found, 1.0), found, found);
  return {::fma(::fma(-near, found, 1.0), found, found), scale};
#else
  return {1 / near, scale};
#endif
}
template <class T, class Real> __device__ inline T scaled(T x, Share<Real> by) {
  return scaled(scaled(x, by.scale), by.share);
}

template <class T> struct alignas(16) Told {
  T x[4];
};

// Factor a block of the diagonal, a row a lane of one warp, and divide as many rows from `below` on by
// the factor's adjoint, in the same steps. Returns the number of the first column without a factor,
// or 0. `told` is the warp's own, for what its lanes tell each other.
//
// Columns are taken by fours. Each lane factors their corner, and takes its rows' part of them out of
// the rest of its rows: of the others' it needs these four numbers, which are read together.
template <bool Below, int Size, class T>
__device__ inline int factor_corner(
    Square<T, Size>& a, int first, int below, Told<T>* told) {
  typedef decltype(real(T{})) Real;
  typedef Square<T, Size> Matrix;
  constexpr int block = Matrix::Block, few = 4;
  const int lane = threadIdx.x % block;
  int bad = 0;
  Real own = 1;
  T x[block], y[block];
  a.read(first + lane, first, x);
  if (Below) a.read(below + lane, first, y);
#pragma unroll
  for (int g = 0; g < block; g += few) {
    T corner[few][few], share_x[few], share_y[few];
#pragma unroll
    for (int r = 0; r < few; ++r)
#pragma unroll
      for (int c = 0; c <= r; ++c) corner[r][c] = shuffle_from(x[g + c], g + r);
#pragma unroll
    for (int k = 0; k < few; ++k) {
      const Real pivot = real(corner[k][k]);
      const Share<Real> share = share_of(pivot);
      const bool fails = !(pivot > 0) | !is_finite(pivot);
      bad = fails & (bad == 0) ? first + g + k + 1 : bad;
      own = lane == g + k ? pivot : own;
      share_x[k] = scaled(x[g + k], share);
      if (Below) share_y[k] = scaled(y[g + k], share);
#pragma unroll
      for (int c = k + 1; c < few; ++c) {
        const T other = conj(corner[c][k]);
        x[g + c] = minus_product(x[g + c], share_x[k], other);
        if (Below) y[g + c] = minus_product(y[g + c], share_y[k], other);
#pragma unroll
        for (int r = c; r < few; ++r)
          corner[r][c] = minus_product(corner[r][c], scaled(corner[r][k], share), other);
      }
    }
    if (g + few == block) break;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < few; ++k) told[lane].x[k] = conj(x[g + k]);
    __syncwarp();
#pragma unroll
    for (int j = g + few; j < block; ++j) {
      const Told<T> others = told[j];
#pragma unroll
      for (int k = 0; k < few; ++k) {
        x[j] = minus_product(x[j], share_x[k], others.x[k]);
        if (Below) y[j] = minus_product(y[j], share_y[k], others.x[k]);
      }
    }
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
  __shared__ Told<T> told[Matrix::Blocks][block];
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
// a unit matrix, and zeros. Right-hand sides lie as the triangle's rows do, so that what is multiplied
// is read alike from both.
template <class T, int Size, int Across> struct System {
  static constexpr int Block = sizeof(T) > 8 ? 16 : 32, Blocks = (Size + Block - 1) / Block;
  static constexpr int Whole = Blocks * Block, AtOnce = 16 / sizeof(T);
  struct alignas(16) Few {
    T x[AtOnce];
  };
  T at[Whole][Whole + AtOnce], x[Across][Whole + AtOnce], shares[Whole];

  template <int Threads> __device__ void pad() {
    for (int k = threadIdx.x; k < (Whole - Size) * Whole; k += Threads) {
      const int row = Size + k / Whole, column = k % Whole;
      at[row][column] = convert<T>(row == column ? 1.0f : 0.0f);
    }
    for (int k = threadIdx.x; k < (Whole - Size) * Across; k += Threads)
      x[k % Across][Size + k / Across] = T{};
  }

  template <int Count> __device__ static void read(const T* from, T (&some)[Count]) {
#pragma unroll
    for (int k = 0; k < Count; k += AtOnce) {
      const Few few = *(const Few*)(from + k);
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) some[k + j] = few.x[j];
    }
  }

  // Solve for the rows of a block of the diagonal, by a warp, a right-hand side a lane. Rows are taken
  // by fours, and out of the block's rows below at once: of each of these four numbers are read.
  template <bool Unit> __device__ void solve_corner(int first) {
    constexpr int few = 4;
    const int side = threadIdx.x % 32 % Across;
    T known[Block];
    read(x[side] + first, known);
#pragma unroll
    for (int g = 0; g < Block; g += few) {
#pragma unroll
      for (int r = 0; r < few; ++r) {
        T row[few];
        read(at[first + g + r] + first + g, row);
#pragma unroll
        for (int k = 0; k < r; ++k) known[g + r] = minus_product(known[g + r], row[k], known[g + k]);
        if (!Unit) known[g + r] = multiply(known[g + r], shares[first + g + r]);
      }
#pragma unroll
      for (int j = g + few; j < Block; ++j) {
        T row[few];
        read(at[first + j] + first + g, row);
#pragma unroll
        for (int k = 0; k < few; ++k) known[j] = minus_product(known[j], row[k], known[g + k]);
      }
    }
    if (threadIdx.x % 32 >= Across) return;
#pragma unroll
    for (int k = 0; k < Block; k += AtOnce) {
      Few held;
#pragma unroll
      for (int j = 0; j < AtOnce; ++j) held.x[j] = known[k + j];
      *(Few*)(x[side] + first + k) = held;
    }
  }

  // Take a block of rows that is known out of some rows below, by warp `number` of `count`: each lane has
  // every eighth row of a few, and every fourth right-hand side.
  __device__ void take(int known, int from, int to, int number, int count) {
    constexpr int high = Across > 16 ? 2 : 1, each = Across / 4;
    for (int top = from + number * 8 * high; top < to; top += count * 8 * high) {
      const int row = top + threadIdx.x % 32 / 4, side = threadIdx.x % 4;
      T rest[high][each];
#pragma unroll
      for (int i = 0; i < high; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j) rest[i][j] = x[side + 4 * j][row + 8 * i];
#pragma unroll 1
      for (int k = 0; k < Block; k += AtOnce) {
        T mine[high][AtOnce], others[each][AtOnce];
#pragma unroll
        for (int i = 0; i < high; ++i) read(at[row + 8 * i] + known + k, mine[i]);
#pragma unroll
        for (int j = 0; j < each; ++j) read(x[side + 4 * j] + known + k, others[j]);
#pragma unroll
        for (int i = 0; i < high; ++i)
#pragma unroll
          for (int j = 0; j < each; ++j)
#pragma unroll
            for (int n = 0; n < AtOnce; ++n)
              rest[i][j] = minus_product(rest[i][j], mine[i][n], others[j][n]);
      }
#pragma unroll
      for (int i = 0; i < high; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j) x[side + 4 * j][row + 8 * i] = rest[i][j];
    }
  }

  // Solve for x in its place: a warp solves for a block of rows while the others take the last one out
  // of all rows but the next block's.
  template <int Threads, bool Unit> __device__ void solve() {
    constexpr int warps = Threads / 32;
    const int warp = shuffle_from((int)threadIdx.x / 32, 0);  // the same for all, as the compiler sees
    for (int k = threadIdx.x; k < Whole && !Unit; k += Threads)
      shares[k] = divide(convert<T>(1.0f), at[k][k]);
    for (int step = 0; step < 2 * Blocks - 1; ++step) {
      const int first = step / 2 * Block, next = first + Block, turn = step % 2;
      __syncthreads();
      if (turn == 0 && warp == 0) {
        solve_corner<Unit>(first);
      } else {  // of the block before, all rows but this one's and the next's; of this one, the next's
        const int known = turn ? first : first - Block, end = turn ? next + Block : Whole;
        take(known, next, known < 0 ? 0 : end, warp + turn - 1, warps + turn - 1);
      }
    }
    __syncthreads();
  }
};

}  // namespace hlo
